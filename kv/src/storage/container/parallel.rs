//! Writing several sections at once: what an old container has of them is found, and room is
//! filled, on all threads of a pool; where there is no room but a system to be called, one thread
//! gathers and sums up what the other writes.
//!
//! The container gets the same bytes as if they came one after the other.

use super::checksum::Checksum;
use super::layout::{ALIGN, align};
use super::section::{Name, Section};
use super::writer::{Writer, len_of};
use crate::io::{self, Write};
use crate::storage::error::Error;
use alloc::vec::Vec;
use backstitch_core::pool::{Parts, Pool, n_jobs};

/// A section that is to be written, and its content: pieces, one after the other.
pub(in crate::storage) struct Pending<'p> {
    pub name: Name,
    pub pieces: Vec<&'p [u8]>,
}

impl Pending<'_> {
    /// Return its record, stored at `offset` as it is.
    fn section(&self, offset: u64, checksum: u64) -> Section {
        let raw_len = len_of(&self.pieces);
        Section { offset, stored_len: raw_len, raw_len, checksum, ..Section::named(self.name) }
    }
}

/// The plan of a section.
struct PlannedSection<'l> {
    pending: &'l Pending<'l>,
    /// The section of the old container with this content.
    found: Option<Section>,
}

/// A section and where its bytes go, padded.
struct Place<'l, 'r> {
    pending: &'l Pending<'l>,
    room: &'r mut [u8],
    offset: u64,
    checksum: Option<u64>,
}

impl Place<'_, '_> {
    /// Copy the pieces and sums them up.
    fn fill(&mut self) -> u64 {
        let (mut sum, mut rest) = (Checksum::new(), &mut *self.room);
        for piece in &self.pending.pieces {
            let (to, after) = rest.split_at_mut(piece.len().min(rest.len()));
            sum.add_copied(piece, to);
            rest = after;
        }
        rest.fill(0);
        sum.value()
    }

    fn section(&mut self) -> Section {
        // A job that panicked left its sections to this thread, where whatever it was reaches the
        // caller.
        let checksum = self.checksum.take().unwrap_or_else(|| self.fill());
        self.pending.section(self.offset, checksum)
    }
}

