//! One row read back from its panel.

use super::{BLOCK, PANEL, PackedType};
use half::{bf16, f16};

/// Writes lane `lane` of `panel`, a whole panel of `y.len()` columns, to `y`.
pub(super) fn decode(kind: PackedType, panel: &[u8], lane: usize, y: &mut [f32]) {
    let (scales, elements) = panel.split_at(kind.scale_bytes(y.len()));
    let half = |i: usize| f16::from_bits(bytemuck::cast_slice(scales)[i]).to_f32();
    match kind {
        PackedType::F32 => column::<f32>(elements, lane, y, |w| w),
        PackedType::F16 => column::<u16>(elements, lane, y, |w| f16::from_bits(w).to_f32()),
        PackedType::BF16 => column::<u16>(elements, lane, y, |w| bf16::from_bits(w).to_f32()),
        PackedType::Q8_0 => {
            for (b, y) in y.chunks_exact_mut(BLOCK).enumerate() {
                let d = half(b * PANEL + lane);
                for (k, y) in y.iter_mut().enumerate() {
                    let w = elements[at(b * 8 + k / 4, lane, k)];
                    *y = f32::from(w.wrapping_sub(128) as i8) * d;
                }
            }
        }
        PackedType::Q4_0 => nibbles(elements, lane, y, |b, q| (f32::from(q) - 8.0) * half(b * PANEL + lane)),
        PackedType::Q4_1 => nibbles(elements, lane, y, |b, q| {
            let (d, m) = (half(2 * b * PANEL + lane), half((2 * b + 1) * PANEL + lane));
            f32::from(q) * d + m
        }),
    }
}

/// Where column `k` of lane `lane` lies in group `group` of 64 bytes.
fn at(group: usize, lane: usize, k: usize) -> usize {
    group * 64 + lane * 4 + k % 4
}

fn column<T: bytemuck::AnyBitPattern>(elements: &[u8], lane: usize, y: &mut [f32], f: impl Fn(T) -> f32) {
    let elements: &[T] = bytemuck::cast_slice(elements);
    for (w, y) in elements.chunks_exact(PANEL).zip(y) {
        *y = f(w[lane]);
    }
}

fn nibbles(elements: &[u8], lane: usize, y: &mut [f32], f: impl Fn(usize, u8) -> f32) {
    for (b, y) in y.chunks_exact_mut(BLOCK).enumerate() {
        for (k, y) in y.iter_mut().enumerate() {
            let byte = elements[at(b * 4 + k % 16 / 4, lane, k)];
            *y = f(b, if k < 16 { byte & 15 } else { byte >> 4 });
        }
    }
}
