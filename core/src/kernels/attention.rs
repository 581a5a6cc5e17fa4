//! The inner loops of attention over one span: scores, softmax, weighted values, and the joining of
//! spans.
//!
//! [`crate::attention`] defines the result to the bit. A tile is up to [`MAX_ROWS`] query rows that
//! share keys and values; each load of K or V serves all of them. Scores have cells in lanes and
//! loop over dimensions, values have dimensions in lanes and loop over cells, so neither ever sums
//! across lanes. That is why the cache stores keys dimension-major and values cell-major.
//!
//! ```text
//! queries [d, rows]      keys [d, 32 cells]      values [32 cells, d_v]
//!         \              /                       |
//!          scores [rows, 256 cells]              |
//!                   |                            |
//!          softmax: p [rows, 256 cells], maximum, sum
//!                              \                 |
//!                               values [rows, d_v], joined to the spans before
//! ```

use super::map::{load, store};
use super::stored::{BF16, F16, F32, Stored, elements};
use crate::cell::{BLOCK_CELLS, SPAN_CELLS};
use crate::format::planes::Line;
use crate::isa::processor::Processor;
use crate::isa::{LANES, Simd};
use crate::math;

/// The most rows of a tile.
pub const MAX_ROWS: usize = 12;

/// Blocks of a span.
pub const SPAN_BLOCKS: usize = SPAN_CELLS / BLOCK_CELLS;

/// Scores of one row over a span, then their exponentials.
pub type Scores = [f32; SPAN_CELLS];

/// The cells of a span that a row sees: a mask a block.
pub type Masks = [u32; SPAN_BLOCKS];

/// The bytes of a span's blocks (K or V of one head); empty where no row of the tile sees a cell.
pub type Panels<'a> = [&'a [u8]; SPAN_BLOCKS];

/// Maximum and sum of the softmax so far, a lane a row.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// Largest score; negative infinity before any.
    pub max: [f32; LANES],
    /// Sum of `exp(score - max)`.
    pub sum: [f32; LANES],
}

impl Running {
    /// The state before any span.
    pub const START: Self = Self { max: [f32::NEG_INFINITY; LANES], sum: [0.0; LANES] };
}

/// The factors by which a span's weighted values join those before it, a lane a row: `old * keep +
/// new * take`.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    pub(crate) keep: [f32; LANES],
    pub(crate) take: [f32; LANES],
    /// Rows that saw nothing before: the new values are copied.
    first: u16,
    /// Rows that see a cell of this span; the others keep their values.
    sees: u16,
}

impl Join {
    /// The join that changes no row.
    pub const NONE: Self = Self { keep: [1.0; LANES], take: [0.0; LANES], first: 0, sees: 0 };
}

/// Return the rows that the widest tile of this set takes.
#[inline(always)]
pub(crate) fn tile_rows<S: Simd>(_: S) -> usize {
    if S::N_REGISTERS >= 32 { MAX_ROWS } else { 6 }
}

/// Call `$f::<S, E, ROWS, WIDTH, FROM_MEMORY>` for the number of rows: tall tiles two vectors wide
/// where registers abound, else one vector wide.
macro_rules! by_rows {
    ($rows:expr, $f:ident, $s:ident: $S:ident, $E:ident, $($arg:expr),*) => {
        if $S::N_REGISTERS >= 32 {
            let from_memory = factors_from_memory::<$E>();
            match $rows {
                1 => $f::<$S, $E, 1, 2, false>($s, $($arg),*),
                2 => $f::<$S, $E, 2, 2, false>($s, $($arg),*),
                3 if from_memory => $f::<$S, $E, 3, 2, true>($s, $($arg),*),
                4 if from_memory => $f::<$S, $E, 4, 2, true>($s, $($arg),*),
                6 if from_memory => $f::<$S, $E, 6, 2, true>($s, $($arg),*),
                8 if from_memory => $f::<$S, $E, 8, 2, true>($s, $($arg),*),
                12 if from_memory => $f::<$S, $E, 12, 2, true>($s, $($arg),*),
                3 => $f::<$S, $E, 3, 2, false>($s, $($arg),*),
                4 => $f::<$S, $E, 4, 2, false>($s, $($arg),*),
                6 => $f::<$S, $E, 6, 2, false>($s, $($arg),*),
                8 => $f::<$S, $E, 8, 2, false>($s, $($arg),*),
                12 => $f::<$S, $E, 12, 2, false>($s, $($arg),*),
                _ => debug_assert!(false, "`tile_height` gives no such height"),
            }
        } else {
            match $rows {
                1 => $f::<$S, $E, 1, 1, false>($s, $($arg),*),
                2 => $f::<$S, $E, 2, 1, false>($s, $($arg),*),
                3 => $f::<$S, $E, 3, 1, false>($s, $($arg),*),
                4 => $f::<$S, $E, 4, 1, false>($s, $($arg),*),
                6 => $f::<$S, $E, 6, 1, false>($s, $($arg),*),
                _ => debug_assert!(false, "`tile_height` gives no such height"),
            }
        }
    };
}

