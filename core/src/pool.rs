//! One job on several threads, and outputs split between jobs.
//!
//! Work is always split by output, never by reduction: each element is computed by one job in one
//! fixed order, so the number of threads cannot change a bit. A [`Pool`] runs numbered jobs;
//! [`Parts`] and [`Bands`] give each job its own piece of a slice, so that safe code runs in
//! parallel.
//!
//! With the feature `std` there is a [`ThreadPool`]; without it, and for tests, [`Inline`] runs all
//! jobs on the caller's thread.
//!
//! | file | content |
//! |---|---|
//! | `parts.rs`, `bands.rs`, `claims.rs` | slices and matrices cut into pieces, one a job |
//! | `threads.rs` | threads that spin, sleep, and help each other |
//! | `units.rs` | a thread's share of the jobs in one atomic word |
//! | `patience.rs` | the time that a thread spins |
//! | `sync.rs` | primitives of `std`, or of loom in tests |

mod bands;
mod claims;
#[cfg(test)]
pub(crate) mod limited;
mod parts;
#[cfg(feature = "std")]
mod patience;
#[cfg(feature = "std")]
mod sync;
#[cfg(feature = "std")]
mod threads;
#[cfg(feature = "std")]
mod units;

pub use bands::{Band, Bands, Share};
pub use parts::Parts;
#[cfg(feature = "std")]
pub use threads::ThreadPool;

pub use crate::error::Panicked;

/// The most threads a pool may have, and so the most jobs that outputs are split into.
pub const MAX_THREADS: usize = 512;

/// A runner of numbered jobs, on as many threads as it has.
pub trait Pool: Sync {
    /// Return the number of jobs that run at once; at least 1.
    fn n_threads(&self) -> usize;

    /// Return the number of jobs into which large work is best cut: a few for each thread if
    /// threads help each other.
    fn n_pieces(&self) -> usize {
        self.n_threads()
    }

    /// Return the most work that a job should do, in multiply-adds.
    ///
    /// A pool that may be told to stop looks between jobs, and limits their length. A limit makes
    /// more jobs of large work, never more than fit [`MAX_THREADS`].
    fn most_per_job(&self) -> u64 {
        u64::MAX
    }

    /// Call `job(0)`, ..., `job(n_jobs - 1)`, each once, and return when all have returned.
    ///
    /// # Errors
    /// [`Panicked`] if a job panicked; the others were run all the same.
    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked>;
}

/// The pool without threads: runs all jobs, in order, where it is called.
///
/// Without the feature `std` a panic cannot be caught, and passes through [`Pool::run`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Pool for Inline {
    fn n_threads(&self) -> usize {
        1
    }

    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        // All are run before the verdict, as on a pool with threads.
        let n_panicked = (0..n_jobs).filter(|&i| !returns(job, i)).count();
        if n_panicked == 0 { Ok(()) } else { Err(Panicked) }
    }
}

/// Run job `i`; false if it panicked.
fn returns(job: &(dyn Fn(usize) + Sync), i: usize) -> bool {
    #[cfg(feature = "std")]
    {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(i)));
        // The panic's payload is never dropped: its destructor may panic too, and nothing may
        // unwind while threads hold the job.
        result.map_err(core::mem::forget).is_ok()
    }
    #[cfg(not(feature = "std"))]
    {
        job(i);
        true
    }
}

/// Return the number of jobs into which to split `n_units` of work, so that none gets fewer than
/// `least`.
pub fn n_jobs(pool: &dyn Pool, n_units: usize, least: usize) -> usize {
    pool.n_pieces().min(n_units / least.max(1)).clamp(1, MAX_THREADS)
}

/// Return the number of jobs like [`n_jobs`], and more where a job would exceed
/// [`Pool::most_per_job`], with units that cost `each` multiply-adds.
pub fn n_limited_jobs(pool: &dyn Pool, n_units: usize, least: usize, each: u64) -> usize {
    let (n_jobs, most) = (n_jobs(pool, n_units, least), pool.most_per_job());
    if most == u64::MAX {
        return n_jobs;
    }
    let n_pieces = each.saturating_mul(n_units as u64).div_ceil(most.max(1)).min(n_units as u64);
    n_jobs.max(n_pieces.min(MAX_THREADS as u64) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::limited::Limited;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "a panic ends the program there")]
    fn the_inline_pool_runs_every_job_and_reports_a_panic() {
        let sum = AtomicUsize::new(0);
        let add = |i| {
            sum.fetch_add(i + 1, Relaxed);
        };
        assert_eq!(Inline.run(4, &add), Ok(()));
        assert_eq!(sum.load(Relaxed), 10);
        let some_panic = |i| {
            sum.fetch_add(1, Relaxed);
            assert!(i != 1, "on purpose");
        };
        assert_eq!(Inline.run(3, &some_panic), Err(Panicked));
        assert_eq!(sum.load(Relaxed), 13);
    }

    #[test]
    fn large_work_is_split_where_jobs_are_limited() {
        assert_eq!(n_limited_jobs(&Inline, 100, 1, u64::MAX), 1);
        assert_eq!(n_limited_jobs(&Limited::new(1000), 100, 1, 50), 5);
        assert_eq!(n_limited_jobs(&Limited::new(1000), 100, 1, 51), 6);
        assert_eq!(n_limited_jobs(&Limited::new(1000), 100, 1, 5), 1);
        assert_eq!(n_limited_jobs(&Limited::new(0), 100, 1, 5), 100);
        assert_eq!(n_limited_jobs(&Limited::new(1), 100_000, 1, 5), MAX_THREADS);
        assert_eq!(n_limited_jobs(&Limited::new(1), 0, 1, 5), 1);
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "no threads there")]
    fn small_work_is_not_split() {
        assert_eq!(n_jobs(&Inline, 100, 1), 1);
        let two = ThreadPool::new(2).unwrap();
        assert_eq!(n_jobs(&two, 100, 10), two.n_pieces());
        assert_eq!(n_jobs(&two, 29, 10), 2);
        assert_eq!(n_jobs(&two, 19, 10), 1);
        assert_eq!(n_jobs(&two, 0, 0), 1);
    }
}
