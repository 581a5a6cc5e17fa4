//! Softmax and argmax over a vocabulary's worth of scores, for samplers.

use super::map::{fold, in_place};
use crate::isa::{LANES, Simd};
use crate::math;

/// Set `x[i] = exp(x[i] - max x) / sum of those`; the sum goes through sixteen lanes and the fixed
/// tree.
///
/// One pass finds the maximum, so nothing overflows; NaN anywhere makes all NaN, as does an
/// infinite maximum.
#[inline(always)]
pub(crate) fn softmax_in_place<S: Simd>(s: S, x: &mut [f32]) {
    let largest = s.splat(largest(s, x));
    in_place!(s, x, |x| math::exp(s, s.sub(x, largest)));
    let sum = s.sum(fold!(s, x, 0.0, s.splat(0.0), |sum, x| s.add(sum, x)));
    in_place!(s, x, |x| s.mul(x, s.splat(1.0 / sum)));
}

/// Return the largest element that is not NaN; negative infinity if there is none.
#[inline(always)]
fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    s.largest(fold!(s, x, f32::NEG_INFINITY, s.splat(f32::NEG_INFINITY), |best, x| s.max(x, best)))
}

/// Return the index of the largest element; of several equal ones the lowest; none if there is no
/// element but NaN.
///
/// Two passes: the first finds the maximum, the second its first place, sixteen elements at a time.
#[inline(always)]
pub(crate) fn argmax<S: Simd>(s: S, x: &[f32]) -> Option<usize> {
    let largest = largest(s, x);
    let best = s.splat(largest);
    // All but one chunk are passed over whole: none of their lanes reaches the maximum, or is NaN.
    let below = |chunk: &[f32; LANES]| s.lt(s.load(chunk), best) == u16::MAX;
    let start = x.as_chunks().0.iter().take_while(|chunk| below(chunk)).count() * LANES;
    (start..x.len()).find(|&i| x[i] == largest)
}
