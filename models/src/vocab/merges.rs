//! The merges of a byte-pair vocabulary, found by their two symbols.
//!
//! The merges lie in a list by rank, and an open-addressing table of 32-bit slots finds them.
//! Tokenising is bound by the memory that these look-ups touch. Therefore slots are as small as
//! they can be, and a few bits of the hash beside the rank save most visits to the list. Like the
//! table of strings, this one is built again with another seed if a chain grows long.

use alloc::vec::Vec;
use core::iter::repeat;

use super::error::VocabError;
use super::reserve::try_collect;
use super::strings::{MAX_PROBES, SEEDS, fold, slots_for};

/// The merge of two neighbouring symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    /// The rank; lower ranks are applied earlier.
    pub(super) rank: u32,
    /// The symbol that replaces the two.
    pub(super) symbol: u32,
}

/// The symbol of a byte that is not in the vocabulary: no merge has it.
pub(super) const NO_SYMBOL: u32 = u32::MAX;

/// All merges of a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Merges {
    /// The left, the right and the merged symbol, by rank.
    ranked: Vec<(u32, u32, u32)>,
    /// The table. Zero is a free slot. In others the lower `rank_bits` are the rank plus one, and
    /// the bits above are some of the pair's hash.
    slots: Vec<u32>,
    rank_bits: u32,
    seed: u64,
}

impl Merges {
    /// Build the table of the merges `(left, right, merged)`, the most important first. Of equal
    /// pairs the first counts.
    ///
    /// # Errors
    /// `TooLarge` for 2^31 merges and more, `Collisions` if no seed spreads the pairs,
    /// `OutOfMemory`.
    pub(super) fn new(ranked: Vec<(u32, u32, u32)>) -> Result<Self, VocabError> {
        let n = u32::try_from(ranked.len()).ok().filter(|&n| n < 1 << 31);
        let rank_bits = u32::BITS - n.ok_or(VocabError::TooLarge { what: "the merges" })?.leading_zeros();
        let mut merges =
            Self { slots: try_collect(slots_for(ranked.len()), repeat(0))?, ranked, rank_bits, seed: 0 };
        for seed in 1..=SEEDS {
            merges.seed = fold(seed, 0x9e37_79b9_7f4a_7c15);
            if (0..merges.ranked.len() as u32).all(|rank| merges.insert(rank)) {
                return Ok(merges);
            }
            merges.slots.fill(0);
        }
        Err(VocabError::Collisions)
    }

    /// Return the slot at which the chain of a pair starts, and the bits of its hash that a slot
    /// holds, shifted into place.
    #[inline]
    fn start(&self, left: u32, right: u32) -> (usize, u32) {
        let pair = u64::from(left) << 32 | u64::from(right);
        let hash = fold(pair ^ self.seed, 0xa076_1d64_78bd_642f);
        (hash as usize & self.slots.len().wrapping_sub(1), ((hash >> 32) as u32) << self.rank_bits)
    }

    /// Return the merge of `slot` if it is that of this pair.
    #[inline]
    fn of_slot(&self, slot: u32, tag: u32, left: u32, right: u32) -> Option<Merge> {
        let number = slot & !(u32::MAX << self.rank_bits);
        if slot - number != tag {
            return None;
        }
        let rank = number.wrapping_sub(1);
        let &(l, r, symbol) = self.ranked.get(rank as usize)?;
        (l == left && r == right).then_some(Merge { rank, symbol })
    }

    /// Put the merge of that rank into its chain. Return false if the chain is too long.
    fn insert(&mut self, rank: u32) -> bool {
        let Some(&(left, right, _)) = self.ranked.get(rank as usize) else { return true };
        let (mut at, tag) = self.start(left, right);
        for _ in 0..MAX_PROBES {
            match self.slots.get(at) {
                Some(0) => {
                    self.slots.get_mut(at).into_iter().for_each(|slot| *slot = tag | (rank + 1));
                    return true;
                }
                Some(&slot) if self.of_slot(slot, tag, left, right).is_some() => return true,
                _ => at = (at + 1) & self.slots.len().wrapping_sub(1),
            }
        }
        false
    }

    /// Return the merge of `left` and `right`, if there is one.
    #[inline]
    pub(super) fn find(&self, left: u32, right: u32) -> Option<Merge> {
        let (mut at, tag) = self.start(left, right);
        for _ in 0..=MAX_PROBES {
            match *self.slots.get(at)? {
                0 => return None,
                slot => {
                    if let Some(merge) = self.of_slot(slot, tag, left, right) {
                        return Some(merge);
                    }
                }
            }
            at = (at + 1) & self.slots.len().wrapping_sub(1);
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
        let merges = Merges::new(ranked)?;
        for i in 0..10_000 {
            assert_eq!(merges.find(i / 100, i % 100), Some(Merge { rank: i, symbol: i + 1000 }));
        }
        assert_eq!(merges.find(100, 0), None);
        assert_eq!(merges.find(NO_SYMBOL, NO_SYMBOL), None);
        assert_eq!(merges.find(1, NO_SYMBOL), None);
        assert_eq!(Merges::new(Vec::new())?.find(0, 0), None);
        Ok(())
    }
}
