//! Quantised weights times many tokens, in vectors.
//!
//! Some blocks of a panel, or of two where there are 32 registers, are unpacked to bytes and floats
//! that the inner loop loads as they are. Then tokens pass, as many at a time as have their sums in
//! registers. So weights are unpacked once for up to 576 tokens, and a word of activations is
//! loaded once for both panels. The operations on every output and their order are those of
//! [`few_tokens`](super::few_tokens).
//!
//! | set | panels | tokens at a time |
//! |---|---|---|
//! | 32 registers | 2 | 6; with sub-blocks 4 |
//! | AVX2, few bits | 1 | 3; with sub-blocks 2 |
//! | AVX2, 8 bits | 1 | 2 |

use super::sink::{Sink, Write};
use super::sums::{has_few_bits, minima, panels, scale_sums, start};
use crate::block::activations::{GROUP, QBlock};
use crate::format::layout;
use crate::format::planes::Line;
use crate::format::{Bias, Factors, Format, SubBlockMins};
use crate::isa::{LANES, Simd, cache};
use crate::pool::Band;

/// The most blocks of a panel that are unpacked at once: in general, and where tokens wait in a
/// near third cache.
const DEPTHS: [usize; 2] = [24, 64];

/// The most tokens that pass one panel, or two, after the other: likewise.
const MOST: [usize; 2] = [4 * GROUP, 12 * GROUP];

/// Sixteen floats, one a row of a panel.
type Floats = [f32; LANES];

/// A block of a panel, unpacked.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block {
    /// The elements as bytes: line g is four columns from 4g of each row.
    q: [Line; 8],
    /// The scale and, if there is one, the minimum. With sub-blocks: the scale, two sub-block
    /// scales, and the same three of the minima. The rest is never written.
    factors: [Floats; 6],
}

impl Block {
    const ZERO: Self = Self { q: [[0; 64]; 8], factors: [[0.0; LANES]; 6] };
}

/// Sums of a token with each of two panels.
type Sums = [Floats; 2];

/// The workspace on the stack.
struct Room<'a> {
    /// Parts of two panels, side by side.
    blocks: &'a mut [[Block; 2]],
    /// The sums of all tokens that meet them.
    sums: &'a mut [Sums],
}

/// Multiply all panels `w` by all rows `x` of `n_blocks` blocks.
#[inline(always)]
pub(super) fn multiply<S: Simd, Q: Format>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    let Sizes { n_together, depth } = Sizes::of::<S, Q>(x.len() / n_blocks, n_blocks);
    // The smaller workspace where it is enough: beside a small product, clearing takes a while.
    let (mut few, mut more, mut some, mut many);
    let mut room = Room {
        blocks: if const { S::N_REGISTERS < 32 } || depth <= DEPTHS[0] {
            few = [[Block::ZERO; 2]; DEPTHS[0]];
            &mut few[..]
        } else {
            more = [[Block::ZERO; 2]; DEPTHS[1]];
            &mut more
        },
        sums: if const { S::N_REGISTERS < 32 } || n_together <= MOST[0] {
            some = [[[0.0; LANES]; 2]; MOST[0]];
            &mut some[..]
        } else {
            many = [[[0.0; LANES]; 2]; MOST[1]];
            &mut many
        },
    };
    for (i, x) in x.chunks(n_together * n_blocks).enumerate() {
        let mut rest = panels::<Q>(w, n_blocks).enumerate();
        while let Some((panel, one)) = rest.next() {
            let mut sink = Sink { out: &mut *out, panel, token: i * n_together, write };
            // Nothing is fetched ahead of the end.
            let after = |n: usize| rest.clone().nth(n).map_or(&[][..], |(_, panel)| panel);
            if const { S::N_REGISTERS >= 32 } {
                // A last panel without a second meets itself: the band has no columns for that one.
                let next = [after(1), after(2)];
                let two = rest.next().map_or(one, |(_, panel)| panel);
                pass::<S, Q, 2>(s, &mut room, [one, two], next, x, (n_blocks, depth), &mut sink);
            } else {
                let next = [after(0), &[]];
                pass::<S, Q, 1>(s, &mut room, [one], next, x, (n_blocks, depth), &mut sink);
            }
        }
    }
}

/// The sizes of a pass: the fastest that were measured, on Zen 4 and on Sapphire Rapids.
#[derive(Clone, Copy)]
struct Sizes {
    /// Tokens that pass together: whole groups, about as many in each pass.
    n_together: usize,
    /// Blocks that are unpacked at once: whole units, about as many each time.
    depth: usize,
}

