//! From the blocks of a file to those of a panel, a file's block at a time.

use super::layout::{
    self, Affine, Five, Fours, Halves, Layout, Line, Nothing, ScaleMin, Six, Strips, Three, Twos, put,
};
use super::{BLOCK, PANEL};
use crate::block::{
    iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, tq2_0,
};
use bytemuck::Pod;

/// A type that files hold in blocks of as many columns as share a head, or scales where there are no heads.
pub(super) trait Stored: Layout {
    /// The file's block.
    type Block: Pod;

    /// Writes row `lane` of what the block has besides its blocks of 32 columns.
    fn store_head(_block: &Self::Block, _lane: usize, _head: &mut Self::Head) {}

    /// Writes row `lane` of its block `j` of 32 columns.
    fn store(
        block: &Self::Block,
        j: usize,
        lane: usize,
        scales: &mut Self::Scales,
        quants: &mut Self::Quants,
    );
}

/// Packs all rows of a panel, each of them whole.
pub(super) fn panel<L: Stored>(rows: &[&[u8]; PANEL], n_cols: usize, out: &mut [u8]) {
    let n_blocks = n_cols / BLOCK;
    let is_full = n_blocks.is_multiple_of(L::SECTION.max(L::HEADS * L::BLOCKS));
    if rows[PANEL - 1].is_empty() || !is_full {
        out.fill(0);
    }
    for first in (0..n_blocks).step_by(L::BLOCKS) {
        for (lane, row) in rows.iter().enumerate() {
            let bytes = row.chunks_exact(size_of::<L::Block>()).nth(first / L::BLOCKS);
            // Blocks of files may lie at any address.
            let Some(block) = bytes.and_then(|bytes| bytemuck::try_from_bytes(bytes).ok()) else { continue };
            for j in 0..L::BLOCKS {
                layout::write_block::<L>(out, first + j, |head, scales, quants| {
                    if j == 0 {
                        L::store_head(block, lane, head);
                    }
                    L::store(block, j, lane, scales, quants);
                });
            }
        }
    }
}

/// Bytes that hold elements i and 16 + i are already as a plane has them.
fn put_nibbles(plane: &mut Fours, lane: usize, qs: &[u8; 16]) {
    for (line, quad) in plane.iter_mut().zip(qs.as_chunks::<4>().0) {
        line.as_chunks_mut().0[lane] = *quad;
    }
}

impl Stored for layout::Q8_0 {
    type Block = q8_0::Block;
    fn store(block: &q8_0::Block, _: usize, lane: usize, d: &mut Halves, quants: &mut [Line; 8]) {
        d[lane] = block.d.bits();
        let bytes: &[u8; BLOCK] = bytemuck::must_cast_ref(&block.qs);
        for (line, quad) in quants.iter_mut().zip(bytes.as_chunks::<4>().0) {
            // Flipping the top bit of a signed byte adds 128.
            line.as_chunks_mut().0[lane] = quad.map(|q| q ^ 0x80);
        }
    }
}

impl Stored for layout::Q4_0 {
    type Block = q4_0::Block;
    fn store(block: &q4_0::Block, _: usize, lane: usize, scales: &mut Halves, quants: &mut Fours) {
        scales[lane] = block.d.bits();
        put_nibbles(quants, lane, &block.qs);
    }
}

impl Stored for layout::Q4_1 {
    type Block = q4_1::Block;
    fn store(block: &q4_1::Block, _: usize, lane: usize, scales: &mut Affine, quants: &mut Fours) {
        (scales.d[lane], scales.m[lane]) = (block.d.bits(), block.m.bits());
        put_nibbles(quants, lane, &block.qs);
    }
}

impl Stored for layout::IQ4_NL {
    type Block = iq4_nl::Block;
    fn store(block: &iq4_nl::Block, _: usize, lane: usize, scales: &mut Halves, quants: &mut Fours) {
        scales[lane] = block.d.bits();
        put_nibbles(quants, lane, &block.qs);
    }
}

impl Stored for layout::MXFP4 {
    type Block = mxfp4::Block;
    fn store(block: &mxfp4::Block, _: usize, lane: usize, scales: &mut Halves, quants: &mut Fours) {
        // A power of two has no bits below those of bfloat16.
        scales[lane] = (block.half_scale().to_bits() >> 16) as u16;
        put_nibbles(quants, lane, &block.qs);
    }
}

/// The fifth bits of a block.
fn fifths(qh: [u8; 4]) -> [u8; BLOCK] {
    let bits = u32::from_le_bytes(qh);
    core::array::from_fn(|i| (bits >> i & 1) as u8)
}

