//! Fallible allocation of lists: [`Error::OutOfMemory`] instead of an abort if the allocator
//! refuses.
//!
//! Sizes come from the caller's parameters and from files, so a refusal is an ordinary error here.

use crate::error::Error;
use alloc::vec::Vec;

/// Reserve room in `list` for `len` entries in total.
pub(crate) fn for_len<T>(list: &mut Vec<T>, len: usize) -> Result<(), Error> {
    let refused = |_| Error::OutOfMemory { bytes: (len as u64).saturating_mul(size_of::<T>() as u64) };
    list.try_reserve_exact(len.saturating_sub(list.len())).map_err(refused)
}

/// Reserve room in `list` for `n` more entries, with spare room as `Vec` grows.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocator refuses.
pub fn for_more<T>(list: &mut Vec<T>, n: usize) -> Result<(), Error> {
    let refused = |_| Error::OutOfMemory { bytes: (n as u64).saturating_mul(size_of::<T>() as u64) };
    list.try_reserve(n).map_err(refused)
}

/// Return an empty list with room for `len` entries.
pub(crate) fn with_room<T>(len: usize) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    for_len(&mut list, len)?;
    Ok(list)
}

/// Return a list of `len` copies of `value`.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocator refuses.
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, Error> {
    let mut list = with_room(len)?;
    list.resize(len, value);
    Ok(list)
}

/// Return a list of `len` zeros, which the system maps when they are first written.
pub(crate) fn zeroed(len: u64) -> Result<Vec<f32>, Error> {
    let refused = Error::OutOfMemory { bytes: len.saturating_mul(4) };
    let len = usize::try_from(len).map_err(|_| refused)?;
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| refused)
}
