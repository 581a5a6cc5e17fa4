//! The bytes of a container, in memory or on a device that is read piece by piece, and the sections
//! in them.

use super::checksum::{Checksum, checksum};
use super::codec::decompress;
use super::layout::verify;
use super::limits::{MAX_READ, expect_at_most, zeroed};
use super::section::{Codec, Section, len_of};
use crate::io::ReadAt;
use crate::storage::error::Error;
use crate::storage::header::Tag;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use bytemuck::Pod;
use core::fmt;

/// Bytes that are moved at a time: from a device every step is a call of the system, and what it
/// has brought should be in the second cache when it is summed. Of a cached file, steps of 16 KiB
/// were a tenth slower, and so was a mapping.
const STEP: usize = 128 << 10;

/// The bytes of a container.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// In memory.
    Slice(&'a [u8]),
    /// On a device.
    Device(&'a dyn ReadAt),
}

impl<'a> Source<'a> {
    /// Return the number of bytes that there are now.
    pub(super) fn len(&self) -> Result<u64, Error> {
        match self {
            Self::Slice(bytes) => Ok(bytes.len() as u64),
            Self::Device(device) => Ok(device.len()?),
        }
    }

    /// Fill `into` with the bytes from `offset` on, which are part of `section`.
    pub(super) fn fill(&self, section: Tag, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let wanted = into.len() as u64;
        let found = match self {
            Self::Slice(bytes) => slice_of(bytes, offset, wanted).map(|from| into.copy_from_slice(from)),
            Self::Device(device) => (device.read_at(offset, into)? as u64 == wanted).then_some(()),
        };
        found.ok_or_else(|| self.cut(section, offset, wanted))
    }

    /// Return the error for bytes that are not there.
    fn cut(&self, section: Tag, offset: u64, len: u64) -> Error {
        let need = offset.saturating_add(len);
        // A device may have grown meanwhile; what it did not give was not there.
        let truncated = |have: u64| Error::Truncated { section, offset, need, have: have.min(need) };
        self.len().map_or_else(|error| error, truncated)
    }

    /// Read a part of fixed size at `offset`.
    pub(super) fn part<T: Pod>(&self, section: Tag, offset: u64) -> Result<T, Error> {
        let mut part = T::zeroed();
        self.fill(section, offset, bytemuck::bytes_of_mut(&mut part))?;
        Ok(part)
    }

    /// Read `len` bytes from `offset`, which the caller has bounded.
    pub(super) fn bytes(&self, section: Tag, offset: u64, len: u64) -> Result<Cow<'a, [u8]>, Error> {
        if let Self::Slice(bytes) = self {
            let bytes = slice_of(bytes, offset, len).map(Cow::Borrowed);
            return bytes.ok_or_else(|| self.cut(section, offset, len));
        }
        let mut bytes = zeroed(len)?;
        self.fill(section, offset, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Return `len` bytes from `offset`, in place or read into the front of `space`, which grows to
    /// that.
    fn view<'s>(
        &'s self,
        tag: Tag,
        offset: u64,
        len: u64,
        space: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], Error> {
        if let Self::Slice(bytes) = self {
            return slice_of(bytes, offset, len).ok_or_else(|| self.cut(tag, offset, len));
        }
        if (space.len() as u64) < len {
            *space = zeroed(len)?;
        }
        let (bytes, _) = space.split_at_mut(len as usize);
        self.fill(tag, offset, bytes).map(|()| &*bytes)
    }

    /// Read the content of a section of at most `limit` bytes, and check it. Nothing is allocated
    /// for one that has more.
    pub(in crate::storage) fn read(&self, section: &Section, limit: u64) -> Result<Cow<'a, [u8]>, Error> {
        let what = "bytes of a section that is read at once";
        expect_at_most(what, section.raw_len.max(section.stored_len), limit)?;
        let stored = self.bytes(section.tag, section.offset, section.stored_len)?;
        let content = match section.codec {
            Codec::RAW => stored,
            _ => Cow::Owned(decompress(section, &stored)?),
        };
        verify(section.tag, section.offset, section.checksum, checksum(&content))?;
        Ok(content)
    }

    /// Copy the content of a section to `targets`, one after the other, and check the bytes that
    /// have arrived there.
    pub(in crate::storage) fn read_into(
        &self,
        section: &Section,
        targets: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        section.expect_len(targets.iter().map(|target| target.len() as u64).sum())?;
        if section.codec != Codec::RAW {
            let content = self.read(section, MAX_READ)?;
            let mut rest = &*content;
            for target in targets {
                let (front, behind) = rest.split_at(target.len());
                target.copy_from_slice(front);
                rest = behind;
            }
            return Ok(());
        }
        let (mut sum, mut offset) = (Checksum::new(), section.offset);
        for to in targets.iter_mut().flat_map(|target| target.chunks_mut(STEP)) {
            let len = to.len() as u64;
            match self {
                Self::Slice(_) => sum.add_copied(&self.bytes(section.tag, offset, len)?, to),
                Self::Device(_) => {
                    self.fill(section.tag, offset, to)?;
                    sum.add(to);
                }
            }
            offset = offset.saturating_add(len);
        }
        verify(section.tag, section.offset, section.checksum, sum.value())
    }

    /// Check the content of a section, without memory for one that is not compressed.
    pub(in crate::storage) fn check(&self, section: &Section) -> Result<(), Error> {
        if section.codec != Codec::RAW {
            return self.read(section, MAX_READ).map(drop);
        }
        let (mut sum, mut space, mut offset) = (Checksum::new(), Vec::new(), section.offset);
        while offset < section.end() {
            let len = (section.end() - offset).min(STEP as u64);
            sum.add(self.view(section.tag, offset, len, &mut space)?);
            offset += len;
        }
        verify(section.tag, section.offset, section.checksum, sum.value())
    }

    /// Return true if the content of a section is `pieces`, one after the other. Damaged content is
    /// not.
    pub(super) fn holds<P: AsRef<[u8]>>(&self, section: &Section, pieces: &[P]) -> bool {
        if section.codec != Codec::RAW {
            let raw = Section { codec: Codec::RAW, offset: 0, ..*section };
            let content = self.read(section, MAX_READ);
            return content.is_ok_and(|content| Source::Slice(&content).holds(&raw, pieces));
        }
        let (mut space, mut offset) = (Vec::new(), section.offset);
        let is_next = |wanted: &[u8]| {
            let found = self.view(section.tag, offset, wanted.len() as u64, &mut space);
            offset = offset.saturating_add(wanted.len() as u64);
            found.is_ok_and(|found| found == wanted)
        };
        section.raw_len == len_of(pieces)
            && pieces.iter().flat_map(|piece| piece.as_ref().chunks(STEP)).all(is_next)
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

/// Return `len` bytes from `offset`, if they are there.
fn slice_of(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    bytes.get(start..end)
}
