//! A state file for reading.

use crate::file::{open_regular, read_at};
use crate::io::{self, ReadAt};
use crate::storage::container::Container;
use crate::storage::error::{Error, Operation};
use std::boxed::Box;
use std::format;
use std::fs::File;
use std::path::Path;

/// A state file, opened for reading.
///
/// It is read piece by piece, straight to where the bytes belong, and not mapped. A restore so
/// copies every byte once, as it would from a mapping, but nothing that other processes do to the
/// file can harm this one: bytes that are cut off are an error, where under a mapping they would
/// kill the process, and every byte is checked after it has arrived, when nobody else can change it
/// any more. Somebody who saves to the same path meanwhile does no harm either: bytes that count
/// are never overwritten in place.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    path: Box<Path>,
}

impl StateFile {
    /// Open the file at `path`; reads nothing yet.
    ///
    /// # Errors
    /// [`Error::File`]: nothing there, a directory, a pipe or device, an empty file, or what the
    /// system says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let (file, _) = open_regular(path).map_err(|problem| Error::file(Operation::Open, path, problem))?;
        Ok(Self { file, path: path.into() })
    }

    /// Return the container in it.
    ///
    /// # Errors
    /// As [`Container::open`].
    pub fn container(&self) -> Result<Container<'_>, Error> {
        Container::open(self)
    }

    /// Return the system's words, with the path.
    fn named(&self, error: std::io::Error) -> io::Error {
        io::Error::System(std::io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}

impl ReadAt for StateFile {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| self.named(error))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, io::Error> {
        read_at(&self.file, offset, bytes).map_err(|error| self.named(error))
    }
}
