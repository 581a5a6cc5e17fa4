//! Which two symbols merge into which, and how urgently.
//!
//! An open-addressing table from a pair of symbols to a rank and the symbol they become. Like the table of strings it is
//! built under another seed when a chain grows long.

use alloc::vec;
use alloc::vec::Vec;

use super::error::VocabError;
use super::strings::{MAX_PROBES, SEEDS, fold, slots_for};

/// What two neighbouring symbols become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    /// The lower, the earlier it is applied.
    pub(super) rank: u32,
    /// The symbol in place of the two.
    pub(super) symbol: u32,
}

/// Stands for a free slot, and for a byte that is no symbol: no pair with it is in a table.
pub(super) const NO_SYMBOL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    left: u32,
    right: u32,
    merge: Merge,
}

const FREE: Slot = Slot { left: NO_SYMBOL, right: NO_SYMBOL, merge: Merge { rank: 0, symbol: NO_SYMBOL } };

/// All merges of a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Merges {
    slots: Vec<Slot>,
    seed: u64,
}

impl Merges {
    /// The merges `(left, right, merged)`, ranked by their order. Of equal pairs the first counts.
    ///
    /// # Errors
    /// `Collisions` when no seed spreads the pairs.
    pub(super) fn new(ranked: &[(u32, u32, u32)]) -> Result<Self, VocabError> {
        let mut merges = Self { slots: vec![FREE; slots_for(ranked.len())], seed: 0 };
        for seed in 1..=SEEDS {
            merges.seed = fold(seed, 0x9e37_79b9_7f4a_7c15);
            if (0..)
                .zip(ranked)
                .all(|(rank, &(left, right, symbol))| merges.insert(left, right, Merge { rank, symbol }))
            {
                return Ok(merges);
            }
            merges.slots.fill(FREE);
        }
        Err(VocabError::Collisions)
    }

    fn first_slot(&self, left: u32, right: u32) -> usize {
        let pair = u64::from(left) << 32 | u64::from(right);
        fold(pair ^ self.seed, 0xa076_1d64_78bd_642f) as usize & self.slots.len().wrapping_sub(1)
    }

    /// False if the chain is too long.
    fn insert(&mut self, left: u32, right: u32, merge: Merge) -> bool {
        let mut slot = self.first_slot(left, right);
        for _ in 0..MAX_PROBES {
            match self.slots.get_mut(slot) {
                Some(held) if held.left == left && held.right == right => return true,
                Some(free) if free.left == NO_SYMBOL => {
                    *free = Slot { left, right, merge };
                    return true;
                }
                _ => slot = (slot + 1) & self.slots.len().wrapping_sub(1),
            }
        }
        false
    }

    /// What `left` and `right` become, if anything.
    #[inline]
    pub(super) fn find(&self, left: u32, right: u32) -> Option<Merge> {
        let mut slot = self.first_slot(left, right);
        for _ in 0..=MAX_PROBES {
            let held = self.slots.get(slot)?;
            if held.left == left && held.right == right {
                return (left != NO_SYMBOL).then_some(held.merge);
            }
            if held.left == NO_SYMBOL {
                return None;
            }
            slot = (slot + 1) & self.slots.len().wrapping_sub(1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_and_the_first_of_equal_ones_counts() -> Result<(), VocabError> {
        let mut ranked: Vec<_> = (0..10_000).map(|i| (i / 100, i % 100, i + 1000)).collect();
        ranked.push((3, 4, 7));
        let merges = Merges::new(&ranked)?;
        for i in 0..10_000 {
            assert_eq!(merges.find(i / 100, i % 100), Some(Merge { rank: i, symbol: i + 1000 }));
        }
        assert_eq!(merges.find(100, 0), None);
        assert_eq!(merges.find(NO_SYMBOL, NO_SYMBOL), None);
        assert_eq!(merges.find(1, NO_SYMBOL), None);
        Ok(())
    }
}
