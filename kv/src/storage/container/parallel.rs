//! Writing several sections at once, on all threads of a pool: sections that an old container has
//! are found in it, and new ones are copied to the receiver's own room while they are summed. A
//! receiver without room is written to by one thread, while another sums the same bytes.
//!
//! The container gets the same bytes as if they came one after the other.

use super::checksum::{Checksum, of_pieces};
use super::layout::ALIGN;
use super::section::Section;
use super::writer::{Writer, end_of, len_of, padding};
use crate::io::{self, Write};
use crate::storage::error::Error;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use backstitch_core::pool::{Parts, Pool, n_jobs};

/// A section that is to be written: its record, which gets its place on the way, and its content,
/// pieces one after the other.
pub(in crate::storage) struct Pending<'p> {
    pub section: Section,
    pub pieces: Vec<Cow<'p, [u8]>>,
}

impl Writer<'_> {
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
        for Pending { section, .. } in &old {
            self.reused = self.reused.saturating_add(section.stored_len);
        }
        let written = new.iter().chain(&old).map(|pending| (pending.section.key(), pending.section));
        self.sections.extend(written);
        Ok(())
    }

    /// Write the sections that the old container has not: all at once, unless it is as fast to write
    /// one after the other.
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
