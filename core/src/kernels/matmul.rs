//! Products of panels of weights with rows of activations.
//!
//! A kernel computes tiles: some panels (sixteen outputs each, one a lane) times some tokens, with the accumulators in
//! registers over the whole of K. How large a tile is chosen by speed alone; every element goes through the same
//! operations in the same order whatever the tile.

mod float;
mod format;
pub(crate) mod integer;
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod pairs;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;
#[cfg(any(
    target_arch = "x86_64",
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
