//! Numbered byte strings, found by number and by content.
//!
//! One arena holds all bytes, and one open-addressing table finds them: three allocations for a
//! vocabulary of any size. Strings come from files, so the table does not trust its hash. A chain
//! of more than [`MAX_PROBES`] slots makes it start again with another seed, and after [`SEEDS`]
//! seeds building fails instead of becoming slow.

use alloc::vec::Vec;
use core::iter::repeat;

use super::error::VocabError;
use super::reserve::{try_collect, try_reserve, try_with_capacity};

/// The longest chain of occupied slots. At half load, chains of 2^32 random strings stay below 200.
pub(super) const MAX_PROBES: usize = 256;

/// The number of seeds tried before the strings count as an attack.
pub(super) const SEEDS: u64 = 8;

/// Numbered byte strings. Of equal strings, the first one is found.
#[derive(Clone, Debug)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// The end of each string in `bytes`; a string starts where the one before it ends.
    ends: Vec<u32>,
    /// The table, a power of two of slots. The upper half of a slot is the upper half of the hash,
    /// the lower half the number of the string plus one. Zero is a free slot.
    slots: Vec<u64>,
    seed: u64,
    /// The number of seeds that were tried because a chain was too long.
    n_tried: u64,
    /// True if some string is equal to an earlier one.
    repeats: bool,
}

