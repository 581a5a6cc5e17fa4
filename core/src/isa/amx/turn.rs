//! Products of two blocks on tiles, while vectors scale and add those of the two blocks before.
//!
//! To turn sums to floats would cost a conversion, and while tiles are at work the processor
//! multiplies and converts with one of its two vector units but adds with both. So a tile starts
//! not from zero but from the bits of the float 3 * 2^22: integers below 2^22 added to those bits
//! are that float plus the integer, and one exact subtraction leaves the sum. Two blocks are added
//! to a tile before it starts anew; the sums of the second are the difference of the values stored
//! after each.

use super::{Block, Product, Sums, TOKENS, Tiles};
use crate::block::activations::QBlock;
use crate::isa::LANES;
use core::arch::asm;
use core::arch::x86_64::{
    __m512, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_storeu_ps, _mm512_sub_ps,
};

/// 3 * 2^22, to which an integer below 2^22 can be added as an integer or as a float.
const BIAS: f32 = 12_582_912.0;

/// The start of every row of sums.
#[repr(C, align(64))]
struct Start([u32; LANES]);

static START: Start = Start([BIAS.to_bits(); LANES]);

/// Load tile `tile` from rows `stride` bytes apart.
macro_rules! load {
    ($tile:literal, $from:expr, $stride:expr) => {
        asm!(
            concat!("tileloadd tmm", $tile, ", [{from} + {stride}]"),
            from = in(reg) $from, stride = in(reg) $stride,
            options(nostack, preserves_flags, readonly)
        )
    };
}

/// Load tile `tile` with the bits of [`BIAS`].
macro_rules! start {
    ($tile:literal) => {
        load!($tile, START.0.as_ptr(), 0usize)
    };
}

/// Load tile `tile` with one block of sixteen tokens, as rows of 32 bytes a `QBlock` apart.
macro_rules! tokens {
    ($tile:literal, $x:expr) => {
        load!($tile, (&raw const $x[0].q), size_of::<QBlock>())
    };
}

/// Load tile `tile` with one block of a panel, eight rows of 64 bytes.
macro_rules! weights {
    ($tile:literal, $w:expr) => {
        load!($tile, (&raw const $w.q), 64usize)
    };
}

/// Add the products of tile `a` and tile `b` to tile `c`.
macro_rules! multiply {
    ($c:literal, $a:literal, $b:literal) => {
        asm!(concat!("tdpbssd tmm", $c, ", tmm", $a, ", tmm", $b), options(nomem, nostack, preserves_flags))
    };
}

/// Store tile `tile`, sixteen rows of 64 bytes.
macro_rules! store {
    ($tile:literal, $to:expr) => {
        asm!(
            concat!("tilestored [{to} + {stride}], tmm", $tile),
            to = in(reg) (&raw mut $to), stride = in(reg) 64usize,
            options(nostack, preserves_flags)
        )
    };
}

