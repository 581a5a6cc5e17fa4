//! A slice cut into contiguous parts, one a job.
//!
//! A job asks for its part by its number and gets it once. That is all that makes parallel writes
//! to one slice safe: parts are disjoint, and no part is handed out twice.

#![allow(unsafe_code)]

use super::{MAX_THREADS, claims::Claims};
use core::marker::PhantomData;

/// A mutable slice cut into contiguous parts of whole units, one a job; each job takes its own.
///
/// ```
/// use backstitch_core::pool::{Inline, Parts, Pool};
/// let mut x = [0; 10];
/// let parts = Parts::new(&mut x, 2, 3); // ten elements, in twos, for three jobs
/// Inline.run(3, &|job| {
///     if let Some((first, part)) = parts.take(job) {
///         part.iter_mut().enumerate().for_each(|(i, x)| *x = first + i);
///     }
/// })?;
/// assert_eq!(x, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// # Ok::<(), backstitch_core::pool::Panicked>(())
/// ```
#[derive(Debug)]
pub struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    unit: usize,
    n_jobs: usize,
    claims: Claims,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: all that a shared `Parts` gives away are disjoint mutable parts, each to one caller; that
// needs no more than that the elements may be sent to the thread which takes them.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Cut `x` into `n_jobs` parts (at least 1, at most [`MAX_THREADS`]) of nearly equal numbers
    /// of units; a unit is `unit` elements (at least 1), the last may be shorter.
    pub fn new(x: &'a mut [T], unit: usize, n_jobs: usize) -> Self {
        let (unit, n_jobs) = (unit.max(1), n_jobs.clamp(1, MAX_THREADS));
        Self { start: x.as_mut_ptr(), len: x.len(), unit, n_jobs, claims: Claims::new(), slice: PhantomData }
    }

    /// Return the index of the first element of the part of `job`, and the part; none if asked
    /// again, or if `job` is not below the number of jobs.
    pub fn take(&self, job: usize) -> Option<(usize, &'a mut [T])> {
        if job >= self.n_jobs || !self.claims.claim(job) {
            return None;
        }
        let (start, end) = (self.bound(job), self.bound(job + 1));
        // SAFETY: `bound` is at most `len`, so the start stays inside the borrowed slice or at its
        // end.
        let first = unsafe { self.start.add(start) };
        // SAFETY: `bound` does not decrease, so parts of different jobs are disjoint parts of the
        // borrowed slice; the claim above lets each out once, and nobody else has the slice for 'a.
        let part = unsafe { core::slice::from_raw_parts_mut(first, end - start) };
        Some((start, part))
    }

    /// Return the start of the part of `job`: does not decrease, from 0 to `len`.
    fn bound(&self, job: usize) -> usize {
        let n_units = self.len.div_ceil(self.unit);
        // Without overflow: job <= n_jobs <= 512.
        let (each, extra) = (n_units / self.n_jobs, n_units % self.n_jobs);
        (each * job + extra * job / self.n_jobs).saturating_mul(self.unit).min(self.len)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::{Pool, ThreadPool};

    #[test]
    fn parts_cover_the_slice_once_in_whole_units() {
        for (len, unit, n_jobs) in
            [(0, 1, 1), (1, 1, 4), (10, 3, 2), (10, 3, 7), (64, 16, 3), (5, 8, 2), (7, 0, 0)]
        {
            let mut x = vec![0; len];
            let parts = Parts::new(&mut x, unit, n_jobs);
            let mut next = 0;
            for job in 0..n_jobs.max(1) {
                let (first, part) = parts.take(job).unwrap();
                assert_eq!(first, next, "{len} {unit} {n_jobs}");
                assert!(first % unit.max(1) == 0 || first == len);
                part.iter_mut().for_each(|x| *x += 1);
                next += part.len();
            }
            assert!(x.iter().all(|&x| x == 1) && next == len);
        }
    }

    #[test]
    fn a_part_is_given_once() {
        let mut x = [0; 4];
        let parts = Parts::new(&mut x, 1, 2);
        assert!(parts.take(1).is_some());
        assert!(parts.take(1).is_none());
        assert!(parts.take(2).is_none());
    }

    #[test]
    fn threads_write_their_parts() {
        let pool = ThreadPool::new(3).unwrap();
        let mut x = vec![0; 1000];
        let parts = Parts::new(&mut x, 7, 3);
        pool.run(3, &|job| {
            let (first, part) = parts.take(job).unwrap();
            part.iter_mut().enumerate().for_each(|(i, x)| *x = first + i);
        })
        .unwrap();
        assert!(x.iter().enumerate().all(|(i, &x)| x == i));
    }
}
