//! A row-major matrix cut into bands of columns, one a job.
//!
//! The outputs of a matrix product for several tokens are such a matrix: a job computes some
//! panels, which are some columns, for all tokens.

#![allow(unsafe_code)]

use super::{MAX_THREADS, claims::Claims};
use core::marker::PhantomData;
use core::ops::Range;

/// One matrix's share of work that is divided by cost over several matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of jobs; at least 1, at most [`MAX_THREADS`].
    pub n_jobs: usize,
    /// The cost of all matrices before this one.
    pub before: u64,
    /// The cost of one unit of this matrix.
    pub each: u64,
    /// The cost of all matrices.
    pub total: u64,
}

impl Share {
    /// Return the share of a matrix that is the whole work, with equal costs of all units.
    pub fn alone(n_jobs: usize, n_units: usize) -> Self {
        Self { n_jobs, before: 0, each: 1, total: n_units as u64 }
    }

    /// Return the first of `n_units` units that belongs to `job` or a later one. It does not
    /// decrease with `job`, and reaches `n_units` at the number of jobs.
    fn bound(&self, job: usize, n_units: usize) -> usize {
        let n_jobs = self.n_jobs.clamp(1, MAX_THREADS);
        if job >= n_jobs {
            return n_units;
        }
        let start = u128::from(self.total) * job as u128 / n_jobs as u128;
        let units = start.saturating_sub(self.before.into()).div_ceil(u128::from(self.each.max(1)));
        usize::try_from(units).unwrap_or(n_units).min(n_units)
    }
}

/// A `[n_rows, n_cols]` row-major matrix cut into bands of whole units of columns; each job takes
/// its own.
///
/// ```
/// use backstitch_core::pool::{Bands, Inline, Pool, Share};
///
/// let mut x = [0; 2 * 6]; // two rows of six columns
/// let bands = Bands::new(&mut x, 6, 2, Share::alone(3, 3)); // three units of two columns
/// Inline.run(3, &|job| {
///     if let Some(mut band) = bands.take(job) {
///         (0..band.n_rows()).for_each(|row| band.row(row).fill(job));
///     }
/// })?;
/// assert_eq!(x, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
/// # Ok::<(), backstitch_core::pool::Panicked>(())
/// ```
#[derive(Debug)]
pub struct Bands<'a, T> {
    start: *mut T,
    n_rows: usize,
    n_cols: usize,
    unit: usize,
    share: Share,
    claims: Claims,
    matrix: PhantomData<&'a mut [T]>,
}

// SAFETY: all that a shared `Bands` gives away are disjoint bands, each to one caller; that needs
// no more than that the elements may be sent to the thread which takes them.
unsafe impl<T: Send> Sync for Bands<'_, T> {}

impl<'a, T> Bands<'a, T> {
    /// Cut `x`, rows of `n_cols`, into bands of whole units of `unit` columns (at least 1; the
    /// last may be narrower), by `share`. An incomplete row at the end of `x` belongs to no band.
    pub fn new(x: &'a mut [T], n_cols: usize, unit: usize, share: Share) -> Self {
        let n_rows = x.len().checked_div(n_cols).unwrap_or(0);
        let (start, matrix) = (x.as_mut_ptr(), PhantomData);
        Self { start, n_rows, n_cols, unit: unit.max(1), share, claims: Claims::new(), matrix }
    }

    /// Return the band of `job`, which may be empty; none if asked again, or if `job` is not below
    /// the number of jobs.
    pub fn take(&self, job: usize) -> Option<Band<'a, T>> {
        if job >= self.share.n_jobs || !self.claims.claim(job) {
            return None;
        }
        let n_units = self.n_cols.div_ceil(self.unit);
        let first = self.share.bound(job, n_units).saturating_mul(self.unit);
        let end = self.share.bound(job + 1, n_units).saturating_mul(self.unit).min(self.n_cols);
        let cols = first.min(self.n_cols)..end;
        Some(Band { start: self.start, n_rows: self.n_rows, stride: self.n_cols, cols, matrix: PhantomData })
    }
}

/// Some columns of a row-major matrix: the output of one job.
#[derive(Debug)]
pub struct Band<'a, T> {
    start: *mut T,
    n_rows: usize,
    stride: usize,
    /// Disjoint from the columns of every other band of the matrix.
    cols: Range<usize>,
    matrix: PhantomData<&'a mut [T]>,
}

// SAFETY: a band is a mutable borrow of its elements, and may go where they may.
unsafe impl<T: Send> Send for Band<'_, T> {}

impl<'a, T> Band<'a, T> {
    /// Return the whole of a `[n_rows, n_cols]` matrix as one band; an incomplete row at the end of
    /// `x` is left out.
    pub fn whole(x: &'a mut [T], n_cols: usize) -> Self {
        let n_rows = x.len().checked_div(n_cols).unwrap_or(0);
        Self { start: x.as_mut_ptr(), n_rows, stride: n_cols, cols: 0..n_cols, matrix: PhantomData }
    }

