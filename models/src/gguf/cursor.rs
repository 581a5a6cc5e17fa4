//! A position in the bytes of a file, with the region and the name of what is being read there.
//!
//! The reader tells the cursor what it is about to read ([`Cursor::enter`]). Every error of the
//! cursor then names the region, the key or tensor, and the offset, without the reader passing them
//! along.

use alloc::boxed::Box;
use alloc::format;

use crate::error::{Error, Region};
use backstitch_kv::io::{ByteReader, EndOfBytes};

/// The longest name of a key or tensor, in bytes. The format document sets this limit for keys; the
/// reader applies it to tensors too.
pub(super) const MAX_NAME: usize = 65_535;

/// The key or tensor that the current bytes belong to.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    /// The header, of which there is one.
    None,
    /// The n-th key or tensor, from 0, before its name is known.
    Number(u64),
    /// The key or tensor of this name.
    Name(&'a str),
}

/// A reader of little-endian values in order, which never goes beyond the end of the bytes.
pub(super) struct Cursor<'a> {
    bytes: ByteReader<'a>,
    region: Region,
    subject: Subject<'a>,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: ByteReader::new(bytes), region: Region::Header, subject: Subject::None }
    }

    /// Set the region and the subject of the bytes that follow.
    pub(super) const fn enter(&mut self, region: Region, subject: Subject<'a>) {
        self.region = region;
        self.subject = subject;
    }

    /// Return the number of bytes read so far.
    pub(super) const fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    /// Return the name of the subject for errors; empty for the header.
    pub(super) fn name(&self) -> Box<str> {
        match self.subject {
            Subject::None => Box::default(),
            Subject::Number(n) => format!("#{n}").into(),
            Subject::Name(name) => name.into(),
        }
    }

    /// Return the number of bytes not read yet.
    pub(super) const fn left(&self) -> usize {
        // No more than the bytes that there are.
        self.bytes.left() as usize
    }

    /// Return the next `n` bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left.
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let taken = self.bytes.take(n as u64);
        self.named(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let chunk = self.bytes.array();
        self.named(chunk)
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

    /// Read the number of items that follow, each at least `min_bytes` long.
    ///
    /// # Errors
    /// [`Error::TooMany`] if the rest of the file cannot hold that many; [`Error::Truncated`].
    pub(super) fn count(&mut self, min_bytes: usize) -> Result<usize, Error> {
        self.count_up_to(min_bytes, usize::MAX)
    }

    /// Read the number of items that follow, as [`Cursor::count`], and refuse more than `most`.
    ///
    /// # Errors
    /// [`Error::TooMany`] if the rest of the file cannot hold that many, or if there are more than
    /// `most`; [`Error::Truncated`].
    pub(super) fn count_up_to(&mut self, min_bytes: usize, most: usize) -> Result<usize, Error> {
        let offset = self.offset();
        let found = self.u64()?;
        let limit = most.min(self.left() / min_bytes);
        match usize::try_from(found) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(Error::TooMany {
                region: self.region,
                name: self.name(),
                offset,
                found,
                limit: limit as u64,
            }),
        }
    }

    /// Read a string: its length in bytes (u64), then the bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`], and [`Error::Utf8`] at the first invalid byte.
    pub(super) fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.u64()?;
        let offset = self.offset();
        let bytes = self.bytes.take(length);
        let bytes = self.named(bytes)?;
        core::str::from_utf8(bytes).map_err(|error| Error::Utf8 {
            region: self.region,
            name: self.name(),
            offset: offset + error.valid_up_to() as u64,
        })
    }

    /// Read the name of a key or tensor, a string.
    ///
    /// # Errors
    /// [`Error::NameLength`] if it is empty or longer than [`MAX_NAME`]; as [`Cursor::text`].
    pub(super) fn name_text(&mut self) -> Result<&'a str, Error> {
        let offset = self.offset();
        let mut ahead = Cursor { subject: self.subject, ..*self };
        let found = ahead.u64()?;
        let limit = MAX_NAME as u64;
        if (1..=limit).contains(&found) {
            return self.text();
        }
        Err(Error::NameLength { region: self.region, name: self.name(), offset, found, limit })
    }

    fn named<T>(&self, read: Result<T, EndOfBytes>) -> Result<T, Error> {
        read.map_err(|EndOfBytes { offset, need, have }| Error::Truncated {
            region: self.region,
            name: self.name(),
            offset,
            need,
            have,
        })
    }
}