impl Sizes {
    #[inline(always)]
    fn of<S: Simd, Q: Format>(n_tokens: usize, n_blocks: usize) -> Self {
        // Where tokens may wait in a third cache, many share an unpacked panel, and a part may be
        // larger than the nearest cache: its sums are loaded and stored less often. AVX2 loses by
        // that, because it has more loads for each multiplication.
        let third = if const { S::N_REGISTERS >= 32 } { cache::near_third_cache() } else { None };
        let (room, most, depth) = match third {
            Some(bytes) => (bytes / 4, MOST[1], DEPTHS[1]),
            None => (cache::quarters(2), MOST[0], DEPTHS[0]),
        };
        let fit = (room / size_of::<QBlock>() / n_blocks).clamp(GROUP, most) / GROUP;
        let n_groups = n_tokens.div_ceil(GROUP);
        let unit = const { if Q::HEAD_BYTES == 0 { Q::SECTION } else { Q::HEADS * Q::BLOCKS } };
        let n_parts = n_blocks.div_ceil(depth / unit * unit);
        Self {
            n_together: n_groups.div_ceil(n_groups.div_ceil(fit)) * GROUP,
            depth: n_blocks.div_ceil(n_parts).next_multiple_of(unit),
        }
    }
}

/// Blocks of `P` panels, unpacked.
#[derive(Clone, Copy)]
struct Part<'a> {
    blocks: &'a [[Block; 2]],
    /// True if they are the first: sums start with them.
    first: bool,
    /// True if they are the last: sums are outputs after them.
    last: bool,
}

/// Multiply `P` panels of `n_blocks` blocks by the tokens `x`, in whole groups but for the last,
/// `depth` blocks at a time. Prefetches the `next` panels, which are read after these.
#[inline(always)]
fn pass<S: Simd, Q: Format, const P: usize>(
    s: S,
    room: &mut Room<'_>,
    panels: [&[u8]; P],
    next: [&[u8]; 2],
    x: &[QBlock],
    (n_blocks, depth): (usize, usize),
    sink: &mut Sink<'_, '_>,
) {
    let part_bytes = layout::panel_bytes::<Q>(depth);
    for begin in (0..n_blocks).step_by(depth) {
        let n = depth.min(n_blocks - begin);
        for (p, panel) in panels.iter().enumerate() {
            let part = &panel[layout::panel_bytes::<Q>(begin)..];
            unpack::<S, Q>(s, part, p, &mut room.blocks[..n]);
        }
        let part = Part { blocks: &room.blocks[..n], first: begin == 0, last: begin + n == n_blocks };
        let mut soon = next;
        if !part.last {
            for (soon, panel) in soon.iter_mut().zip(panels) {
                *soon = &panel[layout::panel_bytes::<Q>(begin + n)..];
            }
        }
        let mut soon = Soon::new(soon, part_bytes, x.len() / n_blocks);
        let groups = x.chunks(GROUP * n_blocks).zip(room.sums.chunks_mut(GROUP));
        for (i, (x, sums)) in groups.enumerate() {
            let group =
                Group { x: &x[begin * (x.len() / n_blocks)..], n: x.len() / n_blocks, first: i * GROUP };
            group.multiply::<S, Q, P>(s, part, sums, &mut soon, sink);
        }
    }
}

/// Memory that is read next, to be fetched to the second cache a little with each token.
struct Soon<'a> {
    parts: [&'a [u8]; 2],
    /// Bytes of each part that are asked for with each token.
    step: usize,
}

impl<'a> Soon<'a> {
    /// Return the first `n_bytes` of each of `parts`, for so many tokens.
    #[inline(always)]
    fn new(parts: [&'a [u8]; 2], n_bytes: usize, n_tokens: usize) -> Self {
        let parts = parts.map(|part| part.get(..n_bytes).unwrap_or(part));
        Self { parts, step: n_bytes.div_ceil(n_tokens).next_multiple_of(size_of::<Line>()) }
    }

    /// Prefetch the share of `n_tokens` more tokens.
    #[inline(always)]
    fn fetch<S: Simd>(&mut self, s: S, n_tokens: usize) {
        for part in &mut self.parts {
            let (now, later) = part.split_at(part.len().min(self.step * n_tokens));
            *part = later;
            for line in now.as_chunks::<{ size_of::<Line>() }>().0 {
                s.prefetch_l2(line, 0);
            }
        }
    }
}

/// Tokens whose blocks lie side by side.
#[derive(Clone, Copy)]
struct Group<'a> {
    /// From the first block that is multiplied on.
    x: &'a [QBlock],
    /// The number of tokens.
    n: usize,
    /// The number of the first one in the pass.
    first: usize,
}

