//! How the quantised types lie in a panel: what packing writes, kernels load, and rows are read back from.
//!
//! A panel is read from one end to the other, so that the memory sees one stream: *sections* of the scales of a few blocks, as
//! many as fill a line, and right behind them their elements. Where blocks of 32 columns come in super-blocks, a *unit* holds
//! what one super-block has besides, or two of them have, in a line before their sections.
//!
//! Elements lie in *planes*: lines of 64 bytes in which each of the sixteen rows owns four, one for each of four columns. Of
//! elements with more than four bits, the upper ones lie in planes of their own.

use super::{ALIGN, BLOCK, PANEL};
use bytemuck::{Pod, Zeroable};

/// What a type keeps for sixteen rows.
pub(crate) trait Layout {
    /// Blocks that share a head.
    const BLOCKS: usize;
    /// For the blocks of a super-block together.
    type Head: Pod;
    /// The scales of a block.
    type Scales: Pod;
    /// The elements of a block.
    type Quants: Pod;

    /// Heads in a unit: so many that they fill lines.
    const HEADS: usize = if size_of::<Self::Head>().is_multiple_of(ALIGN) { 1 } else { 2 };
    /// Blocks in a section: so many that their scales fill lines. The last section of a panel may have fewer, and has room for
    /// all scales nevertheless.
    const SECTION: usize = match size_of::<Self::Scales>() {
        0 => Self::BLOCKS,
        n if n < ALIGN => ALIGN / n,
        _ => 1,
    };
    /// Bytes of the scales of a section.
    const SCALE_BYTES: usize = Self::SECTION * size_of::<Self::Scales>();
    /// Bytes of a section.
    const SECTION_BYTES: usize = Self::SCALE_BYTES + Self::SECTION * size_of::<Self::Quants>();
    /// Bytes of the heads of a unit.
    const HEAD_BYTES: usize = Self::HEADS * size_of::<Self::Head>();
    /// Bytes of the sections that share a head: without heads, all there may be.
    const GROUP_BYTES: usize =
        if Self::HEAD_BYTES == 0 { usize::MAX } else { Self::BLOCKS / Self::SECTION * Self::SECTION_BYTES };
    /// Bytes of a unit; the last of a panel may lack groups, and has room for all heads nevertheless.
    const UNIT_BYTES: usize =
        if Self::HEAD_BYTES == 0 { usize::MAX } else { Self::HEAD_BYTES + Self::HEADS * Self::GROUP_BYTES };
}

/// No bytes.
pub(crate) type Nothing = [u8; 0];
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
    ($($name:ident: $blocks:literal, $head:ty, $scales:ty, $quants:ty;)*) => {
        $(
            #[allow(non_camel_case_types)]
            pub(crate) struct $name;

            impl Layout for $name {
                const BLOCKS: usize = $blocks;
                type Head = $head;
                type Scales = $scales;
                type Quants = $quants;
            }
        )*
    };
}

layouts! {
    Q8_0: 1, Nothing, Halves, [Line; 8];
    Q4_0: 1, Nothing, Halves, Fours;
    Q4_1: 1, Nothing, Affine, Fours;
    Q5_0: 1, Nothing, Halves, Five;
    Q5_1: 1, Nothing, Affine, Five;
    Q2_K: 8, Affine, Strips<u8>, Twos;
    Q3_K: 8, Halves, Strips<i8>, Three;
    Q4_K: 8, Affine, ScaleMin, Fours;
    Q5_K: 8, Affine, ScaleMin, Five;
    Q6_K: 8, Halves, Strips<i8>, Six;
    IQ4_NL: 1, Nothing, Halves, Fours;
    IQ4_XS: 8, Halves, [i8; PANEL], Fours;
    MXFP4: 1, Nothing, Halves, Fours;
    TQ2_0: 8, Halves, Nothing, Twos;
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

/// A scale, and what is added to each element; of super-blocks what such are multiplied by.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Affine {
    pub d: Halves,
    pub m: Halves,
}

/// Scale and minimum of a block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ScaleMin {
    pub scale: [u8; PANEL],
    pub min: [u8; PANEL],
}

/// The scales of the first and the last sixteen columns of a block.
pub(crate) type Strips<T> = [[T; PANEL]; 2];

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

/// Bytes of a panel of `n_blocks` blocks, in whole super-blocks.
pub(crate) const fn panel_bytes<L: Layout>(n_blocks: usize) -> usize {
    const {
        // Kernels fetch one line of scales ahead.
        assert!(L::HEAD_BYTES.is_multiple_of(ALIGN) && (L::SCALE_BYTES == 0 || L::SCALE_BYTES == ALIGN));
        assert!(size_of::<L::Quants>().is_multiple_of(ALIGN));
        assert!(L::HEAD_BYTES == 0 || L::BLOCKS.is_multiple_of(L::SECTION), "a section has one head");
    }
    n_blocks.div_ceil(L::HEADS * L::BLOCKS) * L::HEAD_BYTES
        + n_blocks.div_ceil(L::SECTION) * L::SCALE_BYTES
        + n_blocks * size_of::<L::Quants>()
}

/// The heads of a unit, and for each the sections that share it. Where a type has no heads, there is one of no bytes.
#[inline(always)]
pub(crate) fn groups<L: Layout>(unit: &[u8]) -> impl Iterator<Item = (&L::Head, &[u8])> {
    let (heads, sections) = unit.split_at(L::HEAD_BYTES.min(unit.len()));
    let heads: &[L::Head] =
        if L::HEAD_BYTES == 0 { bytemuck::cast_slice(&[[0_u8; 0]]) } else { bytemuck::cast_slice(heads) };
    heads.iter().zip(sections.chunks(L::GROUP_BYTES))
}