impl Stored for layout::Q5_0 {
    type Block = q5_0::Block;
    fn store(block: &q5_0::Block, _: usize, lane: usize, scales: &mut Halves, quants: &mut Five) {
        scales[lane] = block.d.bits();
        put_nibbles(&mut quants.low, lane, &block.qs);
        put(&mut quants.high, lane, &fifths(block.qh));
    }
}

impl Stored for layout::Q5_1 {
    type Block = q5_1::Block;
    fn store(block: &q5_1::Block, _: usize, lane: usize, scales: &mut Affine, quants: &mut Five) {
        (scales.d[lane], scales.m[lane]) = (block.d.bits(), block.m.bits());
        put_nibbles(&mut quants.low, lane, &block.qs);
        put(&mut quants.high, lane, &fifths(block.qh));
    }
}

/// The sign bit of a half-precision number turned, because minima are subtracted.
fn negated(bits: u16) -> u16 {
    bits ^ 0x8000
}

impl Stored for layout::Q4_K {
    type Block = q4_k::Block;
    fn store_head(block: &q4_k::Block, lane: usize, head: &mut Affine) {
        (head.d[lane], head.m[lane]) = (block.d.bits(), negated(block.dmin.bits()));
    }
    fn store(block: &q4_k::Block, j: usize, lane: usize, scales: &mut ScaleMin, quants: &mut Fours) {
        (scales.scale[lane], scales.min[lane]) = block.scale_min(j);
        put(quants, lane, &block.quants(j));
    }
}

impl Stored for layout::Q5_K {
    type Block = q5_k::Block;
    fn store_head(block: &q5_k::Block, lane: usize, head: &mut Affine) {
        (head.d[lane], head.m[lane]) = (block.d.bits(), negated(block.dmin.bits()));
    }
    fn store(block: &q5_k::Block, j: usize, lane: usize, scales: &mut ScaleMin, quants: &mut Five) {
        (scales.scale[lane], scales.min[lane]) = block.scale_min(j);
        let (low, high) = block.quants(j);
        put(&mut quants.low, lane, &low);
        put(&mut quants.high, lane, &high);
    }
}

impl Stored for layout::Q6_K {
    type Block = q6_k::Block;
    fn store_head(block: &q6_k::Block, lane: usize, head: &mut Halves) {
        head[lane] = block.d.bits();
    }
    fn store(block: &q6_k::Block, j: usize, lane: usize, scales: &mut Strips<i8>, quants: &mut Six) {
        for (half, scales) in scales.iter_mut().enumerate() {
            scales[lane] = block.scales[2 * j + half];
        }
        let (low, high) = block.quants(j);
        put(&mut quants.low, lane, &low);
        put(&mut quants.high, lane, &high);
    }
}

impl Stored for layout::Q3_K {
    type Block = q3_k::Block;
    fn store_head(block: &q3_k::Block, lane: usize, head: &mut Halves) {
        head[lane] = block.d.bits();
    }
    fn store(block: &q3_k::Block, j: usize, lane: usize, scales: &mut Strips<i8>, quants: &mut Three) {
        for (half, scales) in scales.iter_mut().enumerate() {
            scales[lane] = block.scale(2 * j + half);
        }
        let (low, high) = block.quants(j);
        put(&mut quants.low, lane, &low);
        put(&mut quants.high, lane, &high);
    }
}

impl Stored for layout::Q2_K {
    type Block = q2_k::Block;
    fn store_head(block: &q2_k::Block, lane: usize, head: &mut Affine) {
        (head.d[lane], head.m[lane]) = (block.d.bits(), block.dmin.bits());
    }
    fn store(block: &q2_k::Block, j: usize, lane: usize, scales: &mut Strips<u8>, quants: &mut Twos) {
        for (half, scales) in scales.iter_mut().enumerate() {
            scales[lane] = block.scales[2 * j + half];
        }
        put(quants, lane, &block.quants(j));
    }
}

impl Stored for layout::TQ2_0 {
    type Block = tq2_0::Block;
    fn store_head(block: &tq2_0::Block, lane: usize, head: &mut Halves) {
        head[lane] = block.d.bits();
    }
    fn store(block: &tq2_0::Block, j: usize, lane: usize, _: &mut Nothing, quants: &mut Twos) {
        put(quants, lane, &block.quants(j));
    }
}

impl Stored for layout::IQ4_XS {
    type Block = iq4_xs::Block;
    fn store_head(block: &iq4_xs::Block, lane: usize, head: &mut Halves) {
        head[lane] = block.d.bits();
    }
    fn store(block: &iq4_xs::Block, j: usize, lane: usize, scales: &mut [i8; PANEL], quants: &mut Fours) {
        scales[lane] = block.scale(j) as i8;
        if let Some(qs) = block.qs.as_chunks().0.get(j) {
            put_nibbles(quants, lane, qs);
        }
    }
}
