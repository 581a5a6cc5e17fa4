//! Products of panels of weights with rows of activations.
//!
//! A kernel computes tiles: some panels (sixteen outputs each, one a lane) times some tokens, with the accumulators in
//! registers over the whole of K. How large a tile is chosen by speed alone; every element goes through the same
//! operations in the same order whatever the tile.

/// Products of all types whose blocks of 32 columns have one scale, by a module's `multiply`, for the set that `$token` stands for.
#[cfg(any(
    all(target_arch = "x86_64", feature = "amx"),
    all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
))]
macro_rules! products_of_whole_blocks {
    ($token:ty) => {
        products_of_whole_blocks! { @each $token;
            multiply_q8_0: Q8_0;
            multiply_q4_0: Q4_0;
            multiply_q4_1: Q4_1;
            multiply_q5_0: Q5_0;
            multiply_q5_1: Q5_1;
            multiply_q4_k: Q4_K;
            multiply_q5_k: Q5_K;
            multiply_iq4_nl: IQ4_NL;
            multiply_iq4_xs: IQ4_XS;
            multiply_mxfp4: MXFP4;
            multiply_tq2_0: TQ2_0;
        }
    };
    (@each $token:ty; $($name:ident: $format:ident;)*) => {
        $(#[inline(always)]
        pub(crate) fn $name(
            s: $token,
            w: &[u8],
            x: &[QBlock],
            n_blocks: usize,
            out: &mut Band<'_, f32>,
            write: Write,
        ) {
            multiply::<crate::packed::layout::$format>(s, w, x, n_blocks, out, write);
        })*
    };
}

mod float;
mod format;
pub(crate) mod integer;
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod pairs;
#[cfg(all(target_arch = "x86_64", feature = "amx"))]
pub(crate) mod tiles;
#[cfg(any(
    all(target_arch = "x86_64", feature = "amx"),
    all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
))]
mod tokens;

pub(crate) use float::{multiply_bf16, multiply_f16, multiply_f32};
pub(crate) use integer::{
    multiply_iq4_nl, multiply_iq4_xs, multiply_mxfp4, multiply_q2_k, multiply_q3_k, multiply_q4_0,
    multiply_q4_1, multiply_q4_k, multiply_q5_0, multiply_q5_1, multiply_q5_k, multiply_q6_k, multiply_q8_0,
    multiply_tq2_0,
};

use crate::isa::{LANES, Simd};
use crate::matmul::Write;
use crate::pool::Band;

/// Writes lanes `y` of panel `panel` of the band to row `token` of `out`.
#[inline(always)]
fn write_lanes<S: Simd>(s: S, y: S::F, out: &mut Band<'_, f32>, token: usize, panel: usize, write: Write) {
    let row = out.row(token);
    let first = (panel * LANES).min(row.len());
    let row = &mut row[first..];
    if let Some(row) = row.first_chunk_mut() {
        let y = if write == Write::Add { s.add(s.load(row), y) } else { y };
        return s.store(y, row);
    }
    let mut lanes = [0.0; LANES];
    s.store(y, &mut lanes);
    for (out, y) in row.iter_mut().zip(lanes) {
        *out = if write == Write::Add { *out + y } else { y };
    }
}
