//! Reading: a container in a slice or on a device, opened from its first bytes to the directory of
//! its sections, each step checked before the next one trusts it.

use super::checksum::{checksum, of_pieces};
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, FOOTER_MAGIC, Footer, HEADER_BYTES, HeaderBytes, MAGIC,
    N_SLOTS, SLOT_BYTES, Slot, align, check_of, verify, waste,
};
use super::limits::{MAX_DIRECTORY, MAX_READ, expect_at_most, zeroed};
use super::section::{RECORD_BYTES, Section, by_offset, check_all};
use super::source::Source;
use crate::io::ReadAt;
use crate::storage::error::{Error, expect_equal};
use crate::storage::header::{Fingerprint, Header, Scope, Tag, VERSION};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// A container whose header, footer and directory have been checked. Its sections are checked when
/// they are read.
///
/// Every number in it was compared with the length of the slice, so nothing that is derived from
/// one can lie outside.
#[derive(Debug)]
pub struct Container<'a> {
    pub(super) source: Source<'a>,
    len: u64,
    /// The header's bytes in the file, which may hold more than `header` knows.
    pub(super) head: HeaderBytes,
    header: Header,
    stream: bool,
    footer: Footer,
    sections: Vec<Section>,
    used: u64,
}

impl<'a> Container<'a> {
    /// Open the container that `bytes` begin with; for one written as a stream they must also end
    /// with it.
    ///
    /// Reads the header, the commit slots, the footer and the directory, and nothing of the
    /// sections: O(n log n) of their number. Allocates at most three times the directory's bytes.
    ///
    /// # Errors
    /// Says what is wrong with the first thing that is not as it was written; a damaged file is
    /// never an older state.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::on(Source::Slice(bytes), MAX_DIRECTORY)
    }

    /// Open the container on a device, as [`Container::parse`] does in a slice. It may grow
    /// meanwhile, or be written again from its start up to the newer commit slot: what was found at
    /// first stays readable.
    ///
    /// # Errors
    /// As [`Container::parse`], and what the device says.
    pub fn open(device: &'a dyn ReadAt) -> Result<Self, Error> {
        Self::on(Source::Device(device), MAX_DIRECTORY)
    }

    /// Open the container on a device, as [`Container::open`] does, if it has at most `n` sections.
    ///
    /// # Errors
    /// As [`Container::open`]; [`Error::TooLarge`] for more sections.
    #[cfg(feature = "std")]
    pub(in crate::storage) fn open_at_most(device: &'a dyn ReadAt, n: u64) -> Result<Self, Error> {
        Self::on(Source::Device(device), n.saturating_mul(RECORD_BYTES))
    }

    /// Walk from the header to the directory, which may have `max_directory` bytes.
    fn on(source: Source<'a>, max_directory: u64) -> Result<Self, Error> {
        let head = head(&source)?;
        let (header, stream) = head.decode()?;
        let (footer, len) = if stream { stream_end(&source)? } else { last_commit(&source)? };
        let sections = directory(&source, &head, &footer, max_directory)?;
        let used = check_all(&sections, footer.directory_offset)?;
        Ok(Self { source, len, head, header, stream, footer, sections, used })
    }

    /// Return the container's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Return the model that the state belongs to.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.header.fingerprint
    }

    /// Return the kind of content.
    pub fn scope(&self) -> Scope {
        self.header.scope
    }

    /// Return the version of the format, which is the one that this release reads.
    pub fn version(&self) -> u32 {
        VERSION
    }

    /// Return true if it was written in one pass, and so cannot be continued in place.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// Return the number of saves of this file, from 1.
    pub fn generation(&self) -> u64 {
        self.footer.generation
    }

    /// Return the number of bytes that count.
    pub fn committed_len(&self) -> u64 {
        self.footer.total
    }

    /// Return the checksum of header and directory, which stands for all content.
    pub fn whole_checksum(&self) -> u64 {
        self.footer.whole_checksum
    }

    /// Return the bytes that there are.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Return the number of bytes after those that count: what is left of a save that did not come
    /// to its end.
    pub fn uncommitted(&self) -> u64 {
        self.file_len().saturating_sub(self.committed_len())
    }

    /// Return the number of bytes that count but that nothing refers to any more: older sections,
    /// directories and footers.
    pub fn waste(&self) -> u64 {
        waste(&self.footer, self.used)
    }

    /// Return all sections, by tag and index.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = &Section> {
        self.sections.iter()
    }

    /// Return the sections of a kind, by index.
    pub fn of(&self, tag: Tag) -> &[Section] {
        let start = self.sections.partition_point(|section| section.tag < tag);
        let end = self.sections.partition_point(|section| section.tag <= tag);
        &self.sections[start..end]
    }

    /// Return one section, if there is one. O(log n).
    pub fn find(&self, tag: Tag, index: u64) -> Option<&Section> {
        let at = self.sections.binary_search_by_key(&(tag, index), Section::key).ok()?;
        self.sections.get(at)
    }

    /// Return one section that must be there.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn require(&self, tag: Tag, index: u64) -> Result<&Section, Error> {
        self.find(tag, index).ok_or(Error::Missing { section: tag, index })
    }

    /// Check that the state belongs to a model.
    ///
    /// # Errors
    /// [`Error::Fingerprint`].
    pub fn expect_fingerprint(&self, wanted: &Fingerprint) -> Result<(), Error> {
        let stored = self.fingerprint();
        if stored == wanted { Ok(()) } else { Err(Error::fingerprint(stored, wanted)) }
    }

    /// Check that it is the state of what was wanted.
    ///
    /// # Errors
    /// [`Error::Scope`].
    pub fn expect_scope(&self, wanted: Scope) -> Result<(), Error> {
        let found = self.scope();
        if found == wanted { Ok(()) } else { Err(Error::Scope { found, wanted }) }
    }

    /// Check that a reader who knows these tags, each up to a version, understands all sections
    /// that it must. Others may be skipped.
    ///
    /// # Errors
    /// [`Error::UnknownRequired`].
    pub fn expect(&self, known: &[(Tag, u16)]) -> Result<(), Error> {
        let is_known = |section: &Section| {
            known.iter().any(|&(tag, newest)| section.tag == tag && section.version <= newest)
        };
        let unknown = self.sections.iter().find(|section| section.is_required() && !is_known(section));
        unknown.map_or(Ok(()), |&Section { tag, version, .. }| Err(Error::UnknownRequired { tag, version }))
    }

    /// Read the content of a section, checked; borrowed if the container lies in a slice and the
    /// section is not compressed. At most [`MAX_READ`] bytes.
    ///
    /// # Errors
    /// As [`Container::read_at_most`].
    pub fn read(&self, section: &Section) -> Result<Cow<'a, [u8]>, Error> {
        self.read_at_most(section, MAX_READ)
    }

    /// Read the content of a section, as [`Container::read`] does, if it has at most `limit` bytes:
    /// nothing is allocated for one that has more.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more bytes than `limit`; [`Error::Checksum`] if they are not those
    /// that were written; [`Error::Codec`] and [`Error::Malformed`] for a section that cannot be
    /// decompressed; [`Error::Truncated`] and [`Error::Io`] if the device has less than when it was
    /// opened; [`Error::OutOfMemory`].
    pub fn read_at_most(&self, section: &Section, limit: u64) -> Result<Cow<'a, [u8]>, Error> {
        self.source.read(section, limit)
    }

    /// Copy the content of a section to `targets`, one after the other, and check what has arrived
    /// there, step by step: a restore runs at nearly the speed of a copy. After an error the
    /// targets hold anything.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the targets together have another length than the content, else as
    /// [`Container::read_at_most`].
    pub fn read_into(&self, section: &Section, targets: &mut [&mut [u8]]) -> Result<(), Error> {
        self.source.read_into(section, targets)
    }

    /// Check everything: what opening has not read are the sections. Reads each once, and needs no
    /// memory for those that are not compressed.
    ///
    /// # Errors
    /// As [`Container::read_at_most`], of the first section that is damaged.
    pub fn check(&self) -> Result<(), Error> {
        self.check_with(|_| ())
    }

    /// Check everything, as [`Container::check`] does, and show `done` each section that was read.
    ///
    /// # Errors
    /// As [`Container::check`].
    pub fn check_with(&self, mut done: impl FnMut(&Section)) -> Result<(), Error> {
        let mut checked = None;
        for section in by_offset(&self.sections)? {
            if checked.replace(section.offset) != Some(section.offset) {
                self.source.check(section)?;
                done(section);
            }
        }
        Ok(())
    }
}