/// The blocks of a section.
#[inline(always)]
pub(crate) fn blocks<L: Layout>(section: &[u8]) -> impl Iterator<Item = (&L::Scales, &L::Quants)> {
    let (scales, quants) = section.split_at(L::SCALE_BYTES.min(section.len()));
    let scales: &[L::Scales] = if L::SCALE_BYTES == 0 {
        bytemuck::cast_slice(&[[0_u8; 0]; 8])
    } else {
        bytemuck::cast_slice(scales)
    };
    scales.iter().zip(bytemuck::cast_slice(quants))
}

/// Where in a panel a block's head, scales and elements begin.
#[inline(always)]
fn offsets<L: Layout>(i: usize) -> [usize; 3] {
    let (unit, i) =
        if L::HEAD_BYTES == 0 { (0, i) } else { (i / (L::HEADS * L::BLOCKS), i % (L::HEADS * L::BLOCKS)) };
    let start = if unit == 0 { 0 } else { unit * L::UNIT_BYTES };
    let head = start + i / L::BLOCKS * size_of::<L::Head>();
    let section = start + L::HEAD_BYTES + i / L::SECTION * L::SECTION_BYTES;
    let scales = section + i % L::SECTION * size_of::<L::Scales>();
    [head, scales, section + L::SCALE_BYTES + i % L::SECTION * size_of::<L::Quants>()]
}

/// Block `i` of a panel.
#[inline(always)]
pub(crate) fn block<L: Layout>(panel: &[u8], i: usize) -> Option<(&L::Head, &L::Scales, &L::Quants)> {
    let [head, scales, quants] = offsets::<L>(i);
    Some((part(panel, head)?, part(panel, scales)?, part(panel, quants)?))
}

fn part<T: Pod>(panel: &[u8], start: usize) -> Option<&T> {
    bytemuck::try_from_bytes(panel.get(start..start + size_of::<T>())?).ok()
}

/// The same, one after the other, to be written: `f` gets each.
pub(crate) fn write_block<L: Layout>(
    panel: &mut [u8],
    i: usize,
    f: impl FnOnce(&mut L::Head, &mut L::Scales, &mut L::Quants),
) -> Option<()> {
    let [head, scales, quants] = offsets::<L>(i);
    // In this order in memory.
    let (front, quants) = panel.split_at_mut_checked(quants)?;
    let (heads, scales) = front.split_at_mut_checked(scales)?;
    let head = heads.get_mut(head..head + size_of::<L::Head>())?;
    f(
        bytemuck::try_from_bytes_mut(head).ok()?,
        bytemuck::try_from_bytes_mut(scales.get_mut(..size_of::<L::Scales>())?).ok()?,
        bytemuck::try_from_bytes_mut(quants.get_mut(..size_of::<L::Quants>())?).ok()?,
    );
    Some(())
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
    fn every_block_has_its_scales_and_elements() {
        /// Bytes that no other part of the panel has.
        fn fill<T: Pod>(to: &mut T, part: usize, i: usize) {
            bytemuck::bytes_of_mut(to).fill((4 * i + part) as u8);
        }
        fn is<T: Pod>(found: &T, part: usize, i: usize) -> bool {
            bytemuck::bytes_of(found).iter().all(|byte| *byte == (4 * i + part) as u8)
        }
        fn check<L: Layout>(n_blocks: usize) {
            let n_bytes = panel_bytes::<L>(n_blocks);
            assert!(n_bytes.is_multiple_of(ALIGN));
            let mut lines = vec![crate::packed::Line([0; ALIGN]); n_bytes / ALIGN];
            let panel: &mut [u8] = bytemuck::cast_slice_mut(&mut lines);
            for i in 0..n_blocks {
                let written = write_block::<L>(panel, i, |head, scales, quants| {
                    fill(head, 1, i / L::BLOCKS);
                    fill(scales, 2, i);
                    fill(quants, 3, i);
                });
                assert!(written.is_some());
            }
            let units = panel.chunks(L::UNIT_BYTES);
            let mut flat = units.flat_map(groups::<L>).flat_map(|(head, group)| {
                let sections = group.chunks(L::SECTION_BYTES);
                sections.flat_map(move |section| blocks::<L>(section).map(move |block| (head, block)))
            });
            for i in 0..n_blocks {
                let (head, scales, quants) = block::<L>(panel, i).unwrap();
                assert!(is(head, 1, i / L::BLOCKS) && is(scales, 2, i) && is(quants, 3, i));
                let (in_order, (its_scales, its_quants)) = flat.next().unwrap();
                assert!(is(in_order, 1, i / L::BLOCKS) && is(its_scales, 2, i) && is(its_quants, 3, i));
            }
            assert!(flat.next().is_none() && block::<L>(panel, n_blocks + L::SECTION).is_none());
        }
        for n in [1, 2, 3, 6] {
            check::<Q4_0>(n);
            check::<Q4_1>(n);
            check::<Q2_K>(8 * n);
            check::<Q3_K>(8 * n);
            check::<Q4_K>(8 * n);
            check::<Q6_K>(8 * n);
            check::<IQ4_XS>(8 * n);
            check::<TQ2_0>(8 * n);
        }
        assert_eq!(panel_bytes::<Q4_0>(0), 0);
    }
}
