//! Reading: a container in a slice.

use super::checksum::{Checksum, checksum};
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, Footer, FooterBytes, HEADER_BYTES, HeaderBytes, N_SLOTS,
    RECORD_BYTES, RecordBytes, SLOT_BYTES, SlotBytes, align, verify,
};
use super::section::{by_offset, check_all};
use super::{Codec, Error, Fingerprint, Header, Scope, Section, Tag, VERSION};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use bytemuck::AnyBitPattern;

/// Bytes that are copied and checked at a time: both halves of the work meet them in the nearest cache.
const STEP: usize = 16 << 10;

/// A container whose header, footer and directory have been checked. Its sections are checked when they are read.
///
/// Every number in it was compared with the length of the slice, so nothing that is derived from one can lie outside.
#[derive(Debug)]
pub struct Container<'a> {
    bytes: &'a [u8],
    header: Header,
    stream: bool,
    commit: Commit,
    sections: Vec<Section>,
    used: u64,
}

impl<'a> Container<'a> {
    /// Opens the container that `bytes` begin with; for one written as a stream they must also end with it.
    ///
    /// Reads the header, the commit slots, the footer and the directory, and nothing of the sections: O(n log n) of their number. Allocates
    /// at most twice the directory's bytes.
    ///
    /// # Errors
    /// Says what is wrong with the first thing that is not as it was written; a damaged file is never an older state.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, stream) = head(bytes)?;
        let (commit, footer) = if stream { stream_end(bytes)? } else { last_commit(bytes)? };
        let directory = directory(bytes, &commit, &footer)?;
        let sections = decode(directory)?;
        let used = check_all(&sections, footer.directory_offset)?;
        Ok(Self { bytes, header, stream, commit, sections, used })
    }

    /// What the container says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The model that the state belongs to.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.header.fingerprint
    }

    /// What the container holds the state of.
    pub fn scope(&self) -> Scope {
        self.header.scope
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        VERSION
    }

    /// Whether it was written in one pass, and so cannot be continued in place.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// Counts the saves of this file, from 1.
    pub fn generation(&self) -> u64 {
        self.commit.generation
    }

    /// Bytes that count.
    pub fn committed_len(&self) -> u64 {
        self.commit.committed
    }

    /// Bytes there are.
    pub fn file_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Bytes after those that count: what is left of a save that did not come to its end.
    pub fn uncommitted(&self) -> u64 {
        self.file_len().saturating_sub(self.committed_len())
    }

    /// Bytes that count but that nothing refers to any more: older sections, directories and footers.
    pub fn waste(&self) -> u64 {
        let directory = (self.sections.len() as u64).saturating_mul(RECORD_BYTES).next_multiple_of(ALIGN);
        let live = [DATA_OFFSET, self.used, directory, FOOTER_BYTES].into_iter().fold(0, u64::saturating_add);
        self.committed_len().saturating_sub(live)
    }

    /// All sections, by tag and index.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = &Section> {
        self.sections.iter()
    }

    /// The sections of a kind, by index.
    pub fn of(&self, tag: Tag) -> &[Section] {
        let start = self.sections.partition_point(|section| section.tag < tag);
        let end = self.sections.partition_point(|section| section.tag <= tag);
        self.sections.get(start..end).unwrap_or_default()
    }

    /// One section, if there is one. O(log n).
    pub fn find(&self, tag: Tag, index: u64) -> Option<&Section> {
        let at = self.sections.binary_search_by_key(&(tag, index), Section::key).ok()?;
        self.sections.get(at)
    }

    /// One section that must be there.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn require(&self, tag: Tag, index: u64) -> Result<&Section, Error> {
        self.find(tag, index).ok_or(Error::Missing { section: tag, index })
    }

    /// Checks that the state belongs to a model.
    ///
    /// # Errors
    /// [`Error::Fingerprint`].
    pub fn expect_fingerprint(&self, wanted: &Fingerprint) -> Result<(), Error> {
        if self.fingerprint() == wanted {
            Ok(())
        } else {
            Err(Error::fingerprint(self.fingerprint(), wanted))
        }
    }

    /// Checks that it is the state of what was wanted.
    ///
    /// # Errors
    /// [`Error::Scope`].
    pub fn expect_scope(&self, wanted: Scope) -> Result<(), Error> {
        let found = self.scope();
        if found == wanted { Ok(()) } else { Err(Error::Scope { found, wanted }) }
    }

    /// Checks that a reader who knows these tags, each up to a version, understands all sections that it must. Others may be
    /// skipped.
    ///
    /// # Errors
    /// [`Error::UnknownRequired`].
    pub fn expect(&self, known: &[(Tag, u16)]) -> Result<(), Error> {
        let is_known = |section: &Section| {
            known.iter().any(|&(tag, newest)| section.tag == tag && section.version <= newest)
        };
        match self.sections.iter().find(|section| section.required && !is_known(section)) {
            None => Ok(()),
            Some(section) => Err(Error::UnknownRequired { tag: section.tag, version: section.version }),
        }
    }

    /// The content of a section, checked; borrowed from the container's bytes unless it is compressed.
    ///
    /// # Errors
    /// [`Error::Checksum`], [`Error::Codec`], and what is wrong with a compressed section.
    pub fn read(&self, section: &Section) -> Result<Cow<'a, [u8]>, Error> {
        let stored = self.stored(section)?;
        if section.codec != Codec::RAW {
            return Err(unknown_codec(section));
        }
        verify(section.tag, section.offset, section.checksum, checksum(stored))?;
        Ok(Cow::Borrowed(stored))
    }

    /// Copies the content of a section to `targets`, one after the other, and checks it on the way: a restore runs at nearly the speed of a
    /// copy. What the targets hold after an error is undefined.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the targets together have another length than the content, else as [`Container::read`].
    pub fn read_into(&self, section: &Section, targets: &mut [&mut [u8]]) -> Result<(), Error> {
        let wanted = targets.iter().map(|target| target.len() as u64).fold(0, u64::saturating_add);
        if wanted != section.raw_len {
            let (found, offset) = (section.raw_len, section.offset);
            return Err(Error::Malformed { section: section.tag, offset, what: "length", found, wanted });
        }
        let stored = self.stored(section)?;
        if section.codec != Codec::RAW {
            return Err(unknown_codec(section));
        }
        verify(section.tag, section.offset, section.checksum, copy(stored, targets))
    }

    /// Checks everything: what opening has not read are the sections.
    ///
    /// # Errors
    /// As [`Container::read`], of the first section that is damaged.
    pub fn check(&self) -> Result<(), Error> {
        let mut checked = None;
        for section in by_offset(&self.sections)? {
            if checked.replace(section.offset) != Some(section.offset) {
                self.read(section)?;
            }
        }
        Ok(())
    }

    /// Whether the content of a section is `pieces`, one after the other. Damaged content is not.
    pub(super) fn holds(&self, section: &Section, pieces: &[&[u8]]) -> bool {
        let Ok(mut stored) = self.stored(section) else { return false };
        let same = pieces.iter().all(|piece| match stored.split_at_checked(piece.len()) {
            Some((front, rest)) => {
                stored = rest;
                front == *piece
            }
            None => false,
        });
        section.codec == Codec::RAW && same && stored.is_empty()
    }

    /// The bytes of a section as they are stored.
    fn stored(&self, section: &Section) -> Result<&'a [u8], Error> {
        let Section { tag, offset, stored_len: len, .. } = *section;
        let misplaced = Error::Misplaced { section: tag, offset, len, end: self.committed_len() };
        bytes_at(self.bytes, offset, len).ok_or(misplaced)
    }
}

