//! The expected numbers of a golden file.

use super::golden::Array;
use super::report::Failure;
use alloc::format;
use alloc::vec::Vec;
use std::fs;
use std::path::Path;

/// The numbers of all arrays of a file.
pub(super) struct Expected(Vec<f32>);

impl Expected {
    /// Read the file of the numbers.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        Ok(Self(bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()))
    }

    /// Return a row of an array.
    pub(super) fn row(&self, array: &Array, row: usize) -> Result<&[f32], Failure> {
        let start = || (array.offset / 4).checked_add(row.checked_mul(array.cols)?);
        let numbers = || self.0.get(start()?..start()?.checked_add(array.cols)?);
        let numbers = numbers().filter(|_| row < array.rows && array.offset.is_multiple_of(4));
        numbers.ok_or_else(|| Failure(format!("row {row} of {} lies outside its file", array.name)))
    }
}
