//! Reference-counted slots: the numbers of blocks and of recurrent states, without their content.

use crate::error::Error;
use crate::ids::SeqId;
use crate::reserve;
use alloc::vec::Vec;

/// Slots, each of which is free or has at least one user.
///
/// Numbers that no slot has are accepted everywhere and change nothing.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Number of users of each slot; 0 if it is free.
    refs: Vec<u32>,
    /// Free slots; the last one is taken first. Freed ones lie behind those that were never taken,
    /// so storage is written no further than slots were in use at once.
    free: Vec<u32>,
}

impl Slots {
    /// Make `n` free slots.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(n: u32) -> Result<Slots, Error> {
        let mut free = reserve::filled(n as usize, 0)?;
        free.iter_mut().zip((0..n).rev()).for_each(|(entry, slot)| *entry = slot);
        Ok(Slots { refs: reserve::filled(n as usize, 0)?, free })
    }

    /// Return the number of free slots.
    pub fn n_free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Return the number of slots.
    pub fn len(&self) -> usize {
        self.refs.len()
    }

    /// Return the number of users of a slot.
    pub fn refs(&self, slot: u32) -> u32 {
        self.refs.get(slot as usize).copied().unwrap_or(0)
    }

    /// Take a free slot for `refs` users.
    pub fn take(&mut self, refs: u32) -> Option<u32> {
        debug_assert!(refs > 0);
        let slot = self.free.pop()?;
        self.refs[slot as usize] = refs;
        Some(slot)
    }

    /// Free a slot, however many users it has.
    pub fn give_back(&mut self, slot: u32) {
        if let Some(refs) = self.refs.get_mut(slot as usize).filter(|refs| **refs > 0) {
            *refs = 0;
            self.free.push(slot);
        }
    }

    /// Add a user to a slot in use.
    pub fn retain(&mut self, slot: u32) {
        if let Some(refs) = self.refs.get_mut(slot as usize) {
            debug_assert!(*refs > 0, "slot {slot} is free");
            *refs += 1;
        }
    }

    /// Remove a user of a slot; the last one frees it.
    pub fn release(&mut self, slot: u32) {
        if let Some(refs) = self.refs.get_mut(slot as usize) {
            debug_assert!(*refs > 0, "slot {slot} is free");
            *refs -= 1;
            if *refs == 0 {
                self.free.push(slot);
            }
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Slots {
    /// Check reference counts and free list against the slots that are used.
    pub fn audit(&self, used: impl Iterator<Item = u32>) -> Result<(), alloc::string::String> {
        let mut refs = alloc::vec![0; self.refs.len()];
        used.for_each(|slot| refs[slot as usize] += 1);
        if refs != self.refs {
            return Err(alloc::format!("slots have {:?} users, counted {refs:?}", self.refs));
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let unused = (0..refs.len() as u32).filter(|&slot| refs[slot as usize] == 0);
        if !unused.eq(free.iter().copied()) {
            return Err(alloc::format!("free slots {free:?} with users {refs:?}"));
        }
        Ok(())
    }
}

/// Slots that a plan needs, counted for the whole batch even if too few are free.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Number of slots.
    need: u32,
    /// First sequence that got none.
    lacking: Option<SeqId>,
}

impl Demand {
    /// Take a slot for `refs` users, of which `seq` is the first one.
    pub fn take(&mut self, slots: &mut Slots, refs: u32, seq: SeqId) -> Option<u32> {
        self.need += 1;
        let slot = slots.take(refs);
        self.lacking = self.lacking.or(if slot.is_none() { Some(seq) } else { None });
        slot
    }

    /// Check that `free` slots, of `size` entries named `what`, were enough.
    ///
    /// # Errors
    /// [`Error::Full`] names the first sequence that got none.
    pub fn check(&self, free: u32, what: &'static str, size: usize) -> Result<(), Error> {
        if self.need <= free {
            return Ok(());
        }
        let [need, free] = [self.need, free].map(|n| u64::from(n) * size as u64);
        Err(Error::Full { what, need, free, seq: self.lacking.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_are_taken_before_fresh_ones() {
        let mut slots = Slots::new(100).unwrap();
        assert_eq!([(); 3].map(|()| slots.take(1)), [Some(0), Some(1), Some(2)]);
        slots.release(1);
        slots.give_back(0);
        assert_eq!([(); 3].map(|()| slots.take(1)), [Some(0), Some(1), Some(3)]);
    }
}