/// A codec that this build does not have.
fn unknown_codec(section: &Section) -> Error {
    Error::Codec { section: section.tag, offset: section.offset, codec: section.codec.0 }
}

/// Copies `from` to `targets` and gives the checksum of what has arrived there.
fn copy(mut from: &[u8], targets: &mut [&mut [u8]]) -> u64 {
    let mut sum = Checksum::default();
    for to in targets.iter_mut().flat_map(|target| target.chunks_mut(STEP)) {
        if let Some((front, rest)) = from.split_at_checked(to.len()) {
            to.copy_from_slice(front);
            from = rest;
        }
        sum.add(to);
    }
    sum.value()
}

/// `len` bytes from `offset`, if they are there.
fn bytes_at(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    bytes.get(start..end)
}

/// A part of fixed size at `offset`.
fn part<T: AnyBitPattern>(bytes: &[u8], section: Tag, offset: u64) -> Result<T, Error> {
    let len = size_of::<T>() as u64;
    let (need, have) = (offset.saturating_add(len), bytes.len() as u64);
    let part = bytes_at(bytes, offset, len).ok_or(Error::Truncated { section, offset, need, have })?;
    bytemuck::try_pod_read_unaligned(part).map_err(|_| Error::Truncated { section, offset, need, have })
}

/// What the header says.
fn head(bytes: &[u8]) -> Result<(Header, bool), Error> {
    if let Some(found) = bytes.first_chunk().filter(|found| **found != super::layout::MAGIC) {
        return Err(Error::Magic { found: *found });
    }
    part::<HeaderBytes>(bytes, Tag::HEADER, 0)?.decode()
}

