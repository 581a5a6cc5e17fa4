//! One cell of a quantised part: its blocks of 32 elements, between GGUF's form (a scale, then
//! quants) and their places in the part.
//!
//! Scales stand apart from quants, so that a kernel loads sixteen quants of sixteen cells (keys) or
//! of one cell (values) with one instruction. A cell is nevertheless written alone: its scales and
//! its quants are bytes of its own.

use super::types::BLOCK_CELLS;
use crate::block::codec::Codec;

/// Bytes of a scale.
const SCALE: usize = 2;

/// The order of the quants of a part; its scales, `[d / 32, 32 cells]`, follow.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// The bytes of a cell are 32 apart: one for each cell.
    Keys,
    /// The bytes of a cell lie together.
    Values,
}

/// The place of one block of a cell in its part: of its scale, of its first quant, and the distance
/// from one quant to the next.
struct Place {
    scale: usize,
    first: usize,
    step: usize,
}

impl Order {
    /// Return the place of block `b` of `cell` in a part of blocks of `block_bytes`.
    fn place(self, part_len: usize, block_bytes: usize, cell: usize, b: usize) -> Place {
        let (n_blocks, n_quants) = (part_len / (BLOCK_CELLS * block_bytes), block_bytes - SCALE);
        let scale = n_blocks * n_quants * BLOCK_CELLS + (b * BLOCK_CELLS + cell) * SCALE;
        match self {
            Self::Keys => Place { scale, first: b * n_quants * BLOCK_CELLS + cell, step: BLOCK_CELLS },
            Self::Values => Place { scale, first: (cell * n_blocks + b) * n_quants, step: 1 },
        }
    }

    fn put_block(self, part: &mut [u8], cell: usize, b: usize, block: &[u8]) {
        let Place { scale, first, step } = self.place(part.len(), block.len(), cell, b);
        let (head, quants) = block.split_at(SCALE);
        part[scale..scale + SCALE].copy_from_slice(head);
        for (to, quant) in part[first..].iter_mut().step_by(step).zip(quants) {
            *to = *quant;
        }
    }

    fn take_block(self, part: &[u8], cell: usize, b: usize, block: &mut [u8]) {
        let Place { scale, first, step } = self.place(part.len(), block.len(), cell, b);
        let (head, quants) = block.split_at_mut(SCALE);
        head.copy_from_slice(&part[scale..scale + SCALE]);
        for (quant, from) in quants.iter_mut().zip(part[first..].iter().step_by(step)) {
            *quant = *from;
        }
    }

    /// Copy a cell's blocks, of `block_bytes` each, to their places.
    pub(super) fn put(self, block_bytes: usize, part: &mut [u8], cell: usize, row: &[u8]) {
        for (b, block) in row.chunks_exact(block_bytes).enumerate() {
            self.put_block(part, cell, b, block);
        }
    }

    /// Copy a cell's blocks, of `block_bytes` each, from their places; the reverse of
    /// [`Order::put`].
    pub(super) fn take(self, block_bytes: usize, part: &[u8], cell: usize, row: &mut [u8]) {
        for (b, block) in row.chunks_exact_mut(block_bytes).enumerate() {
            self.take_block(part, cell, b, block);
        }
    }

    /// Quantise a row of one head into a cell.
    pub(super) fn encode<B: Codec<32>>(self, part: &mut [u8], cell: usize, row: &[f32]) {
        for (b, x) in row.as_chunks().0.iter().enumerate() {
            self.put_block(part, cell, b, bytemuck::bytes_of(&B::store(x)));
        }
    }

    /// Read the elements of a cell.
    pub(super) fn decode<B: Codec<32>>(self, part: &[u8], cell: usize, row: &mut [f32]) {
        for (b, x) in row.as_chunks_mut().0.iter_mut().enumerate() {
            let mut block = B::zeroed();
            self.take_block(part, cell, b, bytemuck::bytes_of_mut(&mut block));
            block.load(x);
        }
    }
}
