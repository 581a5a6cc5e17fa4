//! Containers that say something else and whose checksums are right all the same.

use crate::state::checksum::{checksum, of_pieces};
use crate::state::layout::{Commit, FooterBytes, SlotBytes};
use std::vec::Vec;

/// A container of one save with another header and generation.
pub fn forged(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8]), generation: u64) -> Vec<u8> {
    let end = bytes.len() - 64;
    let footer: FooterBytes = bytemuck::pod_read_unaligned(&bytes[end..]);
    let mut footer = footer.decode(end as u64).unwrap();
    change(&mut bytes[..504]);
    let check = checksum(&bytes[..504]);
    bytes[504..512].copy_from_slice(&check.to_le_bytes());
    let directory = &bytes[footer.directory_offset as usize..][..footer.directory_len as usize];
    footer.whole_checksum = of_pieces(&[&bytes[..512], directory]);
    footer.generation = generation;
    let footer = FooterBytes::new(&footer);
    bytes[end..].copy_from_slice(bytemuck::bytes_of(&footer));
    let commit = Commit { generation, committed: bytes.len() as u64, footer_checksum: footer.checksum() };
    bytes[512..1536].fill(0);
    let slot = SlotBytes::new(&commit);
    bytes[commit.slot_offset() as usize..][..512].copy_from_slice(bytemuck::bytes_of(&slot));
    bytes
}