/// Return true if a product and a sum is faster with a factor that it reads from memory itself than
/// with one that another instruction has brought to a register for several of them.
///
/// So it is on Zen 4 beside conversions, from three rows on (docs/experiments.md). With fewer, the
/// cells' memory is the bound.
#[inline(always)]
fn factors_from_memory<E: Stored>() -> bool {
    #[cfg(test)]
    if let Some(assumed) = ASSUMED.get() {
        return assumed;
    }
    size_of::<E::Bits>() < size_of::<f32>() && Processor::here() == Processor::Zen4
}

#[cfg(test)]
std::thread_local! {
    /// The answer of [`factors_from_memory`] that tests on this thread assume, so that the loops of
    /// all processors are tested on each.
    pub(crate) static ASSUMED: core::cell::Cell<Option<bool>> =
        const { core::cell::Cell::new(None) };
}

/// Return `x` twice, once for each vector of a tile. With `APART`, the compiler does not know that
/// both are the same, and so reads what lies behind them twice.
#[inline(always)]
fn twice<T: ?Sized, const APART: bool>(x: &T) -> [&T; 2] {
    [x, if const { APART } { core::hint::black_box(x) } else { x }]
}

/// Return the height of the tile that takes `n` rows, at most [`MAX_ROWS`]: a height that
/// [`scores`] and [`values`] are compiled for.
pub(crate) fn tile_height(n: usize) -> usize {
    debug_assert!(n <= MAX_ROWS, "a tile of {n} rows");
    [1, 2, 3, 4, 6, 8].into_iter().find(|&height| n <= height).unwrap_or(MAX_ROWS)
}

/// Make `row` the row `r` of `out` `[d, height]`, for a `height` of [`tile_height`].
pub(crate) fn place_row(row: &[f32], r: usize, height: usize, out: &mut [f32]) {
    // A loop for each height: it takes half the time of one whose step is not known.
    fn place<const HEIGHT: usize>(row: &[f32], r: usize, out: &mut [f32]) {
        for (out, x) in out.as_chunks_mut::<HEIGHT>().0.iter_mut().zip(row) {
            out[r] = *x;
        }
    }
    match height {
        1 => place::<1>(row, r, out),
        2 => place::<2>(row, r, out),
        3 => place::<3>(row, r, out),
        4 => place::<4>(row, r, out),
        6 => place::<6>(row, r, out),
        8 => place::<8>(row, r, out),
        MAX_ROWS => place::<MAX_ROWS>(row, r, out),
        _ => debug_assert!(false, "`tile_height` gives no such height"),
    }
}

macro_rules! typed {
    ($($scores:ident, $values:ident, $E:ident;)*) => { $(
        /// Call [`scores`] for one type of keys.
        #[inline(always)]
        pub(crate) fn $scores<S: Simd>(
            s: S,
            q: &[f32],
            keys: &Panels<'_>,
            soon: &Panels<'_>,
            resume: bool,
            out: &mut [Scores],
        ) {
            by_rows!(out.len(), scores, s: S, $E, q, keys, soon, resume, out);
        }
        /// Call [`values`] for one type of values.
        #[inline(always)]
        pub(crate) fn $values<S: Simd>(
            s: S,
            p: &[Scores],
            masks: &[Masks],
            v: &Panels<'_>,
            soon: &Panels<'_>,
            join: &Join,
            out: &mut [&mut [f32]],
        ) {
            by_rows!(p.len(), values, s: S, $E, p, masks, v, soon, join, out);
        }
    )* };
}
typed! {
    scores_f32, values_f32, F32;
    scores_f16, values_f16, F16;
    scores_bf16, values_bf16, BF16;
}

