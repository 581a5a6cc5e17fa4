//! Room for what grows with a vocabulary, or an error where the allocator refuses.

use super::error::VocabError;
use alloc::vec::Vec;

/// A list with room for `n` entries: their number comes from a file.
pub(super) fn room_for<T>(n: usize) -> Result<Vec<T>, VocabError> {
    let mut list = Vec::new();
    make_room(&mut list, n)?;
    Ok(list)
}

/// Makes room for `n` more entries.
pub(super) fn make_room<T>(list: &mut Vec<T>, n: usize) -> Result<(), VocabError> {
    let n_bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
    list.try_reserve(n).map_err(|_| VocabError::OutOfMemory { n_bytes })
}

/// The `n` entries of `from`, or as many as there are.
pub(super) fn listed<T>(n: usize, from: impl Iterator<Item = T>) -> Result<Vec<T>, VocabError> {
    let mut list = room_for(n)?;
    list.extend(from.take(n));
    Ok(list)
}