/// Read the header. A file that begins otherwise is of another kind, even if it is shorter than a
/// header.
fn head(source: &Source) -> Result<HeaderBytes, Error> {
    match source.part(Tag::HEADER, 0) {
        Ok(found) if found != MAGIC => Err(Error::Magic { found }),
        _ => source.part(Tag::HEADER, 0),
    }
}

/// Read the footer of a container that was written as a stream, which ends the source, and return
/// the source's length with it.
fn stream_end(source: &Source) -> Result<(Footer, u64), Error> {
    let have = source.len()?;
    let offset = have.saturating_sub(FOOTER_BYTES).max(DATA_OFFSET);
    let end: Footer = source.part(Tag::FOOTER, offset)?;
    if end.magic != FOOTER_MAGIC {
        let need = have.saturating_add(FOOTER_BYTES);
        return Err(Error::Truncated { section: Tag::FOOTER, offset: have, need, have });
    }
    expect_commit(&end, 1, have)?;
    Ok((end, have))
}

/// Read the newest commit whose slot is whole, and return the footer that it names and the source's
/// length. That is asked for after the slots were read, because somebody may be appending: a commit
/// is written after all that it commits.
fn last_commit(source: &Source) -> Result<(Footer, u64), Error> {
    let mut newest: Option<Commit> = None;
    for slot in 0..N_SLOTS {
        let found: Slot = source.part(Tag::SLOT, HEADER_BYTES + slot * SLOT_BYTES)?;
        newest = newest.into_iter().chain(found.decode(slot)).max_by_key(|commit| commit.generation);
    }
    let have = source.len()?;
    let (section, offset) = (Tag::SLOT, HEADER_BYTES);
    let what = "number of valid commits";
    let commit = newest.ok_or(Error::Malformed { section, offset, what, found: 0, wanted: 1 })?;
    let Commit { generation, committed, footer_checksum, .. } = commit;
    let offset = commit.slot_offset();
    expect_equal(section, offset, "committed length modulo 64", committed % ALIGN, 0)?;
    let least = DATA_OFFSET + FOOTER_BYTES;
    expect_equal(section, offset, "committed length", committed, committed.max(least))?;
    let offset = committed - FOOTER_BYTES;
    if committed > have {
        return Err(Error::Truncated { section: Tag::FOOTER, offset, need: committed, have });
    }
    let end: Footer = source.part(Tag::FOOTER, offset)?;
    verify(Tag::FOOTER, offset, footer_checksum, end.checksum())?;
    expect_commit(&end, generation, committed)?;
    Ok((end, have))
}

