//! Allocation of lists whose length comes from a file, with an error if the allocator refuses.

use super::error::VocabError;
use alloc::vec::Vec;

/// Return an empty list with capacity for `n` entries.
///
/// # Errors
/// `OutOfMemory`.
pub(super) fn try_with_capacity<T>(n: usize) -> Result<Vec<T>, VocabError> {
    let mut list = Vec::new();
    try_reserve(&mut list, n)?;
    Ok(list)
}

/// Reserve capacity for `n` more entries.
///
/// # Errors
/// `OutOfMemory`.
pub(super) fn try_reserve<T>(list: &mut Vec<T>, n: usize) -> Result<(), VocabError> {
    let n_bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
    list.try_reserve(n).map_err(|_| VocabError::OutOfMemory { n_bytes })
}

/// Return the first `n` entries of `from`, or as many as there are.
///
/// # Errors
/// `OutOfMemory`.
pub(super) fn try_collect<T>(n: usize, from: impl Iterator<Item = T>) -> Result<Vec<T>, VocabError> {
    let mut list = try_with_capacity(n)?;
    list.extend(from.take(n));
    Ok(list)
}
