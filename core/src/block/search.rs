//! The searches for scales behind the encoders of 256 elements and of IQ4_NL.
//!
//! Rounding to a grid is easy, choosing the grid is not: the best scale depends on the quants, and
//! the quants depend on the scale. Each search tries a few inverse scales. For each it rounds,
//! solves the weighted least-squares problem for the scale that suits these quants best, and keeps
//! the best scale so far.
//!
//! The searches are those of ggml's reference quantisers (`make_qkx2_quants`, `make_qkx3_quants`,
//! `make_qx_quants`, `make_q3_quants`, `make_qp_quants`, and the one of IQ4_NL). All sums run in the
//! order of the elements, and each product is written in the order in which the reference
//! multiplies, because files are compared by their bits.

use super::range;
use super::round::nearest;

/// A sub-block whose largest magnitude is below this counts as zero.
pub const NEGLIGIBLE: f32 = 1e-15;

/// The search for `x = scale * q - min` with `min >= 0`: the parameters that a type gives it.
pub struct Affine {
    /// The largest quant; the smallest is 0.
    pub largest: u8,
    /// The first inverse scale tried: `largest + first` over the range of the values.
    pub first: f32,
    /// Each step adds this to `first`.
    pub step: f32,
    /// The number of steps.
    pub steps: u8,
    /// The error of a difference: its magnitude or its square.
    pub error: fn(f32) -> f32,
}

/// The error of a difference in searches with importance weights: its square.
fn square(diff: f32) -> f32 {
    diff * diff
}

impl Affine {
    /// Return the search with importance weights, for quants up to `largest`.
    pub const fn weighted(largest: u8) -> Self {
        Self { largest, first: -0.9, step: 0.05, steps: 36, error: square }
    }

    /// Set `q`, and return scale and minimum. Errors count by the weights `w`.
    pub fn run<const S: usize>(&self, x: &[f32; S], w: &[f32; S], q: &mut [u8; S]) -> (f32, f32) {
        let (low, high) = range::min_max(x);
        let low = if low > 0.0 { 0.0 } else { low };
        if low == high {
            *q = [0; S];
            return (0.0, -low);
        }
        let sum_w = w.iter().fold(0.0, |sum, w| sum + w);
        let sum_x = w.iter().zip(x).fold(0.0, |sum, (w, x)| sum + w * x);
        let largest = f32::from(self.largest);

        let inverse = largest / (high - low);
        *q = self.quants(x, low, inverse);
        let mut best = (1.0 / inverse, low);
        let mut least = self.total_error(x, w, q, best);
        for step in 0..=self.steps {
            // The range is that of the best fit so far, whose offset need not be the lowest value.
            let low = best.1;
            let inverse = (self.first + self.step * f32::from(step) + largest) / (high - low);
            let tried = self.quants(x, low, inverse);
            let Some(fit) = solve(x, w, &tried, sum_w, sum_x) else { continue };
            let error = self.total_error(x, w, &tried, fit);
            if error < least {
                (*q, best, least) = (tried, fit, error);
            }
        }
        (best.0, -best.1)
    }

    fn quants<const S: usize>(&self, x: &[f32; S], low: f32, inverse: f32) -> [u8; S] {
        x.map(|x| nearest(inverse * (x - low)).clamp(0, i32::from(self.largest)) as u8)
    }

    fn total_error<const S: usize>(
        &self,
        x: &[f32; S],
        w: &[f32; S],
        q: &[u8; S],
        (scale, low): (f32, f32),
    ) -> f32 {
        let elements = x.iter().zip(w).zip(q);
        elements.fold(0.0, |sum, ((x, w), &q)| sum + w * (self.error)(scale * f32::from(q) + low - x))
    }
}

/// Return the scale and the offset (at most 0) with the least squared error for these quants; none
/// if all quants are equal.
fn solve<const S: usize>(
    x: &[f32; S],
    w: &[f32; S],
    q: &[u8; S],
    sum_w: f32,
    sum_x: f32,
) -> Option<(f32, f32)> {
    let (mut sum_q, mut sum_q2, mut sum_xq) = (0.0, 0.0, 0.0);
    for ((x, w), &q) in x.iter().zip(w).zip(q) {
        let wq = w * f32::from(q);
        sum_q += wq;
        sum_q2 += wq * f32::from(q);
        sum_xq += wq * x;
    }
    let det = sum_w * sum_q2 - sum_q * sum_q;
    if det <= 0.0 || det.is_nan() {
        return None;
    }
    let scale = (sum_w * sum_xq - sum_x * sum_q) / det;
    let low = (sum_q2 * sum_x - sum_q * sum_xq) / det;
    Some(if low > 0.0 { (sum_xq / sum_q2, 0.0) } else { (scale, low) })
}