impl Group<'_> {
    /// Multiply the part by all tokens, a few at a time, about as many each time.
    #[inline(always)]
    fn multiply<S: Simd, Q: Format, const P: usize>(
        self,
        s: S,
        part: Part<'_>,
        sums: &mut [Sums],
        soon: &mut Soon<'_>,
        sink: &mut Sink<'_, '_>,
    ) {
        let most = const { most_tokens::<S, Q>() };
        let mut t = 0;
        for left in (1..=self.n.div_ceil(most)).rev() {
            let n = (self.n - t).div_ceil(left);
            soon.fetch(s, n);
            match n {
                6 if const { most_tokens::<S, Q>() >= 6 } => self.tile::<S, Q, P, 6>(s, part, t, sums, sink),
                5 if const { most_tokens::<S, Q>() >= 6 } => self.tile::<S, Q, P, 5>(s, part, t, sums, sink),
                4 if const { most_tokens::<S, Q>() >= 4 } => self.tile::<S, Q, P, 4>(s, part, t, sums, sink),
                3 if const { most_tokens::<S, Q>() >= 3 } => self.tile::<S, Q, P, 3>(s, part, t, sums, sink),
                2 => self.tile::<S, Q, P, 2>(s, part, t, sums, sink),
                _ => self.tile::<S, Q, P, 1>(s, part, t, sums, sink),
            }
            t += n;
        }
    }

    /// Multiply the part by `G` tokens from the `t`-th on.
    #[inline(always)]
    fn tile<S: Simd, Q: Format, const P: usize, const G: usize>(
        self,
        s: S,
        part: Part<'_>,
        t: usize,
        sums: &mut [Sums],
        sink: &mut Sink<'_, '_>,
    ) {
        debug_assert!(t + G <= self.n && self.n <= sums.len());
        let Some(sums) = sums.get_mut(t..).and_then(|sums| sums.first_chunk_mut::<G>()) else { return };
        let mut acc = [[s.splat(0.0); G]; P];
        if !part.first {
            for i in 0..G {
                for p in 0..P {
                    acc[p][i] = s.load(&sums[i][p]);
                }
            }
        }
        if part.last {
            sink.fetch::<S, P, G>(s, self.first + t);
        }
        // Fallbacks and no panics here: the loop stays free of bounds checks that unwind. The
        // assertion above says that the tokens are there.
        let mut rest = self.x.get(t..).unwrap_or(&[]);
        for w in part.blocks {
            let (Some(x), Some(w)) = (rest.first_chunk::<G>(), w.first_chunk::<P>()) else { break };
            rest = rest.get(self.n..).unwrap_or(&[]);
            if const { Q::SUB_BLOCKS } {
                sub_blocks::<S, Q, P, G>(s, w, x, &mut acc);
            } else {
                whole::<S, Q, P, G>(s, w, x, &mut acc);
            }
        }
        for i in 0..G {
            for p in 0..P {
                if part.last {
                    sink.put_at(s, p, self.first + t + i, acc[p][i]);
                } else {
                    s.store(acc[p][i], &mut sums[i][p]);
                }
            }
        }
    }
}

/// Return the most tokens whose sums stay in registers.
const fn most_tokens<S: Simd, Q: Format>() -> usize {
    match S::N_REGISTERS {
        32.. if !Q::SUB_BLOCKS => 6,
        32.. => 4,
        _ if has_few_bits::<S, Q>() && !Q::SUB_BLOCKS => 3,
        _ => 2,
    }
}

/// Add the products of the columns of `N` vectors from `from` on.
#[inline(always)]
fn dots<S: Simd, Q: Format, const P: usize, const G: usize, const N: usize>(
    s: S,
    w: &[Block; P],
    x: &[QBlock; G],
    from: usize,
    sums: &mut [[S::I; G]; P],
) {
    if const { S::FEW_BITS } {
        for (w, sums) in w.iter().zip(sums) {
            dots_together::<S, Q, G, N>(s, w, x, from, sums);
        }
        return;
    }
    for g in from..from + N {
        let w = w.each_ref().map(|w| s.bytes(&w.q[g]));
        for i in 0..G {
            let x = x[i].q[g];
            for p in 0..P {
                sums[p][i] = if const { matches!(Q::BIAS, Bias::Signed) } {
                    s.dot_biased(sums[p][i], w[p], x)
                } else {
                    s.dot_small(sums[p][i], w[p], x)
                };
            }
        }
    }
}

/// Add the products of one panel, for sets that add those of several vectors before they widen
/// them.
#[inline(always)]
fn dots_together<S: Simd, Q: Format, const G: usize, const N: usize>(
    s: S,
    w: &Block,
    x: &[QBlock; G],
    from: usize,
    sums: &mut [S::I; G],
) {
    let Some(w) = w.q.get(from..).and_then(|w| w.first_chunk::<N>()) else { return };
    let mut products = [s.isplat(0); G];
    let x = x.each_ref().map(|x| x.q.get(from..).and_then(|x| x.first_chunk::<N>()).unwrap_or(&[0; N]));
    if const { Q::BITS <= 4 } {
        s.dot_tokens::<N, G, 4>(&mut products, w, x);
    } else if const { Q::BITS == 5 } {
        s.dot_tokens::<N, G, 5>(&mut products, w, x);
    } else if const { Q::BITS == 6 } {
        s.dot_tokens::<N, G, 6>(&mut products, w, x);
    } else if const { Q::BITS == 7 } {
        s.dot_tokens::<N, G, 7>(&mut products, w, x);
    } else {
        s.dot_tokens::<N, G, 8>(&mut products, w, x);
    }
    for i in 0..G {
        sums[i] = s.iadd(s.ishl(products[i], Q::SHIFT), sums[i]);
    }
}

