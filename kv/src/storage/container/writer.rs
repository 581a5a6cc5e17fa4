//! Writing: a container in one pass, alone or as the continuation of an old one.

use super::checksum::{Checksum, checksum, of_pieces};
use super::codec::compress;
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, Footer, HEADER_BYTES, HeaderBytes, SLOT_BYTES, Slot, waste,
};
use super::limits::{MAX_DIRECTORY, expect_at_most};
use super::parallel::Pending;
use super::reader::Container;
use super::section::{RECORD_BYTES, Section, check_all};
use crate::io::Write;
use crate::storage::error::{Error, expect_equal};
use crate::storage::header::{Header, Tag};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::pool::Inline;
use bytemuck::Zeroable;

/// Bytes that are written and then summed up at a time: what the receiver's copy has brought to the
/// second cache, the checksum finds there.
const STEP: usize = 128 << 10;

/// Writes a container, section by section.
///
/// Nothing counts until [`Writer::finish`] has written the directory and the footer.
pub struct Writer<'a> {
    pub(super) out: &'a mut dyn Write,
    head: HeaderBytes,
    generation: u64,
    start: u64,
    /// The offset of the next byte that goes to `out`.
    pub(super) at: u64,
    pub(super) sections: BTreeMap<(Tag, u64), Section>,
    pub(super) old: Option<Old<'a>>,
    pub(super) reused: u64,
    pub(super) compresses: bool,
}

/// Measures of a finished container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Bytes of the container.
    pub bytes: u64,
    /// Bytes that were written for it.
    pub written: u64,
    /// Bytes of sections that the old container had already.
    pub reused: u64,
    /// Bytes of the container that nothing refers to.
    pub waste: u64,
    /// Counts the saves of the file, from 1.
    pub generation: u64,
    /// Checksum of the header and the directory, which stands for all content.
    pub whole_checksum: u64,
    commit: Commit,
}

/// Return the bytes of a container with sections of these lengths, as they are without compression;
/// `None` if that is more than a file can have.
#[cfg(feature = "std")]
pub(in crate::storage) fn container_bytes(lengths: impl IntoIterator<Item = u64>) -> Option<u64> {
    use super::layout::align;
    let mut directory = 0_u64;
    let end = lengths.into_iter().try_fold(DATA_OFFSET, |at, len| {
        directory = directory.checked_add(RECORD_BYTES)?;
        align(at.checked_add(len)?)
    })?;
    align(end.checked_add(directory)?)?.checked_add(FOOTER_BYTES).filter(|end| i64::try_from(*end).is_ok())
}

impl Written {
    /// Return the commit slot that makes a container count which was begun by [`Writer::in_place`]
    /// or [`Writer::append`]: where it belongs, and its bytes. It overwrites a commit older than
    /// the last.
    pub fn slot(&self) -> (u64, [u8; SLOT_BYTES as usize]) {
        (self.commit.slot_offset(), bytemuck::must_cast(Slot::new(&self.commit)))
    }
}