    /// Return the number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Return the range of these columns in the matrix.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// Return the rows from `n` on; none where there are no more.
    #[cfg(any(
        all(target_arch = "x86_64", feature = "amx"),
        all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
    ))]
    pub(crate) fn rows_from(&mut self, n: usize) -> Band<'_, T> {
        let n = n.min(self.n_rows);
        // SAFETY: the first `n` of the matrix's rows of `stride` elements end inside it, or at its
        // end.
        let start = unsafe { self.start.add(n * self.stride) };
        // `&mut self` keeps these rows and those of `self` apart.
        Band {
            start,
            n_rows: self.n_rows - n,
            stride: self.stride,
            cols: self.cols.clone(),
            matrix: PhantomData,
        }
    }

    /// Return the elements of row `i` in the columns of this band; empty when there is no such row.
    #[inline(always)]
    pub fn row(&mut self, i: usize) -> &mut [T] {
        if i >= self.n_rows {
            return &mut [];
        }
        // SAFETY: row `i` is below `n_rows` and the columns end at most at `stride`, so this is
        // inside the matrix.
        let first = unsafe { self.start.add(i * self.stride + self.cols.start) };
        // SAFETY: as above for the end; other bands have other columns, and `&mut self` keeps rows
        // of this one apart.
        unsafe { core::slice::from_raw_parts_mut(first, self.cols.end - self.cols.start) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::{Pool, ThreadPool};

    #[test]
    fn bands_cover_every_column_once() {
        for (n_cols, unit, n_jobs) in
            [(0, 16, 2), (1, 16, 2), (16, 16, 2), (100, 16, 3), (33, 16, 1), (7, 0, 4)]
        {
            let mut x = vec![0; 3 * n_cols];
            let bands = Bands::new(&mut x, n_cols, unit, Share::alone(n_jobs, n_cols.div_ceil(unit.max(1))));
            let mut next = 0;
            for job in 0..n_jobs {
                let mut band = bands.take(job).unwrap();
                assert!(band.cols().is_empty() || band.cols().start == next);
                next += band.cols().len();
                (0..band.n_rows()).for_each(|i| band.row(i).iter_mut().for_each(|x| *x += i + 1));
                assert!(band.row(3).is_empty());
            }
            assert!(bands.take(0).is_none() && bands.take(n_jobs).is_none());
            assert_eq!(next, n_cols);
            assert!(x.iter().enumerate().all(|(i, &x)| x == i / n_cols.max(1) + 1));
        }
    }

    #[test]
    #[cfg(any(
        all(target_arch = "x86_64", feature = "amx"),
        all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
    ))]
    fn later_rows_are_a_band_too() {
        let mut x: Vec<usize> = (0..12).collect();
        let mut band = Bands::new(&mut x, 4, 2, Share::alone(2, 2)).take(1).unwrap();
        let mut later = band.rows_from(1);
        assert_eq!((later.n_rows(), later.cols()), (2, 2..4));
        assert_eq!(later.row(0), [6, 7]);
        assert_eq!(later.row(1), [10, 11]);
        assert!(later.row(2).is_empty());
        assert!(band.rows_from(9).row(0).is_empty());
        assert_eq!(band.row(0), [2, 3]);
    }

    #[test]
    fn jobs_share_several_matrices_by_cost() {
        // Ten units of cost 1 and five of cost 2, for two jobs: the first matrix is one job, the
        // second the other.
        let share = |before, each| Share { n_jobs: 2, before, each, total: 20 };
        assert_eq!([0, 1, 2].map(|job| share(0, 1).bound(job, 10)), [0, 10, 10]);
        assert_eq!([0, 1, 2].map(|job| share(10, 2).bound(job, 5)), [0, 0, 5]);
    }

    #[test]
    fn absurd_shares_stay_inside_the_matrix() {
        for share in [
            Share { n_jobs: usize::MAX, before: 0, each: 0, total: u64::MAX },
            Share { n_jobs: 2, before: u64::MAX, each: 1, total: 0 },
            Share { n_jobs: 0, before: 0, each: 1, total: 1 },
        ] {
            let mut x = [0; 8];
            let bands = Bands::new(&mut x, 4, 1, share);
            for job in 0..4 {
                if let Some(mut band) = bands.take(job) {
                    (0..3).for_each(|i| band.row(i).iter_mut().for_each(|x| *x += 1));
                }
            }
            assert!(x.iter().all(|&x| x <= 1));
        }
    }

    #[test]
    fn threads_write_their_bands() {
        let pool = ThreadPool::new(2).unwrap();
        let mut x = vec![0; 50 * 40];
        let bands = Bands::new(&mut x, 40, 16, Share::alone(2, 3));
        pool.run(2, &|job| {
            let mut band = bands.take(job).unwrap();
            let first = band.cols().start;
            (0..50).for_each(|i| {
                band.row(i).iter_mut().enumerate().for_each(|(c, x)| *x = 40 * i + first + c);
            });
        })
        .unwrap();
        assert!(x.iter().enumerate().all(|(i, &x)| x == i));
    }
}
