//! Block pool: reference counts of cell blocks, and the position of every cell.
//!
//! Only numbers live here. The bytes of a block lie in the cache's storage, at the block's number.

use super::slots::Slots;
use crate::error::Error;
use crate::ids::Pos;
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::{Deref, DerefMut};

/// Placeholder for a block that an exhausted pool could not give.
///
/// Reserving goes on with it, so that an error can tell the need of the whole batch. All methods
/// accept it and do nothing.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// Pool of reference-counted blocks.
///
/// A block is free or has at least one user: the table of a sequence or of a checkpoint. Taking a
/// block writes nothing but its count. A cell is written only while its block has one user, or
/// while all users append the same token, so no user sees another one change its cells.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// Users of each block.
    slots: Slots,
    /// Positions of the cells of each block. Entries of cells that no table uses are meaningless.
    pos: Vec<[Pos; BLOCK_CELLS]>,
}

impl BlockPool {
    /// Make a pool of `n_blocks` free blocks.
    pub fn new(n_blocks: u32) -> Result<BlockPool, Error> {
        let pos = reserve::filled(n_blocks as usize, [Pos::ZERO; BLOCK_CELLS])?;
        Ok(BlockPool { slots: Slots::new(n_blocks)?, pos })
    }

    /// Return the positions of the cells of a block. Entries of cells that no table uses are
    /// meaningless.
    pub fn pos(&self, block: u32) -> &[Pos; BLOCK_CELLS] {
        self.pos.get(block as usize).unwrap_or(&[Pos::ZERO; BLOCK_CELLS])
    }

    /// Set the position of one cell of a block.
    pub fn set_pos(&mut self, block: u32, cell: u32, pos: Pos) {
        if let Some(cells) = self.pos.get_mut(block as usize) {
            cells[cell as usize % BLOCK_CELLS] = pos;
        }
    }

    /// Set the positions of all cells of a block.
    pub fn set_all_pos(&mut self, block: u32, pos: &[Pos; BLOCK_CELLS]) {
        if let Some(target) = self.pos.get_mut(block as usize) {
            *target = *pos;
        }
    }

    /// Copy the positions of all cells of a block to another one.
    pub fn copy_pos(&mut self, from: u32, to: u32) {
        let cells = *self.pos(from);
        self.set_all_pos(to, &cells);
    }
}

impl Deref for BlockPool {
    type Target = Slots;

    fn deref(&self) -> &Slots {
        &self.slots
    }
}

impl DerefMut for BlockPool {
    fn deref_mut(&mut self) -> &mut Slots {
        &mut self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_free_again_when_its_last_user_leaves() {
        let mut pool = BlockPool::new(2).unwrap();
        let a = pool.take(2).unwrap();
        let b = pool.take(1).unwrap();
        assert_ne!(a, b);
        assert_eq!((pool.take(1), pool.n_free()), (None, 0));
        pool.retain(b);
        for block in [a, b] {
            pool.release(block);
            assert_eq!((pool.n_free(), pool.refs(block)), (0, 1));
        }
        pool.release(b);
        pool.release(a);
        assert_eq!((pool.n_free(), pool.refs(a), pool.refs(b)), (2, 0, 0));
    }

    #[test]
    fn the_missing_block_is_harmless() {
        let mut pool = BlockPool::new(1).unwrap();
        pool.retain(NO_BLOCK);
        pool.release(NO_BLOCK);
        pool.set_pos(NO_BLOCK, 0, Pos(1));
        pool.copy_pos(0, NO_BLOCK);
        assert_eq!((pool.refs(NO_BLOCK), pool.n_free(), pool.pos(NO_BLOCK)[0]), (0, 1, Pos::ZERO));
    }
}