impl<'a> Writer<'a> {
    /// Begin a container that is complete once its last byte has gone to `out`.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn new(out: &'a mut dyn Write, header: Header) -> Result<Self, Error> {
        Self::begin(out, header, true)
    }

    /// Begin a container that can be continued later: it counts once the [slot](Written::slot) has
    /// been written over what stands there, which must happen after everything else is safe.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn in_place(out: &'a mut dyn Write, header: Header) -> Result<Self, Error> {
        Self::begin(out, header, false)
    }

    fn begin(out: &'a mut dyn Write, header: Header, is_stream: bool) -> Result<Self, Error> {
        let head = HeaderBytes::new(&header, is_stream);
        out.write_all(bytemuck::bytes_of(&head))?;
        out.write_all(&[0; (DATA_OFFSET - HEADER_BYTES) as usize])?;
        Ok(Self { at: DATA_OFFSET, ..Self::at_start(out, head) })
    }

    fn at_start(out: &'a mut dyn Write, head: HeaderBytes) -> Self {
        Self {
            out,
            head,
            generation: 1,
            start: 0,
            at: 0,
            sections: BTreeMap::new(),
            old: None,
            reused: 0,
            compresses: false,
        }
    }

    /// Continue `old`: what goes to `out` belongs after its [committed
    /// length](Container::committed_len). Sections that `old` has with the same tag and the same
    /// bytes are referred to instead of written.
    ///
    /// # Errors
    /// [`Error::Malformed`] if `old` was written as a stream, which has nowhere to note a second
    /// footer; [`Error::TooLarge`] if it was saved as often as can be counted.
    pub fn append(out: &'a mut dyn Write, old: &'a Container<'a>) -> Result<Self, Error> {
        expect_equal(Tag::HEADER, 12, "flags", old.is_stream().into(), 0)?;
        let (what, value, limit) = ("generations", old.generation(), u64::MAX - 1);
        let generation = value.checked_add(1).ok_or(Error::TooLarge { what, value, limit })?;
        let start = old.committed_len();
        // What the header holds besides what is known here stays in the file, and under its
        // checksum.
        let new = Self::at_start(out, old.head);
        Ok(Self { generation, start, at: start, old: Some(Old::new(old)), ..new })
    }

    /// Return the container that is continued, if one is.
    pub fn old(&self) -> Option<&'a Container<'a>> {
        self.old.as_ref().map(|old| old.container)
    }

    /// Write a section whose content is `pieces`, one after the other. `index` tells sections of a
    /// tag apart; a reader who does not know the tag or the version refuses the file if the section
    /// is `required`, else skips it.
    ///
    /// # Errors
    /// [`Error::Repeated`], and what the receiver says.
    pub fn section(
        &mut self,
        tag: Tag,
        version: u16,
        required: bool,
        index: u64,
        pieces: &[&[u8]],
    ) -> Result<(), Error> {
        let section = Section::named(tag, version, required, index);
        let pieces = pieces.iter().map(|piece| Cow::Borrowed(*piece)).collect();
        self.sections(vec![Pending { section, pieces }], &Inline)
    }

    /// Compress the sections that are written from now on, each if it saves at least 5 % of it.
    #[cfg(feature = "zstd")]
    pub fn compress(&mut self) {
        self.compresses = true;
    }

    /// Write a section behind those before it.
    pub(super) fn put_section(&mut self, pending: &mut Pending<'_>) -> Result<(), Error> {
        let Pending { section, pieces } = pending;
        section.offset = self.at;
        let compressed = if self.compresses { compress(pieces, section.raw_len)? } else { None };
        section.checksum = match compressed {
            Some((codec, stored)) => {
                (section.codec, section.stored_len) = (codec, stored.len() as u64);
                self.put(&[stored])?;
                of_pieces(pieces)
            }
            None => self.put(pieces)?,
        };
        Ok(())
    }

    /// Write `pieces`, padded, and return their checksum.
    fn put<P: AsRef<[u8]>>(&mut self, pieces: &[P]) -> Result<u64, Error> {
        let (mut sum, mut batch, mut len) = (Checksum::new(), Vec::new(), 0);
        for piece in pieces.iter().flat_map(|piece| piece.as_ref().chunks(STEP)) {
            batch.push(piece);
            len += piece.len();
            if len >= STEP {
                self.write(&batch)?;
                batch.drain(..).for_each(|piece| sum.add(piece));
                len = 0;
            }
        }
        batch.iter().for_each(|piece| sum.add(piece));
        batch.push(padding(len_of(pieces)));
        self.write(&batch)?;
        Ok(sum.value())
    }

    fn write(&mut self, pieces: &[&[u8]]) -> Result<(), Error> {
        let end = end_of(self.at, len_of(pieces))?;
        self.out.write_pieces(pieces)?;
        self.at = end;
        Ok(())
    }

    /// Write the directory and the footer.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there are more sections than a reader takes; what the receiver says.
    pub fn finish(mut self) -> Result<Written, Error> {
        let directory_offset = self.at;
        let bytes = (self.sections.len() as u64).saturating_mul(RECORD_BYTES);
        expect_at_most("bytes of the directory", bytes, MAX_DIRECTORY)?;
        let records: Vec<Section> = self.sections.values().copied().collect();
        let directory: &[u8] = bytemuck::must_cast_slice(&records);
        self.write(&[directory, padding(directory.len() as u64)])?;
        let footer = Footer {
            generation: self.generation,
            total: self.at.saturating_add(FOOTER_BYTES),
            directory_offset,
            directory_len: directory.len() as u64,
            directory_checksum: checksum(directory),
            whole_checksum: of_pieces(&[bytemuck::bytes_of(&self.head), directory]),
            ..Footer::zeroed()
        };
        let footer = footer.sealed();
        self.write(&[bytemuck::bytes_of(&footer)])?;
        let (generation, bytes) = (self.generation, self.at);
        Ok(Written {
            bytes,
            written: bytes - self.start,
            reused: self.reused,
            waste: waste(&footer, check_all(&records, directory_offset)?),
            generation,
            whole_checksum: footer.whole_checksum,
            commit: Commit::new(generation, bytes, footer.checksum()),
        })
    }
}

/// Return the end of `len` bytes from `at` on; so far below the largest number that what is padded
/// and the footer still have an end.
pub(super) fn end_of(at: u64, len: u64) -> Result<u64, Error> {
    let (what, limit) = ("bytes of a container", u64::MAX - 2 * ALIGN);
    let end = at.checked_add(len).filter(|end| *end <= limit);
    end.ok_or(Error::TooLarge { what, value: len, limit })
}

/// Return the zeros behind `len` bytes that begin at a multiple of [`ALIGN`].
pub(super) fn padding(len: u64) -> &'static [u8] {
    const ZEROS: [u8; ALIGN as usize] = [0; ALIGN as usize];
    let (padding, _) = ZEROS.split_at(((ALIGN - len % ALIGN) % ALIGN) as usize);
    padding
}

/// Return the bytes of all `pieces` together.
pub(super) fn len_of<P: AsRef<[u8]>>(pieces: &[P]) -> u64 {
    pieces.iter().map(|piece| piece.as_ref().len() as u64).fold(0, u64::saturating_add)
}

/// Sections of an old container, by content.
pub(super) struct Old<'a> {
    container: &'a Container<'a>,
    by_content: BTreeMap<(Tag, u64, u64), Section>,
}

impl<'a> Old<'a> {
    fn new(container: &'a Container<'a>) -> Self {
        let key = |section: &Section| (section.tag, section.raw_len, section.checksum);
        let by_content = container.sections().map(|section| (key(section), *section)).collect();
        Self { container, by_content }
    }

    /// Return a section of the same tag and content: the one of the same index if it has it, else
    /// any.
    pub(super) fn find<P: AsRef<[u8]>>(&self, section: &Section, pieces: &[P]) -> Option<Section> {
        let (tag, raw_len, sum) = (section.tag, len_of(pieces), of_pieces(pieces));
        let same_index = self.container.find(tag, section.index);
        let same_index = same_index.filter(|old| (old.raw_len, old.checksum) == (raw_len, sum));
        let old = same_index.or_else(|| self.by_content.get(&(tag, raw_len, sum)))?;
        self.container.source.holds(old, pieces).then_some(*old)
    }
}
