//! The most bytes of each part of a container that is read into memory as a whole. Readers hold to
//! them before anything is allocated, writers before anything is written: what was saved can be
//! restored.
//!
//! A file can be said to be long without filling any disk, so the length of a file alone bounds
//! nothing. `docs/security.md` has the sum.

use crate::storage::error::Error;
use alloc::vec::Vec;
use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;

/// The directory: that of 1.4 million sections, or of as many blocks of 32 tokens.
pub const MAX_DIRECTORY: u64 = 64 << 20;

/// A description of layers, far above that of any model.
pub(in crate::storage) const MAX_SHAPE: u64 = 1 << 20;

/// A description of what sequences hold: that of some hundred million tokens.
pub(in crate::storage) const MAX_IMAGE: u64 = 64 << 20;

/// Any other section that is read as a whole. What is longer goes where the caller has room for it,
/// piece by piece.
pub const MAX_READ: u64 = 256 << 20;

/// Memory that a snapshot may take beside twice the bytes of its container, where it takes less
/// than that unless it was made to take more.
const IMAGE_ROOM: u64 = 32 << 20;

/// Refuse what is longer than it may be.
pub(in crate::storage) fn expect_at_most(what: &'static str, value: u64, limit: u64) -> Result<(), Error> {
    if value > limit { Err(Error::TooLarge { what, value, limit }) } else { Ok(()) }
}

/// Return `len` zeros, or a typed error where the allocator refuses.
pub(super) fn zeroed<T: Zeroable>(len: u64) -> Result<Vec<T>, Error> {
    let refused = Error::OutOfMemory { bytes: len.saturating_mul(size_of::<T>() as u64) };
    usize::try_from(len).ok().and_then(|len| try_zeroed_vec(len).ok()).ok_or(refused)
}

/// The memory that a description takes, and the most that it may take, however small its entries
/// are in the file.
#[derive(Debug)]
pub(in crate::storage) struct Room {
    used: u64,
    all: u64,
}

impl Room {
    /// Return the room for what is described in a container of so many bytes.
    pub fn of(container: u64) -> Self {
        let all = container.saturating_mul(2).saturating_add(IMAGE_ROOM);
        Room { used: 0, all }
    }

    /// Make a list with room for exactly `n` entries, if that much is left.
    pub fn list<T>(&mut self, n: usize) -> Result<Vec<T>, Error> {
        let bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
        self.used = self.used.saturating_add(bytes);
        expect_at_most("bytes of memory for a description", self.used, self.all)?;
        let mut list = Vec::new();
        list.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes })?;
        Ok(list)
    }
}
