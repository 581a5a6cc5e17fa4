//! The pool of cell blocks: who uses which, and the position of every cell.
//!
//! Only numbers live here; the bytes of a block lie in each layer's buffer at the same index.

use crate::error::Error;
use crate::ids::Pos;
use crate::room;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;

/// Stands for a block that was not there when the pool ran out, so that a batch's whole need can be counted. All
/// methods accept it and do nothing.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// Reference-counted blocks.
#[derive(Debug)]
pub(crate) struct BlockPool {
    refs: Vec<u32>,
    free: Vec<u32>,
    pos: Vec<[Pos; BLOCK_CELLS]>,
}

impl BlockPool {
    pub fn new(n_blocks: u32) -> Result<BlockPool, Error> {
        let n = n_blocks as usize;
        let mut free = room::filled(n, 0)?;
        free.iter_mut().zip((0..n_blocks).rev()).for_each(|(entry, block)| *entry = block);
        Ok(BlockPool { refs: room::filled(n, 0)?, free, pos: room::filled(n, [Pos::ZERO; BLOCK_CELLS])? })
    }

    pub fn n_free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Takes a free block for `refs` users.
    pub fn take(&mut self, refs: u32) -> Option<u32> {
        debug_assert!(refs > 0);
        let block = self.free.pop()?;
        self.refs[block as usize] = refs;
        Some(block)
    }

    /// Frees a block, whoever uses it.
    pub fn give_back(&mut self, block: u32) {
        if let Some(refs) = self.refs.get_mut(block as usize).filter(|refs| **refs > 0) {
            *refs = 0;
            self.free.push(block);
        }
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.refs.len()
    }

    /// How many users a block has.
    pub fn refs(&self, block: u32) -> u32 {
        self.refs.get(block as usize).copied().unwrap_or(0)
    }

    /// Adds a user to a block in use.
    pub fn retain(&mut self, block: u32) {
        if let Some(refs) = self.refs.get_mut(block as usize) {
            debug_assert!(*refs > 0, "block {block} is free");
            *refs += 1;
        }
    }

    /// Takes a user away; the last one frees the block.
    pub fn release(&mut self, block: u32) {
        if let Some(refs) = self.refs.get_mut(block as usize) {
            debug_assert!(*refs > 0, "block {block} is free");
            *refs -= 1;
            if *refs == 0 {
                self.free.push(block);
            }
        }
    }

    /// The positions of a block's cells; those of cells that nobody uses mean nothing.
    pub fn pos(&self, block: u32) -> &[Pos; BLOCK_CELLS] {
        self.pos.get(block as usize).unwrap_or(&[Pos::ZERO; BLOCK_CELLS])
    }

    pub fn set_pos(&mut self, block: u32, cell: u32, pos: Pos) {
        if let Some(cells) = self.pos.get_mut(block as usize) {
            cells[cell as usize % BLOCK_CELLS] = pos;
        }
    }

    /// Sets the positions of all cells of a block.
    pub fn set_all_pos(&mut self, block: u32, pos: &[Pos; BLOCK_CELLS]) {
        if let Some(target) = self.pos.get_mut(block as usize) {
            *target = *pos;
        }
    }

    pub fn copy_pos(&mut self, from: u32, to: u32) {
        let cells = *self.pos(from);
        if let Some(target) = self.pos.get_mut(to as usize) {
            *target = cells;
        }
    }
}

#[cfg(any(test, feature = "oracle"))]
impl BlockPool {
    /// Checks counts and free list against the blocks that tables use.
    pub fn audit(&self, used: impl Iterator<Item = u32>) -> Result<(), alloc::string::String> {
        let mut refs = alloc::vec![0; self.refs.len()];
        used.for_each(|block| refs[block as usize] += 1);
        if refs != self.refs {
            return Err(alloc::format!("blocks have {:?} users, counted {refs:?}", self.refs));
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let unused = (0..refs.len() as u32).filter(|&block| refs[block as usize] == 0);
        if !unused.eq(free.iter().copied()) {
            return Err(alloc::format!("free blocks {free:?} with users {refs:?}"));
        }
        Ok(())
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
