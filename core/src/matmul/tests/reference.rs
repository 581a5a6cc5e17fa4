//! Products of one row by the description of [`crate::matmul`], from the row as a file holds it.

use crate::block::codes::Codes;
use crate::block::{
    iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_xs, mxfp4, nvfp4, q2_k, q3_k, q4_k, q5_k, q6_k,
};
use crate::packed::BLOCK;
use crate::{DType, float::fma};
use bytemuck::{AnyBitPattern, pod_read_unaligned};

/// The number subtracted from, or added to, the elements of a block.
enum Minimum {
    None,
    Whole(f32),
    /// One for each sub-block, times the float.
    SubBlocks(f32, [i32; 2]),
}

/// The scales of the elements of 32 columns.
struct Scales {
    /// The elements are so much more than those that were decoded.
    times: i32,
    /// The scales of the sub-blocks: whole numbers, but for NVFP4.
    sub_blocks: [f32; 2],
    d: f32,
    minimum: Minimum,
}

/// Return the product of a row, `stored` and decoded as `w`, with `x`.
pub(super) fn dot(dtype: DType, stored: &[u8], w: &[f32], x: &[f32]) -> f32 {
    let (len, bytes) = (dtype.block_len(), dtype.block_bytes());
    let mut acc = 0.0;
    for (i, (w, x)) in w.chunks(BLOCK).zip(x.chunks(BLOCK)).enumerate() {
        let at = i * BLOCK / len * bytes;
        let scales = scales(dtype, &stored[at..at + bytes], i * BLOCK % len / BLOCK);
        acc = add_block(&scales, w, x, acc);
    }
    acc
}

fn add_block(s: &Scales, w: &[f32], x: &[f32], acc: f32) -> f32 {
    let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let x = x.iter().map(|x| (x * (127.0 / max)).round_ties_even() as i32).collect::<Vec<_>>();
    let (d_x, sum_x) = (max / 127.0, |h: usize| x[16 * h..16 * h + 16].iter().sum::<i32>());
    let sum = |h: usize| (16 * h..16 * h + 16).map(|k| element(s, w[k], h) * x[k]).sum::<i32>() as f32;
    // Exact for whole scales.
    let sum = fma(sum(1), s.sub_blocks[1], sum(0) * s.sub_blocks[0]);
    let acc = fma(sum, s.d * d_x, acc);
    match s.minimum {
        Minimum::None => acc,
        Minimum::Whole(m) => fma(m, d_x * (sum_x(0) + sum_x(1)) as f32, acc),
        Minimum::SubBlocks(d, [a, b]) => {
            fma((-128 * (a * sum_x(0) + b * sum_x(1))) as f32, d / 128.0 * d_x, acc)
        }
    }
}

/// Return the integer that was decoded to `w` in half `h`, before its scale.
fn element(s: &Scales, w: f32, h: usize) -> i32 {
    let scale = f64::from(s.d) * f64::from(s.times) * f64::from(s.sub_blocks[h]);
    let min = match s.minimum {
        Minimum::None => 0.0,
        Minimum::Whole(m) => f64::from(m),
        Minimum::SubBlocks(d, mins) => -f64::from(d) * f64::from(mins[h]),
    };
    let q = if scale == 0.0 { 0.0 } else { (f64::from(w) - min) / scale };
    assert!((q - q.round()).abs() < 0.01, "{q} is no element");
    q.round() as i32 * s.times
}

/// Return the scales of 32 columns: number `j` in `stored`, a block of the file.
fn scales(dtype: DType, stored: &[u8], j: usize) -> Scales {
    let half = |i: usize| half::f16::from_le_bytes([stored[i], stored[i + 1]]).to_f32();
    let of = |times, d, minimum| Scales { times, sub_blocks: [1.0; 2], d: d / times as f32, minimum };
    let sub_blocks = |times, d, sub_blocks: [i32; 2]| Scales {
        times,
        sub_blocks: sub_blocks.map(|s| s as f32),
        d: d / times as f32,
        minimum: Minimum::None,
    };
    let affine = |d: f32, dmin: f32, (scale, min): (u8, u8)| {
        of(1, d * f32::from(scale), Minimum::Whole(-dmin * f32::from(min)))
    };
    match dtype {
        DType::Q8_0 | DType::Q4_0 | DType::IQ4_NL => of(1, half(0), Minimum::None),
        DType::Q4_1 | DType::Q5_1 => of(1, half(0), Minimum::Whole(half(2))),
        DType::Q5_0 => of(8, half(0), Minimum::None),
        DType::TQ2_0 => of(8, half(64), Minimum::None),
        DType::TQ1_0 => of(8, half(52), Minimum::None),
        DType::Q1_0 | DType::Q2_0 => of(8, half(0), Minimum::None),
        DType::NVFP4 => {
            let block = read::<nvfp4::Block>(stored);
            let sub_blocks = [0, 1].map(|h| block.half_scale(2 * j + h).to_f32());
            Scales { times: 1, sub_blocks, d: 1.0, minimum: Minimum::None }
        }
        DType::IQ1_S => codes::<iq1_s::Block>(stored, j),
        DType::IQ1_M => codes::<iq1_m::Block>(stored, j),
        DType::IQ2_XXS => codes::<iq2_xxs::Block>(stored, j),
        DType::IQ2_XS => codes::<iq2_xs::Block>(stored, j),
        DType::IQ2_S => codes::<iq2_s::Block>(stored, j),
        DType::IQ3_XXS => codes::<iq3_xxs::Block>(stored, j),
        DType::IQ3_S => codes::<iq3_s::Block>(stored, j),
        DType::MXFP4 => of(1, read::<mxfp4::Block>(stored).half_scale(), Minimum::None),
        DType::Q4_K => affine(half(0), half(2), read::<q4_k::Block>(stored).scale_min(j)),
        DType::Q5_K => affine(half(0), half(2), read::<q5_k::Block>(stored).scale_min(j)),
        DType::IQ4_XS => of(1, half(0) * read::<iq4_xs::Block>(stored).scale(j) as f32, Minimum::None),
        DType::Q6_K => {
            let block = read::<q6_k::Block>(stored);
            sub_blocks(4, half(208), [0, 1].map(|h| i32::from(block.scales[2 * j + h])))
        }
        DType::Q3_K => {
            let block = read::<q3_k::Block>(stored);
            sub_blocks(32, half(108), [0, 1].map(|h| i32::from(block.scale(2 * j + h))))
        }
        DType::Q2_K => {
            let sub_block = [0, 1].map(|h| i32::from(read::<q2_k::Block>(stored).scales[2 * j + h]));
            let minimum = Minimum::SubBlocks(half(82), sub_block.map(|s| s >> 4));
            Scales { times: 1, sub_blocks: sub_block.map(|s| (s & 15) as f32), d: half(80), minimum }
        }
        dtype => unreachable!("{dtype} is not quantised"),
    }
}

/// Return the scales of a block of codes.
fn codes<B: Codes + AnyBitPattern>(stored: &[u8], j: usize) -> Scales {
    let block = read::<B>(stored);
    let sub_blocks = block.scales(j).map(f32::from);
    Scales { times: 1, sub_blocks, d: block.d().to_f32() * B::UNIT, minimum: Minimum::None }
}

fn read<B: AnyBitPattern>(stored: &[u8]) -> B {
    pod_read_unaligned(stored)
}
