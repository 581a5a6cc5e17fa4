//! One flag a job, so that no piece of an output is handed out twice.

use super::MAX_THREADS;
use core::sync::atomic::{AtomicU32, Ordering};

const BITS: usize = u32::BITS as usize;

/// The jobs that have taken their piece. Safe code cannot be trusted to call each job once; this
/// makes a second call harmless.
#[derive(Debug)]
pub(super) struct Claims([AtomicU32; MAX_THREADS / BITS]);

impl Claims {
    pub(super) fn new() -> Self {
        Self([const { AtomicU32::new(0) }; MAX_THREADS / BITS])
    }

    /// Return true at the first call for `job`, false at every later one and for numbers beyond
    /// [`MAX_THREADS`].
    pub(super) fn claim(&self, job: usize) -> bool {
        let bit = 1 << (job % BITS);
        // Relaxed suffices: it only matters which caller gets the bit; the pool orders the writes
        // before the end of its run.
        self.0.get(job / BITS).is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_let_in_once() {
        let claims = Claims::new();
        for job in [0, 1, 31, 32, MAX_THREADS - 1] {
            assert!(claims.claim(job), "{job}");
            assert!(!claims.claim(job), "{job}");
        }
        assert!(!claims.claim(MAX_THREADS));
        assert!(!claims.claim(usize::MAX));
    }
}
