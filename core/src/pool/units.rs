//! One thread's share of a run, in one atomic word, from which other threads may take.
//!
//! The word holds the range of jobs that nobody has claimed yet, and whether the thread sleeps or
//! is to end. Everything that a claim depends on is in the word, so a claim that was prepared long
//! ago either fails or is as good as a fresh one.
//!
//! ```text
//! bit   63     62       61 .. 31    30 .. 0
//!       stop   asleep   end         start       of the jobs that nobody has claimed
//! ```
//! The owner claims from the start, other threads from the end, each with one compare-and-exchange.

use super::sync::{AtomicU64, Ordering};
use core::ops::Range;

/// The share has as many bits for its start and for its end.
const BITS: u32 = 31;
const MASK: u64 = (1 << BITS) - 1;
/// The thread sleeps and must be woken; no jobs are in the word then.
const ASLEEP: u64 = 1 << 62;
/// The thread is to end; no jobs are in the word then.
const STOP: u64 = 1 << 63;

/// The most jobs of a run that can be shared out.
pub(super) const MAX_UNITS: usize = MASK as usize;

/// The rest of a thread's share.
#[derive(Debug)]
pub(super) struct Units(AtomicU64);

fn range(word: u64) -> Range<u64> {
    word & MASK..word >> BITS & MASK
}

impl Units {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Hand out `jobs`, whose end is at most [`MAX_UNITS`]; return true if the thread sleeps and
    /// has to be woken.
    ///
    /// Only when no job is left. Everything that the caller wrote before is seen by the thread that
    /// claims one.
    pub(super) fn deal(&self, jobs: Range<usize>) -> bool {
        self.0.swap(jobs.start as u64 | (jobs.end as u64) << BITS, Ordering::AcqRel) & ASLEEP != 0
    }

    /// Claim the first job that is left: for the thread whose share it is, so that it walks
    /// through memory in order.
    pub(super) fn first(&self) -> Option<usize> {
        self.claim(|word, jobs| (word + 1, jobs.start))
    }

    /// Claim the last job that is left: for other threads.
    pub(super) fn last(&self) -> Option<usize> {
        self.claim(|word, jobs| (word - (1 << BITS), jobs.end - 1))
    }

    fn claim(&self, next: impl Fn(u64, Range<u64>) -> (u64, u64)) -> Option<usize> {
        let mut word = self.0.load(Ordering::Relaxed);
        while !range(word).is_empty() {
            let (less, job) = next(word, range(word));
            // Acquire: with the job comes what was written before it was handed out.
            match self.0.compare_exchange_weak(word, less, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(job as usize),
                Err(found) => word = found,
            }
        }
        None
    }

    /// Return true if the thread whose share it is has something to do: a job, or to end.
    pub(super) fn is_called(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & STOP != 0 || !range(word).is_empty()
    }

    /// Return true if the thread is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STOP != 0
    }

    /// Mark the thread as sleeping, until [`Units::sleeps`] is false; unless there is something to
    /// do.
    pub(super) fn fall_asleep(&self) {
        let word = self.0.load(Ordering::Relaxed);
        if word & STOP == 0 && range(word).is_empty() {
            // If this fails, something has just come. Release: the thread's work for earlier runs
            // stays before.
            let _ = self.0.compare_exchange(word, ASLEEP, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Return true if the thread may go on sleeping.
    pub(super) fn sleeps(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASLEEP
    }

    /// Tell the thread to end; it has to be woken.
    pub(super) fn stop(&self) {
        self.0.swap(STOP, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_claimed_from_both_ends_until_nothing_is_left() {
        let units = Units::new();
        assert!(!units.is_called() && units.first().is_none() && units.last().is_none());
        assert!(!units.deal(3..7));
        assert!(units.is_called());
        let claimed = [units.first(), units.last(), units.first(), units.last(), units.first(), units.last()];
        assert_eq!(claimed, [Some(3), Some(6), Some(4), Some(5), None, None]);
        assert!(!units.is_called());
    }

    #[test]
    fn the_largest_share_fits() {
        let units = Units::new();
        units.deal(MAX_UNITS - 1..MAX_UNITS);
        assert_eq!([units.last(), units.first()], [Some(MAX_UNITS - 1), None]);
        units.deal(0..MAX_UNITS);
        assert_eq!([units.first(), units.last()], [Some(0), Some(MAX_UNITS - 1)]);
    }

    #[test]
    fn a_sleeper_is_woken_by_what_there_is_to_do() {
        let units = Units::new();
        units.fall_asleep();
        assert!(units.sleeps() && units.first().is_none());
        assert!(units.deal(0..1));
        assert!(!units.sleeps());
        units.fall_asleep();
        assert!(!units.sleeps(), "while a job is there");
        assert_eq!(units.last(), Some(0));
        units.fall_asleep();
        units.stop();
        assert!(!units.sleeps() && units.is_called() && units.is_stopped());
        units.fall_asleep();
        assert!(!units.sleeps() && units.is_stopped());
    }
}