/// Round again with the scale and the minimum as they are stored; a scale of 0 leaves the quants of
/// the search.
pub fn requantise<const S: usize>(x: &[f32; S], q: &mut [u8; S], scale: f32, min: f32, largest: u8) {
    if scale != 0.0 {
        *q = x.map(|x| nearest((x + min) / scale).clamp(0, i32::from(largest)) as u8);
    }
}

/// Round again with the signed scale as it is stored, to quants from 0 to `2 * half - 1` that stand
/// for `q - half`.
pub fn requantise_signed<const S: usize>(x: &[f32; S], q: &mut [u8; S], scale: f32, half: i32) {
    if scale != 0.0 {
        *q = x.map(|x| offset(signed(x / scale, half), half));
    }
}

/// Return the integer nearest to `x` from `-half` to `half - 1`.
fn signed(x: f32, half: i32) -> i32 {
    nearest(x).clamp(-half, half - 1)
}

fn offset(q: i32, half: i32) -> u8 {
    (q + half) as u8
}

/// The two sums of the least-squares scale `xq / qq`.
#[derive(Clone, Copy, Default)]
pub struct Sums {
    /// The sum of `w x q`.
    pub xq: f32,
    /// The sum of `w q q`.
    pub qq: f32,
}

impl Sums {
    /// Add an element `x` with the quant `q` and the weight `w`.
    pub fn add(&mut self, w: f32, x: f32, q: f32) {
        self.xq += w * x * q;
        self.qq += w * q * q;
    }

    fn of<const S: usize>(x: &[f32; S], w: &[f32; S], q: impl Fn(f32) -> f32) -> Sums {
        let mut sums = Sums::default();
        for (&x, &w) in x.iter().zip(w) {
            sums.add(w, x, q(x));
        }
        sums
    }

    fn scale(self) -> f32 {
        if self.qq > 0.0 { self.xq / self.qq } else { 0.0 }
    }
}

/// Search for `x = scale * (q - half)`; set `q` and return the scale.
///
/// Tries nineteen inverse scales around the one that sends the element farthest from zero to
/// `-half`. Errors count by `w`.
pub fn symmetric<const S: usize>(x: &[f32; S], w: &[f32; S], half: i32, q: &mut [u8; S]) -> f32 {
    let far = range::farthest(x);
    if far.abs() < NEGLIGIBLE {
        *q = [0; S];
        return 0.0;
    }
    let half_f = half as f32;
    let mut inverse = -half_f / far;
    let sums = Sums::of(x, w, |x| signed(inverse * x, half) as f32);
    let mut scale = sums.scale();
    let mut best = scale * sums.xq;
    for step in (-9..=9).filter(|&step| step != 0) {
        let tried = -(half_f + 0.1 * step as f32) / far;
        let sums = Sums::of(x, w, |x| signed(tried * x, half) as f32);
        if sums.qq > 0.0 && sums.xq * sums.xq > best * sums.qq {
            (inverse, scale) = (tried, sums.scale());
            best = scale * sums.xq;
        }
    }
    *q = x.map(|x| offset(signed(inverse * x, half), half));
    scale
}

/// Search for `x = scale * (q - half)`; set `q` and return the scale.
///
/// Starts from one inverse scale and then improves the quants one by one, in at most five rounds.
/// Errors count by `x * x`.
pub fn one_by_one<const S: usize>(x: &[f32; S], half: i32, q: &mut [u8; S]) -> f32 {
    let far = range::farthest(x);
    if far.abs() < NEGLIGIBLE {
        *q = [0; S];
        return 0.0;
    }
    let inverse = -half as f32 / far;
    let mut quants = x.map(|x| signed(inverse * x, half));
    let mut sums = Sums::of(x, &squares(x), |x| signed(inverse * x, half) as f32);
    for _ in 0..5 {
        if !improve(x, half, &mut quants, &mut sums) {
            break;
        }
    }
    *q = quants.map(|quant| offset(quant, half));
    sums.scale()
}