impl Writer<'_> {
    /// Write sections, in their order, on all threads of `pool` as far as possible.
    ///
    /// # Errors
    /// As [`Writer::section`].
    pub(in crate::storage) fn sections(
        &mut self,
        list: &[Pending<'_>],
        pool: &dyn Pool,
    ) -> Result<(), Error> {
        let mut planned: Vec<PlannedSection<'_>> =
            list.iter().map(|pending| PlannedSection { pending, found: None }).collect();
        if let Some(old) = self.old_content() {
            each(pool, &mut planned, |PlannedSection { pending, found }| {
                *found = old.find(pending.name.tag, pending.name.index, &pending.pieces);
            });
        }
        if self.fill_room(&planned, pool)? {
            return Ok(());
        }
        if pool.n_threads() > 1 && !self.compresses() {
            return self.write_gathered(&planned, pool);
        }
        planned.iter().try_for_each(|PlannedSection { pending, found }| {
            self.put_section(pending.name, &pending.pieces, *found)
        })
    }

    /// Fill the receiver's own room; false if it has none to give.
    fn fill_room(&mut self, planned: &[PlannedSection<'_>], pool: &dyn Pool) -> Result<bool, Error> {
        let start = self.at();
        let end = planned
            .iter()
            .filter(|plan| plan.found.is_none())
            .try_fold(start, |at, plan| align(at.checked_add(len_of(&plan.pending.pieces))?));
        let Some(room) = end.and_then(|end| self.room(end - start)) else { return Ok(false) };
        let (mut rest, mut offset) = (room, start);
        let mut places = Vec::with_capacity(planned.len());
        for PlannedSection { pending, .. } in planned.iter().filter(|plan| plan.found.is_none()) {
            let end = align(offset.saturating_add(len_of(&pending.pieces))).unwrap_or(offset);
            let (room, after) = rest.split_at_mut(((end - offset) as usize).min(rest.len()));
            places.push(Place { pending, room, offset, checksum: None });
            (rest, offset) = (after, end);
        }
        each(pool, &mut places, |place| place.checksum = Some(place.fill()));
        let written: Vec<Section> = places.iter_mut().map(Place::section).collect();
        self.took(offset);
        self.note(planned, written)?;
        Ok(true)
    }

    /// Note where the sections are: those that were found, and those that were written, in order.
    fn note(&mut self, planned: &[PlannedSection<'_>], written: Vec<Section>) -> Result<(), Error> {
        let mut written = written.into_iter();
        for PlannedSection { pending, found } in planned {
            match found {
                Some(old) => self.refer(pending.name, *old)?,
                None => written.next().map_or(Ok(()), |section| self.insert(section))?,
            }
        }
        Ok(())
    }

    /// Write what was not found while another thread gathers what comes after it.
    fn write_gathered(&mut self, planned: &[PlannedSection<'_>], pool: &dyn Pool) -> Result<(), Error> {
        let waiting = planned.iter().filter(|plan| plan.found.is_none()).map(|plan| plan.pending).collect();
        let mut gatherer = Gatherer::new(waiting, self.at());
        let (mut ready, mut next) = (Vec::new(), Vec::new());
        gatherer.gather(&mut ready)?;
        while !ready.is_empty() {
            self.end_of(ready.len() as u64)?;
            let (len, mut gathered, mut written) = (ready.len() as u64, None, None);
            let mut tasks = [
                Task::Write { out: self.out(), bytes: &ready, done: &mut written },
                Task::Gather { gatherer: &mut gatherer, bytes: &mut next, done: &mut gathered },
            ];
            each(pool, &mut tasks, Task::run);
            let panicked = io::Error::Device { what: "a thread that was to write", code: 0 };
            written.unwrap_or(Err(panicked))?;
            gathered.unwrap_or(Err(Error::OutOfMemory { bytes: GATHERED as u64 }))?;
            self.took(self.at() + len);
            core::mem::swap(&mut ready, &mut next);
        }
        self.note(planned, gatherer.done)
    }
}

/// Bytes that are gathered at a time: as much as stays in the second cache together with what it
/// was gathered from.
const GATHERED: usize = 512 << 10;

/// Turns sections into a stream of bytes.
struct Gatherer<'l> {
    waiting: alloc::vec::IntoIter<&'l Pending<'l>>,
    /// The section that has partial.
    section: Option<PartialSection<'l>>,
    /// The offset of the next byte in the container.
    at: u64,
    done: Vec<Section>,
}

/// A section of which some may be gathered.
struct PartialSection<'l> {
    pending: &'l Pending<'l>,
    offset: u64,
    sum: Checksum,
    pieces: core::slice::Iter<'l, &'l [u8]>,
    piece: &'l [u8],
}

impl<'l> Gatherer<'l> {
    fn new(waiting: Vec<&'l Pending<'l>>, at: u64) -> Self {
        Gatherer { waiting: waiting.into_iter(), section: None, at, done: Vec::new() }
    }

    /// Put the next bytes in place of those in `into`; none when all are gathered.
    fn gather(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        into.clear();
        // The last section is padded beyond.
        let bytes = GATHERED + ALIGN as usize;
        into.try_reserve_exact(bytes).map_err(|_| Error::OutOfMemory { bytes: bytes as u64 })?;
        while into.len() < GATHERED {
            let partial = match self.section.take() {
                Some(partial) => partial,
                None => match self.waiting.next() {
                    Some(pending) => PartialSection::new(pending, self.at),
                    None => break,
                },
            };
            self.go_on(partial, into)?;
        }
        Ok(())
    }

    /// Take a piece of a section, as much as there is room for, or ends it.
    fn go_on(&mut self, mut partial: PartialSection<'l>, into: &mut Vec<u8>) -> Result<(), Error> {
        if partial.piece.is_empty() {
            let Some(piece) = partial.pieces.next() else { return self.end(partial, into) };
            partial.piece = piece;
        }
        let (now, later) = partial.piece.split_at(partial.piece.len().min(GATHERED - into.len()));
        into.extend_from_slice(now);
        partial.sum.add(now);
        partial.piece = later;
        self.at += now.len() as u64;
        self.section = Some(partial);
        Ok(())
    }

    fn end(&mut self, partial: PartialSection<'l>, into: &mut Vec<u8>) -> Result<(), Error> {
        let PartialSection { pending, offset, sum, .. } = partial;
        let (what, value, limit) = ("bytes of a container", self.at, u64::MAX - ALIGN);
        let end = align(self.at).ok_or(Error::TooLarge { what, value, limit })?;
        into.resize(into.len() + (end - self.at) as usize, 0);
        self.at = end;
        self.done.push(pending.section(offset, sum.value()));
        Ok(())
    }
}

impl<'l> PartialSection<'l> {
    fn new(pending: &'l Pending<'l>, offset: u64) -> Self {
        PartialSection { pending, offset, sum: Checksum::new(), pieces: pending.pieces.iter(), piece: &[] }
    }
}

/// The task of one of two threads.
enum Task<'t, 'l> {
    Write { out: &'t mut dyn Write, bytes: &'t [u8], done: &'t mut Option<Result<(), io::Error>> },
    Gather { gatherer: &'t mut Gatherer<'l>, bytes: &'t mut Vec<u8>, done: &'t mut Option<Result<(), Error>> },
}

impl Task<'_, '_> {
    fn run(&mut self) {
        match self {
            Task::Write { out, bytes, done } => **done = Some(out.write_all(bytes)),
            Task::Gather { gatherer, bytes, done } => **done = Some(gatherer.gather(bytes)),
        }
    }
}

/// Call `f` for each of `list`, some on each thread. What a panic kept it from is for the caller
/// to notice.
fn each<T: Send>(pool: &dyn Pool, list: &mut [T], f: impl Fn(&mut T) + Sync) {
    let n_jobs = n_jobs(pool, list.len(), 1);
    let parts = Parts::new(list, 1, n_jobs);
    // The result says no more than what the list shows.
    let _ = pool.run(n_jobs, &|job| {
        parts.take(job).map(|(_, part)| part).into_iter().flatten().for_each(&f);
    });
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
            let pieces = of.iter().map(Vec::as_slice).collect();
            list.push(Pending { name: Name { tag: TAG, version: 1, required: true, index }, pieces });
        }
        list
    }

    fn write(out: &mut dyn Write, list: &[Pending<'_>], pool: &dyn Pool) -> Result<(), Error> {
        let mut writer = Writer::in_place(out, HEADER)?;
        writer.sections(list, pool)?;
        writer.finish().map(drop)
    }

    #[test]
    fn sections_written_together_have_the_bytes_of_sections_written_one_by_one() {
        let contents = contents();
        let list = pending(&contents);
        let mut wanted = Vec::new();
        let mut writer = Writer::in_place(&mut wanted, HEADER).unwrap();
        for Pending { name: Name { tag, version, index, .. }, pieces } in &list {
            writer.section(*tag, *version, true, *index, pieces).unwrap();
        }
        writer.finish().unwrap();
        let (two, three) = (ThreadPool::new(2).unwrap(), ThreadPool::new(3).unwrap());
        for pool in [&Inline as &dyn Pool, &two, &three] {
            let mut grown = Vec::new();
            write(&mut grown, &list, pool).unwrap();
            assert!(grown == wanted);
            let mut filled = vec![1; wanted.len()];
            write(&mut Space::new(&mut filled), &list, pool).unwrap();
            assert!(filled == wanted);
            let mut short = vec![1; wanted.len() - 1];
            assert!(write(&mut Space::new(&mut short), &list, pool).is_err());
        }
    }

    #[test]
    fn sections_that_the_old_container_has_are_not_written_again_on_any_number_of_threads() {
        let mut contents = contents();
        let mut old = Vec::new();
        let mut writer = Writer::in_place(&mut old, HEADER).unwrap();
        writer.sections(&pending(&contents), &Inline).unwrap();
        let (at, slot) = writer.finish().unwrap().slot();
        old[at as usize..][..slot.len()].copy_from_slice(&slot);
        contents[5][0][1000] ^= 1;
        let container = Container::parse(&old).unwrap();
        let two = ThreadPool::new(2).unwrap();
        for pool in [&Inline as &dyn Pool, &two] {
            let mut tail = Vec::new();
            let mut writer = Writer::append(&mut tail, &container).unwrap();
            writer.sections(&pending(&contents), pool).unwrap();
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
            let error = write(&mut Failing { left, panics: false }, &pending(&contents), &two).unwrap_err();
            assert!(matches!(error, Error::Io(io::Error::Full { .. })), "{left}: {error:?}");
        }
        let mut out = Failing { left: 1_500_000, panics: true };
        let error = write(&mut out, &pending(&contents), &two).unwrap_err();
        assert!(matches!(error, Error::Io(io::Error::Device { .. })), "{error:?}");
    }
}
