//! Containers that say something else and whose checksums are right all the same.

use super::super::checksum::{checksum, of_pieces};
use super::super::layout::{Commit, Footer, Slot, check_of, verify};
use crate::storage::header::Tag;
use std::vec::Vec;

/// Return a container of one save with another header and generation.
pub fn forged(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8]), generation: u64) -> Vec<u8> {
    let end = bytes.len() - 64;
    let mut footer: Footer = bytemuck::pod_read_unaligned(&bytes[end..]);
    verify(Tag::FOOTER, end as u64, footer.check, check_of(&footer)).unwrap();
    change(&mut bytes[..504]);
    let check = checksum(&bytes[..504]);
    bytes[504..512].copy_from_slice(&check.to_le_bytes());
    let directory = &bytes[footer.directory_offset as usize..][..footer.directory_len as usize];
    footer.whole_checksum = of_pieces(&[&bytes[..512], directory]);
    footer.generation = generation;
    let footer = footer.sealed();
    bytes[end..].copy_from_slice(bytemuck::bytes_of(&footer));
    let commit = Commit::new(generation, bytes.len() as u64, footer.checksum());
    bytes[512..1536].fill(0);
    let slot = Slot::new(&commit);
    bytes[commit.slot_offset() as usize..][..512].copy_from_slice(bytemuck::bytes_of(&slot));
    bytes
}