/// The end of a container that was written as a stream: the end of `bytes`.
fn stream_end(bytes: &[u8]) -> Result<(Commit, Footer), Error> {
    let have = bytes.len() as u64;
    let offset = have.saturating_sub(FOOTER_BYTES).max(DATA_OFFSET);
    let end: FooterBytes = part(bytes, Tag::FOOTER, offset)?;
    if !end.is_footer() {
        let need = have.saturating_add(FOOTER_BYTES);
        return Err(Error::Truncated { section: Tag::FOOTER, offset: have, need, have });
    }
    let footer = end.decode(offset)?;
    let commit = Commit { generation: 1, committed: have, footer_checksum: end.checksum() };
    Ok((commit, footer))
}

/// The newest commit whose slot is whole, and the footer that it names.
fn last_commit(bytes: &[u8]) -> Result<(Commit, Footer), Error> {
    let mut newest: Option<Commit> = None;
    for slot in 0..N_SLOTS {
        let found: SlotBytes = part(bytes, Tag::SLOT, HEADER_BYTES + slot * SLOT_BYTES)?;
        newest = newest.into_iter().chain(found.decode(slot)).max_by_key(|commit| commit.generation);
    }
    let malformed = |what, found, wanted| Error::Malformed {
        section: Tag::SLOT,
        offset: HEADER_BYTES,
        what,
        found,
        wanted,
    };
    let commit = newest.ok_or_else(|| malformed("number of valid commits", 0, 1))?;
    let Commit { committed, footer_checksum, .. } = commit;
    let have = bytes.len() as u64;
    if committed < DATA_OFFSET + FOOTER_BYTES || committed % ALIGN != 0 {
        return Err(malformed("committed length", committed, committed.next_multiple_of(ALIGN)));
    }
    let offset = committed - FOOTER_BYTES;
    if committed > have {
        return Err(Error::Truncated { section: Tag::FOOTER, offset, need: committed, have });
    }
    let end: FooterBytes = part(bytes, Tag::FOOTER, offset)?;
    verify(Tag::FOOTER, offset, footer_checksum, end.checksum())?;
    Ok((commit, end.decode(offset)?))
}

/// The bytes of the directory that `footer` names, checked.
fn directory<'a>(bytes: &'a [u8], commit: &Commit, footer: &Footer) -> Result<&'a [u8], Error> {
    let offset = commit.committed.saturating_sub(FOOTER_BYTES);
    let equal = |what, found, wanted| {
        let section = Tag::FOOTER;
        if found == wanted { Ok(()) } else { Err(Error::Malformed { section, offset, what, found, wanted }) }
    };
    equal("generation", footer.generation, commit.generation)?;
    equal("total length", footer.total, commit.committed)?;
    let Footer { directory_offset: start, directory_len: len, .. } = *footer;
    equal("directory length modulo the size of a record", len % RECORD_BYTES, 0)?;
    equal("directory offset modulo 64", start % ALIGN, 0)?;
    equal("directory offset", start.max(DATA_OFFSET), start)?;
    let end = start.checked_add(len).and_then(align);
    equal("end of the directory", end.unwrap_or(u64::MAX), offset)?;
    let misplaced = Error::Misplaced { section: Tag::DIRECTORY, offset: start, len, end: offset };
    let directory = bytes_at(bytes, start, len).ok_or(misplaced)?;
    verify(Tag::DIRECTORY, start, footer.directory_checksum, checksum(directory))?;
    let head = bytes_at(bytes, 0, HEADER_BYTES).unwrap_or_default();
    verify(Tag::FOOTER, offset, footer.whole_checksum, super::checksum::of_pieces(&[head, directory]))?;
    Ok(directory)
}

/// The sections that a directory names.
fn decode(directory: &[u8]) -> Result<Vec<Section>, Error> {
    let records: &[RecordBytes] = bytemuck::try_cast_slice(directory).unwrap_or_default();
    let mut sections = Vec::new();
    let bytes = (records.len() as u64).saturating_mul(size_of::<Section>() as u64);
    sections.try_reserve_exact(records.len()).map_err(|_| Error::OutOfMemory { bytes })?;
    sections.extend(records.iter().map(Section::decode));
    Ok(sections)
}
