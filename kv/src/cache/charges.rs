//! Charges: the blocks that checkpoints retain, each counted once however many checkpoints share
//! it.
//!
//! A block is charged from the moment a checkpoint retains it, also while a sequence still uses it:
//! the sequence will move on, and the block will stay. So the count never grows on its own, and a
//! pin that was paid for stays paid.

use super::table::BlockTable;
use crate::error::Error;
use crate::reserve;
use alloc::vec::Vec;

/// Kind of charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// Checkpoints that the budget pays for, pinned or not.
    Paid,
    /// Pins, which nothing drops but the caller.
    Pinned,
}

/// Blocks of a windowed cache that some of its checkpoints are charged for.
///
/// A checkpoint is charged for the blocks of its table, so its table must not change while it is.
#[derive(Debug)]
pub(crate) struct Charges {
    /// Number of charged checkpoints that retain each block.
    users: Vec<u32>,
    /// True for each checkpoint that is charged.
    charged: Vec<bool>,
    /// Number of blocks with users.
    n_blocks: u32,
}

impl Charges {
    /// Make charges of no checkpoint.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(n_blocks: u32, n_checkpoints: u32) -> Result<Charges, Error> {
        Ok(Charges {
            users: reserve::filled(n_blocks as usize, 0)?,
            charged: reserve::filled(n_checkpoints as usize, false)?,
            n_blocks: 0,
        })
    }

    /// Return the number of blocks that are charged.
    pub fn n_blocks(&self) -> u32 {
        self.n_blocks
    }

    /// Charge a checkpoint for the blocks of its table, or no longer. Return true if it was charged
    /// before.
    pub fn set(&mut self, checkpoint: u32, table: &BlockTable, is_charged: bool) -> bool {
        let Some(charged) = self.charged.get_mut(checkpoint as usize) else { return false };
        let was_charged = core::mem::replace(charged, is_charged);
        if was_charged == is_charged {
            return was_charged;
        }
        for (_, block, _) in table.touched(0..u32::MAX) {
            let Some(users) = self.users.get_mut(block as usize) else { continue };
            if is_charged {
                self.n_blocks += u32::from(*users == 0);
                *users += 1;
            } else {
                *users = users.saturating_sub(1);
                self.n_blocks -= u32::from(*users == 0);
            }
        }
        was_charged
    }
}

#[cfg(any(test, feature = "testing"))]
impl Charges {
    /// Check the counts against the tables of all checkpoints.
    pub fn audit(&self, held: &[BlockTable]) -> Result<(), alloc::string::String> {
        let mut users = alloc::vec![0; self.users.len()];
        let charged = held.iter().zip(&self.charged).filter(|(_, charged)| **charged);
        for (_, block, _) in charged.flat_map(|(table, _)| table.touched(0..u32::MAX)) {
            users[block as usize] += 1;
        }
        let n_blocks = users.iter().filter(|users| **users > 0).count();
        if users != self.users || n_blocks != self.n_blocks as usize {
            return Err(alloc::format!("{n_blocks} blocks {users:?} are charged as {self:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_core::cell::BlockEntry;

    #[test]
    fn a_shared_block_is_charged_once() {
        let table = |blocks: [u32; 2]| BlockTable::of(&blocks.map(|block| BlockEntry { block, live: 1 }), 2);
        let tables = [table([1, 2]).unwrap(), table([2, 3]).unwrap()];
        let mut charges = Charges::new(4, 2).unwrap();
        for (steps, n_blocks) in [(0, 2), (1, 3), (1, 3)] {
            charges.set(steps, &tables[steps as usize], true);
            assert_eq!(charges.n_blocks(), n_blocks);
            charges.audit(&tables).unwrap();
        }
        assert!(charges.set(0, &tables[0], false));
        assert_eq!(charges.n_blocks(), 2);
        assert!(!charges.set(0, &tables[0], false));
        charges.audit(&tables).unwrap();
    }
}
