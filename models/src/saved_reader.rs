//! The reader of what this crate saves: lists of numbers behind headers, little-endian.
//!
//! Numbers are copied as they are; `pack.rs` refuses machines of another byte order.

use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::io::{ByteReader, EndOfBytes};
use bytemuck::{Pod, allocation::try_zeroed_vec};

/// Reads saved bytes in order. Lists take no more memory than the bytes that are there justify.
pub(crate) struct SavedReader<'a> {
    /// The kind of bytes, for errors.
    what: &'static str,
    bytes: ByteReader<'a>,
}

impl<'a> SavedReader<'a> {
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        SavedReader { what, bytes: ByteReader::new(bytes) }
    }

    /// Read `N` numbers, after which nothing follows.
    pub fn exactly<T: Pod, const N: usize>(what: &'static str, bytes: &[u8]) -> Result<[T; N], Error> {
        let mut from = SavedReader::new(what, bytes);
        let numbers = from.array()?;
        from.end()?;
        Ok(numbers)
    }

    /// Return the number of bytes that were not read yet.
    pub fn left(&self) -> u64 {
        self.bytes.left()
    }

    /// Take the next `n` bytes.
    pub fn take(&mut self, n: u64) -> Result<&'a [u8], Error> {
        let what = self.what;
        self.bytes.take(n).map_err(|EndOfBytes { offset, need, have }| Error::SavedLength {
            what,
            found: offset + have,
            wanted: offset.saturating_add(need),
        })
    }

    /// Read the next `N` numbers.
    pub fn array<T: Pod, const N: usize>(&mut self) -> Result<[T; N], Error> {
        Ok(bytemuck::pod_read_unaligned(self.take(size_of::<[T; N]>() as u64)?))
    }

    /// Read a list of the next `n` numbers.
    pub fn list<T: Pod>(&mut self, n: u64) -> Result<Vec<T>, Error> {
        let n_bytes = n.saturating_mul(size_of::<T>() as u64);
        let bytes = self.take(n_bytes)?;
        // As many bytes are in memory, so `n` is a usize.
        let list = try_zeroed_vec::<T>(n as usize);
        let mut list = list.map_err(|()| Error::OutOfMemory { what: self.what, n_bytes })?;
        bytemuck::must_cast_slice_mut(&mut list).copy_from_slice(bytes);
        Ok(list)
    }

    /// Read a list of all numbers that are left.
    pub fn rest<T: Pod>(&mut self) -> Result<Vec<T>, Error> {
        self.list(self.left().div_ceil(size_of::<T>() as u64))
    }

    /// Check that nothing follows.
    pub fn end(&self) -> Result<(), Error> {
        match self.left() {
            0 => Ok(()),
            left => {
                let (what, wanted) = (self.what, self.bytes.offset());
                Err(Error::SavedLength { what, found: wanted + left, wanted })
            }
        }
    }

    /// Return the error that the number at `offset` is `found`.
    pub fn wrong(&self, offset: u64, found: impl Into<u64>, wanted: &'static str) -> Error {
        Error::SavedValue { what: self.what, offset, found: found.into(), wanted }
    }
}
