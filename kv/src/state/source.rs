//! Where a container lies: in memory, or on a device that is read piece by piece.

use super::checksum::Checksum;
use super::limits::{MAX_READ, expect_at_most};
use super::{Error, Tag};
use crate::io::ReadAt;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use bytemuck::Pod;
use bytemuck::allocation::try_zeroed_vec;
use core::fmt;

/// Bytes of a device that are shown at a time.
const SHOWN: usize = 128 << 10;

/// Where a container lies.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// In memory.
    Slice(&'a [u8]),
    /// On a device.
    Device(&'a dyn ReadAt),
}

impl<'a> Source<'a> {
    /// How many bytes there are now.
    pub fn len(&self) -> Result<u64, Error> {
        match self {
            Self::Slice(bytes) => Ok(bytes.len() as u64),
            Self::Device(device) => Ok(device.len()?),
        }
    }

    /// Fills `into` with what stands from `offset` on, which is part of `section`.
    pub fn fill(&self, section: Tag, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let found = match self {
            Self::Slice(bytes) => {
                let (from, to) = overlap(bytes, offset, into);
                to.copy_from_slice(from);
                from.len()
            }
            Self::Device(device) => device.read_at(offset, into)?,
        };
        self.expect_filled(section, offset, into, found)
    }

    /// The same, and adds what has arrived to `sum`. From a slice both happen at once.
    pub fn fill_summed(
        &self,
        section: Tag,
        offset: u64,
        into: &mut [u8],
        sum: &mut Checksum,
    ) -> Result<(), Error> {
        if let Self::Slice(bytes) = self {
            let (from, to) = overlap(bytes, offset, into);
            sum.add_copied(from, to);
            let found = from.len();
            return self.expect_filled(section, offset, into, found);
        }
        self.fill(section, offset, into)?;
        sum.add(into);
        Ok(())
    }

    fn expect_filled(&self, section: Tag, offset: u64, into: &[u8], found: usize) -> Result<(), Error> {
        let wanted = into.len() as u64;
        if found as u64 == wanted {
            return Ok(());
        }
        let (need, have) = (offset.saturating_add(wanted), offset.saturating_add(found as u64));
        Err(Error::Truncated { section, offset, need, have: have.min(self.len()?) })
    }

    /// A part of fixed size at `offset`.
    pub fn part<T: Pod>(&self, section: Tag, offset: u64) -> Result<T, Error> {
        let mut part = T::zeroed();
        self.fill(section, offset, bytemuck::bytes_of_mut(&mut part))?;
        Ok(part)
    }

    /// `len` bytes from `offset`, which the caller has found to lie within the length of the source; from a device at most [`MAX_READ`].
    pub fn bytes(&self, section: Tag, offset: u64, len: u64) -> Result<Cow<'a, [u8]>, Error> {
        let cut = || Error::Truncated {
            section,
            offset,
            need: offset.saturating_add(len),
            have: self.len().unwrap_or_default(),
        };
        match self {
            Self::Slice(bytes) => slice_of(bytes, offset, len).map(Cow::Borrowed).ok_or_else(cut),
            Self::Device(_) => {
                expect_at_most("bytes that are read at once", len, MAX_READ)?;
                let refused = Error::OutOfMemory { bytes: len };
                let mut bytes = Vec::new();
                let n = usize::try_from(len).map_err(|_| cut())?;
                bytes.try_reserve_exact(n).map_err(|_| refused)?;
                bytes.resize(n, 0);
                self.fill(section, offset, &mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Shows `len` bytes from `offset` to `take`, some at a time and in order, until it says that it has seen enough.
    pub fn show(
        &self,
        section: Tag,
        offset: u64,
        len: u64,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        if let Self::Slice(_) = self {
            take(&self.bytes(section, offset, len)?);
            return Ok(());
        }
        let step = len.min(SHOWN as u64);
        let refused = Error::OutOfMemory { bytes: step };
        let mut space: Vec<u8> = try_zeroed_vec(step as usize).map_err(|()| refused)?;
        let (mut offset, mut left) = (offset, len);
        while left > 0 {
            let n = left.min(step);
            let bytes = space.get_mut(..n as usize).unwrap_or_default();
            self.fill(section, offset, bytes)?;
            if !take(bytes) {
                break;
            }
            (offset, left) = (offset.saturating_add(n), left - n);
        }
        Ok(())
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slice(_) => "Slice",
            Self::Device(_) => "Device",
        })
    }
}

/// `len` bytes from `offset`, if they are there.
fn slice_of(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    bytes.get(start..end)
}

/// What stands from `offset` on and the room for it, as far as both go.
fn overlap<'a>(bytes: &'a [u8], offset: u64, into: &'a mut [u8]) -> (&'a [u8], &'a mut [u8]) {
    let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
    let n = rest.len().min(into.len());
    (rest.get(..n).unwrap_or_default(), into.get_mut(..n).unwrap_or_default())
}
