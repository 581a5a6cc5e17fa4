//! States that are matrices `[keys, values]`: values in lanes, keys in order.
//!
//! Linear attention and its kin (RWKV, the gated delta rule) keep such a state for each head. A
//! lane belongs to one value, so nothing is summed across lanes: what a state returns for a row of
//! factors, one a key, is one chain of fused multiply-adds in the order of the keys. Several
//! vectors of values go through the keys together; how many changes no bit.

use super::map::{load, store};
use crate::isa::{LANES, Simd};

/// Vectors of values that go through the keys together.
pub(crate) const WIDE: usize = 4;

/// Return the `N` vectors of `row`, which with `N = 1` may be shorter.
#[inline(always)]
pub(crate) fn take<S: Simd, const N: usize>(s: S, row: &[f32]) -> [S::F; N] {
    if N == 1 {
        return [load(s, row); N];
    }
    debug_assert!(row.len() >= N * LANES, "a wide step has whole vectors");
    let mut vectors = [s.splat(0.0); N];
    // Known to be whole: no path for a short end keeps the vectors from staying in registers.
    if let Some(chunks) = row.as_chunks().0.first_chunk::<N>() {
        for (vector, chunk) in vectors.iter_mut().zip(chunks) {
            *vector = s.load(chunk);
        }
    }
    vectors
}

/// Store the `N` vectors to `row`, which with `N = 1` may be shorter.
#[inline(always)]
pub(crate) fn put<S: Simd, const N: usize>(s: S, vectors: [S::F; N], row: &mut [f32]) {
    if N == 1 {
        for vector in vectors {
            store(s, vector, row);
        }
        return;
    }
    debug_assert!(row.len() >= N * LANES, "a wide step has whole vectors");
    if let Some(chunks) = row.as_chunks_mut().0.first_chunk_mut::<N>() {
        for (vector, chunk) in vectors.into_iter().zip(chunks) {
            s.store(vector, chunk);
        }
    }
}

/// Add `x[i] * factor` to `sums[i]`, with one rounding.
#[inline(always)]
pub(crate) fn add_times<S: Simd, const N: usize>(s: S, sums: &mut [S::F; N], x: &[S::F; N], factor: f32) {
    let factor = s.splat(factor);
    for (sum, x) in sums.iter_mut().zip(x) {
        *sum = s.fma(*x, factor, *sum);
    }
}

/// `x[i] *= factor`.
#[inline(always)]
pub(crate) fn times<S: Simd, const N: usize>(s: S, x: &mut [S::F; N], factor: f32) {
    let factor = s.splat(factor);
    for x in x {
        *x = s.mul(*x, factor);
    }
}

/// Return lane i as element i.
#[inline(always)]
pub(crate) fn lanes<S: Simd>(s: S, x: S::F) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    s.store(x, &mut lanes);
    lanes
}

/// `all!(d, |N, cols| step)` runs `step` for all columns `0..d`: as many as [`WIDE`] vectors hold
/// at a time with `N = WIDE`, then the rest with `N = 1`. A macro and no closure, for the reason
/// given at [`in_place`](super::map::in_place).
macro_rules! all {
    ($d:expr, |$n:ident, $cols:ident| $step:expr) => {{
        let d: usize = $d;
        let wide = d - d % ($crate::kernels::values::WIDE * $crate::isa::LANES);
        for first in (0..wide).step_by($crate::kernels::values::WIDE * $crate::isa::LANES) {
            const $n: usize = $crate::kernels::values::WIDE;
            let $cols = first..first + $n * $crate::isa::LANES;
            $step;
        }
        for first in (wide..d).step_by($crate::isa::LANES) {
            const $n: usize = 1;
            let $cols = first..d.min(first + $crate::isa::LANES);
            $step;
        }
    }};
}

pub(crate) use all;
