//! Writing a file in large pieces.

use super::DiskFile;
use crate::io::{self, Write};
use crate::storage::error::{Error, Operation};
use std::io::IoSlice;
use std::path::Path;
use std::vec::Vec;

/// Bytes that are gathered before they are written, and from which on pieces are not gathered.
const GATHERED: usize = 64 << 10;

/// Writes to a file in large pieces, and keeps the system's error until the path can be named with
/// it.
pub(in crate::storage) struct FileWriter<'a> {
    file: &'a dyn DiskFile,
    at: u64,
    gathered: Vec<u8>,
    failed: Option<std::io::Error>,
}

impl<'a> FileWriter<'a> {
    /// Write to `file` from `at` on.
    pub fn new(file: &'a dyn DiskFile, at: u64) -> Self {
        Self { file, at, gathered: Vec::new(), failed: None }
    }

    /// Write what was gathered and `pieces`, at once.
    fn put(&mut self, pieces: &[&[u8]]) -> Result<(), io::Error> {
        let slices = core::iter::once(&*self.gathered).chain(pieces.iter().copied()).map(IoSlice::new);
        let mut slices: Vec<IoSlice<'_>> = slices.filter(|slice| !slice.is_empty()).collect();
        let len = slices.iter().map(|slice| slice.len() as u64).fold(0, u64::saturating_add);
        if let Err(error) = self.file.write_pieces_at(self.at, &mut slices) {
            let kind = error.kind();
            self.failed = Some(error);
            return Err(io::Error::System(kind.into()));
        }
        self.at = self.at.saturating_add(len);
        self.gathered.clear();
        Ok(())
    }

    /// Write what is left, unless something failed before. `written` is what came of the writing so
    /// far.
    ///
    /// # Errors
    /// [`Error::File`] with `path` if the disk refused, else that of `written`.
    pub fn end<T>(mut self, written: Result<T, Error>, path: &Path) -> Result<T, Error> {
        let written = written.and_then(|written| {
            self.put(&[])?;
            Ok(written)
        });
        match self.failed {
            Some(error) => Err(Error::file(Operation::Write, path, error)),
            None => written,
        }
    }
}

impl Write for FileWriter<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), io::Error> {
        self.write_pieces(&[bytes])
    }

    fn write_pieces(&mut self, pieces: &[&[u8]]) -> Result<(), io::Error> {
        let len = pieces.iter().map(|piece| piece.len()).fold(self.gathered.len(), usize::saturating_add);
        if len > GATHERED {
            return self.put(pieces);
        }
        let refused = io::Error::OutOfMemory { bytes: GATHERED as u64 };
        self.gathered.try_reserve_exact(GATHERED.saturating_sub(self.gathered.len())).map_err(|_| refused)?;
        pieces.iter().for_each(|piece| self.gathered.extend_from_slice(piece));
        Ok(())
    }
}