/// One block, or two, of a product.
struct Blocks<'a> {
    /// For each block the first and the other sixteen tokens.
    x: [[&'a [QBlock; TOKENS]; 2]; 2],
    /// For each block the first and the second panel.
    w: [[&'a Block; 2]; 2],
    /// False if there is only the first.
    two: bool,
}

impl<'a> Blocks<'a> {
    /// Return block `first` and the next of `product`, of `n` blocks; none behind the last.
    fn new(product: &Product<'a>, first: usize, n: usize) -> Option<Self> {
        let second = (first + 1).min(n.checked_sub(1)?);
        let tokens = |block, half: usize| {
            product.x[half].get(block * product.strides[half]..).and_then(<[_]>::first_chunk)
        };
        let x = |block| Some([tokens(block, 0)?, tokens(block, 1)?]);
        let w = |block| Some([product.w[0].get(block)?, product.w[1].get(block)?]);
        Some(Self { x: [x(first)?, x(second)?], w: [w(first)?, w(second)?], two: second > first })
    }
}

impl Tiles {
    /// Add a product to `sums`, block by block: those of the first tokens with both panels, then
    /// those of the others.
    pub(crate) fn multiply(&mut self, product: Product<'_>, sums: &mut [Sums; 4]) {
        // SAFETY: a `Tiles` is made only where AVX-512 F and tiles were found.
        unsafe {
            if product.minima {
                self.blocks::<true>(&product, sums);
            } else {
                self.blocks::<false>(&product, sums);
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn blocks<const MINIMA: bool>(&mut self, product: &Product<'_>, sums: &mut [Sums; 4]) {
        let n = product.w[0].len().min(product.w[1].len());
        let [mut new, mut stored] = self.buffer.0.each_mut();
        let (mut before, mut now) = (None, Blocks::new(product, 0, n));
        if let Some(Blocks { x: [x, _], w: [w, _], .. }) = now {
            // SAFETY: `self` shows that this thread's tiles are configured; see `turn`.
            unsafe {
                tokens!(4, x[0]);
                weights!(6, w[0]);
                weights!(7, w[1]);
                tokens!(5, x[1]);
            }
        }
        for first in (0..n + 2).step_by(2) {
            debug_assert!(now.is_some() || first >= n, "the product lacks tokens of block {first}");
            let next = Blocks::new(product, first + 2, n);
            // SAFETY: `self` shows that this thread's tiles are configured; those of the first
            // block are loaded.
            unsafe { turn::<MINIMA>([&before, &now, &next], stored, new, sums) };
            (new, stored) = (stored, new);
            (before, now) = (now, next);
        }
    }
}

/// Multiply the blocks `now`, whose first is loaded, store their sums in `new`, and load the first
/// of the blocks `next`. Meanwhile add the sums of the blocks `before`, which are `stored` but for
/// those of the last block in tiles 2 and 3, to `sums`.
///
/// A tile's store keeps other instructions from starting, so stores stand far from each other, and
/// vectors get four tokens at a time between the steps of tiles. Tokens come from the second cache,
/// so they are loaded as soon as their tile is free.
///
/// # Safety
/// The thread has a [`Tiles`].
#[inline]
#[target_feature(enable = "avx512f")]
#[rustfmt::skip]
unsafe fn turn<const MINIMA: bool>(
    [before, now, next]: [&Option<Blocks<'_>>; 3],
    stored: &mut [[Sums; 4]; 2],
    new: &mut [[Sums; 4]; 2],
    sums: &mut [Sums; 4],
) {
    macro_rules! add {
        ($tile:literal from $token:literal) => {
            if let Some(before) = before {
                add::<MINIMA, $tile, $token>(before, stored, sums);
            }
        };
    }
    let second = now.as_ref().filter(|now| now.two);
    let is_last_stored = before.as_ref().is_none_or(|before| !before.two);
    // SAFETY: the tiles are configured, as the caller promises: those of tokens have sixteen
    // rows of 32 bytes, those of weights eight of 64, those of sums sixteen of 64. A reference to
    // sixteen tokens, a block or sums stands for each address.
    unsafe {
        if now.is_some() { start!(0); multiply!(0, 4, 6); }
        add!(0 from 0);
        if !is_last_stored { store!(2, stored[1][2]); }
        if now.is_some() { start!(1); }
        add!(0 from 4);
        if now.is_some() { multiply!(1, 4, 7); }
        add!(0 from 8);
        if let Some(now) = second { tokens!(4, now.x[1][0]); }
        if !is_last_stored { store!(3, stored[1][3]); }
        add!(0 from 12);
        if now.is_some() { start!(2); multiply!(2, 5, 6); }
        add!(1 from 0);
        if let Some(now) = second { weights!(6, now.w[1][0]); }
        add!(1 from 4);
        if now.is_some() { start!(3); multiply!(3, 5, 7); }
        add!(1 from 8);
        if let Some(now) = second { weights!(7, now.w[1][1]); }
        if now.is_some() { store!(0, new[0][0]); }
        add!(1 from 12);
        if let Some(now) = second { tokens!(5, now.x[1][1]); multiply!(0, 4, 6); }
        add!(2 from 0);
        if now.is_some() { store!(1, new[0][1]); }
        if second.is_some() { multiply!(1, 4, 7); }
        add!(2 from 4);
        if let Some(next) = next { tokens!(4, next.x[0][0]); }
        add!(2 from 8);
        if now.is_some() { store!(2, new[0][2]); }
        if second.is_some() { multiply!(2, 5, 6); }
        add!(2 from 12);
        if let Some(next) = next { weights!(6, next.w[0][0]); }
        if now.is_some() { store!(3, new[0][3]); }
        add!(3 from 0);
        if second.is_some() { multiply!(3, 5, 7); }
        add!(3 from 4);
        if let Some(next) = next { weights!(7, next.w[0][1]); }
        if second.is_some() { store!(0, new[1][0]); }
        add!(3 from 8);
        if let Some(next) = next { tokens!(5, next.x[0][1]); }
        if second.is_some() { store!(1, new[1][1]); }
        add!(3 from 12);
    }
}

/// Add what tile `TILE` has stored of four tokens from `FIRST` on to their sums, block by block:
/// `sum = fma(product, scale * d, sum)`, and for formats with a minimum `sum = fma(min, sum of x,
/// sum)`.
#[inline]
#[target_feature(enable = "avx512f")]
fn add<const MINIMA: bool, const TILE: usize, const FIRST: usize>(
    blocks: &Blocks<'_>,
    stored: &[[Sums; 4]; 2],
    sums: &mut [Sums; 4],
) {
    let bias = _mm512_set1_ps(BIAS);
    let x = blocks.x.map(|x| x[TILE / 2]);
    let scales = blocks.w.map(|w| load(&w[TILE % 2].scales));
    let mins = blocks.w.map(|w| load(&w[TILE % 2].mins));
    for i in FIRST..FIRST + 4 {
        let mut sum = load(&sums[TILE][i]);
        let mut start = bias;
        for block in 0..2 {
            if block == 1 && !blocks.two {
                break;
            }
            let end = load(&stored[block][TILE][i]);
            let scale = _mm512_mul_ps(scales[block], _mm512_set1_ps(x[block][i].d));
            sum = _mm512_fmadd_ps(_mm512_sub_ps(end, start), scale, sum);
            if MINIMA {
                sum = _mm512_fmadd_ps(mins[block], _mm512_set1_ps(x[block][i].sum), sum);
            }
            start = end;
        }
        // SAFETY: a row is sixteen floats; the store asks for no alignment.
        unsafe { _mm512_storeu_ps(sums[TILE][i].as_mut_ptr(), sum) };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(row: &[f32; LANES]) -> __m512 {
    // SAFETY: a row is sixteen floats; the load asks for no alignment.
    unsafe { _mm512_loadu_ps(row.as_ptr()) }
}
