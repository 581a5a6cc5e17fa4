//! The one reader of little-endian numbers in bytes that nobody has checked yet.
//!
//! Parsers of GGUF, of containers' sections and of llama.cpp's files each wrap a [`ByteReader`] and
//! add what they know for their errors: which section or key the bytes belong to.

/// Reads numbers and bytes in order, and never beyond the end.
///
/// Nothing is allocated, and a length that a file claims is compared with the bytes that are left
/// before it is used.
///
/// ```
/// use backstitch_kv::io::ByteReader;
///
/// let mut reader = ByteReader::new(&[2, 0, 0, 0, 7, 8]);
/// let n = reader.u32()?;
/// reader.ensure(n.into(), 1)?;
/// assert_eq!(reader.take(n.into())?, [7, 8]);
/// assert_eq!(reader.u8().unwrap_err().offset, 6);
/// # Ok::<(), backstitch_kv::io::EndOfBytes>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The bytes end before what should follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{need} bytes needed at {offset}, {have} left; the file is cut off or damaged")]
pub struct EndOfBytes {
    /// Offset at which it should begin.
    pub offset: u64,
    /// Bytes that it takes.
    pub need: u64,
    /// Bytes that are left there.
    pub have: u64,
}

impl<'a> ByteReader<'a> {
    /// Begin at the first of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Return the number of bytes that were read.
    pub const fn offset(&self) -> u64 {
        self.at as u64
    }

    /// Return the number of bytes that were not read yet.
    pub const fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// Check that `n` things of at least `least` bytes each can follow.
    ///
    /// # Errors
    /// [`EndOfBytes`] if they would take more bytes than are left.
    pub const fn ensure(&self, n: u64, least: u64) -> Result<(), EndOfBytes> {
        let (need, have) = (n.saturating_mul(least), self.left());
        if need <= have { Ok(()) } else { Err(EndOfBytes { offset: self.offset(), need, have }) }
    }

    /// Take the next `n` bytes.
    ///
    /// # Errors
    /// [`EndOfBytes`] if fewer are left.
    pub fn take(&mut self, n: u64) -> Result<&'a [u8], EndOfBytes> {
        self.ensure(n, 1)?;
        // No more than what is left, so it is a usize.
        let (_, rest) = self.bytes.split_at(self.at);
        let (taken, _) = rest.split_at(n as usize);
        self.at += taken.len();
        Ok(taken)
    }

    /// Take the next `N` bytes.
    ///
    /// # Errors
    /// [`EndOfBytes`] if fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], EndOfBytes> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    /// Read the next byte.
    ///
    /// # Errors
    /// [`EndOfBytes`] if none is left.
    pub fn u8(&mut self) -> Result<u8, EndOfBytes> {
        self.array().map(u8::from_le_bytes)
    }

    /// Read the next 4 bytes as a number without sign.
    ///
    /// # Errors
    /// [`EndOfBytes`] if fewer are left.
    pub fn u32(&mut self) -> Result<u32, EndOfBytes> {
        self.array().map(u32::from_le_bytes)
    }

    /// Read the next 4 bytes as a number with sign.
    ///
    /// # Errors
    /// [`EndOfBytes`] if fewer are left.
    pub fn i32(&mut self) -> Result<i32, EndOfBytes> {
        self.array().map(i32::from_le_bytes)
    }

    /// Read the next 8 bytes as a number without sign.
    ///
    /// # Errors
    /// [`EndOfBytes`] if fewer are left.
    pub fn u64(&mut self) -> Result<u64, EndOfBytes> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_little_endian_and_never_beyond_the_end() {
        let bytes: [u8; 18] = core::array::from_fn(|i| i as u8 + 1);
        let mut reader = ByteReader::new(&bytes);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u32(), Ok(0x0504_0302));
        assert_eq!(reader.u64(), Ok(0x0d0c_0b0a_0908_0706));
        assert_eq!(reader.i32(), Ok(0x1110_0f0e));
        for need in [2, u64::MAX] {
            assert_eq!(reader.take(need), Err(EndOfBytes { offset: 17, need, have: 1 }));
        }
        assert_eq!(reader.ensure(u64::MAX, u64::MAX).unwrap_err().need, u64::MAX);
        assert_eq!((reader.take(1), reader.left()), (Ok(&[18][..]), 0));
        assert_eq!(reader.take(0), Ok(&[][..]));
    }
}