/// Return the distance in bytes from `from` to `to`; 0, which fetches nothing new, where there is
/// nothing.
///
/// Blocks lie apart, which the processor does not foresee, so the kernels prefetch the next one.
#[inline(always)]
pub(super) fn ahead(from: &[u8], to: Option<&&[u8]>) -> usize {
    let to = to.filter(|to| !to.is_empty());
    to.map_or(0, |to| to.as_ptr().addr().wrapping_sub(from.as_ptr().addr()))
}

/// Compute `out[r][cell] = sum over d of q[d][r] * k[d][cell]`: one fused multiply-add a dimension
/// in ascending order, from +0.0, or from `out` if `resume` says that these are not the first
/// dimensions.
///
/// `q` is `[d, rows]`, a panel of keys `[d, 32 cells]`. Prefetches a block of `soon`, which is read
/// after the span's keys, beside each block of keys.
#[inline(always)]
fn scores<S: Simd, E: Stored, const R: usize, const W: usize, const FROM_MEMORY: bool>(
    s: S,
    q: &[f32],
    keys: &Panels<'_>,
    soon: &Panels<'_>,
    resume: bool,
    out: &mut [Scores],
) {
    let Some(out) = out.first_chunk_mut::<R>() else { return };
    let [q, q_again] = twice::<_, FROM_MEMORY>(q).map(|q| q.as_chunks::<R>().0);
    for (block, panel) in keys.iter().enumerate() {
        let near = ahead(panel, keys.get(block + 1));
        let far = ahead(panel, soon.get(block));
        let keys = elements::<E>(panel).as_chunks::<LANES>().0.as_chunks::<2>().0;
        if keys.is_empty() {
            continue;
        }
        for half in 0..2 / W {
            let at = block * 2 + half * W;
            let mut sums = [[s.splat(0.0); W]; R];
            if resume {
                for (sums, out) in sums.iter_mut().zip(&*out) {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum = s.load(&out.as_chunks().0[at + i]);
                    }
                }
            }
            for (k, q) in keys.iter().zip(q.iter().zip(q_again)) {
                let q = <[_; 2]>::from(q);
                if half == 0 {
                    s.prefetch(k, near);
                    s.prefetch_l2(k, far);
                }
                let mut keys = [s.splat(0.0); W];
                for i in 0..W {
                    keys[i] = E::load(s, &k[half * W + i]);
                }
                for r in 0..R {
                    for i in 0..W {
                        sums[r][i] = s.fma(s.splat(q[i][r]), keys[i], sums[r][i]);
                    }
                }
            }
            for (sums, out) in sums.iter().zip(&mut *out) {
                for (i, sum) in sums.iter().enumerate() {
                    s.store(*sum, &mut out.as_chunks_mut().0[at + i]);
                }
            }
        }
    }
}

/// The shaping of a score between the dot product and the exponential.
#[derive(Clone, Copy, Debug)]
pub struct Shaping {
    /// Factor of the dot product.
    pub scale: f32,
    /// `cap * tanh(score / cap)` afterwards, unless 0.
    pub cap: f32,
}

/// Turn dot products into `exp(score - max)` row by row, 0 where a row does not see a cell, and
/// join maximum and sum to those of the spans before.
#[inline(always)]
pub(crate) fn softmax<S: Simd>(
    s: S,
    scores: &mut [Scores],
    masks: &[Masks],
    shaping: Shaping,
    running: &mut Running,
) -> Join {
    let mut span = Running::START;
    // All maxima before all exponentials, so that a row need not wait for its own.
    for (max, (scores, masks)) in span.max.iter_mut().zip(scores.iter_mut().zip(masks)) {
        *max = shape(s, scores, masks, shaping);
    }
    for ((max, sum), (scores, masks)) in span.max.iter().zip(&mut span.sum).zip(scores.iter_mut().zip(masks))
    {
        *sum = exponentials(s, scores, masks, *max);
    }
    let sees = masks.iter().enumerate();
    let sees = sees.fold(0, |sees, (r, masks)| sees | u16::from(masks.iter().any(|&mask| mask != 0)) << r);
    join(s, running, &span, sees)
}

/// A span that is seen whole.
const ALL: Masks = [u32::MAX; SPAN_BLOCKS];

