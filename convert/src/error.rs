//! Errors of reading folders and of making GGUF files of them.

use std::io;
use std::path::PathBuf;

/// An error of a conversion. Each names the file, key or tensor, what was found and what was
/// wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The new file could not be written.
    #[error("cannot write the new file: {0}")]
    Write(#[from] io::Error),
    /// A file that the folder must have is not there.
    #[error("{} has no {wanted}", .folder.display())]
    MissingFile {
        /// Path of the folder.
        folder: PathBuf,
        /// Names of files, one of which would do.
        wanted: String,
    },
    /// A folder has a vocabulary, but in a format that is not read.
    #[error(
        "{} is no vocabulary that can be converted; put {wanted} with the same tokens beside it",
        .path.display()
    )]
    UnreadVocabulary {
        /// Path of the file that was found.
        path: PathBuf,
        /// Names of files, one of which would do.
        wanted: String,
    },
    /// A file is larger than any of its kind.
    #[error("{} is {found} bytes long; at most {limit} are read", .path.display())]
    FileTooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size in bytes.
        found: u64,
        /// Largest size that is read.
        limit: u64,
    },
    /// A file is not what its name says.
    #[error("{}: found {found}, wanted {wanted}", .path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Part of the file that is wrong, and what it holds.
        found: String,
        /// Content that was expected there.
        wanted: String,
    },
    /// A key of a JSON file is missing or has an unusable value.
    #[error("{}: key {key:?} is {found}, wanted {wanted}", .path.display())]
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
    #[error("{} lists files that are not there: {}", .path.display(), .shards.join(", "))]
    MissingShards {
        /// Path of the index.
        path: PathBuf,
        /// Names of the missing files.
        shards: Vec<String>,
    },
    /// The index and the files disagree about the tensors.
    #[error("{}: tensor {tensor:?} is in {found}, but should be in {wanted}", .path.display())]
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
    #[error("tensor {tensor:?} has {found}, wanted {wanted}")]
    Tensor {
        /// Name of the tensor.
        tensor: String,
        /// Property of the tensor.
        found: String,
        /// Property that would do.
        wanted: String,
    },
    /// A tensor that others ask for is missing.
    #[error("tensor {tensor:?} is missing: {reason}")]
    MissingTensor {
        /// Name of the missing tensor.
        tensor: String,
        /// Reason why it is needed.
        reason: String,
    },
    /// A tensor has a name that the architecture does not know.
    #[error("tensor {tensor:?} is none that {architecture} has")]
    UnknownTensor {
        /// Name of the tensor.
        tensor: String,
        /// Architecture of the model.
        architecture: &'static str,
    },
    /// The folder holds a model of an unknown architecture.
    #[error("models of the class {found:?} are unknown{}", hint(*.nearest))]
    UnknownArchitecture {
        /// Name of the class in `config.json`.
        found: String,
        /// Known class with the most similar name.
        nearest: Option<&'static str>,
    },
    /// The pre-tokeniser is none of those that engines know.
    #[error(
        "{}: no engine knows the pre-tokeniser {found}; name one that does the same",
        .path.display()
    )]
    UnknownPreTokenizer {
        /// Path of `tokenizer.json`.
        path: PathBuf,
        /// Pre-tokeniser of the file.
        found: String,
    },
    /// A tensor of one of several files is wrong.
    #[error("{}: {error}", .path.display())]
    InFile {
        /// Path of the file.
        path: PathBuf,
        /// Error of the tensor.
        error: Box<Self>,
    },
    /// The new file would not be a valid GGUF file.
    #[error(transparent)]
    Gguf(#[from] backstitch_models::Error),
}

/// Return what to add about the nearest known name.
fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; the nearest known one is {nearest:?}"))
}
