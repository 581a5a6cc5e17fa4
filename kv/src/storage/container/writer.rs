//! Writing: a container in one pass, alone or as the continuation of an old one.
//!
//! Several sections are written at once on all threads of a pool: those that an old container has
//! are found in it, and new ones are copied to the receiver's own room while they are summed. A
//! receiver without room is written to by one thread, while another sums the same bytes. The
//! container gets the same bytes as if they came one after the other.

use super::checksum::{Checksum, checksum, of_pieces};
use super::codec::compress;
use super::layout::{
    ALIGN, Commit, DATA_OFFSET, FOOTER_BYTES, Footer, HEADER_BYTES, HeaderBytes, SLOT_BYTES, Slot, waste,
};
use super::limits::{MAX_DIRECTORY, expect_at_most};
use super::reader::Container;
use super::section::{RECORD_BYTES, Section, check_all, len_of};
use crate::io::{self, Write};
use crate::storage::error::{Error, expect_equal};
use crate::storage::header::{Header, Tag};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::pool::{Inline, Parts, Pool, n_jobs};
use bytemuck::Zeroable;

/// Bytes that are written and then summed up at a time: what the receiver's copy has brought to the
/// second cache, the checksum finds there.
const STEP: usize = 128 << 10;

/// Writes a container, section by section.
///
/// Nothing counts until [`Writer::finish`] has written the directory and the footer.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    head: HeaderBytes,
    /// The offset of the next byte that goes to `out`.
    at: u64,
    sections: BTreeMap<(Tag, u64), Section>,
    old: Option<Old<'a>>,
    reused: u64,
    compresses: bool,
}