/// Return the lanes of the `i`-th sixteen of a span that are seen.
#[inline(always)]
fn lanes_seen(masks: &Masks, i: usize) -> u16 {
    (masks[i / 2] >> (i % 2 * LANES)) as u16
}

/// Scale and cap the scores; return the largest of those seen.
#[inline(always)]
fn shape<S: Simd>(s: S, scores: &mut Scores, masks: &Masks, shaping: Shaping) -> f32 {
    let (scale, cap) = (s.splat(shaping.scale), s.splat(shaping.cap));
    let none = s.splat(f32::NEG_INFINITY);
    let mut max = none;
    if *masks == ALL && shaping.cap == 0.0 {
        for part in scores.as_chunks_mut().0 {
            let x = s.mul(s.load(part), scale);
            max = s.max(x, max);
            s.store(x, part);
        }
        return s.largest(max);
    }
    for (i, part) in scores.as_chunks_mut().0.iter_mut().enumerate() {
        let mask = lanes_seen(masks, i);
        if mask == 0 {
            continue;
        }
        let mut x = s.mul(s.load(part), scale);
        if shaping.cap != 0.0 {
            x = s.mul(cap, math::tanh(s, s.div(x, cap)));
        }
        max = s.max(s.select(mask, x, none), max);
        s.store(x, part);
    }
    s.largest(max)
}

/// The least weight that counts, as a part of a row's largest: 2^-64.
///
/// Smaller weights are zero. 2^39 of them together change no bit of 1, and products with numbers
/// near the smallest there are cost processors a hundred times an ordinary one.
const LEAST_WEIGHT: f32 = 1.0 / (1u128 << 64) as f32;

/// Return `exp(x)`, or zero where that is below [`LEAST_WEIGHT`]; NaN stays NaN.
#[inline(always)]
fn weight<S: Simd>(s: S, x: S::F) -> S::F {
    // -80 is far below the least weight, and its exponential is no subnormal number yet. Those take
    // five times as long.
    let y = math::exp(s, s.max(s.splat(-80.0), x));
    s.select(s.lt(y, s.splat(LEAST_WEIGHT)), s.splat(0.0), y)
}

/// Turn the scores that are seen into the [`weight`] of `score - max`; return the sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, scores: &mut Scores, masks: &Masks, max: f32) -> f32 {
    let (zero, max) = (s.splat(0.0), s.splat(max));
    let mut sum = zero;
    if *masks == ALL {
        for part in scores.as_chunks_mut().0 {
            let p = weight(s, s.sub(s.load(part), max));
            sum = s.add(sum, p);
            s.store(p, part);
        }
        return s.sum(sum);
    }
    for (i, part) in scores.as_chunks_mut().0.iter_mut().enumerate() {
        let mask = lanes_seen(masks, i);
        if mask == 0 {
            continue;
        }
        let p = s.select(mask, weight(s, s.sub(s.load(part), max)), zero);
        sum = s.add(sum, p);
        s.store(p, part);
    }
    s.sum(sum)
}

/// Add a span's maximum and sum to the running ones of the rows that see it.
#[inline(always)]
fn join<S: Simd>(s: S, running: &mut Running, span: &Running, sees: u16) -> Join {
    let (old_max, new_max) = (s.load(&running.max), s.load(&span.max));
    let (old_sum, new_sum) = (s.load(&running.sum), s.load(&span.sum));
    let max = s.max(old_max, new_max);
    let keep = weight(s, s.sub(old_max, max));
    let take = weight(s, s.sub(new_max, max));
    let sum = s.fma(old_sum, keep, s.mul(new_sum, take));
    let first = !s.lt(s.splat(0.0), old_sum);
    let mut join = Join { keep: [0.0; LANES], take: [0.0; LANES], first, sees };
    s.store(keep, &mut join.keep);
    s.store(take, &mut join.take);
    s.store(s.select(sees, max, old_max), &mut running.max);
    s.store(s.select(sees, sum, old_sum), &mut running.sum);
    join
}

