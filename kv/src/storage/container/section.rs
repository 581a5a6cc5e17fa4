//! Sections as the directory names them.

use super::layout::{ALIGN, DATA_OFFSET};
use super::limits::expect_at_most;
use crate::storage::error::{Error, expect_equal};
use crate::storage::header::Tag;
use alloc::vec::Vec;
use bytemuck::{Pod, Zeroable};

/// Bytes of a record of the directory: a [`Section`] as it lies in memory.
pub const RECORD_BYTES: u64 = size_of::<Section>() as u64;

/// Flag of a record: readers that do not know the section cannot use the file.
pub const FLAG_REQUIRED: u8 = 1;

/// The encoding of a section's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct Codec(pub u8);

impl Codec {
    /// As they are.
    pub const RAW: Self = Self(0);
    /// A zstd frame.
    pub const ZSTD: Self = Self(1);
    /// A zstd frame of all even bytes, then all odd bytes: high and low halves of 16-bit numbers
    /// apart.
    pub const SHUFFLED_ZSTD: Self = Self(2);
}

/// Compressed sections are at least this part of their content, so that a short file cannot ask for
/// much memory.
pub const MAX_RATIO: u64 = 64;

/// Compressed sections have at most so many bytes of content, because all of it is in memory at
/// once.
pub const MAX_COMPRESSED: u64 = 32 << 20;

/// One section of a container: its place, and what must be true of its bytes.
///
/// The writer makes sections, and a container's directory is a list of them, byte for byte. Those
/// of an open [`Container`](super::Container) lie inside its file and overlap no others; their
/// bytes are checked when they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Section {
    /// The kind of section.
    pub tag: Tag,
    /// The version of that kind's content.
    pub version: u16,
    /// The encoding of the bytes.
    pub codec: Codec,
    pub(super) flags: u8,
    /// Number of the section among those of its kind; unique together with the tag.
    pub index: u64,
    /// The offset of the section in the file, a multiple of 64.
    pub offset: u64,
    /// Bytes in the file.
    pub stored_len: u64,
    /// Bytes of the content.
    pub raw_len: u64,
    /// XXH3-64 of the content.
    pub checksum: u64,
}

impl Section {
    /// Return a section without place and content. If it is `required`, readers that do not know
    /// the tag or the version must refuse the file.
    pub(in crate::storage) fn named(tag: Tag, version: u16, required: bool, index: u64) -> Self {
        let flags = if required { FLAG_REQUIRED } else { 0 };
        Self { tag, version, flags, index, ..Self::zeroed() }
    }

    /// Return true if readers that do not know the tag must refuse the file.
    pub fn is_required(&self) -> bool {
        self.flags & FLAG_REQUIRED != 0
    }

    /// Return the offset behind the stored bytes.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.stored_len)
    }

    /// Check that the content has `wanted` bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it has not.
    pub fn expect_len(&self, wanted: u64) -> Result<(), Error> {
        expect_equal(self.tag, self.offset, "length", self.raw_len, wanted)
    }

    /// Return the tag and the index, which identify a section.
    pub(super) fn key(&self) -> (Tag, u64) {
        (self.tag, self.index)
    }

    /// Return this section with place and content of another one.
    pub(super) fn at(&self, place: &Self) -> Self {
        let Self { tag, version, flags, index, .. } = *self;
        Self { tag, version, flags, index, ..*place }
    }

    /// Check what can be known without reading the section, `end` being where sections end.
    fn check(&self, end: u64) -> Result<(), Error> {
        let Self { tag: section, offset, stored_len: len, .. } = *self;
        if offset < DATA_OFFSET
            || offset % ALIGN != 0
            || offset.checked_add(len).is_none_or(|last| last > end)
        {
            return Err(Error::Misplaced { section, offset, len, end });
        }
        if self.codec == Codec::RAW {
            return expect_equal(section, offset, "length", len, self.raw_len);
        }
        if len == 0 {
            expect_equal(section, offset, "content length", self.raw_len, 0)?;
        }
        let limit = len.saturating_mul(MAX_RATIO).min(MAX_COMPRESSED);
        expect_at_most("bytes of a compressed section", self.raw_len, limit)
    }
}

/// Check all sections of a directory against each other and against `end`, where sections end, and
/// that they stand in the order of their tags and indices, none twice. Return the bytes that they
/// take, padding included.
pub(super) fn check_all(sections: &[Section], end: u64) -> Result<u64, Error> {
    sections.iter().try_for_each(|section| section.check(end))?;
    for (before, after) in sections.iter().zip(sections.iter().skip(1)) {
        if before.key() >= after.key() {
            let (section, offset, found) = (after.tag, after.offset, after.index);
            let (what, wanted) = ("index of a record out of order", before.index.saturating_add(1));
            return Err(Error::Malformed { section, offset, what, found, wanted });
        }
    }
    let mut used = 0_u64;
    let mut before: Option<&Section> = None;
    for section in by_offset(sections)? {
        match before {
            Some(before) if *section == section.at(before) => {}
            Some(before) if section.offset < before.end() => {
                let (section, other, offset) = (section.tag, before.tag, section.offset);
                return Err(Error::Overlap { section, other, offset });
            }
            _ => used = used.saturating_add(section.stored_len.next_multiple_of(ALIGN)),
        }
        before = Some(section);
    }
    Ok(used)
}

/// Return the sections that have bytes, in the order in which they lie in the file.
pub(super) fn by_offset(sections: &[Section]) -> Result<Vec<&Section>, Error> {
    let bytes = size_of_val(sections) as u64;
    let mut order: Vec<&Section> = Vec::new();
    order.try_reserve_exact(sections.len()).map_err(|_| Error::OutOfMemory { bytes })?;
    order.extend(sections.iter().filter(|section| section.stored_len > 0));
    order.sort_unstable_by_key(|section| (section.offset, section.stored_len));
    Ok(order)
}

/// Return the bytes of all `pieces` together.
pub(in crate::storage) fn len_of<P: AsRef<[u8]>>(pieces: &[P]) -> u64 {
    pieces.iter().map(|piece| piece.as_ref().len() as u64).fold(0, u64::saturating_add)
}
