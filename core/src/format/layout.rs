//! The order of bytes in a panel of quantised weights.
//!
//! A panel is read from one end to the other, so that the memory sees a single stream. It is a
//! sequence of *sections*: the scales of a few blocks, as many as fill a cache line, and right
//! behind them the elements of those blocks. Formats whose blocks of 32 columns form super-blocks
//! of 256 have a *head* for each super-block (its `d` and `dmin`); heads stand in front of their
//! sections, and one or two super-blocks, as many as fill a line with heads, are a *unit*.
//!
//! ```text
//! no super-blocks   | scales of blocks 0, 1 | elements 0 | elements 1 | scales of 2, 3 | ...
//! super-blocks      | head | scales 0, 1 | elements 0 | elements 1 | ... elements 7 | head | ...
//! ```
//!
//! [`Layout`] says for one format what a head, a block's scales and a block's elements are; all
//! sizes and offsets follow from these three types. [`groups`] and [`blocks`] walk through a panel
//! in order, [`block`] and [`write_block`] find one block by its number.

pub use crate::block::BLOCK;

use bytemuck::Pod;

/// Rows in a panel: one a lane.
pub const PANEL: usize = 16;
/// Packed bytes start at a multiple of this: a cache line, and the widest load.
pub const ALIGN: usize = 64;

/// The head, scales and elements that a format keeps for sixteen rows.
pub(crate) trait Layout {
    /// Blocks that share a head: 8 in super-blocks of 256 columns, else 1.
    const BLOCKS: usize;
    /// The numbers that the blocks of a super-block share; [`Nothing`] without super-blocks.
    type Head: Pod;
    /// The scales of one block.
    type Scales: Pod;
    /// The elements of one block.
    type Quants: Pod;

    /// Heads in a unit: as many as fill lines.
    const HEADS: usize = if size_of::<Self::Head>().is_multiple_of(ALIGN) { 1 } else { 2 };
    /// Blocks in a section: as many as fill a line with scales. The last section of a panel may
    /// have fewer blocks; its line of scales is whole nevertheless.
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
    /// Bytes of the sections that share a head; without heads there is no end to them.
    const GROUP_BYTES: usize =
        if Self::HEAD_BYTES == 0 { usize::MAX } else { Self::BLOCKS / Self::SECTION * Self::SECTION_BYTES };
    /// Bytes of a unit. The last unit of a panel may lack groups; its heads are whole nevertheless.
    const UNIT_BYTES: usize =
        if Self::HEAD_BYTES == 0 { usize::MAX } else { Self::HEAD_BYTES + Self::HEADS * Self::GROUP_BYTES };
}

/// No bytes.
pub(crate) type Nothing = [u8; 0];

/// Return the bytes of a panel of `n_blocks` blocks, in whole super-blocks.
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

/// Return the heads of a unit, each with the bytes of the sections that share it.
///
/// A format without heads yields one head of no bytes with the whole panel.
#[inline(always)]
pub(crate) fn groups<L: Layout>(unit: &[u8]) -> impl Iterator<Item = (&L::Head, &[u8])> {
    let (heads, sections) = unit.split_at(L::HEAD_BYTES.min(unit.len()));
    let heads: &[L::Head] =
        if L::HEAD_BYTES == 0 { bytemuck::cast_slice(&[[0_u8; 0]]) } else { bytemuck::cast_slice(heads) };
    heads.iter().zip(sections.chunks(L::GROUP_BYTES))
}

/// Return the blocks of a section: scales and elements.
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

/// Return the offsets in a panel of the head, the scales and the elements of block `i`.
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

/// Return block `i` of a panel; none behind its end.
#[inline(always)]
pub(crate) fn block<L: Layout>(panel: &[u8], i: usize) -> Option<(&L::Head, &L::Scales, &L::Quants)> {
    let [head, scales, quants] = offsets::<L>(i);
    Some((part(panel, head)?, part(panel, scales)?, part(panel, quants)?))
}

fn part<T: Pod>(panel: &[u8], start: usize) -> Option<&T> {
    bytemuck::try_from_bytes(panel.get(start..start + size_of::<T>())?).ok()
}

/// Pass block `i` of a panel to `f`, to be written; return `None` behind the end of the panel.
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
    use crate::format::{IQ4_XS, Q2_0, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q6_K, TQ2_0};

    /// 64 aligned bytes.
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, align(64))]
    struct Aligned([u8; ALIGN]);

    #[test]
    fn every_block_has_its_scales_and_elements() {
        /// Fill with a byte that no other part of the panel has.
        fn fill<T: Pod>(to: &mut T, part: usize, i: usize) {
            bytemuck::bytes_of_mut(to).fill((4 * i + part) as u8);
        }
        fn is<T: Pod>(found: &T, part: usize, i: usize) -> bool {
            bytemuck::bytes_of(found).iter().all(|byte| *byte == (4 * i + part) as u8)
        }
        fn check<L: Layout>(n_blocks: usize) {
            let n_bytes = panel_bytes::<L>(n_blocks);
            assert!(n_bytes.is_multiple_of(ALIGN));
            let mut lines = vec![Aligned([0; ALIGN]); n_bytes / ALIGN];
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
            check::<Q2_0>(2 * n);
        }
        assert_eq!(panel_bytes::<Q4_0>(0), 0);
    }
}
