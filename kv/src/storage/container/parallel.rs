//! Writing several sections at once, on all threads of a pool: sections that an old container has
//! are found in it, and new ones are copied to the receiver's own room while they are summed. A
//! receiver without room is written to by one thread, while another sums the same bytes.
//!
//! The container gets the same bytes as if they came one after the other.

use super::checksum::{Checksum, of_pieces};
use super::layout::ALIGN;
use super::section::{Name, Section};
use super::writer::{Writer, end_of, len_of, padding};
use crate::io::{self, Write};
use crate::storage::error::Error;
use alloc::boxed::Box;
use alloc::vec::Vec;
use backstitch_core::pool::{Parts, Pool, n_jobs};

/// A section that is to be written, and its content: pieces, one after the other.
pub(in crate::storage) struct Pending<'p> {
    pub name: Name,
    pub pieces: Vec<&'p [u8]>,
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
        let mut found: Vec<(&Pending<'_>, Option<Section>)> =
            list.iter().map(|pending| (pending, None)).collect();
        if let Some(old) = &self.old {
            each(pool, &mut found, |(pending, found)| *found = old.find(pending.name, &pending.pieces))?;
        }
        let Some(new) = self.write_new(&found, pool)? else {
            return found
                .iter()
                .try_for_each(|(pending, found)| self.put_section(pending.name, &pending.pieces, *found));
        };
        new.into_iter().try_for_each(|(_, section)| self.insert(section))?;
        let mut known = found.iter().filter_map(|(pending, found)| Some((pending.name, (*found)?)));
        known.try_for_each(|(name, old)| self.refer(name, old))
    }

    /// Write the sections that were not found; `None` if that is no faster than to write one after
    /// the other.
    fn write_new<'l>(
        &mut self,
        found: &[(&'l Pending<'l>, Option<Section>)],
        pool: &dyn Pool,
    ) -> Result<Option<Vec<(&'l Pending<'l>, Section)>>, Error> {
        if self.compresses {
            return Ok(None);
        }
        let (mut new, mut end) = (Vec::new(), self.at);
        for &(pending, _) in found.iter().filter(|(_, found)| found.is_none()) {
            let (offset, raw_len) = (end, len_of(&pending.pieces));
            let section = Section { offset, stored_len: raw_len, raw_len, ..Section::named(pending.name) };
            new.push((pending, section));
            end = end_of(offset, raw_len)?.next_multiple_of(ALIGN);
        }
        let room = match usize::try_from(end - self.at) {
            Ok(len) => self.out.room(len),
            Err(_) => None,
        };
        if let Some(room) = room {
            fill(room, &mut new, pool)?;
        } else if pool.n_threads() > 1 {
            write_and_sum(self.out, &mut new, pool)?;
        } else {
            return Ok(None);
        }
        self.at = end;
        Ok(Some(new))
    }
}

/// Copy the content of sections to `room`, where each follows the one before, and sum it.
fn fill(mut room: &mut [u8], new: &mut [(&Pending<'_>, Section)], pool: &dyn Pool) -> Result<(), Error> {
    let mut places = Vec::with_capacity(new.len());
    for (pending, section) in new {
        let (place, rest) = room.split_at_mut(section.raw_len.next_multiple_of(ALIGN) as usize);
        places.push((*pending, section, place));
        room = rest;
    }
    each(pool, &mut places, |(pending, section, place)| {
        let (mut sum, mut rest) = (Checksum::new(), &mut **place);
        for piece in &pending.pieces {
            let (to, after) = rest.split_at_mut(piece.len());
            sum.add_copied(piece, to);
            rest = after;
        }
        rest.fill(0);
        section.checksum = sum.value();
    })
}

/// Write the content of sections on one thread and sum it on another.
fn write_and_sum(
    out: &mut dyn Write,
    new: &mut [(&Pending<'_>, Section)],
    pool: &dyn Pool,
) -> Result<(), Error> {
    let mut pieces: Vec<&[u8]> = Vec::new();
    for (pending, section) in &*new {
        pieces.extend(&pending.pieces);
        pieces.push(padding(section.raw_len));
    }
    let mut written = Ok(());
    let mut tasks: [Box<dyn FnMut() + Send + '_>; 2] = [
        Box::new(|| written = out.write_pieces(&pieces)),
        Box::new(|| {
            new.iter_mut().for_each(|(pending, section)| section.checksum = of_pieces(&pending.pieces));
        }),
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