/// Do one round: move every quant to where the scale that the other quants ask for would put it, if
/// that lowers the error. Return true if any moved.
fn improve<const S: usize>(x: &[f32; S], half: i32, quants: &mut [i32; S], sums: &mut Sums) -> bool {
    let mut changed = false;
    for (&x, quant) in x.iter().zip(quants) {
        let (w, old) = (x * x, *quant as f32);
        let mut rest = Sums { xq: sums.xq - w * x * old, qq: sums.qq - w * old * old };
        if rest.xq <= 0.0 || rest.xq.is_nan() {
            continue;
        }
        let new = signed(x * rest.qq / rest.xq, half);
        if new == *quant {
            continue;
        }
        rest.add(w, x, new as f32);
        if rest.qq > 0.0 && rest.xq * rest.xq * sums.qq > sums.xq * sums.xq * rest.qq {
            (*quant, *sums, changed) = (new, rest, true);
        }
    }
    changed
}

/// Search for `x = scale * q` with `q` from 0 to `largest`; set `q` and return the scale.
///
/// Tries nine inverse scales around the one that sends the largest element to `largest`, then
/// improves the quants one by one, in at most five rounds. Errors count by `w`. Quants of negative
/// elements wrap around, as in the reference; callers have none where that matters.
pub fn unsigned<const S: usize>(x: &[f32; S], w: &[f32; S], largest: u8, q: &mut [u8; S]) -> f32 {
    let max = x.iter().fold(0.0_f32, |max, &x| if x > max { x } else { max });
    if max < NEGLIGIBLE {
        *q = [0; S];
        return 0.0;
    }
    let highest = f32::from(largest);
    let quant = |inverse: f32, x: f32| nearest(inverse * x).min(i32::from(largest));
    let error = |inverse: f32, quant: &dyn Fn(f32) -> f32| {
        let scale = 1.0 / inverse;
        x.iter().zip(w).fold(0.0, |sum, (&x, w)| {
            let diff = x - scale * quant(x);
            sum + w * diff * diff
        })
    };
    let mut inverse = highest / max;
    let mut least = error(inverse, &|x| f32::from(nearest(inverse * x) as u8));
    for step in (-4..=4).filter(|&step| step != 0) {
        let tried = (0.1 * step as f32 + highest) / max;
        let tried_error = error(tried, &|x| quant(tried, x) as f32);
        if tried_error < least {
            (least, inverse) = (tried_error, tried);
        }
    }
    let mut sums = Sums::of(x, w, |x| quant(inverse, x) as f32);
    *q = x.map(|x| quant(inverse, x) as u8);
    for _ in 0..5 {
        if !improve_unsigned(x, w, largest, q, &mut sums) {
            break;
        }
    }
    sums.scale()
}

/// Do one round for [`unsigned`], like [`improve`] does for [`one_by_one`].
fn improve_unsigned<const S: usize>(
    x: &[f32; S],
    w: &[f32; S],
    largest: u8,
    quants: &mut [u8; S],
    sums: &mut Sums,
) -> bool {
    let mut changed = false;
    for ((&x, &w), quant) in x.iter().zip(w).zip(quants) {
        let old = f32::from(*quant);
        let mut rest = Sums { xq: sums.xq - w * x * old, qq: sums.qq - w * old * old };
        if !(rest.xq > 0.0 && rest.qq > 0.0) {
            continue;
        }
        let new = nearest(x * rest.qq / rest.xq).min(i32::from(largest));
        if new == i32::from(*quant) {
            continue;
        }
        rest.add(w, x, new as f32);
        if rest.xq * rest.xq * sums.qq > sums.xq * sums.xq * rest.qq {
            (*quant, *sums, changed) = (new as u8, rest, true);
        }
    }
    changed
}

/// Return the weights of elements that count by their squares.
pub fn squares<const S: usize>(x: &[f32; S]) -> [f32; S] {
    x.map(|x| x * x)
}

/// Search for `x = scale * values[q]`; return the scale. Errors count by `w`.
///
/// Tries the inverse scale that sends the element farthest from zero to the first value, then
/// fifteen around the one that sends it there with the sign kept.
pub fn codebook<const S: usize>(x: &[f32; S], w: &[f32; S], values: &[i8; 16]) -> f32 {
    let far = range::farthest(x);
    if far.abs() < NEGLIGIBLE {
        return 0.0;
    }
    let first = f32::from(values[0]);
    let fit = |inverse: f32| {
        let mut sums = Sums::default();
        for (&x, &w) in x.iter().zip(w) {
            let value = f32::from(values[index(inverse * x, values)]);
            // The value comes before the element here: not the order of `Sums::add`, and not the
            // same bits.
            sums.xq += w * value * x;
            sums.qq += w * value * value;
        }
        sums
    };
    let sums = fit(1.0 / (-far / first));
    let mut scale = sums.scale();
    let mut best = scale * sums.xq;
    for step in -7..=7_i8 {
        let sums = fit((f32::from(step) + first) / far);
        if sums.qq > 0.0 && sums.xq * sums.xq > best * sums.qq {
            scale = sums.scale();
            best = scale * sums.xq;
        }
    }
    scale
}

