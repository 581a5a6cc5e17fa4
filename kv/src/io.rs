//! Receivers and givers of bytes: two traits small enough to exist without `std`.
//!
//! With the feature `std`, everything that is [`std::io::Write`] and may be sent to another thread,
//! or [`std::io::Read`] has them; without it, a growing `Vec<u8>`, a slice to fill and a slice to
//! read have them.

mod reader;

use alloc::vec::Vec;

pub use reader::{ByteReader, EndOfBytes};

use crate::error::Size;

/// Takes bytes, in order; maybe from several threads, one at a time.
pub trait Write: Send {
    /// Take all of `bytes`.
    ///
    /// # Errors
    /// The error of the receiver; how much of `bytes` it took is unknown then.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error>;

    /// Take all of `pieces`, one after the other.
    ///
    /// # Errors
    /// As [`Write::write_all`].
    fn write_pieces(&mut self, pieces: &[&[u8]]) -> Result<(), Error> {
        pieces.iter().try_for_each(|piece| self.write_all(piece))
    }

    /// Return the room for the next `len` bytes, for the caller to fill instead of writing them:
    /// receivers that have all their room in memory give it, so that bytes can be copied and summed
    /// at once, and on several threads. All of it counts as taken.
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let _ = len;
        None
    }
}

/// Gives bytes, in order.
pub trait Read {
    /// Fill the front of `bytes`, and return how much; 0 of a slice that is not empty is the end.
    ///
    /// # Errors
    /// The error of the giver.
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Error>;
}

/// Bytes that can be read at any place: a file, a flash chip.
///
/// Bytes that were read once need not read the same again; users check the bytes that they got.
pub trait ReadAt: Sync {
    /// Return the number of bytes that there are now.
    ///
    /// # Errors
    /// The error of the device.
    fn len(&self) -> Result<u64, Error>;

    /// Return true if there are none.
    ///
    /// # Errors
    /// As [`ReadAt::len`].
    fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Fill the front of `bytes` with what stands from `offset` on, and return how much: less
    /// than all only at the end.
    ///
    /// # Errors
    /// The error of the device.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error>;
}

/// Why bytes could not be moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The receiver has no room for more.
    #[error("no room for {}, {} free; give a larger target", Size(*.need), Size(*.free))]
    Full {
        /// Bytes that it should have taken.
        need: u64,
        /// Bytes that it had room for.
        free: u64,
    },
    /// The allocator refused.
    #[error("no memory for {}; free some", Size(*.bytes))]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// An error of a device that is not the operating system's.
    #[error("{what} failed with code {code}")]
    Device {
        /// The operation that failed.
        what: &'static str,
        /// The device's own number for it.
        code: i64,
    },
    /// The system refused.
    #[cfg(feature = "std")]
    #[error(transparent)]
    System(#[from] std::io::Error),
}

#[cfg(feature = "std")]
impl<W: std::io::Write + Send + ?Sized> Write for W {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Ok(std::io::Write::write_all(self, bytes)?)
    }
}

#[cfg(feature = "std")]
impl<R: std::io::Read + ?Sized> Read for R {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        loop {
            match std::io::Read::read(self, bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => return Ok(other?),
            }
        }
    }
}

/// Takes bytes into a slice, from its front on: the fastest way to save to memory, where the number
/// of bytes is known or bounded.
///
/// ```
/// use backstitch_kv::io::{Space, Write};
///
/// let mut bytes = [0; 8];
/// let mut space = Space::new(&mut bytes);
/// space.write_all(&[1, 2, 3])?;
/// assert_eq!(space.free(), 5);
/// assert_eq!(bytes[..4], [1, 2, 3, 0]);
/// # Ok::<(), backstitch_kv::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Space<'a>(&'a mut [u8]);

impl<'a> Space<'a> {
    /// Nothing of `bytes` is taken yet.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Return the number of bytes that there is room for.
    pub fn free(&self) -> usize {
        self.0.len()
    }
}

impl Write for Space<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (need, free) = (bytes.len() as u64, self.0.len() as u64);
        self.room(bytes.len()).ok_or(Error::Full { need, free })?.copy_from_slice(bytes);
        Ok(())
    }

    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.split_off_mut(..len)
    }
}

#[cfg(not(feature = "std"))]
impl Write for Vec<u8> {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.try_reserve(bytes.len()).map_err(|_| Error::OutOfMemory { bytes: bytes.len() as u64 })?;
        self.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(not(feature = "std"))]
impl Write for &mut [u8] {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (need, free) = (bytes.len() as u64, self.len() as u64);
        self.split_off_mut(..bytes.len()).ok_or(Error::Full { need, free })?.copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(not(feature = "std"))]
impl Read for &[u8] {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        let n = bytes.len().min(self.len());
        if let (Some(into), Some(front)) = (bytes.get_mut(..n), self.split_off(..n)) {
            into.copy_from_slice(front);
        }
        Ok(n)
    }
}

/// Bytes asked for at first by [`read_to_end`].
const FIRST_READ: usize = 64 << 10;

/// Return all bytes that `source` still gives. The buffer grows with what has arrived, so a source
/// that promises much and gives little costs little.
///
/// # Errors
/// The error of the source, and [`Error::OutOfMemory`].
pub fn read_to_end(source: &mut dyn Read) -> Result<Vec<u8>, Error> {
    let (mut bytes, mut filled) = (Vec::new(), 0);
    loop {
        if filled >= bytes.len() {
            let step = filled.max(FIRST_READ);
            bytes.try_reserve(step).map_err(|_| Error::OutOfMemory { bytes: step as u64 })?;
            bytes.resize(filled + step, 0);
        }
        match source.read(bytes.split_at_mut(filled).1)? {
            0 => break,
            n => filled += n,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// Gives at most `step` bytes at a time, then fails if told to.
    struct Slow<'a> {
        rest: &'a [u8],
        step: usize,
        fails: bool,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
            if self.rest.is_empty() && self.fails {
                return Err(Error::Device { what: "flash", code: -5 });
            }
            let n = self.step.min(bytes.len());
            Read::read(&mut self.rest, &mut bytes[..n])
        }
    }

    #[test]
    fn all_bytes_arrive_whatever_the_steps_of_the_source() {
        for len in [0, 1, FIRST_READ - 1, FIRST_READ, FIRST_READ + 1, 5 * FIRST_READ] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            for step in [7, 4096, usize::MAX] {
                let mut source = Slow { rest: &bytes, step, fails: false };
                assert_eq!(read_to_end(&mut source).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn a_failing_source_is_an_error_and_not_an_end() {
        let mut source = Slow { rest: &[1; 100], step: 10, fails: true };
        let error = read_to_end(&mut source).unwrap_err();
        assert!(matches!(error, Error::Device { what: "flash", code: -5 }));
    }

    #[test]
    fn a_slice_takes_what_fits_and_refuses_the_rest() {
        let mut room = [0; 8];
        let mut target = &mut room[..];
        Write::write_all(&mut target, &[1, 2, 3]).unwrap();
        assert!(Write::write_all(&mut target, &[4; 6]).is_err());
        assert_eq!(room[..3], [1, 2, 3]);
        let mut grows = vec![9];
        Write::write_all(&mut grows, &[8]).unwrap();
        assert_eq!(grows, [9, 8]);
    }
}
