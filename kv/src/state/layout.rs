//! The bytes of a container's own parts.
//!
//! Each part is a struct of byte arrays, so that its layout is the struct and casting it cannot fail; numbers are little-endian. `decode`
//! gives the values if the part's own check holds; what the values mean for the file is looked at in `container.rs`.

use super::checksum::checksum;
use super::{Error, Fingerprint, Header, Scope, Tag, VERSION};
use bytemuck::{Pod, Zeroable};

/// Bytes of the header.
pub const HEADER_BYTES: u64 = 512;
/// Bytes of one commit slot.
pub const SLOT_BYTES: u64 = 512;
/// Commit slots.
pub const N_SLOTS: u64 = 2;
/// Where sections begin.
pub const DATA_OFFSET: u64 = HEADER_BYTES + N_SLOTS * SLOT_BYTES;
/// Sections, directories and footers begin at multiples of this.
pub const ALIGN: u64 = 64;
/// Bytes of a record of the directory.
pub const RECORD_BYTES: u64 = 48;
/// Bytes of the footer.
pub const FOOTER_BYTES: u64 = 64;

/// First bytes of every container.
pub const MAGIC: [u8; 8] = *b"BSTSTATE";
/// First bytes of every footer.
pub const FOOTER_MAGIC: [u8; 8] = *b"BSTSTEND";
/// Flag of the header: written as a stream, so the slots are empty and the footer ends the file.
pub const FLAG_STREAM: u32 = 1;
/// Flag of a record: readers that do not know the section cannot use the file.
pub const FLAG_REQUIRED: u8 = 1;

/// The first multiple of [`ALIGN`] that is not below `offset`.
pub fn align(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(ALIGN)
}

/// The header.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct HeaderBytes {
    magic: [u8; 8],
    version: [u8; 4],
    flags: [u8; 4],
    scope: [u8; 4],
    zero: [u8; 12],
    fingerprint: [u8; 32],
    reserved: [u8; 440],
    check: [u8; 8],
}

impl HeaderBytes {
    pub fn new(header: &Header, stream: bool) -> Self {
        let scope: u32 = match header.scope {
            Scope::Context => 1,
            Scope::Sequence => 2,
        };
        let mut bytes = Self {
            magic: MAGIC,
            version: VERSION.to_le_bytes(),
            flags: if stream { FLAG_STREAM } else { 0 }.to_le_bytes(),
            scope: scope.to_le_bytes(),
            fingerprint: header.fingerprint.0,
            ..Self::zeroed()
        };
        bytes.check = bytes.computed().to_le_bytes();
        bytes
    }

    fn computed(&self) -> u64 {
        checksum(&all_but_check::<512, 504>(bytemuck::must_cast_ref(self)))
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        u32::from_le_bytes(self.version)
    }

    /// What the header says, and whether the container is a stream.
    ///
    /// # Errors
    /// [`Error::Magic`], [`Error::Checksum`], [`Error::Version`], [`Error::Malformed`].
    pub fn decode(&self) -> Result<(Header, bool), Error> {
        if self.magic != MAGIC {
            return Err(Error::Magic { found: self.magic });
        }
        verify(Tag::HEADER, 0, u64::from_le_bytes(self.check), self.computed())?;
        let version = self.version();
        if version > VERSION {
            return Err(Error::Version { found: version, newest: VERSION });
        }
        let flags = u32::from_le_bytes(self.flags);
        let malformed = |offset, what, found, wanted| Error::Malformed {
            section: Tag::HEADER,
            offset,
            what,
            found: u64::from(found),
            wanted,
        };
        if version == 0 {
            return Err(malformed(8, "format version", version, 1));
        }
        if flags & !FLAG_STREAM != 0 {
            return Err(malformed(12, "flags", flags, u64::from(flags & FLAG_STREAM)));
        }
        let scope = match u32::from_le_bytes(self.scope) {
            1 => Scope::Context,
            2 => Scope::Sequence,
            other => return Err(malformed(16, "scope", other, 1)),
        };
        Ok((Header { fingerprint: Fingerprint(self.fingerprint), scope }, flags & FLAG_STREAM != 0))
    }
}

/// One of the two copies of a commit in a slot.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct CommitBytes {
    generation: [u8; 8],
    committed: [u8; 8],
    footer_checksum: [u8; 8],
    reserved: [u8; 32],
    check: [u8; 8],
}

/// A commit slot: the same commit twice, in halves that a damaged byte cannot both reach.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct SlotBytes {
    first: CommitBytes,
    zero: [u8; 192],
    second: CommitBytes,
    zero_too: [u8; 192],
}

/// What a slot says: which bytes of the file count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Counts the saves of this file, from 1.
    pub generation: u64,
    /// Bytes of the file that count.
    pub committed: u64,
    /// Checksum of the footer, which is the last of them.
    pub footer_checksum: u64,
}

impl Commit {
    /// Where the slot of this commit lies.
    pub fn slot_offset(&self) -> u64 {
        HEADER_BYTES + self.slot() * SLOT_BYTES
    }

    /// Which slot this commit goes to, so that it never overwrites the one before it.
    fn slot(&self) -> u64 {
        self.generation.wrapping_sub(1) % N_SLOTS
    }
}

