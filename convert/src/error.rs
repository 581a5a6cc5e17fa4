//! Errors of reading folders and of making GGUF files of them.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of a conversion. Each names the file, key or tensor, what was found and what was
/// wanted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The new file could not be written.
    Write(io::Error),
    /// A file that the folder must have is not there.
    MissingFile {
        /// Path of the folder.
        folder: PathBuf,
        /// Names of files, one of which would do.
        wanted: String,
    },
    /// A file is larger than any of its kind.
    FileTooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size in bytes.
        found: u64,
        /// Largest size that is read.
        limit: u64,
    },
    /// A file is not what its name says.
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Part of the file that is wrong, and what it holds.
        found: String,
        /// Content that was expected there.
        wanted: String,
    },
    /// A key of a JSON file is missing or has an unusable value.
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Name of the key, or of the alternatives.
        key: String,
        /// Value in the file, or "nothing".
        found: String,
        /// Value that would do.
        wanted: String,
    },
    /// Files that the index lists are not in the folder.
    MissingShards {
        /// Path of the index.
        path: PathBuf,
        /// Names of the missing files.
        shards: Vec<String>,
    },
    /// The index and the files disagree about the tensors.
    Index {
        /// Path of the index.
        path: PathBuf,
        /// Name of a tensor that only one of them has.
        tensor: String,
        /// File that holds the tensor, or "nothing".
        found: String,
        /// File that should hold the tensor, or "nothing".
        wanted: String,
    },
    /// A tensor has a shape, a type or values that cannot be converted.
    Tensor {
        /// Name of the tensor.
        tensor: String,
        /// Property of the tensor.
        found: String,
        /// Property that would do.
        wanted: String,
    },
    /// A tensor that others ask for is missing.
    MissingTensor {
        /// Name of the missing tensor.
        tensor: String,
        /// Reason why it is needed.
        reason: String,
    },
    /// A tensor has a name that the architecture does not know.
    UnknownTensor {
        /// Name of the tensor.
        tensor: String,
        /// Architecture of the model.
        architecture: &'static str,
    },
    /// The folder holds a model of an unknown architecture.
    UnknownArchitecture {
        /// Name of the class in `config.json`.
        found: String,
        /// Known class with the most similar name.
        nearest: Option<&'static str>,
    },
    /// The pre-tokeniser is none of those that engines know.
    UnknownPreTokenizer {
        /// Path of `tokenizer.json`.
        path: PathBuf,
        /// Pre-tokeniser of the file.
        found: String,
    },
    /// A tensor of one of several files is wrong.
    InFile {
        /// Path of the file.
        path: PathBuf,
        /// Error of the tensor.
        error: Box<Self>,
    },
    /// The new file would not be a valid GGUF file.
    Gguf(backstitch_models::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::Write(source) => write!(f, "cannot write the new file: {source}"),
            Self::MissingFile { folder, wanted } => write!(f, "{} has no {wanted}", folder.display()),
            Self::FileTooLarge { path, found, limit } => {
                write!(f, "{} is {found} bytes long; at most {limit} are read", path.display())
            }
            Self::Format { path, found, wanted } => {
                write!(f, "{}: found {found}, wanted {wanted}", path.display())
            }
            Self::Key { path, key, found, wanted } => {
                write!(f, "{}: key {key:?} is {found}, wanted {wanted}", path.display())
            }
            Self::MissingShards { path, shards } => {
                write!(f, "{} lists files that are not there: {}", path.display(), shards.join(", "))
            }
            Self::Index { path, tensor, found, wanted } => {
                write!(f, "{}: tensor {tensor:?} is in {found}, but should be in {wanted}", path.display())
            }
            Self::Tensor { tensor, found, wanted } => {
                write!(f, "tensor {tensor:?} has {found}, wanted {wanted}")
            }
            Self::MissingTensor { tensor, reason } => write!(f, "tensor {tensor:?} is missing: {reason}"),
            Self::UnknownTensor { tensor, architecture } => {
                write!(f, "tensor {tensor:?} is none that {architecture} has")
            }
            Self::UnknownArchitecture { found, nearest } => {
                write!(f, "models of the class {found:?} are unknown")?;
                nearest.map_or(Ok(()), |nearest| write!(f, "; the nearest known one is {nearest:?}"))
            }
            Self::UnknownPreTokenizer { path, found } => write!(
                f,
                "{}: no engine knows the pre-tokeniser {found}; name one that does the same",
                path.display()
            ),
            Self::InFile { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Gguf(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Write(source) => Some(source),
            Self::Gguf(source) => Some(source),
            _ => None,
        }
    }
}

impl From<backstitch_models::Error> for Error {
    fn from(source: backstitch_models::Error) -> Self {
        Self::Gguf(source)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Write(source)
    }
}