/// Return the index of the value nearest to `x` in ascending `values`: the upper of two equally
/// near ones, the last for NaN.
pub fn index(x: f32, values: &[i8; 16]) -> usize {
    let value = |i: usize| f32::from(values[i]);
    if x.is_nan() || x >= value(15) {
        return 15;
    }
    if x <= value(0) {
        return 0;
    }
    let above = values.partition_point(|&v| f32::from(v) <= x).clamp(1, 15);
    if x - value(above - 1) < value(above) - x { above - 1 } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUARE: Affine = Affine { largest: 15, first: -1.0, step: 0.1, steps: 20, error: square };

    #[test]
    fn the_affine_search_finds_an_exact_grid() {
        let x: [f32; 32] = core::array::from_fn(|i| 0.5 * (i * 5 % 16) as f32 - 2.0);
        let mut q = [0; 32];
        let (scale, min) = SQUARE.run(&x, &[1.0; 32], &mut q);
        assert!((scale - 0.5).abs() < 1e-6 && (min - 2.0).abs() < 1e-5, "{scale} {min}");
        assert_eq!(q, core::array::from_fn(|i| (i * 5 % 16) as u8));
    }

    #[test]
    fn a_sub_block_of_one_negative_value_is_all_minimum() {
        let mut q = [9; 32];
        assert_eq!(SQUARE.run(&[-3.0; 32], &[1.0; 32], &mut q), (0.0, 3.0));
        assert_eq!(q, [0; 32]);
    }

    #[test]
    fn symmetric_searches_find_an_exact_grid() {
        let x: [f32; 16] = core::array::from_fn(|i| 0.25 * (i as f32 - 8.0));
        let wanted: [u8; 16] = core::array::from_fn(|i| i as u8);
        let mut q = [0; 16];
        assert_eq!((one_by_one(&x, 8, &mut q), q), (0.25, wanted));
        assert_eq!((symmetric(&x, &[1.0; 16], 8, &mut q), q), (0.25, wanted));
    }

    #[test]
    fn the_unsigned_search_finds_an_exact_grid() {
        let x: [f32; 16] = core::array::from_fn(|i| 0.25 * i as f32);
        let mut q = [0; 16];
        assert_eq!((unsigned(&x, &[1.0; 16], 15, &mut q), q), (0.25, core::array::from_fn(|i| i as u8)));
    }

    #[test]
    fn moving_quants_one_by_one_lowers_the_error() {
        let x: [f32; 16] = core::array::from_fn(|i| libm::sinf(i as f32 * 1.7) * 0.3);
        let error = |scale: f32, q: [u8; 16]| {
            x.iter().zip(q).map(|(x, q)| x * x * (x - scale * (f32::from(q) - 4.0)).powi(2)).sum::<f32>()
        };
        let plain = -range::farthest(&x) / 4.0;
        let (mut q, mut rounded) = ([0; 16], [0; 16]);
        requantise_signed(&x, &mut rounded, plain, 4);
        let scale = one_by_one(&x, 4, &mut q);
        assert!(error(scale, q) < error(plain, rounded));
    }

    #[test]
    fn the_nearest_value_is_found_everywhere() {
        let values: [i8; 16] = core::array::from_fn(|i| (i * i / 2) as i8 - 20);
        for tenth in -400..=1200 {
            let x = tenth as f32 * 0.1;
            let distance = |i: usize| (f32::from(values[i]) - x).abs();
            let least = (0..16).map(distance).fold(f32::MAX, f32::min);
            assert_eq!(distance(index(x, &values)), least, "{x}");
        }
        assert_eq!(index(f32::NAN, &values), 15);
    }

    #[test]
    fn requantising_with_a_zero_scale_keeps_the_quants() {
        let mut q = [3; 16];
        requantise(&[1.0; 16], &mut q, 0.0, 0.0, 15);
        requantise_signed(&[1.0; 16], &mut q, -0.0, 8);
        assert_eq!(q, [3; 16]);
    }
}
