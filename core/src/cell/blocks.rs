//! The blocks of one layer, in a buffer that other layers may share.

use super::layout::CellLayout;
use crate::error::Error;
use core::ops::Range;

/// The blocks of one layer: pieces of a buffer at equal distances, numbered from 0.
///
/// Between them there may be blocks of other layers. Then a block of all layers is one piece of
/// memory, and a cache that grows block by block fills the system's large pages one after the
/// other.
///
/// ```
/// use backstitch_core::cell::{CellBlocks, CellLayout, CellType};
///
/// // Two blocks of 128 bytes, and behind each 256 bytes of other layers.
/// let (k_type, v_type) = (CellType::F16, CellType::F16);
/// let layout = CellLayout { n_head_kv: 1, d_k: 1, d_v: 1, k_type, v_type };
/// let buffer: Vec<u8> = (0..768).map(|i| (i / 128) as u8).collect();
/// let blocks = CellBlocks::new(&buffer, &layout, 384);
/// assert_eq!(blocks.len(), 2);
/// assert_eq!(blocks.get(1), Some(&[3; 128][..]));
/// assert_eq!(blocks.get(2), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CellBlocks<'a> {
    buffer: &'a [u8],
    spacing: Spacing,
}

/// [`CellBlocks`] that may be changed.
#[derive(Debug)]
pub struct CellBlocksMut<'a> {
    buffer: &'a mut [u8],
    spacing: Spacing,
}

/// Length and distance of blocks.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    /// Bytes of a block; 0 if there are none.
    len: usize,
    /// Bytes from the start of a block to the start of the next, not 0.
    stride: usize,
}

impl Spacing {
    /// Blocks that would overlap are none.
    fn new(layout: &CellLayout, stride: usize) -> Self {
        let len = layout.block_bytes();
        Self { len: if len <= stride { len } else { 0 }, stride: stride.max(1) }
    }

    /// Return the number of blocks in a buffer of `n_bytes`.
    fn count(self, n_bytes: usize) -> usize {
        match n_bytes.checked_sub(self.len) {
            Some(rest) if self.len > 0 => rest / self.stride + 1,
            _ => 0,
        }
    }

    /// Return the range of block `number`, which the buffer need not have.
    #[inline(always)]
    fn range(self, number: usize) -> Range<usize> {
        let start = number.saturating_mul(self.stride);
        start..start.saturating_add(self.len)
    }

    /// Check that blocks have the bytes of `layout` and start where vectors may: keys and values
    /// are read as vectors of their type.
    fn check(self, buffer: &[u8], layout: &CellLayout) -> Result<(), Error> {
        let n_blocks = self.count(buffer.len());
        let (found, wanted) = (self.len, layout.block_bytes());
        if n_blocks > 0 && found != wanted {
            return Err(Error::Length { what: "block of cells", found, wanted });
        }
        let starts_well = n_blocks == 0 || buffer.as_ptr().addr().is_multiple_of(64);
        let goes_on_well = n_blocks < 2 || self.stride.is_multiple_of(64);
        if starts_well && goes_on_well {
            return Ok(());
        }
        Err(Error::Alignment { what: "cache", wanted: 64 })
    }
}

impl<'a> CellBlocks<'a> {
    /// Return the blocks of a layer in `buffer`: the first at its start, each other one `stride`
    /// bytes behind the one before, at least the bytes of a block.
    pub fn new(buffer: &'a [u8], layout: &CellLayout, stride: usize) -> Self {
        Self { buffer, spacing: Spacing::new(layout, stride) }
    }

    /// Return the number of blocks.
    pub fn len(&self) -> usize {
        self.spacing.count(self.buffer.len())
    }

    /// Return true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the bytes of block `number`, if there is one.
    pub fn get(&self, number: u32) -> Option<&'a [u8]> {
        self.buffer.get(self.spacing.range(number as usize)).filter(|block| !block.is_empty())
    }

    /// Return the bytes of a block that is there.
    ///
    /// # Panics
    /// If it is not.
    #[inline(always)]
    pub(crate) fn block(&self, number: u32) -> &'a [u8] {
        &self.buffer[self.spacing.range(number as usize)]
    }

    pub(crate) fn check(&self, layout: &CellLayout) -> Result<(), Error> {
        self.spacing.check(self.buffer, layout)
    }
}

impl<'a> CellBlocksMut<'a> {
    /// Return the blocks of a layer in `buffer`, as [`CellBlocks::new`].
    pub fn new(buffer: &'a mut [u8], layout: &CellLayout, stride: usize) -> Self {
        Self { buffer, spacing: Spacing::new(layout, stride) }
    }

    /// Return the blocks to be read.
    pub fn as_ref(&self) -> CellBlocks<'_> {
        CellBlocks { buffer: self.buffer, spacing: self.spacing }
    }

    /// Return the bytes of block `number`, if there is one.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut [u8]> {
        self.buffer.get_mut(self.spacing.range(number as usize)).filter(|block| !block.is_empty())
    }

    /// Return the bytes from block `first` to the end of block `last`, and the distance of blocks.
    ///
    /// # Panics
    /// If one of them is not there.
    pub(crate) fn between(&mut self, first: usize, last: usize) -> (&mut [u8], usize) {
        let range = self.spacing.range(first).start..self.spacing.range(last).end;
        (&mut self.buffer[range], self.spacing.stride)
    }
}