impl Strings {
    /// Make an empty set with capacity for `n` strings of `n_bytes` bytes together.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn with_capacity(n: usize, n_bytes: usize) -> Result<Self, VocabError> {
        Ok(Self {
            bytes: try_with_capacity(n_bytes)?,
            ends: try_with_capacity(n)?,
            slots: try_collect(slots_for(n), repeat(0))?,
            seed: 0,
            n_tried: 0,
            repeats: false,
        })
    }

    /// Return the number of strings.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Return string number `id`; empty if there is none.
    pub(super) fn at(&self, id: u32) -> &[u8] {
        let i = id as usize;
        let start = if i == 0 { 0 } else { self.ends.get(i - 1).map_or(0, |&end| end as usize) };
        let end = self.ends.get(i).map_or(0, |&end| end as usize);
        self.bytes.get(start..end).unwrap_or(&[])
    }

    /// Return the number of the first string equal to `text`.
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = hash(text, self.seed);
        let mask = self.slots.len().wrapping_sub(1);
        let mut slot = hash as usize & mask;
        for _ in 0..=MAX_PROBES {
            match self.slots.get(slot) {
                None | Some(0) => return None,
                Some(&slot_value) => {
                    let id = (slot_value as u32).wrapping_sub(1);
                    if slot_value >> 32 == hash >> 32 && self.at(id) == text {
                        return Some(id);
                    }
                }
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// Add `text` under the next number, even if an equal string is there already. Empty strings
    /// are never found.
    ///
    /// # Errors
    /// `TooLarge` beyond 4 GiB of text, `Collisions` if no seed spreads the strings, `OutOfMemory`.
    pub(super) fn push(&mut self, text: &[u8]) -> Result<u32, VocabError> {
        let too_large = VocabError::TooLarge { what: "the texts of tokens and merges" };
        let end = u32::try_from(self.bytes.len() + text.len()).map_err(|_| too_large.clone())?;
        let id = u32::try_from(self.ends.len()).ok().filter(|&id| id < u32::MAX - 1).ok_or(too_large)?;
        let first = !text.is_empty() && self.find(text).is_none();
        self.repeats |= !first;
        try_reserve(&mut self.bytes, text.len())?;
        try_reserve(&mut self.ends, 1)?;
        self.bytes.extend_from_slice(text);
        self.ends.push(end);
        let is_small = self.slots.len() < slots_for(self.ends.len());
        if first && (is_small || !self.insert(id)) {
            self.rebuild(!is_small)?;
        }
        Ok(id)
    }

    /// Return the number of `text`, which is added if it is new. The string number `guess` is
    /// compared first, which saves a walk through the table if it is equal.
    pub(super) fn intern(&mut self, text: &[u8], guess: u32) -> Result<u32, VocabError> {
        if !self.repeats && !text.is_empty() && self.at(guess) == text {
            return Ok(guess);
        }
        match self.find(text) {
            Some(id) => Ok(id),
            None => self.push(text),
        }
    }

    /// Put a string that is not in the table into the first free slot of its chain. Return false if
    /// the chain is too long.
    fn insert(&mut self, id: u32) -> bool {
        let hash = hash(self.at(id), self.seed);
        let mask = self.slots.len().wrapping_sub(1);
        let mut slot = hash as usize & mask;
        for _ in 0..MAX_PROBES {
            match self.slots.get_mut(slot) {
                Some(free @ 0) => {
                    *free = (hash >> 32 << 32) | u64::from(id + 1);
                    return true;
                }
                _ => slot = (slot + 1) & mask,
            }
        }
        false
    }

    /// Fill a table of the right size anew, with `reseed` under the next seed that keeps the chains
    /// short.
    fn rebuild(&mut self, mut reseed: bool) -> Result<(), VocabError> {
        let n_slots = self.slots.len().max(slots_for(self.ends.len()));
        loop {
            if reseed {
                // Counted over the life of the table: an attack can have strings for each seed.
                if self.n_tried == SEEDS {
                    return Err(VocabError::Collisions);
                }
                self.n_tried += 1;
                self.seed = self.seed.wrapping_add(SEED_STEP);
            }
            self.slots.clear();
            try_reserve(&mut self.slots, n_slots)?;
            self.slots.resize(n_slots, 0);
            if (0..self.ends.len() as u32).all(|id| self.needs_no_slot(id) || self.insert(id)) {
                return Ok(());
            }
            reseed = true;
        }
    }

    /// Return true if string `id` is empty or equal to an earlier one.
    fn needs_no_slot(&self, id: u32) -> bool {
        let text = self.at(id);
        text.is_empty() || self.find(text).is_some()
    }
}

/// Return the number of slots for `n` entries: a power of two of which at most half are in use.
pub(super) fn slots_for(n: usize) -> usize {
    n.saturating_mul(2).next_power_of_two().max(16)
}

/// An odd number without pattern: the fractional part of the golden ratio.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiply to 128 bits and combine the halves, so that every input bit reaches every output bit.
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Hash `text`, eight bytes per step. No file stores this hash, so it may change.
fn hash(text: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ text.len() as u64;
    let (words, rest) = text.as_chunks::<8>();
    for &word in words {
        state = fold(state ^ u64::from_le_bytes(word), 0xa076_1d64_78bd_642f);
    }
    let mut tail = [0; 8];
    for (to, &from) in tail.iter_mut().zip(rest) {
        *to = from;
    }
    fold(fold(state ^ u64::from_le_bytes(tail), 0xe703_7ed1_a0b4_28db), SEED_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn strings_are_found_by_number_and_by_content() {
        let mut strings = Strings::with_capacity(2, 4).unwrap();
        for i in 0..5000 {
            assert_eq!(strings.push(format!("token {i}").as_bytes()), Ok(i));
        }
        for i in 0..5000 {
            let text = format!("token {i}");
            assert_eq!(strings.find(text.as_bytes()), Some(i));
            assert_eq!(strings.at(i), text.as_bytes());
        }
        assert_eq!(strings.find(b"token 5000"), None);
        assert_eq!(strings.at(5000), b"");
    }

    #[test]
    fn the_first_of_equal_strings_is_found_and_empty_ones_never() {
        let mut strings = Strings::with_capacity(0, 0).unwrap();
        for text in ["a", "", "a", "b", ""] {
            assert!(strings.push(text.as_bytes()).is_ok());
        }
        assert_eq!(strings.len(), 5);
        assert_eq!(strings.find(b"a"), Some(0));
        assert_eq!(strings.find(b""), None);
        assert_eq!(strings.intern(b"b", 0), Ok(3));
        assert_eq!(strings.intern(b"a", 2), Ok(0));
        assert_eq!(strings.intern(b"c", 5), Ok(5));
        assert_eq!(strings.intern(b"c", 5), Ok(5));
    }

    #[test]
    fn a_crowded_table_is_rebuilt_under_another_seed() -> Result<(), VocabError> {
        let mut strings = Strings::with_capacity(0, 0).unwrap();
        // Every slot points at a string that is not there: the next insertion finds no free one.
        strings.slots.fill(1 << 32 | 9);
        let id = strings.push(b"new")?;
        assert_eq!(strings.find(b"new"), Some(id));
        assert_ne!(strings.seed, 0);
        Ok(())
    }

    #[test]
    fn strings_that_collide_under_seed_after_seed_are_refused() -> Result<(), VocabError> {
        let mut strings = Strings::with_capacity(100, 0).unwrap();
        for i in 0..SEEDS {
            strings.slots.fill(1 << 32 | 99);
            strings.push(format!("new {i}").as_bytes())?;
        }
        strings.slots.fill(1 << 32 | 99);
        assert_eq!(strings.push(b"one more"), Err(VocabError::Collisions));
        Ok(())
    }
}
