//! A position in the bytes of a file that knows what it is reading, so that every error can say so.

use alloc::boxed::Box;
use alloc::format;

use crate::error::{Error, Place};

/// The longest name of a key or tensor. The format document sets this for keys; tensors have no reason to exceed it.
pub(super) const MAX_NAME: usize = 65_535;

/// What the current bytes belong to.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    /// Something that is alone of its kind.
    None,
    /// The n-th key or tensor, before its name is known.
    Number(u64),
    Name(&'a str),
}

/// Reads little-endian values in order and never beyond the end.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    place: Place,
    subject: Subject<'a>,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, place: Place::Header, subject: Subject::None }
    }

    /// Says what the next bytes are.
    pub(super) const fn enter(&mut self, place: Place, subject: Subject<'a>) {
        self.place = place;
        self.subject = subject;
    }

    /// Bytes read so far.
    pub(super) const fn offset(&self) -> u64 {
        self.at as u64
    }

    /// The name of what is being read, for errors.
    pub(super) fn name(&self) -> Box<str> {
        match self.subject {
            Subject::None => Box::default(),
            Subject::Number(n) => format!("#{n}").into(),
            Subject::Name(name) => name.into(),
        }
    }

    /// Bytes not yet read.
    pub(super) const fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..n));
        let taken = taken.ok_or_else(|| self.truncated(n as u64))?;
        self.at += n;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let chunk = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        let chunk = *chunk.ok_or_else(|| self.truncated(N as u64))?;
        self.at += N;
        Ok(chunk)
    }

    pub(super) fn magic(&mut self) -> Result<[u8; 4], Error> {
        self.chunk()
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.chunk().map(u64::from_le_bytes)
    }

    /// A number of things that follow, each at least `min_bytes` long: never more than the file has room for.
    pub(super) fn count(&mut self, min_bytes: usize) -> Result<usize, Error> {
        self.count_up_to(min_bytes, usize::MAX)
    }

    /// The same, and never more than `most`.
    pub(super) fn count_up_to(&mut self, min_bytes: usize, most: usize) -> Result<usize, Error> {
        let offset = self.offset();
        let found = self.u64()?;
        let limit = most.min(self.left() / min_bytes);
        match usize::try_from(found) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(Error::TooMany {
                place: self.place,
                name: self.name(),
                offset,
                found,
                limit: limit as u64,
            }),
        }
    }

    /// A text after its length.
    pub(super) fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.u64()?;
        let length = usize::try_from(length).map_err(|_| self.truncated(length))?;
        let offset = self.offset();
        let bytes = self.take(length)?;
        core::str::from_utf8(bytes).map_err(|error| Error::Utf8 {
            place: self.place,
            name: self.name(),
            offset: offset + error.valid_up_to() as u64,
        })
    }

    /// The name of a key or tensor after its length.
    pub(super) fn name_text(&mut self) -> Result<&'a str, Error> {
        let offset = self.offset();
        let mut ahead = Cursor { subject: self.subject, ..*self };
        let found = ahead.u64()?;
        let limit = MAX_NAME as u64;
        if (1..=limit).contains(&found) {
            return self.text();
        }
        Err(Error::NameLength { place: self.place, name: self.name(), offset, found, limit })
    }

    fn truncated(&self, need: u64) -> Error {
        Error::Truncated {
            place: self.place,
            name: self.name(),
            offset: self.offset(),
            need,
            have: self.left() as u64,
        }
    }
}