impl CommitBytes {
    fn new(commit: &Commit) -> Self {
        let mut bytes = Self {
            generation: commit.generation.to_le_bytes(),
            committed: commit.committed.to_le_bytes(),
            footer_checksum: commit.footer_checksum.to_le_bytes(),
            ..Self::zeroed()
        };
        bytes.check = bytes.computed().to_le_bytes();
        bytes
    }

    fn computed(&self) -> u64 {
        checksum(&all_but_check::<64, 56>(bytemuck::must_cast_ref(self)))
    }

    fn decode(&self) -> Option<Commit> {
        let commit = Commit {
            generation: u64::from_le_bytes(self.generation),
            committed: u64::from_le_bytes(self.committed),
            footer_checksum: u64::from_le_bytes(self.footer_checksum),
        };
        (u64::from_le_bytes(self.check) == self.computed() && commit.generation > 0).then_some(commit)
    }
}

impl SlotBytes {
    pub fn new(commit: &Commit) -> Self {
        let copy = CommitBytes::new(commit);
        Self { first: copy, second: copy, ..Self::zeroed() }
    }

    /// The newest of the copies that are whole and in the slot where they belong.
    pub fn decode(&self, slot: u64) -> Option<Commit> {
        let copies = [self.first.decode(), self.second.decode()];
        copies
            .into_iter()
            .flatten()
            .filter(|commit| commit.slot() == slot)
            .max_by_key(|commit| commit.generation)
    }
}

/// A record of the directory: one section.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RecordBytes {
    pub tag: [u8; 4],
    pub version: [u8; 2],
    pub codec: u8,
    pub flags: u8,
    pub index: [u8; 8],
    pub offset: [u8; 8],
    pub stored_len: [u8; 8],
    pub raw_len: [u8; 8],
    pub checksum: [u8; 8],
}

/// The footer, the last of the bytes that count.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct FooterBytes {
    magic: [u8; 8],
    generation: [u8; 8],
    total: [u8; 8],
    directory_offset: [u8; 8],
    directory_len: [u8; 8],
    directory_checksum: [u8; 8],
    whole_checksum: [u8; 8],
    check: [u8; 8],
}

/// What a footer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Generation of the commit that it belongs to.
    pub generation: u64,
    /// Bytes of the file up to the end of the footer.
    pub total: u64,
    /// Where the directory begins.
    pub directory_offset: u64,
    /// Bytes of the directory.
    pub directory_len: u64,
    /// Checksum of the directory.
    pub directory_checksum: u64,
    /// Checksum of the header and the directory, which holds the checksums of all sections.
    pub whole_checksum: u64,
}

impl FooterBytes {
    pub fn new(footer: &Footer) -> Self {
        let mut bytes = Self {
            magic: FOOTER_MAGIC,
            generation: footer.generation.to_le_bytes(),
            total: footer.total.to_le_bytes(),
            directory_offset: footer.directory_offset.to_le_bytes(),
            directory_len: footer.directory_len.to_le_bytes(),
            directory_checksum: footer.directory_checksum.to_le_bytes(),
            whole_checksum: footer.whole_checksum.to_le_bytes(),
            check: [0; 8],
        };
        bytes.check = bytes.computed().to_le_bytes();
        bytes
    }

    fn computed(&self) -> u64 {
        checksum(&all_but_check::<64, 56>(bytemuck::must_cast_ref(self)))
    }

    /// The checksum that a slot keeps of this footer.
    pub fn checksum(&self) -> u64 {
        checksum(bytemuck::bytes_of(self))
    }

    /// Whether this looks like a footer at all.
    pub fn is_footer(&self) -> bool {
        self.magic == FOOTER_MAGIC
    }

    /// What the footer says, if it lies at `offset` unharmed.
    ///
    /// # Errors
    /// [`Error::Checksum`].
    pub fn decode(&self, offset: u64) -> Result<Footer, Error> {
        verify(Tag::FOOTER, offset, u64::from_le_bytes(self.check), self.computed())?;
        Ok(Footer {
            generation: u64::from_le_bytes(self.generation),
            total: u64::from_le_bytes(self.total),
            directory_offset: u64::from_le_bytes(self.directory_offset),
            directory_len: u64::from_le_bytes(self.directory_len),
            directory_checksum: u64::from_le_bytes(self.directory_checksum),
            whole_checksum: u64::from_le_bytes(self.whole_checksum),
        })
    }
}

/// The first `M` of `N` bytes.
fn all_but_check<const N: usize, const M: usize>(bytes: &[u8; N]) -> [u8; M] {
    const { assert!(M + 8 == N, "a check is 8 bytes") };
    let mut front = [0; M];
    front.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    front
}

/// Compares a checksum that was written with one of what is there.
pub fn verify(section: Tag, offset: u64, stored: u64, computed: u64) -> Result<(), Error> {
    if stored == computed { Ok(()) } else { Err(Error::Checksum { section, offset, stored, computed }) }
}

const _: () = {
    assert!(size_of::<HeaderBytes>() as u64 == HEADER_BYTES, "header");
    assert!(size_of::<SlotBytes>() as u64 == SLOT_BYTES, "slot");
    assert!(size_of::<RecordBytes>() as u64 == RECORD_BYTES, "record");
    assert!(size_of::<FooterBytes>() as u64 == FOOTER_BYTES, "footer");
};

#[cfg(test)]
mod tests;
