//! From the blocks of a file to those of a panel, a file's block at a time.

use super::layout::{
    self, Affine, AffineBlocks, AffineStrips, Five, Fours, Halves, Layout, Line, Signed, Six, Strips, Three,
    Twos, put,
};
use super::{BLOCK, PANEL};
use crate::block::f16::Half;
use crate::block::{
    iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, tq2_0,
};
use bytemuck::Pod;

/// A type that files hold in blocks of as many columns as share scales.
pub(super) trait Stored: Layout {
    /// The file's block.
    type Block: Pod;

    /// Writes row `lane` of a unit's scales and of the elements of its blocks.
    fn store(block: &Self::Block, lane: usize, scales: &mut Self::Scales, quants: &mut [Self::Quants]);
}

/// Packs all rows of a panel, each of them whole; those that the matrix lacks are left as they are.
pub(super) fn panel<L: Stored>(rows: &[&[u8]; PANEL], n_cols: usize, out: &mut [u8]) {
    let (scales, quants) = layout::split_mut::<L>(out, n_cols / BLOCK);
    for (i, (quants, scales)) in quants.chunks_exact_mut(L::BLOCKS).zip(scales).enumerate() {
        for (lane, row) in rows.iter().enumerate() {
            if let Some(bytes) = row.chunks_exact(size_of::<L::Block>()).nth(i) {
                L::store(&bytemuck::pod_read_unaligned(bytes), lane, scales, quants);
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
    fn store(block: &q8_0::Block, lane: usize, d: &mut Halves, quants: &mut [[Line; 8]]) {
        d[lane] = block.d.bits();
        let bytes: &[u8; BLOCK] = bytemuck::must_cast_ref(&block.qs);
        for (line, quad) in quants.as_flattened_mut().iter_mut().zip(bytes.as_chunks::<4>().0) {
            // Flipping the top bit of a signed byte adds 128.
            line.as_chunks_mut().0[lane] = quad.map(|q| q ^ 0x80);
        }
    }
}

impl Stored for layout::Q4_0 {
    type Block = q4_0::Block;
    fn store(block: &q4_0::Block, lane: usize, scales: &mut Halves, quants: &mut [Fours]) {
        scales[lane] = block.d.bits();
        quants.iter_mut().for_each(|q| put_nibbles(q, lane, &block.qs));
    }
}

impl Stored for layout::Q4_1 {
    type Block = q4_1::Block;
    fn store(block: &q4_1::Block, lane: usize, scales: &mut Affine, quants: &mut [Fours]) {
        (scales.d[lane], scales.m[lane]) = (block.d.bits(), block.m.bits());
        quants.iter_mut().for_each(|q| put_nibbles(q, lane, &block.qs));
    }
}

impl Stored for layout::IQ4_NL {
    type Block = iq4_nl::Block;
    fn store(block: &iq4_nl::Block, lane: usize, scales: &mut Halves, quants: &mut [Fours]) {
        scales[lane] = block.d.bits();
        quants.iter_mut().for_each(|q| put_nibbles(q, lane, &block.qs));
    }
}

impl Stored for layout::MXFP4 {
    type Block = mxfp4::Block;
    fn store(block: &mxfp4::Block, lane: usize, scales: &mut Halves, quants: &mut [Fours]) {
        // A power of two has no bits below those of bfloat16.
        scales[lane] = (block.half_scale().to_bits() >> 16) as u16;
        quants.iter_mut().for_each(|q| put_nibbles(q, lane, &block.qs));
    }
}

/// The fifth bits of a block.
fn fifths(qh: [u8; 4]) -> [u8; BLOCK] {
    let bits = u32::from_le_bytes(qh);
    core::array::from_fn(|i| (bits >> i & 1) as u8)
}

impl Stored for layout::Q5_0 {
    type Block = q5_0::Block;
    fn store(block: &q5_0::Block, lane: usize, scales: &mut Halves, quants: &mut [Five]) {
        scales[lane] = block.d.bits();
        for q in quants {
            put_nibbles(&mut q.low, lane, &block.qs);
            put(&mut q.high, lane, &fifths(block.qh));
        }
    }
}

impl Stored for layout::Q5_1 {
    type Block = q5_1::Block;
    fn store(block: &q5_1::Block, lane: usize, scales: &mut Affine, quants: &mut [Five]) {
        (scales.d[lane], scales.m[lane]) = (block.d.bits(), block.m.bits());
        for q in quants {
            put_nibbles(&mut q.low, lane, &block.qs);
            put(&mut q.high, lane, &fifths(block.qh));
        }
    }
}

/// The sign bit of a half-precision number turned.
fn negated(bits: u16) -> u16 {
    bits ^ 0x8000
}

/// Scales and minima of the strips of Q4_K and Q5_K.
fn put_affine(
    to: &mut AffineBlocks,
    lane: usize,
    d: Half,
    dmin: Half,
    scale_min: impl Fn(usize) -> (u8, u8),
) {
    (to.d[lane], to.less_dmin[lane]) = (d.bits(), negated(dmin.bits()));
    for (j, (scale, min)) in to.scales.iter_mut().zip(&mut to.mins).enumerate() {
        (scale[lane], min[lane]) = scale_min(j);
    }
}

impl Stored for layout::Q4_K {
    type Block = q4_k::Block;
    fn store(block: &q4_k::Block, lane: usize, scales: &mut AffineBlocks, quants: &mut [Fours]) {
        put_affine(scales, lane, block.d, block.dmin, |j| block.scale_min(j));
        for (j, q) in quants.iter_mut().enumerate() {
            put(q, lane, &block.quants(j));
        }
    }
}

impl Stored for layout::Q5_K {
    type Block = q5_k::Block;
    fn store(block: &q5_k::Block, lane: usize, scales: &mut AffineBlocks, quants: &mut [Five]) {
        put_affine(scales, lane, block.d, block.dmin, |j| block.scale_min(j));
        for (j, q) in quants.iter_mut().enumerate() {
            let (low, high) = block.quants(j);
            put(&mut q.low, lane, &low);
            put(&mut q.high, lane, &high);
        }
    }
}

impl Stored for layout::Q6_K {
    type Block = q6_k::Block;
    fn store(block: &q6_k::Block, lane: usize, scales: &mut Strips, quants: &mut [Six]) {
        scales.d[lane] = block.d.bits();
        scales.scales.iter_mut().zip(block.scales).for_each(|(to, scale)| to[lane] = scale);
        for (j, q) in quants.iter_mut().enumerate() {
            let (low, high) = block.quants(j);
            put(&mut q.low, lane, &low);
            put(&mut q.high, lane, &high);
        }
    }
}

impl Stored for layout::Q3_K {
    type Block = q3_k::Block;
    fn store(block: &q3_k::Block, lane: usize, scales: &mut Strips, quants: &mut [Three]) {
        scales.d[lane] = block.d.bits();
        scales.scales.iter_mut().enumerate().for_each(|(j, to)| to[lane] = block.scale(j));
        for (j, q) in quants.iter_mut().enumerate() {
            let (low, high) = block.quants(j);
            put(&mut q.low, lane, &low);
            put(&mut q.high, lane, &high);
        }
    }
}

impl Stored for layout::Q2_K {
    type Block = q2_k::Block;
    fn store(block: &q2_k::Block, lane: usize, scales: &mut AffineStrips, quants: &mut [Twos]) {
        (scales.d[lane], scales.dmin[lane]) = (block.d.bits(), block.dmin.bits());
        scales.strips.iter_mut().zip(block.scales).for_each(|(to, strip)| to[lane] = strip);
        for (j, q) in quants.iter_mut().enumerate() {
            put(q, lane, &block.quants(j));
        }
    }
}

impl Stored for layout::TQ2_0 {
    type Block = tq2_0::Block;
    fn store(block: &tq2_0::Block, lane: usize, scales: &mut Halves, quants: &mut [Twos]) {
        scales[lane] = block.d.bits();
        for (j, q) in quants.iter_mut().enumerate() {
            put(q, lane, &block.quants(j));
        }
    }
}

impl Stored for layout::IQ4_XS {
    type Block = iq4_xs::Block;
    fn store(block: &iq4_xs::Block, lane: usize, scales: &mut Signed, quants: &mut [Fours]) {
        scales.d[lane] = block.d.bits();
        scales.scales.iter_mut().enumerate().for_each(|(j, to)| to[lane] = block.scale(j) as i8);
        for (q, qs) in quants.iter_mut().zip(block.qs.as_chunks().0) {
            put_nibbles(q, lane, qs);
        }
    }
}
