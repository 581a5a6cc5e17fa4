//! The most bytes of each part of a container that is read into memory as a whole. Readers hold to them before anything is allocated, writers before
//! anything is written: what was saved can be restored.
//!
//! A file can be said to be long without filling any disk, so the length of a file alone bounds nothing. `docs/security.md` has the sum.

use super::Error;
use alloc::vec::Vec;

/// The directory: that of 1.4 million sections, or of as many blocks of 32 tokens.
pub const MAX_DIRECTORY: u64 = 64 << 20;

/// A description of layers, far above that of any model.
pub(super) const MAX_SHAPE: u64 = 1 << 20;

/// A description of what sequences hold: that of some hundred million tokens.
pub(super) const MAX_IMAGE: u64 = 64 << 20;

/// Any other section that is read as a whole. What is longer goes where the caller has room for it, piece by piece.
pub const MAX_READ: u64 = 256 << 20;

/// What an image may take in memory beside twice the bytes of its container, where it takes less than that unless it was made to take more.
const IMAGE_ROOM: u64 = 32 << 20;

/// Refuses what is longer than it may be.
pub(super) fn expect_at_most(what: &'static str, value: u64, limit: u64) -> Result<(), Error> {
    if value > limit { Err(Error::TooLarge { what, value, limit }) } else { Ok(()) }
}

/// What is left of the memory that a description may take, however small its entries are in the file.
#[derive(Debug)]
pub(super) struct Room {
    left: u64,
    all: u64,
}

impl Room {
    /// The room for what is described in a container of so many bytes.
    pub fn of(container: u64) -> Self {
        let all = container.saturating_mul(2).saturating_add(IMAGE_ROOM);
        Room { left: all, all }
    }

    /// Makes room for `n` more entries, which count against what is left.
    pub fn more<T>(&mut self, list: &mut Vec<T>, n: usize) -> Result<(), Error> {
        let bytes = self.take(n, size_of::<T>())?;
        list.try_reserve(n).map_err(|_| Error::OutOfMemory { bytes })
    }

    /// A list with room for exactly `n` entries, which count against what is left.
    pub fn list<T>(&mut self, n: usize) -> Result<Vec<T>, Error> {
        let bytes = self.take(n, size_of::<T>())?;
        let mut list = Vec::new();
        list.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes })?;
        Ok(list)
    }

    fn take(&mut self, n: usize, size: usize) -> Result<u64, Error> {
        let bytes = (n as u64).saturating_mul(size as u64);
        let value = (self.all - self.left).saturating_add(bytes);
        expect_at_most("bytes of memory for a description", value, self.all)?;
        self.left -= bytes;
        Ok(bytes)
    }
}
