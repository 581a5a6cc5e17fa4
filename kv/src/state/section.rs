//! Sections as the directory names them.

use super::layout::{ALIGN, DATA_OFFSET, FLAG_REQUIRED, RecordBytes};
use super::{Error, Tag};
use alloc::vec::Vec;

/// How the bytes of a section are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Codec(pub u8);

impl Codec {
    /// As they are.
    pub const RAW: Self = Self(0);
    /// A zstd frame.
    pub const ZSTD: Self = Self(1);
    /// A zstd frame of all even bytes, then all odd bytes: high and low halves of 16-bit numbers apart.
    pub const SHUFFLED_ZSTD: Self = Self(2);
}

/// Compressed sections are at least this part of their content, so that a short file cannot ask for much memory.
pub(super) const MAX_RATIO: u64 = 64;

/// Compressed sections have at most so many bytes of content, because all of it is in memory at once.
pub(super) const MAX_COMPRESSED: u64 = 32 << 20;

/// One section of a container: where it lies and what must be true of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Section {
    /// What kind of section.
    pub tag: Tag,
    /// The version of that kind's content.
    pub version: u16,
    /// Whether readers who do not know the tag must refuse the file.
    pub required: bool,
    /// Which of its kind; unique together with the tag.
    pub index: u64,
    /// Where it begins in the file, a multiple of 64.
    pub offset: u64,
    /// Bytes in the file.
    pub stored_len: u64,
    /// Bytes of the content.
    pub raw_len: u64,
    /// How they are stored.
    pub codec: Codec,
    /// XXH3-64 of the content.
    pub checksum: u64,
}

impl Section {
    pub(super) fn encode(&self) -> RecordBytes {
        RecordBytes {
            tag: self.tag.0,
            version: self.version.to_le_bytes(),
            codec: self.codec.0,
            flags: if self.required { FLAG_REQUIRED } else { 0 },
            index: self.index.to_le_bytes(),
            offset: self.offset.to_le_bytes(),
            stored_len: self.stored_len.to_le_bytes(),
            raw_len: self.raw_len.to_le_bytes(),
            checksum: self.checksum.to_le_bytes(),
        }
    }

    pub(super) fn decode(record: &RecordBytes) -> Self {
        Self {
            tag: Tag(record.tag),
            version: u16::from_le_bytes(record.version),
            required: record.flags & FLAG_REQUIRED != 0,
            index: u64::from_le_bytes(record.index),
            offset: u64::from_le_bytes(record.offset),
            stored_len: u64::from_le_bytes(record.stored_len),
            raw_len: u64::from_le_bytes(record.raw_len),
            codec: Codec(record.codec),
            checksum: u64::from_le_bytes(record.checksum),
        }
    }

    /// Position after the last stored byte.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.stored_len)
    }

    /// What identifies a section.
    pub(super) fn key(&self) -> (Tag, u64) {
        (self.tag, self.index)
    }

    /// Whether two sections are the same bytes of the file, read the same way.
    fn same_bytes(&self, other: &Self) -> bool {
        let bytes = |section: &Self| {
            (section.offset, section.stored_len, section.raw_len, section.codec, section.checksum)
        };
        bytes(self) == bytes(other)
    }

    /// Checks what can be known without reading the section, `end` being where sections end.
    fn check(&self, end: u64) -> Result<(), Error> {
        let Self { tag: section, offset, stored_len: len, .. } = *self;
        if offset < DATA_OFFSET
            || offset % ALIGN != 0
            || offset.checked_add(len).is_none_or(|last| last > end)
        {
            return Err(Error::Misplaced { section, offset, len, end });
        }
        let malformed = |what, found, wanted| Err(Error::Malformed { section, offset, what, found, wanted });
        if self.codec == Codec::RAW && self.raw_len != len {
            return malformed("length", len, self.raw_len);
        }
        if len == 0 && self.raw_len != 0 {
            return malformed("content length", self.raw_len, 0);
        }
        let limit = len.saturating_mul(MAX_RATIO).min(MAX_COMPRESSED);
        if self.codec != Codec::RAW && self.raw_len > limit {
            return Err(Error::TooLarge {
                what: "bytes of a compressed section",
                value: self.raw_len,
                limit,
            });
        }
        Ok(())
    }
}

/// Checks all sections of a directory against each other and against `end`, where sections end. Gives the bytes that sections take, padding
/// included.
pub(super) fn check_all(sections: &[Section], end: u64) -> Result<u64, Error> {
    sections.iter().try_for_each(|section| section.check(end))?;
    check_order(sections)?;
    let mut used = 0_u64;
    let mut before: Option<&Section> = None;
    for section in by_offset(sections)? {
        let fresh = before.is_none_or(|before| !section.same_bytes(before));
        if let Some(before) = before.filter(|before| fresh && section.offset < before.end()) {
            let (section, other, offset) = (section.tag, before.tag, section.offset);
            return Err(Error::Overlap { section, other, offset });
        }
        if fresh {
            used = used.saturating_add(section.stored_len.next_multiple_of(ALIGN));
        }
        before = Some(section);
    }
    Ok(used)
}

/// Records stand in the order of their tags and indices, none twice.
fn check_order(sections: &[Section]) -> Result<(), Error> {
    let wrong =
        sections.iter().zip(sections.iter().skip(1)).find(|(before, after)| before.key() >= after.key());
    match wrong {
        None => Ok(()),
        Some((before, after)) => Err(Error::Malformed {
            section: after.tag,
            offset: after.offset,
            what: "index of a record out of order",
            found: after.index,
            wanted: before.index.saturating_add(1),
        }),
    }
}

/// Sections that have bytes, in the order in which they lie in the file.
pub(super) fn by_offset(sections: &[Section]) -> Result<Vec<&Section>, Error> {
    let bytes = size_of_val(sections) as u64;
    let mut order: Vec<&Section> = Vec::new();
    order.try_reserve_exact(sections.len()).map_err(|_| Error::OutOfMemory { bytes })?;
    order.extend(sections.iter().filter(|section| section.stored_len > 0));
    order.sort_unstable_by_key(|section| (section.offset, section.stored_len));
    Ok(order)
}
