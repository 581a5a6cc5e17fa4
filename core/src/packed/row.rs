//! One row read back from its panel.

use super::layout::{self, Fours, Layout, get};
use super::{BLOCK, PANEL, PackedType};
use crate::block::iq4_nl::VALUES;
use crate::block::mxfp4::DOUBLED;
use half::{bf16, f16};

/// Writes lane `lane` of `panel`, a whole panel of `y.len()` columns, to `y`.
pub(super) fn decode(kind: PackedType, panel: &[u8], lane: usize, y: &mut [f32]) {
    match kind {
        PackedType::F32 => column::<f32>(panel, lane, y, |w| w),
        PackedType::F16 => column::<u16>(panel, lane, y, half),
        PackedType::BF16 => column::<u16>(panel, lane, y, |w| bf16::from_bits(w).to_f32()),
        PackedType::Q8_0 => blocks::<layout::Q8_0>(panel, y, |_, d, quants, y| {
            for (k, y) in y.iter_mut().enumerate() {
                let w = quants[k / 4][4 * lane + k % 4];
                *y = f32::from(w.wrapping_sub(128) as i8) * half(d[lane]);
            }
        }),
        PackedType::Q4_0 => blocks::<layout::Q4_0>(panel, y, |_, d, quants, y| {
            *y = get(quants, lane).map(|q| (f32::from(q) - 8.0) * half(d[lane]));
        }),
        PackedType::Q4_1 => blocks::<layout::Q4_1>(panel, y, |_, s, quants, y| {
            *y = get(quants, lane).map(|q| f32::from(q) * half(s.d[lane]) + half(s.m[lane]));
        }),
        PackedType::Q5_0 => blocks::<layout::Q5_0>(panel, y, |_, d, quants, y| {
            *y = join(get(&quants.low, lane), get(&quants.high, lane), 4)
                .map(|q| (f32::from(q) - 16.0) * half(d[lane]));
        }),
        PackedType::Q5_1 => blocks::<layout::Q5_1>(panel, y, |_, s, quants, y| {
            *y = join(get(&quants.low, lane), get(&quants.high, lane), 4)
                .map(|q| f32::from(q) * half(s.d[lane]) + half(s.m[lane]));
        }),
        PackedType::Q4_K => blocks::<layout::Q4_K>(panel, y, |head, s, quants, y| {
            *y = affine(head, s, lane, get(quants, lane));
        }),
        PackedType::Q5_K => blocks::<layout::Q5_K>(panel, y, |head, s, quants, y| {
            *y = affine(head, s, lane, join(get(&quants.low, lane), get(&quants.high, lane), 4));
        }),
        PackedType::Q6_K => blocks::<layout::Q6_K>(panel, y, |d, s, quants, y| {
            let q = join(get(&quants.low, lane), get(&quants.high, lane), 4);
            *y = strips(half(d[lane]), s, lane, q, 32);
        }),
        PackedType::Q3_K => blocks::<layout::Q3_K>(panel, y, |d, s, quants, y| {
            let q = join(get(&quants.low, lane), get(&quants.high, lane), 2);
            *y = strips(half(d[lane]), s, lane, q, 4);
        }),
        PackedType::Q2_K => blocks::<layout::Q2_K>(panel, y, |head, s, quants, y| {
            let (d, dmin, q) = (half(head.d[lane]), half(head.m[lane]), get(quants, lane));
            *y = core::array::from_fn(|k| {
                let strip = s[k / 16][lane];
                d * f32::from(strip & 15) * f32::from(q[k]) - dmin * f32::from(strip >> 4)
            });
        }),
        PackedType::IQ4_NL => blocks::<layout::IQ4_NL>(panel, y, |_, d, quants, y| {
            *y = look_up(quants, lane, &VALUES).map(|w| half(d[lane]) * w);
        }),
        PackedType::IQ4_XS => blocks::<layout::IQ4_XS>(panel, y, |d, scales, quants, y| {
            let d = half(d[lane]) * f32::from(scales[lane]);
            *y = look_up(quants, lane, &VALUES).map(|w| d * w);
        }),
        PackedType::MXFP4 => blocks::<layout::MXFP4>(panel, y, |_, e, quants, y| {
            *y = look_up(quants, lane, &DOUBLED).map(|w| w * bf16::from_bits(e[lane]).to_f32());
        }),
        PackedType::TQ2_0 => blocks::<layout::TQ2_0>(panel, y, |d, _, quants, y| {
            *y = get(quants, lane).map(|q| (f32::from(q) - 1.0) * half(d[lane]));
        }),
    }
}

fn half(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

fn column<T: bytemuck::AnyBitPattern>(elements: &[u8], lane: usize, y: &mut [f32], f: impl Fn(T) -> f32) {
    let elements: &[T] = bytemuck::cast_slice(elements);
    for (w, y) in elements.chunks_exact(PANEL).zip(y) {
        *y = f(w[lane]);
    }
}

/// Calls `f` with each block: the head of its super-block, its scales, its elements, and where it goes.
fn blocks<L: Layout>(
    panel: &[u8],
    y: &mut [f32],
    f: impl Fn(&L::Head, &L::Scales, &L::Quants, &mut [f32; BLOCK]),
) {
    for (i, y) in y.as_chunks_mut().0.iter_mut().enumerate() {
        if let Some((head, scales, quants)) = layout::block::<L>(panel, i) {
            f(head, scales, quants, y);
        }
    }
}

/// Elements of which the bits from `shift` on are apart.
fn join(low: [u8; BLOCK], high: [u8; BLOCK], shift: u32) -> [u8; BLOCK] {
    core::array::from_fn(|k| low[k] | high[k] << shift)
}

fn affine(head: &layout::Affine, s: &layout::ScaleMin, lane: usize, q: [u8; BLOCK]) -> [f32; BLOCK] {
    let d = half(head.d[lane]) * f32::from(s.scale[lane]);
    let less_m = half(head.m[lane]) * f32::from(s.min[lane]);
    q.map(|q| d * f32::from(q) + less_m)
}

fn strips(d: f32, scales: &layout::Strips<i8>, lane: usize, q: [u8; BLOCK], offset: i32) -> [f32; BLOCK] {
    core::array::from_fn(|k| d * f32::from(scales[k / 16][lane]) * (i32::from(q[k]) - offset) as f32)
}

fn look_up(quants: &Fours, lane: usize, values: &[i8; 16]) -> [f32; BLOCK] {
    get(quants, lane).map(|q| f32::from(values[usize::from(q)]))
}
