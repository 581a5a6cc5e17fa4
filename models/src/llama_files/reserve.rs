//! Fallible allocation of lists whose sizes a file tells.

use super::Error;
use alloc::vec::Vec;

/// Reserve room in `list` for `n` more entries.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocator refuses.
pub(super) fn for_more<T>(list: &mut Vec<T>, n: usize) -> Result<(), Error> {
    let refused = |_| Error::OutOfMemory { bytes: (n as u64).saturating_mul(size_of::<T>() as u64) };
    list.try_reserve(n).map_err(refused)
}

/// Return a list of `len` copies of `value`.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocator refuses.
pub(super) fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    for_more(&mut list, len)?;
    list.resize(len, value);
    Ok(list)
}
