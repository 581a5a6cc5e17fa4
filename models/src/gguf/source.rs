//! The bytes of a model on disk: one file or all shards, mapped or read.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use std::path::{Path, PathBuf};

use backstitch_kv::file::{Buffer, Mapping};

use super::reader::Gguf;
use super::split::SplitName;
use crate::error::Error;

/// The way in which the bytes of a file are made available.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Access, Source};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("demo.gguf");
/// std::fs::write(&path, backstitch_demo::GGUF)?;
/// for access in [Access::Map, Access::Read] {
///     assert_eq!(Source::open(&path, access)?.n_bytes(), backstitch_demo::GGUF.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Map the file. This opens at once and shares memory between processes, but no process may
    /// truncate the file meanwhile; see [`Mapping`].
    Map,
    /// Read the file into memory ([`Buffer`]). This takes its size in memory and the time to read
    /// it, and is safe against changes of the file.
    Read,
}

/// The open files of a model: one, or all of its shards.
///
/// A source owns the bytes that a [`Gguf`] borrows, so it has to outlive it.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Access, Source};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("demo.gguf");
/// std::fs::write(&path, backstitch_demo::GGUF)?;
/// let source = Source::open(&path, Access::Map)?;
/// assert_eq!(source.gguf()?.architecture()?, "falcon-h1");
/// assert_eq!(source.paths().collect::<Vec<_>>(), [path]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Source {
    shards: Vec<Shard>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapping),
    Read(Buffer),
}

impl Source {
    /// Open the model at `path`. If the name is that of one shard (`model-00001-of-00003.gguf`, any
    /// of them), open all shards, which must lie in the same folder.
    ///
    /// # Errors
    /// [`Error::Io`] with the path of the file that cannot be opened.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, Error> {
        Self::open_shards(shard_paths(path.as_ref()), access)
    }

    /// Open the model whose shards are the files at `paths`, in order, whatever their names.
    ///
    /// # Errors
    /// Those of [`Source::open`].
    pub fn open_shards(paths: impl IntoIterator<Item = PathBuf>, access: Access) -> Result<Self, Error> {
        let shards = paths.into_iter().map(|path| Shard::open(path, access));
        Ok(Self { shards: shards.collect::<Result<_, _>>()? })
    }

    /// Read the header of all files and present them as one.
    ///
    /// # Errors
    /// Those of [`Gguf::parse_shards`], inside [`Error::File`] with the path of the file that is
    /// wrong.
    pub fn gguf(&self) -> Result<Gguf<'_>, Error> {
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.bytes.as_slice()).collect();
        Gguf::parse_shards(&shards).map_err(|error| self.with_path(error))
    }

    /// Return the paths of the files.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }

    /// Return the bytes of one file, from 0; `None` if there are fewer files.
    pub fn bytes(&self, shard: usize) -> Option<&[u8]> {
        self.shards.get(shard).map(|shard| shard.bytes.as_slice())
    }

    /// Return the number of bytes of all files together.
    pub fn n_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.bytes.as_slice().len()).sum()
    }

    /// Give the memory behind a range of a mapped file back to the operating system, once its data
    /// was copied elsewhere; see [`Mapping::release`]. Does nothing for files that were read.
    pub fn release(&self, shard: usize, range: Range<usize>) {
        if let Some(Shard { bytes: Bytes::Mapped(mapping), .. }) = self.shards.get(shard) {
            mapping.release(range);
        }
    }

    /// Replace the index of the shard in an error by the path of its file.
    fn with_path(&self, error: Error) -> Error {
        let (shard, source) = match error {
            Error::Shard { shard, source } => (shard, source),
            error => (0, Box::new(error)),
        };
        match self.shards.get(shard) {
            Some(Shard { path, .. }) => Error::File { path: path.as_path().into(), source },
            None => Error::Shard { shard, source },
        }
    }
}

impl Shard {
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

/// Return the paths of all files of the model that `path` belongs to.
fn shard_paths(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(SplitName::parse);
    match name {
        Some(name) => (0..name.count).map(|shard| path.with_file_name(name.of_shard(shard))).collect(),
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

    /// Make a folder with a model in two shards, of one tensor each.
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
    fn any_shard_opens_the_whole_model_either_way() {
        let folder = split_model();
        for (name, access) in [(NAMES[0], Access::Map), (NAMES[1], Access::Map), (NAMES[1], Access::Read)] {
            let source = Source::open(folder.path().join(name), access).unwrap();
            assert_eq!(source.paths().len(), 2);
            let gguf = source.gguf().unwrap();
            let b = gguf.tensor("b").unwrap();
            assert_eq!(gguf.tensor_data(&b), [7; 8]);
            source.release(b.shard(), b.range());
            assert_eq!(source.bytes(b.shard()).unwrap().get(b.range()), Some(&[7; 8][..]));
            assert_eq!(source.n_bytes(), source.bytes(0).unwrap().len() + source.bytes(1).unwrap().len());
        }
    }

    #[test]
    fn a_missing_or_damaged_shard_is_named() {
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
    fn a_shard_under_another_name_says_what_is_missing() {
        let folder = split_model();
        let path = folder.path().join("renamed.gguf");
        fs::rename(folder.path().join(NAMES[0]), &path).unwrap();
        let error = Source::open(&path, Access::Map).unwrap().gguf().unwrap_err();
        assert!(error.to_string().contains("the model has 2 shards, 1 at hand"), "{error}");
    }
}
