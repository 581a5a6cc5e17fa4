//! Where a container lies: in memory, or on a device that is read piece by piece.

use super::{Error, Tag};
use crate::io::ReadAt;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use bytemuck::Pod;
use bytemuck::allocation::try_zeroed_vec;
use core::fmt;

/// Bytes that are copied and checked at a time: both halves of the work meet them in the nearest cache.
const SLICE_STEP: usize = 4 << 10;
/// The same for devices, where every step is a call of the system: as much as stays in the second cache. Of a cached file, steps of 16 KiB were a tenth
/// slower, and so was a mapping.
const DEVICE_STEP: usize = 128 << 10;

/// Bytes that are taken from a device into memory of their own, at most. A file can be said to be long without filling any disk, and directories and
/// what is read whole are far shorter; what is long goes where it belongs, piece by piece.
const MAX_OWNED: u64 = 1 << 30;

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

    /// Bytes to move at a time.
    pub fn step(&self) -> usize {
        match self {
            Self::Slice(_) => SLICE_STEP,
            Self::Device(_) => DEVICE_STEP,
        }
    }

    /// Fills `into` with what stands from `offset` on, which is part of `section`.
    pub fn fill(&self, section: Tag, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let found = match self {
            Self::Slice(bytes) => copy_from(bytes, offset, into),
            Self::Device(device) => device.read_at(offset, into)?,
        };
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

    /// `len` bytes from `offset`, which the caller has found to lie within the length of the source; from a device at most 1 GiB.
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
                if len > MAX_OWNED {
                    let what = "bytes that are read at once";
                    return Err(Error::TooLarge { what, value: len, limit: MAX_OWNED });
                }
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
        let step = len.min(DEVICE_STEP as u64);
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

/// Copies what stands from `offset` on as far as it goes; tells how far.
fn copy_from(bytes: &[u8], offset: u64, into: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
    let n = rest.len().min(into.len());
    if let (Some(to), Some(from)) = (into.get_mut(..n), rest.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}
