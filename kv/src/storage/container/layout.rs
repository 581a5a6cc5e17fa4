//! The bytes of a container's own parts.
//!
//! Each part is a struct without padding whose bytes are those of the file, so that its layout is
//! the struct and reading it is a copy. Parts with a `check` end with it: the checksum of all bytes
//! before. This module looks at single parts; whether they agree with each other and with the file
//! is the business of `reader.rs`.

use super::checksum::checksum;
use crate::storage::error::{Error, expect_equal};
use crate::storage::header::{Fingerprint, Header, Scope, Tag, VERSION};
use bytemuck::{Pod, Zeroable};

/// Bytes of the header.
pub const HEADER_BYTES: u64 = size_of::<HeaderBytes>() as u64;
/// Bytes of one commit slot.
pub const SLOT_BYTES: u64 = size_of::<Slot>() as u64;
/// Commit slots.
pub const N_SLOTS: u64 = 2;
/// The offset of the first section.
pub const DATA_OFFSET: u64 = HEADER_BYTES + N_SLOTS * SLOT_BYTES;
/// Sections, directories and footers begin at multiples of this.
pub const ALIGN: u64 = 64;
/// Bytes of the footer.
pub const FOOTER_BYTES: u64 = size_of::<Footer>() as u64;

/// First bytes of every container.
pub const MAGIC: [u8; 8] = *b"BSTSTATE";
/// First bytes of every footer.
pub const FOOTER_MAGIC: [u8; 8] = *b"BSTSTEND";
/// Flag of the header: written as a stream, so the slots are empty and the footer ends the file.
pub const FLAG_STREAM: u32 = 1;

/// Return the first multiple of [`ALIGN`] that is not below `offset`.
pub fn align(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(ALIGN)
}

/// Return the checksum of all bytes of `part` but the last 8, which hold it.
pub fn check_of<T: Pod>(part: &T) -> u64 {
    const { assert!(size_of::<T>() > 8, "a check is 8 bytes") };
    let (content, _) = bytemuck::bytes_of(part).split_at(size_of::<T>() - 8);
    checksum(content)
}

/// Compare a checksum that was written with one of what is there.
pub fn verify(section: Tag, offset: u64, stored: u64, computed: u64) -> Result<(), Error> {
    if stored == computed { Ok(()) } else { Err(Error::Checksum { section, offset, stored, computed }) }
}

/// The header.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct HeaderBytes {
    magic: [u8; 8],
    version: u32,
    flags: u32,
    scope: u32,
    zero: [u8; 12],
    fingerprint: [u8; 32],
    reserved: [u8; 440],
    check: u64,
}

impl HeaderBytes {
    pub fn new(header: &Header, stream: bool) -> Self {
        let mut bytes = Self {
            magic: MAGIC,
            version: VERSION,
            flags: if stream { FLAG_STREAM } else { 0 },
            scope: header.scope as u32,
            fingerprint: header.fingerprint.0,
            ..Self::zeroed()
        };
        bytes.check = check_of(&bytes);
        bytes
    }

    /// Return the content of the header, and true if the container is a stream.
    ///
    /// # Errors
    /// [`Error::Magic`], [`Error::Checksum`], [`Error::Version`], [`Error::Malformed`] for flags
    /// and scopes that no program of this version writes.
    pub fn decode(&self) -> Result<(Header, bool), Error> {
        if self.magic != MAGIC {
            return Err(Error::Magic { found: self.magic });
        }
        verify(Tag::HEADER, 0, self.check, check_of(self))?;
        if self.version != VERSION {
            return Err(Error::Version { found: self.version, wanted: VERSION });
        }
        let flags = self.flags;
        expect_equal(Tag::HEADER, 12, "flags", flags.into(), (flags & FLAG_STREAM).into())?;
        let scopes = [Scope::Context, Scope::Sequence, Scope::Entry];
        let (section, found) = (Tag::HEADER, self.scope.into());
        let malformed = Error::Malformed { section, offset: 16, what: "scope", found, wanted: 1 };
        let scope = scopes.into_iter().find(|scope| *scope as u32 == self.scope).ok_or(malformed)?;
        Ok((Header { fingerprint: Fingerprint(self.fingerprint), scope }, flags == FLAG_STREAM))
    }
}

/// A commit: which bytes of the file count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Commit {
    /// Counts the saves of this file, from 1.
    pub generation: u64,
    /// Bytes of the file that count.
    pub committed: u64,
    /// Checksum of the footer, which is the last of them.
    pub footer_checksum: u64,
    reserved: [u8; 32],
    check: u64,
}

impl Commit {
    pub fn new(generation: u64, committed: u64, footer_checksum: u64) -> Self {
        let mut commit = Self { generation, committed, footer_checksum, ..Self::zeroed() };
        commit.check = check_of(&commit);
        commit
    }

    /// Return the offset of the slot of this commit.
    pub fn slot_offset(&self) -> u64 {
        HEADER_BYTES + self.slot() * SLOT_BYTES
    }

    /// Return which slot this commit goes to, so that it never overwrites the one before it.
    fn slot(&self) -> u64 {
        self.generation.wrapping_sub(1) % N_SLOTS
    }
}

/// A commit slot: the same commit twice, in halves that a damaged byte cannot both reach.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Slot {
    first: Commit,
    zero: [u8; 192],
    second: Commit,
    zero_too: [u8; 192],
}

impl Slot {
    pub fn new(commit: &Commit) -> Self {
        Self { first: *commit, second: *commit, ..Self::zeroed() }
    }

    /// Return the newest of the copies that are whole and in the slot where they belong.
    pub fn decode(&self, slot: u64) -> Option<Commit> {
        let copies = [self.first, self.second].into_iter();
        let whole = copies.filter(|copy| copy.check == check_of(copy) && copy.generation > 0);
        whole.filter(|copy| copy.slot() == slot).max_by_key(|copy| copy.generation)
    }
}

/// The footer, the last of the bytes that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Footer {
    pub(super) magic: [u8; 8],
    /// Generation of the commit that it belongs to.
    pub generation: u64,
    /// Bytes of the file up to the end of the footer.
    pub total: u64,
    /// The offset of the directory.
    pub directory_offset: u64,
    /// Bytes of the directory.
    pub directory_len: u64,
    /// Checksum of the directory.
    pub directory_checksum: u64,
    /// Checksum of the header and the directory, which holds the checksums of all sections.
    pub whole_checksum: u64,
    pub(super) check: u64,
}

impl Footer {
    /// Give the magic and the check to a footer that has everything else.
    pub fn sealed(mut self) -> Self {
        self.magic = FOOTER_MAGIC;
        self.check = check_of(&self);
        self
    }

    /// Return the checksum that a slot keeps of this footer.
    pub fn checksum(&self) -> u64 {
        checksum(bytemuck::bytes_of(self))
    }
}

/// Return the bytes between header and directory that none of the sections has, which take `used`.
pub fn waste(footer: &Footer, used: u64) -> u64 {
    footer.directory_offset.saturating_sub(DATA_OFFSET).saturating_sub(used)
}

#[cfg(test)]
mod tests;
