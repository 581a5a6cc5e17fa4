//! How the quantised types lie in a panel: what packing writes, kernels load, and rows are read back from.
//!
//! A panel has scales for each *unit* of columns (one block of 32, or the eight of a super-block), then the elements of each
//! block, in *planes*: lines of 64 bytes in which each of the sixteen rows owns four, one for each of four columns. Of
//! elements with more than four bits, the upper ones lie in planes of their own.

use super::{ALIGN, BLOCK, PANEL};
use bytemuck::{Pod, Zeroable};

/// A type's scales of a unit and elements of a block.
pub(crate) trait Layout {
    /// Blocks in a unit.
    const BLOCKS: usize;
    /// The scales of a unit, sixteen rows.
    type Scales: Pod;
    /// The elements of a block, sixteen rows.
    type Quants: Pod;
}

/// Four columns of each row.
pub(crate) type Line = [u8; 64];
/// Four bits an element: in line g the low nibbles are the four columns from 4g, the high nibbles those from 16 + 4g.
pub(crate) type Fours = [Line; 4];
/// Two bits an element: in line g the bits from 2j on are the four columns from 8j + 4g.
pub(crate) type Twos = [Line; 2];
/// One bit an element: bit j is the four columns from 4j.
pub(crate) type Ones = [Line; 1];
/// A half-precision number a row, as bits.
pub(crate) type Halves = [u16; PANEL];

macro_rules! layouts {
    ($($name:ident: $blocks:literal, $scales:ty, $quants:ty;)*) => {
        $(
            #[allow(non_camel_case_types)]
            pub(crate) struct $name;

            impl Layout for $name {
                const BLOCKS: usize = $blocks;
                type Scales = $scales;
                type Quants = $quants;
            }
        )*
    };
}

layouts! {
    Q8_0: 1, Halves, [Line; 8];
    Q4_0: 1, Halves, Fours;
    Q4_1: 1, Affine, Fours;
    Q5_0: 1, Halves, Five;
    Q5_1: 1, Affine, Five;
    Q2_K: 8, AffineStrips, Twos;
    Q3_K: 8, Strips, Three;
    Q4_K: 8, AffineBlocks, Fours;
    Q5_K: 8, AffineBlocks, Five;
    Q6_K: 8, Strips, Six;
    IQ4_NL: 1, Halves, Fours;
    IQ4_XS: 8, Signed, Fours;
    MXFP4: 1, Halves, Fours;
    TQ2_0: 8, Halves, Twos;
}

/// Elements of five bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Five {
    pub low: Fours,
    pub high: Ones,
}

/// Elements of six bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Six {
    pub low: Fours,
    pub high: Twos,
}

/// Elements of three bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Three {
    pub low: Twos,
    pub high: Ones,
}

/// A scale, and what is added to each element.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Affine {
    pub d: Halves,
    pub m: Halves,
}

/// Signed scales of sixteen strips of 16 columns, and what to multiply them by.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Strips {
    pub d: Halves,
    pub scales: [[i8; PANEL]; 16],
}

/// Signed scales of eight blocks, and what to multiply them by.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Signed {
    pub d: Halves,
    pub scales: [[i8; PANEL]; 8],
}

/// Scales and minima of eight blocks, six bits each, and what to multiply them by.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct AffineBlocks {
    pub d: Halves,
    /// With the sign turned, because minima are subtracted.
    pub less_dmin: Halves,
    pub scales: [[u8; PANEL]; 8],
    pub mins: [[u8; PANEL]; 8],
}

/// Scales (low nibbles) and minima (high ones) of sixteen strips of 16 columns, and what to multiply them by.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct AffineStrips {
    pub d: Halves,
    pub dmin: Halves,
    pub strips: [[u8; PANEL]; 16],
}

/// Writes the elements of row `lane` to a plane of `N` bits an element: four columns from 4w go to line w % N, to the bits
/// from N * (w / N) on. The elements must have no other bits.
pub(crate) fn put<const N: usize>(plane: &mut [Line; N], lane: usize, q: &[u8; BLOCK]) {
    let mut words = [0; N];
    for (w, quad) in q.as_chunks().0.iter().enumerate() {
        words[w % N] |= u32::from_le_bytes(*quad) << (N * (w / N));
    }
    for (line, word) in plane.iter_mut().zip(words) {
        line.as_chunks_mut().0[lane] = word.to_le_bytes();
    }
}

/// The elements of row `lane`, which [`put`] wrote.
pub(crate) fn get<const N: usize>(plane: &[Line; N], lane: usize) -> [u8; BLOCK] {
    core::array::from_fn(|k| {
        let byte = plane[k / 4 % N][4 * lane + k % 4];
        byte >> (N * (k / 4 / N)) & ((1 << N) - 1) as u8
    })
}

/// The parts of a panel of `n_blocks` blocks.
pub(crate) fn split<L: Layout>(panel: &[u8], n_blocks: usize) -> (&[L::Scales], &[L::Quants]) {
    let (scales, quants) = panel.split_at(scale_bytes::<L>(n_blocks).next_multiple_of(ALIGN));
    (bytemuck::cast_slice(&scales[..scale_bytes::<L>(n_blocks)]), bytemuck::cast_slice(quants))
}

/// The same, to be written.
pub(crate) fn split_mut<L: Layout>(
    panel: &mut [u8],
    n_blocks: usize,
) -> (&mut [L::Scales], &mut [L::Quants]) {
    let (scales, quants) = panel.split_at_mut(scale_bytes::<L>(n_blocks).next_multiple_of(ALIGN));
    (bytemuck::cast_slice_mut(&mut scales[..scale_bytes::<L>(n_blocks)]), bytemuck::cast_slice_mut(quants))
}

/// Bytes of the scales of `n_blocks` blocks, without what pads them.
pub(crate) const fn scale_bytes<L: Layout>(n_blocks: usize) -> usize {
    n_blocks / L::BLOCKS * size_of::<L::Scales>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_give_back_what_was_put_in() {
        fn check<const N: usize>() {
            let mut plane = [[0x55; 64]; N];
            let rows: [[u8; BLOCK]; PANEL] = core::array::from_fn(|i| {
                core::array::from_fn(|k| ((i * 37 + k * 11 + k / 5) % (1 << N)) as u8)
            });
            for (lane, q) in rows.iter().enumerate() {
                put(&mut plane, lane, q);
            }
            for (lane, q) in rows.iter().enumerate() {
                assert_eq!(get(&plane, lane), *q, "{N} bits, row {lane}");
            }
        }
        check::<1>();
        check::<2>();
        check::<4>();
    }

    #[test]
    fn panels_take_whole_lines() {
        // Elements behind scales that are padded to lines stay aligned only if blocks are lines themselves.
        fn check<L: Layout>(name: &str) {
            assert_eq!(size_of::<L::Quants>() % ALIGN, 0, "{name}");
        }
        check::<Q3_K>("Q3_K");
        check::<Q5_0>("Q5_0");
        check::<Q6_K>("Q6_K");
        check::<TQ2_0>("TQ2_0");
    }
}