/// Join `out[r][d]` with `sum over cells of p[r][cell] * v[cell][d]`: one fused multiply-add for
/// each cell that the row sees, in ascending order, from +0.0.
///
/// A panel of values is `[32 cells, d_v]`. `out` may have fewer rows than the tile. Blocks that all
/// rows see whole take a short loop, the others one that looks at the masks. Prefetches a block of
/// `soon`, the keys that are read next, beside each block of values that is seen whole.
#[inline(always)]
fn values<S: Simd, E: Stored, const R: usize, const W: usize, const FROM_MEMORY: bool>(
    s: S,
    p: &[Scores],
    masks: &[Masks],
    v: &Panels<'_>,
    soon: &Panels<'_>,
    joined: &Join,
    out: &mut [&mut [f32]],
) {
    let (Some(p), Some(masks)) = (p.first_chunk::<R>(), masks.first_chunk::<R>()) else { return };
    debug_assert!(!out.is_empty(), "a tile has rows");
    let factors = twice::<_, FROM_MEMORY>(p);
    let d_v = out.first().map_or(0, |out| out.len());
    let whole_blocks =
        (0..SPAN_BLOCKS).take_while(|&block| masks.iter().all(|masks| masks[block] == u32::MAX));
    let n_whole = whole_blocks.count();
    for d in (0..d_v).step_by(W * LANES) {
        let n_whole = if d + W * LANES <= d_v { n_whole } else { 0 };
        let mut whole_sums = [[s.splat(0.0); W]; R];
        for (block, v) in v.iter().enumerate().take(n_whole) {
            let lines = soon[block].as_chunks().0;
            // In the order of memory: every second line first is slower than none.
            match lines.get(d / (W * LANES) * BLOCK_CELLS..).and_then(|lines| lines.first_chunk()) {
                Some(soon) => whole::<S, E, R, W, true>(s, factors, block, v, soon, d_v, d, &mut whole_sums),
                None => whole::<S, E, R, W, false>(s, factors, block, v, &NO_LINES, d_v, d, &mut whole_sums),
            }
        }
        // A copy, so that the sums of what is seen whole stay in registers.
        let mut sums = whole_sums;
        for (block, v) in v.iter().enumerate().skip(n_whole).filter(|(_, v)| !v.is_empty()) {
            ragged::<S, E, R, W>(s, p, masks, block, v, d_v, d, &mut sums);
        }
        // Sums that are indexed by a row's number would lie in memory all the time.
        let mut stored = [[[0.0; LANES]; W]; R];
        for r in 0..R {
            for i in 0..W {
                s.store(sums[r][i], &mut stored[r][i]);
            }
        }
        for (r, out) in out.iter_mut().enumerate().filter(|(r, _)| joined.sees >> r & 1 == 1) {
            for (out, new) in out[d..].chunks_mut(LANES).zip(&stored[r]) {
                store(s, accumulate(s, joined, r, out, s.load(new)), out);
            }
        }
    }
}

#[inline(always)]
fn accumulate<S: Simd>(s: S, joined: &Join, r: usize, old: &[f32], new: S::F) -> S::F {
    if joined.first >> r & 1 == 1 {
        return new;
    }
    s.fma(load(s, old), s.splat(joined.keep[r]), s.mul(new, s.splat(joined.take[r])))
}

/// The lines of a loop that fetches none.
static NO_LINES: [Line; BLOCK_CELLS] = [[0; _]; _];

/// Add a block that all rows see whole. The factors of vector i are those in `p[i]`. With `FETCH`,
/// prefetch a line of `soon` with each cell.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the state of a loop's body")]
fn whole<S: Simd, E: Stored, const R: usize, const W: usize, const FETCH: bool>(
    s: S,
    p: [&[Scores; R]; 2],
    block: usize,
    v: &[u8],
    soon: &[Line; BLOCK_CELLS],
    d_v: usize,
    d: usize,
    sums: &mut [[S::F; W]; R],
) {
    let v = elements::<E>(v);
    // All rows from this block on, so that one address with a distance for each row leads to their
    // factors.
    let p = p.map(|p| &p.as_flattened()[block * BLOCK_CELLS..][..(R - 1) * SPAN_CELLS + BLOCK_CELLS]);
    // A missing vector cannot occur; a loop with one way out keeps the sums in registers.
    let none = [[bytemuck::Zeroable::zeroed(); LANES]; W];
    // All rows are equally long, so that one comparison ahead of the loop serves all of them.
    for ((c, v), soon) in v.chunks_exact(d_v.max(1)).enumerate().zip(soon) {
        let v = v.get(d..).and_then(|v| v.as_chunks::<LANES>().0.first_chunk::<W>()).unwrap_or(&none);
        if const { FETCH } {
            s.prefetch_l2(soon, 0);
        }
        let mut values = [s.splat(0.0); W];
        for i in 0..W {
            values[i] = E::load(s, &v[i]);
        }
        for r in 0..R {
            for i in 0..W {
                let p = p[i][r * SPAN_CELLS + c];
                sums[r][i] = s.fma(s.splat(p), values[i], sums[r][i]);
            }
        }
    }
}

