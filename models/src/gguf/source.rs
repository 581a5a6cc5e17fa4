//! The bytes of a model on disk: one file or all parts of a split one, mapped or read.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use std::path::{Path, PathBuf};

use backstitch_kv::file::{Buffer, Mapping};

use super::reader::Gguf;
use super::split::SplitName;
use crate::error::Error;

/// How to get at the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Map it: opens at once, shares memory between processes, and trusts them not to truncate the file ([`Mapping`]).
    Map,
    /// Read it: takes its size in memory and the time to read it, and trusts nobody ([`Buffer`]).
    Read,
}

/// The files of a model.
#[derive(Debug)]
pub struct Source {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapping),
    Read(Buffer),
}

impl Source {
    /// Opens the model at `path`. If the name is that of one part of a split model (`model-00001-of-00003.gguf`, any of
    /// them), opens all parts, which must lie in the same folder.
    ///
    /// # Errors
    /// [`Error::Io`] with the path of the file that cannot be opened.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, Error> {
        let paths = part_paths(path.as_ref());
        let parts = paths.into_iter().map(|path| Part::open(path, access));
        Ok(Self { parts: parts.collect::<Result<_, _>>()? })
    }

    /// Reads the header of all files and presents them as one.
    ///
    /// # Errors
    /// As [`Gguf::parse_parts`], inside [`Error::File`] with the path of the file that is wrong.
    pub fn gguf(&self) -> Result<Gguf<'_>, Error> {
        let parts: Vec<_> = self.parts.iter().map(|part| part.bytes.as_slice()).collect();
        Gguf::parse_parts(&parts).map_err(|error| self.with_path(error))
    }

    /// The paths of the files.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// The bytes of one file; none if there are not as many.
    pub fn bytes(&self, part: usize) -> Option<&[u8]> {
        self.parts.get(part).map(|part| part.bytes.as_slice())
    }

    /// The bytes of all files together.
    pub fn n_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.as_slice().len()).sum()
    }

    /// Lets go of the memory behind a range of a mapped file, once its data was copied elsewhere; see [`Mapping::release`]. Does nothing
    /// for files that were read.
    pub fn release(&self, part: usize, range: Range<usize>) {
        if let Some(Part { bytes: Bytes::Mapped(mapping), .. }) = self.parts.get(part) {
            mapping.release(range);
        }
    }

    /// Replaces the number of a part by its path.
    fn with_path(&self, error: Error) -> Error {
        let (part, source) = match error {
            Error::Part { part, source } => (part, source),
            error => (0, Box::new(error)),
        };
        match self.parts.get(part) {
            Some(Part { path, .. }) => Error::File { path: path.as_path().into(), source },
            None => Error::Part { part, source },
        }
    }
}

impl Part {
    fn open(path: PathBuf, access: Access) -> Result<Self, Error> {
        let bytes = match access {
            Access::Map => Bytes::Mapped(Mapping::open(&path)?),
            Access::Read => Bytes::Read(Buffer::read(&path)?),
        };
        Ok(Self { path, bytes })
    }
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Read(buffer) => buffer.bytes(),
        }
    }
}

/// The paths of all files of the model that `path` belongs to.
fn part_paths(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(SplitName::parse);
    match name {
        Some(name) => (0..name.count).map(|part| path.with_file_name(name.of_part(part))).collect(),
        None => vec![path.into()],
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::string::ToString;

    use backstitch_core::DType;

    use super::*;
    use crate::gguf::Writer;

    const NAMES: [&str; 2] = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];

    /// A folder with a model in two parts, of one tensor each.
    fn split_model() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (no, (name, tensor)) in (0u16..).zip(NAMES.into_iter().zip(["a", "b"])) {
            let mut writer = Writer::new();
            writer.set("split.no", no).unwrap().set("split.count", 2u16).unwrap();
            writer.set("split.tensors.count", 2i32).unwrap();
            writer.tensor(tensor, &[2], DType::F32, &[7; 8]).unwrap();
            writer.write_to(fs::File::create(folder.path().join(name)).unwrap()).unwrap();
        }
        folder
    }

    #[test]
    fn any_part_opens_the_whole_model_either_way() {
        let folder = split_model();
        for (name, access) in [(NAMES[0], Access::Map), (NAMES[1], Access::Map), (NAMES[1], Access::Read)] {
            let source = Source::open(folder.path().join(name), access).unwrap();
            assert_eq!(source.paths().len(), 2);
            let gguf = source.gguf().unwrap();
            let b = gguf.tensor("b").unwrap();
            assert_eq!(gguf.tensor_data(&b), [7; 8]);
            source.release(b.part(), b.range());
            assert_eq!(source.bytes(b.part()).unwrap().get(b.range()), Some(&[7; 8][..]));
            assert_eq!(source.n_bytes(), source.bytes(0).unwrap().len() + source.bytes(1).unwrap().len());
        }
    }

    #[test]
    fn a_missing_or_damaged_part_is_named() {
        let folder = split_model();
        let [first, second] = NAMES.map(|name| folder.path().join(name));
        fs::write(&second, b"GGUF?").unwrap();
        let error = Source::open(&first, Access::Map).unwrap().gguf().unwrap_err();
        let wanted = alloc::format!("{}: file is truncated in the header", second.display());
        assert!(error.to_string().starts_with(&wanted), "{error}");
        fs::remove_file(&second).unwrap();
        let error = Source::open(&first, Access::Read).unwrap_err();
        assert_eq!(error.to_string(), alloc::format!("{}: no such file; check the path", second.display()));
    }

    #[test]
    fn a_part_under_another_name_says_what_is_missing() {
        let folder = split_model();
        let path = folder.path().join("renamed.gguf");
        fs::rename(folder.path().join(NAMES[0]), &path).unwrap();
        let error = Source::open(&path, Access::Map).unwrap().gguf().unwrap_err();
        assert!(error.to_string().contains("the model has 2 parts, 1 at hand"), "{error}");
    }
}
