//! Reading: a container in a slice or on a device.

use super::checksum::{Checksum, checksum};
use super::codec::decompress;
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, HeaderBytes, RECORD_BYTES, RecordBytes, verify,
};
use super::limits::{MAX_READ, expect_at_most};
use super::open::{self, Opened};
use super::section::{by_offset, check_all};
use super::source::Source;
use super::{Codec, Error, Fingerprint, Header, Scope, Section, Tag};
use crate::io::ReadAt;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Bytes that are moved at a time: from a device every step is a call of the system, and what it has brought should be in the second cache when it is
/// summed. Of a cached file, steps of 16 KiB were a tenth slower, and so was a mapping.
const COPIED: usize = 128 << 10;

/// A container whose header, footer and directory have been checked. Its sections are checked when they are read.
///
/// Every number in it was compared with the length of the slice, so nothing that is derived from one can lie outside.
#[derive(Debug)]
pub struct Container<'a> {
    source: Source<'a>,
    len: u64,
    /// As it lies in the file: it may hold more than is known here.
    head: HeaderBytes,
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
    /// at most three times the directory's bytes.
    ///
    /// # Errors
    /// Says what is wrong with the first thing that is not as it was written; a damaged file is never an older state.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::on(Source::Slice(bytes))
    }

    /// Opens the container on a device, as [`Container::parse`] does in a slice. It may grow meanwhile, or be written again from its
    /// start up to the newer commit slot: what was found at first stays readable.
    ///
    /// # Errors
    /// As [`Container::parse`], and what the device says.
    pub fn open(device: &'a dyn ReadAt) -> Result<Self, Error> {
        Self::on(Source::Device(device))
    }

    fn on(source: Source<'a>) -> Result<Self, Error> {
        let Opened { len, head, header, stream, commit, footer, directory } = open::open(&source)?;
        let sections = decode(&directory)?;
        drop(directory);
        let used = check_all(&sections, footer.directory_offset)?;
        Ok(Self { source, len, head, header, stream, commit, sections, used })
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
        self.head.version()
    }

    /// The header as it lies in the file.
    pub(super) fn head(&self) -> HeaderBytes {
        self.head
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
        self.len
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

    /// The content of a section, checked; borrowed if the container lies in a slice and the section is not compressed. At most
    /// [`MAX_READ`](super::MAX_READ) bytes.
    ///
    /// # Errors
    /// [`Error::Checksum`], [`Error::TooLarge`], [`Error::Codec`], and what is wrong with a compressed section.
    pub fn read(&self, section: &Section) -> Result<Cow<'a, [u8]>, Error> {
        self.read_at_most(section, MAX_READ)
    }

    /// The content of a section, as [`Container::read`] gives it, if it has at most `limit` bytes: nothing is allocated for one that has more.
    ///
    /// # Errors
    /// As [`Container::read`].
    pub fn read_at_most(&self, section: &Section, limit: u64) -> Result<Cow<'a, [u8]>, Error> {
        expect_at_most("bytes of a section that is read at once", section.raw_len, limit)?;
        let stored = self.stored(section)?;
        let content = match section.codec {
            Codec::RAW => stored,
            _ => Cow::Owned(decompress(section, &stored)?),
        };
        verify(section.tag, section.offset, section.checksum, checksum(&content))?;
        Ok(content)
    }

    /// Copies the content of a section to `targets`, one after the other, and checks what has arrived there, step by step: a restore runs at
    /// nearly the speed of a copy. What the targets hold after an error is undefined.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the targets together have another length than the content, else as [`Container::read`].
    pub fn read_into(&self, section: &Section, targets: &mut [&mut [u8]]) -> Result<(), Error> {
        let wanted = targets.iter().map(|target| target.len() as u64).fold(0, u64::saturating_add);
        if wanted != section.raw_len {
            let (found, offset) = (section.raw_len, section.offset);
            return Err(Error::Malformed { section: section.tag, offset, what: "length", found, wanted });
        }
        if section.codec != Codec::RAW {
            scatter(&self.read(section)?, targets);
            return Ok(());
        }
        let computed = self.copy(section, targets)?;
        verify(section.tag, section.offset, section.checksum, computed)
    }

    /// Copies a section to `targets` and gives its checksum, taken on the way.
    fn copy(&self, section: &Section, targets: &mut [&mut [u8]]) -> Result<u64, Error> {
        let (mut sum, mut offset) = (Checksum::new(), section.offset);
        for to in targets.iter_mut().flat_map(|target| target.chunks_mut(COPIED)) {
            self.source.fill_summed(section.tag, offset, to, &mut sum)?;
            offset = offset.saturating_add(to.len() as u64);
        }
        Ok(sum.value())
    }

    /// Checks everything: what opening has not read are the sections. Reads each once, and needs no memory for those that are not compressed.
    ///
    /// # Errors
    /// As [`Container::read`], of the first section that is damaged.
    pub fn check(&self) -> Result<(), Error> {
        let mut checked = None;
        for section in by_offset(&self.sections)? {
            if checked.replace(section.offset) != Some(section.offset) {
                self.check_section(section)?;
            }
        }
        Ok(())
    }

    fn check_section(&self, section: &Section) -> Result<(), Error> {
        if section.codec != Codec::RAW {
            return self.read(section).map(drop);
        }
        let mut sum = Checksum::new();
        self.source.show(section.tag, section.offset, section.stored_len, |bytes| {
            sum.add(bytes);
            true
        })?;
        verify(section.tag, section.offset, section.checksum, sum.value())
    }

    /// Whether the content of a section is `pieces`, one after the other. Damaged content is not.
    pub(super) fn holds(&self, section: &Section, pieces: &[&[u8]]) -> bool {
        let mut rest = Pieces { rest: pieces, piece: &[] };
        let mut same = true;
        let mut compare = |bytes: &[u8]| {
            same = rest.begin_with(bytes);
            same
        };
        let shown = match section.codec {
            Codec::RAW => self.source.show(section.tag, section.offset, section.stored_len, compare),
            _ => self.read(section).map(|content| {
                compare(&content);
            }),
        };
        shown.is_ok() && same && rest.is_over()
    }

    /// The bytes of a section as they are stored.
    fn stored(&self, section: &Section) -> Result<Cow<'a, [u8]>, Error> {
        let Section { tag, offset, stored_len: len, .. } = *section;
        if section.end() > self.committed_len() {
            return Err(Error::Misplaced { section: tag, offset, len, end: self.committed_len() });
        }
        self.source.bytes(tag, offset, len)
    }
}

/// Copies `content` to `targets`, one after the other.
fn scatter(mut content: &[u8], targets: &mut [&mut [u8]]) {
    for target in targets {
        if let Some((front, rest)) = content.split_at_checked(target.len()) {
            target.copy_from_slice(front);
            content = rest;
        }
    }
}

/// What is left of pieces that are compared with bytes coming in other pieces.
struct Pieces<'p> {
    rest: &'p [&'p [u8]],
    piece: &'p [u8],
}

impl Pieces<'_> {
    /// Whether the next bytes are these; goes on behind them.
    fn begin_with(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if !self.next_piece() {
                return false;
            }
            let n = bytes.len().min(self.piece.len());
            let ((front, after), (wanted, left)) = (bytes.split_at(n), self.piece.split_at(n));
            if front != wanted {
                return false;
            }
            (bytes, self.piece) = (after, left);
        }
        true
    }

    /// Makes `piece` one that has bytes, if there is one.
    fn next_piece(&mut self) -> bool {
        while self.piece.is_empty() {
            let Some((first, rest)) = self.rest.split_first() else { return false };
            (self.piece, self.rest) = (first, rest);
        }
        true
    }

    fn is_over(&mut self) -> bool {
        !self.next_piece()
    }
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
