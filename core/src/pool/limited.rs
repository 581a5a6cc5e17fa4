//! A pool of one thread that limits the work of a job, for tests.

use super::{Inline, Panicked, Pool};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A pool that runs jobs in order, asks that none exceeds `most`, and keeps the largest number of
/// jobs of a run.
#[derive(Debug)]
pub(crate) struct Limited {
    pub most: u64,
    n_jobs: AtomicUsize,
}

impl Limited {
    pub fn new(most: u64) -> Self {
        Limited { most, n_jobs: AtomicUsize::new(0) }
    }

    /// Return the largest number of jobs of a run since this was last asked.
    pub fn n_jobs(&self) -> usize {
        self.n_jobs.swap(0, Ordering::Relaxed)
    }
}

impl Pool for Limited {
    fn n_threads(&self) -> usize {
        1
    }

    fn most_per_job(&self) -> u64 {
        self.most
    }

    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        self.n_jobs.fetch_max(n_jobs, Ordering::Relaxed);
        Inline.run(n_jobs, job)
    }
}