/// Check that a footer is unharmed and belongs to a commit.
fn expect_commit(footer: &Footer, generation: u64, committed: u64) -> Result<(), Error> {
    let offset = committed.saturating_sub(FOOTER_BYTES);
    verify(Tag::FOOTER, offset, footer.check, check_of(footer))?;
    expect_equal(Tag::FOOTER, offset, "generation", footer.generation, generation)?;
    expect_equal(Tag::FOOTER, offset, "total length", footer.total, committed)
}

/// Read the sections of the directory that `footer` names.
fn directory(
    source: &Source,
    head: &HeaderBytes,
    footer: &Footer,
    max_directory: u64,
) -> Result<Vec<Section>, Error> {
    let offset = footer.total.saturating_sub(FOOTER_BYTES);
    let equal = |what, found, wanted| expect_equal(Tag::FOOTER, offset, what, found, wanted);
    let Footer { directory_offset: start, directory_len: len, .. } = *footer;
    equal("directory length modulo the size of a record", len % RECORD_BYTES, 0)?;
    equal("directory offset modulo 64", start % ALIGN, 0)?;
    equal("directory offset", start, start.max(DATA_OFFSET))?;
    let end = start.checked_add(len).and_then(align);
    equal("end of the directory", end.unwrap_or(u64::MAX), offset)?;
    expect_at_most("bytes of the directory", len, max_directory)?;
    let mut sections: Vec<Section> = zeroed(len / RECORD_BYTES)?;
    let directory: &mut [u8] = bytemuck::must_cast_slice_mut(&mut sections);
    source.fill(Tag::DIRECTORY, start, directory)?;
    verify(Tag::DIRECTORY, start, footer.directory_checksum, checksum(directory))?;
    let whole = of_pieces(&[bytemuck::bytes_of(head), directory]);
    verify(Tag::FOOTER, offset, footer.whole_checksum, whole)?;
    Ok(sections)
}
