//! One row read back from its panel.
//!
//! Embeddings are rows of the output matrix in many models; reading a row back from its panel saves
//! a second copy of the matrix.

use super::kind::{PackedType, match_format};
use crate::format::Format;
use crate::format::layout::{self, BLOCK, PANEL};
use half::{bf16, f16};

/// Write lane `lane` of `panel`, a whole panel of `y.len()` columns, to `y`.
pub(super) fn decode(kind: PackedType, panel: &[u8], lane: usize, y: &mut [f32]) {
    match_format!(kind, {
        PackedType::F32 => floats::<f32>(panel, lane, y, |w| w),
        PackedType::F16 => floats::<u16>(panel, lane, y, |w| f16::from_bits(w).to_f32()),
        PackedType::BF16 => floats::<u16>(panel, lane, y, |w| bf16::from_bits(w).to_f32()),
    }, Q => blocks::<Q>(panel, lane, y));
}

fn floats<T: bytemuck::AnyBitPattern>(elements: &[u8], lane: usize, y: &mut [f32], f: impl Fn(T) -> f32) {
    let elements: &[T] = bytemuck::cast_slice(elements);
    for (w, y) in elements.chunks_exact(PANEL).zip(y) {
        *y = f(w[lane]);
    }
}

fn blocks<Q: Format>(panel: &[u8], lane: usize, y: &mut [f32]) {
    for (i, y) in y.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        let block = layout::block::<Q>(panel, i);
        debug_assert!(block.is_some(), "a panel has all its blocks");
        if let Some((head, scales, quants)) = block {
            *y = Q::decode(lane, head, scales, quants);
        }
    }
}