/// A section that is to be written: its record, which gets its place on the way, and its content,
/// pieces one after the other.
pub(in crate::storage) struct Pending<'p> {
    pub section: Section,
    pub pieces: Vec<Cow<'p, [u8]>>,
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
        Ok(Self::behind(DATA_OFFSET, out, head, None))
    }

    /// Return a writer whose next byte goes to the offset `at`.
    fn behind(at: u64, out: &'a mut dyn Write, head: HeaderBytes, old: Option<Old<'a>>) -> Self {
        Self { out, head, at, sections: BTreeMap::new(), old, reused: 0, compresses: false }
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
        expect_at_most("generations", old.generation(), u64::MAX - 1)?;
        // What the header holds besides what is known here stays in the file, and under its
        // checksum.
        Ok(Self::behind(old.committed_len(), out, old.head, Some(Old::new(old))))
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

    /// Write sections, none of them twice, in their order, on all threads of `pool` as far as
    /// possible.
    ///
    /// # Errors
    /// As [`Writer::section`].
    pub(in crate::storage) fn sections(
        &mut self,
        mut list: Vec<Pending<'_>>,
        pool: &dyn Pool,
    ) -> Result<(), Error> {
        let mut keys = list.iter().map(|pending| pending.section.key());
        if let Some((section, index)) = keys.find(|key| self.sections.contains_key(key)) {
            return Err(Error::Repeated { section, index });
        }
        if let Some(old) = &self.old {
            each(pool, &mut list, |Pending { section, pieces }| {
                if let Some(found) = old.find(section, pieces) {
                    *section = section.at(&found);
                }
            })?;
        }
        // Where the old container has nothing, there is no place yet.
        let (mut new, old): (Vec<_>, Vec<_>) =
            list.into_iter().partition(|pending| pending.section.offset == 0);
        self.write_new(&mut new, pool)?;
        let lens = old.iter().map(|pending| pending.section.stored_len);
        self.reused = lens.fold(self.reused, u64::saturating_add);
        for Pending { section, .. } in new.iter().chain(&old) {
            let repeated = self.sections.insert(section.key(), *section);
            debug_assert!(repeated.is_none(), "a list names no section twice: {section:?}");
        }
        Ok(())
    }

    /// Write the sections that the old container has not: all at once, unless it is as fast to
    /// write one after the other.
    fn write_new(&mut self, new: &mut [Pending<'_>], pool: &dyn Pool) -> Result<(), Error> {
        let mut end = self.at;
        for Pending { section, pieces } in &mut *new {
            let (offset, raw_len) = (end, len_of(pieces));
            *section = Section { offset, stored_len: raw_len, raw_len, ..*section };
            end = end_of(offset, raw_len)?.next_multiple_of(ALIGN);
        }
        let room = match usize::try_from(end - self.at) {
            Ok(len) if !self.compresses => self.out.room(len),
            _ => None,
        };
        match room {
            Some(room) => fill(room, new, pool)?,
            None if self.compresses || pool.n_threads() == 1 => {
                return new.iter_mut().try_for_each(|pending| self.put_section(pending));
            }
            None => write_and_sum(self.out, new, pool)?,
        }
        self.at = end;
        Ok(())
    }

    /// Write a section behind those before it.
    fn put_section(&mut self, pending: &mut Pending<'_>) -> Result<(), Error> {
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
        let (start, last) = self.old().map_or((0, 0), |old| (old.committed_len(), old.generation()));
        let generation = last.saturating_add(1);
        let footer = Footer {
            generation,
            total: self.at.saturating_add(FOOTER_BYTES),
            directory_offset,
            directory_len: directory.len() as u64,
            directory_checksum: checksum(directory),
            whole_checksum: of_pieces(&[bytemuck::bytes_of(&self.head), directory]),
            ..Footer::zeroed()
        };
        let footer = footer.sealed();
        self.write(&[bytemuck::bytes_of(&footer)])?;
        let bytes = self.at;
        Ok(Written {
            bytes,
            written: bytes - start,
            reused: self.reused,
            waste: waste(&footer, check_all(&records, directory_offset)?),
            generation,
            whole_checksum: footer.whole_checksum,
            commit: Commit::new(generation, bytes, footer.checksum()),
        })
    }
}

/// Copy the content of sections to `room`, where each follows the one before, and sum it.
fn fill(mut room: &mut [u8], new: &mut [Pending<'_>], pool: &dyn Pool) -> Result<(), Error> {
    let mut places = Vec::with_capacity(new.len());
    for pending in new {
        let (place, rest) = room.split_at_mut(pending.section.raw_len.next_multiple_of(ALIGN) as usize);
        places.push((pending, place));
        room = rest;
    }
    each(pool, &mut places, |(pending, place)| {
        let (mut sum, mut rest) = (Checksum::new(), &mut **place);
        for piece in &pending.pieces {
            let (to, after) = rest.split_at_mut(piece.len());
            sum.add_copied(piece, to);
            rest = after;
        }
        rest.fill(0);
        pending.section.checksum = sum.value();
    })
}

/// Write the content of sections on one thread and sum it on another.
fn write_and_sum(out: &mut dyn Write, new: &mut [Pending<'_>], pool: &dyn Pool) -> Result<(), Error> {
    let mut bytes: Vec<&[u8]> = Vec::new();
    let mut sums = Vec::with_capacity(new.len());
    for Pending { section, pieces } in new {
        bytes.extend(pieces.iter().map(|piece| &**piece));
        bytes.push(padding(section.raw_len));
        sums.push((&mut section.checksum, &*pieces));
    }
    let mut written = Ok(());
    let mut tasks: [Box<dyn FnMut() + Send + '_>; 2] = [
        Box::new(|| written = out.write_pieces(&bytes)),
        Box::new(|| sums.iter_mut().for_each(|(sum, pieces)| **sum = of_pieces(pieces))),
    ];
    each(pool, &mut tasks, |task| task())?;
    drop(tasks);
    Ok(written?)
}

/// Call `f` for each of `list`, some on each thread.
///
/// # Errors
/// [`Error::Io`] if `f` panicked.
fn each<T: Send>(pool: &dyn Pool, list: &mut [T], f: impl Fn(&mut T) + Sync) -> Result<(), Error> {
    let n_jobs = n_jobs(pool, list.len(), 1);
    let parts = Parts::new(list, 1, n_jobs);
    let done = pool.run(n_jobs, &|job| {
        parts.take(job).map(|(_, part)| part).into_iter().flatten().for_each(&f);
    });
    done.map_err(|_| Error::Io(io::Error::Device { what: "a thread that was to write", code: 0 }))
}

/// Return the end of `len` bytes from `at` on; so far below the largest number that what is padded
/// and the footer still have an end.
fn end_of(at: u64, len: u64) -> Result<u64, Error> {
    let (what, limit) = ("bytes of a container", u64::MAX - 2 * ALIGN);
    let end = at.checked_add(len).filter(|end| *end <= limit);
    end.ok_or(Error::TooLarge { what, value: len, limit })
}

/// Return the zeros behind `len` bytes that begin at a multiple of [`ALIGN`].
fn padding(len: u64) -> &'static [u8] {
    const ZEROS: [u8; ALIGN as usize] = [0; ALIGN as usize];
    let (padding, _) = ZEROS.split_at(((ALIGN - len % ALIGN) % ALIGN) as usize);
    padding
}

/// Sections of an old container, by content.
struct Old<'a> {
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
    fn find<P: AsRef<[u8]>>(&self, section: &Section, pieces: &[P]) -> Option<Section> {
        let (tag, raw_len, sum) = (section.tag, len_of(pieces), of_pieces(pieces));
        let same_index = self.container.find(tag, section.index);
        let same_index = same_index.filter(|old| (old.raw_len, old.checksum) == (raw_len, sum));
        let old = same_index.or_else(|| self.by_content.get(&(tag, raw_len, sum)))?;
        self.container.source.holds(old, pieces).then_some(*old)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::io::Space;
    use crate::storage::{Container, Fingerprint, Header, Scope, Tag};
    use alloc::vec;
    use backstitch_core::pool::{Inline, ThreadPool};

    const HEADER: Header = Header { fingerprint: Fingerprint([3; 32]), scope: Scope::Sequence };
    const TAG: Tag = Tag(*b"TEST");

    /// Contents of all kinds of lengths, in pieces.
    fn contents() -> Vec<Vec<Vec<u8>>> {
        let lens: [&[usize]; 7] =
            [&[], &[0], &[1], &[64, 0, 63], &[100_000, 7], &[700_000, 65, 600_001], &[12_288; 40]];
        let byte = |seed: usize| (0..).map(move |i: usize| (i * 7 + i / 251 + seed) as u8);
        let pieces = |lens: &&[usize]| lens.iter().map(|len| byte(*len).take(*len).collect()).collect();
        lens.iter().map(pieces).collect()
    }

    fn pending(contents: &[Vec<Vec<u8>>]) -> Vec<Pending<'_>> {
        let contents = (0..).zip(contents);
        let mut list = Vec::new();
        for (index, of) in contents {
            let pieces = of.iter().map(|piece| Cow::Borrowed(&**piece)).collect();
            list.push(Pending { section: Section::named(TAG, 1, true, index), pieces });
        }
        list
    }

    fn write(out: &mut dyn Write, list: Vec<Pending<'_>>, pool: &dyn Pool) -> Result<(), Error> {
        let mut writer = Writer::in_place(out, HEADER)?;
        writer.sections(list, pool)?;
        writer.finish().map(drop)
    }

    #[test]
    fn sections_written_together_have_the_bytes_of_sections_written_one_by_one() {
        let contents = contents();
        let mut wanted = Vec::new();
        let mut writer = Writer::in_place(&mut wanted, HEADER).unwrap();
        for (index, pieces) in (0..).zip(&contents) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            writer.section(TAG, 1, true, index, &pieces).unwrap();
        }
        writer.finish().unwrap();
        let (two, three) = (ThreadPool::new(2).unwrap(), ThreadPool::new(3).unwrap());
        for pool in [&Inline as &dyn Pool, &two, &three] {
            let mut grown = Vec::new();
            write(&mut grown, pending(&contents), pool).unwrap();
            assert!(grown == wanted);
            let mut filled = vec![1; wanted.len()];
            write(&mut Space::new(&mut filled), pending(&contents), pool).unwrap();
            assert!(filled == wanted);
            let mut short = vec![1; wanted.len() - 1];
            assert!(write(&mut Space::new(&mut short), pending(&contents), pool).is_err());
        }
    }

    #[test]
    fn sections_that_the_old_container_has_are_not_written_again_on_any_number_of_threads() {
        let mut contents = contents();
        let mut old = Vec::new();
        let mut writer = Writer::in_place(&mut old, HEADER).unwrap();
        writer.sections(pending(&contents), &Inline).unwrap();
        let (at, slot) = writer.finish().unwrap().slot();
        old[at as usize..][..slot.len()].copy_from_slice(&slot);
        contents[5][0][1000] ^= 1;
        let container = Container::parse(&old).unwrap();
        let two = ThreadPool::new(2).unwrap();
        for pool in [&Inline as &dyn Pool, &two] {
            let mut tail = Vec::new();
            let mut writer = Writer::append(&mut tail, &container).unwrap();
            writer.sections(pending(&contents), pool).unwrap();
            let written = writer.finish().unwrap();
            assert_eq!(written.reused, 1 + 127 + 100_007 + 40 * 12_288);
            assert!(written.written < 1_310_000, "{written:?}");
        }
    }

    /// Takes some bytes, then fails or panics.
    struct Failing {
        left: usize,
        panics: bool,
    }

    impl Write for Failing {
        fn write_all(&mut self, bytes: &[u8]) -> Result<(), io::Error> {
            assert!(!self.panics || bytes.len() <= self.left, "on purpose");
            let full = io::Error::Full { need: bytes.len() as u64, free: self.left as u64 };
            self.left = self.left.checked_sub(bytes.len()).ok_or(full)?;
            Ok(())
        }
    }

    #[test]
    fn a_receiver_that_fails_or_panics_on_another_thread_ends_in_an_error() {
        let contents = contents();
        let two = ThreadPool::new(2).unwrap();
        for left in [4096, 5000, 600_000, 1_500_000] {
            let error = write(&mut Failing { left, panics: false }, pending(&contents), &two).unwrap_err();
            assert!(matches!(error, Error::Io(io::Error::Full { .. })), "{left}: {error:?}");
        }
        let mut out = Failing { left: 1_500_000, panics: true };
        let error = write(&mut out, pending(&contents), &two).unwrap_err();
        assert!(matches!(error, Error::Io(io::Error::Device { .. })), "{error:?}");
    }
}