/// Add one block that has one scale.
#[inline(always)]
fn whole<S: Simd, Q: Format, const P: usize, const G: usize>(
    s: S,
    w: &[Block; P],
    x: &[QBlock; G],
    acc: &mut [[S::F; G]; P],
) {
    let mut sums = [[s.isplat(0); G]; P];
    for (i, x) in x.iter().enumerate() {
        let start = start::<S, Q>(s, x, x.correction_128);
        for sums in &mut sums {
            sums[i] = start;
        }
    }
    dots::<S, Q, P, G, 8>(s, w, x, 0, &mut sums);
    for p in 0..P {
        let [scale, min, ..] = &w[p].factors;
        let min = if const { Q::HAS_MIN } { Some(s.load(min)) } else { None };
        scale_sums(s, sums[p], (s.load(scale), min), x, &mut acc[p]);
    }
}

/// Add one block whose two sub-blocks have scales of their own.
#[inline(always)]
fn sub_blocks<S: Simd, Q: Format, const P: usize, const G: usize>(
    s: S,
    w: &[Block; P],
    x: &[QBlock; G],
    acc: &mut [[S::F; G]; P],
) {
    let mut total = [[s.splat(0.0); G]; P];
    for h in 0..2 {
        let mut sums = [[s.isplat(0); G]; P];
        for (i, x) in x.iter().enumerate() {
            let correction = if h == 0 {
                x.first_correction_128
            } else {
                x.correction_128.wrapping_sub(x.first_correction_128)
            };
            let start = start::<S, Q>(s, x, correction);
            for sums in &mut sums {
                sums[i] = start;
            }
        }
        dots::<S, Q, P, G, 4>(s, w, x, 4 * h, &mut sums);
        for p in 0..P {
            let scale = s.load(&w[p].factors[1 + h]);
            for i in 0..G {
                let sum = s.to_float(sums[p][i]);
                total[p][i] = if h == 0 { s.mul(sum, scale) } else { s.fma(sum, scale, total[p][i]) };
            }
        }
    }
    for p in 0..P {
        let [scale, _, _, of_mins, first, second] = &w[p].factors;
        let scale = s.load(scale);
        for i in 0..G {
            acc[p][i] = s.fma(total[p][i], s.mul(scale, s.splat(x[i].d)), acc[p][i]);
        }
        if const { Q::HAS_MIN } {
            let mins = SubBlockMins { scale: s.load(of_mins), mins: [s.load(first), s.load(second)] };
            minima(s, mins, x, &mut acc[p]);
        }
    }
}

/// Unpack the first blocks of a part of panel `p`; the part begins with a unit.
#[inline(always)]
fn unpack<S: Simd, Q: Format>(s: S, part: &[u8], p: usize, out: &mut [[Block; 2]]) {
    let mut out = out.iter_mut();
    for (head, group) in part.chunks(Q::UNIT_BYTES).flat_map(layout::groups::<Q>) {
        let head = Q::head(s, head);
        for section in group.chunks(Q::SECTION_BYTES) {
            for (scales, quants) in layout::blocks::<Q>(section) {
                let Some(out) = out.next().and_then(|out| out.get_mut(p)) else { return };
                let vectors = Q::vectors(s, quants);
                for (vector, line) in vectors.iter().zip(&mut out.q) {
                    s.store_bytes(*vector, line);
                }
                let has_min = store_factors(s, Q::factors(s, head, scales), &mut out.factors);
                debug_assert_eq!(has_min, Q::HAS_MIN);
            }
        }
    }
}

/// Store the factors of a block; return true if there are minima among them.
#[inline(always)]
fn store_factors<S: Simd>(s: S, factors: Factors<S::F>, out: &mut [Floats; 6]) -> bool {
    let [a, b, c, d, e, f] = out;
    match factors {
        Factors::Whole { scale, min } => {
            s.store(scale, a);
            if let Some(min) = min {
                s.store(min, b);
            }
            min.is_some()
        }
        Factors::SubBlocks { scale, scales, mins } => {
            s.store(scale, a);
            s.store(scales[0], b);
            s.store(scales[1], c);
            if let Some(mins) = mins {
                s.store(mins.scale, d);
                s.store(mins.mins[0], e);
                s.store(mins.mins[1], f);
            }
            mins.is_some()
        }
    }
}
