//! Numbers and bytes of a file in order, each checked against what is left.

use super::{Error, Section, Wanted};

/// A place in a file.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What is being read, for errors.
    pub section: Section,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0, section: Section::Header }
    }

    /// The byte that is read next.
    pub fn offset(&self) -> u64 {
        self.at as u64
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// Checks that `n` things of at least `least` bytes each can follow.
    pub fn ensure(&self, n: u64, least: u64, field: &'static str) -> Result<(), Error> {
        let (need, have) = (n.saturating_mul(least), self.left());
        if need <= have {
            return Ok(());
        }
        Err(Error::Truncated { section: self.section, field, offset: self.offset(), need, have })
    }

    pub fn bytes(&mut self, n: u64, field: &'static str) -> Result<&'a [u8], Error> {
        self.ensure(n, 1, field)?;
        // It is no more than what is left, which is a usize.
        let (start, n) = (self.at, n as usize);
        self.at += n;
        Ok(&self.bytes[start..start + n])
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N as u64, field)?);
        Ok(array)
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub fn i32(&mut self, field: &'static str) -> Result<i32, Error> {
        Ok(i32::from_le_bytes(self.array(field)?))
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// The error that the number of `size` bytes that was just read is `found`.
    pub fn wrong(&self, field: &'static str, size: u64, found: impl Into<i128>, wanted: Wanted) -> Error {
        let offset = self.offset().saturating_sub(size);
        Error::Field { section: self.section, field, offset, found: found.into(), wanted }
    }

    /// A number that can only be `wanted`.
    pub fn exactly(&mut self, field: &'static str, wanted: u32) -> Result<(), Error> {
        let found = self.u32(field)?;
        if found == wanted {
            Ok(())
        } else {
            Err(self.wrong(field, 4, found, Wanted::Exactly(wanted.into())))
        }
    }

    /// A number of 64 bits that can only be `wanted`.
    pub fn exactly_u64(&mut self, field: &'static str, wanted: u64) -> Result<(), Error> {
        let found = self.u64(field)?;
        if found == wanted { Ok(()) } else { Err(self.wrong(field, 8, found, Wanted::Exactly(wanted))) }
    }

    /// A number of `least..end`.
    pub fn between(&mut self, field: &'static str, least: u32, end: u32) -> Result<u32, Error> {
        let found = self.i32(field)?;
        match u32::try_from(found) {
            Ok(n) if (least..end).contains(&n) => Ok(n),
            _ => Err(self.wrong(field, 4, found, Wanted::Between(least.into(), end.into()))),
        }
    }

    /// Checks that nothing follows.
    pub fn finish(&self) -> Result<(), Error> {
        match self.left() {
            0 => Ok(()),
            n_bytes => Err(Error::Trailing { offset: self.offset(), n_bytes }),
        }
    }
}