/// Add `p[r] * v[i]` to `sums[r][i]`, fused.
#[inline(always)]
fn add<S: Simd, const R: usize, const W: usize>(s: S, p: [f32; R], v: [S::F; W], sums: &mut [[S::F; W]; R]) {
    for r in 0..R {
        let p = s.splat(p[r]);
        for i in 0..W {
            sums[r][i] = s.fma(p, v[i], sums[r][i]);
        }
    }
}

/// Add a block that some rows see in part, or whose last dimensions do not fill a tile's width.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the state of a loop's body")]
fn ragged<S: Simd, E: Stored, const R: usize, const W: usize>(
    s: S,
    p: &[Scores; R],
    masks: &[Masks; R],
    block: usize,
    v: &[u8],
    d_v: usize,
    d: usize,
    sums: &mut [[S::F; W]; R],
) {
    let v = elements::<E>(v);
    let p = p.each_ref().map(|p| &p.as_chunks::<BLOCK_CELLS>().0[block]);
    let masks = masks.each_ref().map(|masks| masks[block]);
    let (any, all) = masks.iter().fold((0, u32::MAX), |(any, all), mask| (any | mask, all & mask));
    for (c, v) in v.chunks_exact(d_v).take(BLOCK_CELLS).enumerate().filter(|(c, _)| any >> c & 1 == 1) {
        let mut values = [s.splat(0.0); W];
        for (values, v) in values.iter_mut().zip(v[d..].chunks(LANES)) {
            *values = E::load_part(s, v);
        }
        let p = p.map(|p| p[c]);
        if all >> c & 1 == 1 {
            add::<S, R, W>(s, p, values, sums);
            continue;
        }
        let mut added = *sums;
        add::<S, R, W>(s, p, values, &mut added);
        for r in (0..R).filter(|r| masks[*r] >> c & 1 == 1) {
            sums[r] = added[r];
        }
    }
}

/// Join the spans of one row that were computed apart.
///
/// `parts` are rows of `[d_v weighted values, maximum, sum]`, in the order of spans; a sum of 0
/// says that nothing of a span was seen.
#[inline(always)]
pub(crate) fn merge<S: Simd>(
    s: S,
    parts: &mut dyn Iterator<Item = &[f32]>,
    out: &mut [f32],
    running: &mut Running,
) {
    for part in parts {
        debug_assert_eq!(part.len(), out.len() + 2);
        let Some((new, &[max, sum])) = part.split_last_chunk() else { return };
        if sum == 0.0 {
            continue;
        }
        let joined = join(s, running, &Running { max: [max; LANES], sum: [sum; LANES] }, u16::MAX);
        for (out, new) in out.chunks_mut(LANES).zip(new.chunks(LANES)) {
            store(s, accumulate(s, &joined, 0, out, load(s, new)), out);
        }
    }
}

/// Divide weighted values by the sum of weights. A `sink` is a score without a value that joins the
/// sum; a row that saw nothing becomes zero.
#[inline(always)]
pub(crate) fn finish<S: Simd>(s: S, out: &mut [f32], max: f32, sum: f32, sink: Option<f32>) {
    if sum == 0.0 {
        return out.fill(0.0);
    }
    let (mut keep, mut total) = (1.0, sum);
    if let Some(sink) = sink {
        let mut running = Running { max: [max; LANES], sum: [sum; LANES] };
        let joined = join(s, &mut running, &Running { max: [sink; LANES], sum: [1.0; LANES] }, 1);
        (keep, total) = (joined.keep[0], running.sum[0]);
    }
    let factor = s.splat(keep / total);
    for out in out.chunks_mut(LANES) {
        store(s, s.mul(load(s, out), factor), out);
    }
}

#[cfg(test)]
mod tests;
