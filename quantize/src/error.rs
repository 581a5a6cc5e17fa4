//! Errors of this crate.

use backstitch_core::DType;
use std::fmt;

/// The reason why a model cannot be quantised, or an importance matrix not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The model or the importance matrix is no valid GGUF file, or lacks a key.
    Model(backstitch_models::Error),
    /// The data of a tensor cannot be read or encoded.
    Tensor {
        /// The name of the tensor.
        tensor: String,
        /// The error.
        source: backstitch_core::Error,
    },
    /// A tensor would get a type of so few bits that an importance matrix is needed, and there is
    /// none, or none for this tensor.
    NeedsImatrix {
        /// The name of the tensor.
        tensor: String,
        /// The type that it would get.
        dtype: DType,
    },
    /// The importance matrix is that of another model.
    ImatrixSize {
        /// The name of the tensor.
        tensor: String,
        /// The numbers that the importance matrix has for it.
        found: usize,
        /// The numbers that it needs.
        wanted: usize,
    },
    /// A tensor, or the importance of one, holds infinities or no numbers.
    NotFinite {
        /// The name of the tensor.
        tensor: String,
    },
    /// A tensor is quantised already, and quantising it again was not asked for.
    AlreadyQuantized {
        /// The name of the tensor.
        tensor: String,
        /// The type that it has.
        dtype: DType,
    },
    /// A tensor's type cannot be turned into floats or is in panels.
    NotRows {
        /// The name of the tensor.
        tensor: String,
    },
    /// The name of a tensor of a model with experts does not tell its layer.
    Layer {
        /// The name of the tensor.
        tensor: String,
    },
    /// The rows of a tensor do not divide into blocks of its type, and no other type takes its
    /// place.
    NoFallback {
        /// The name of the tensor.
        tensor: String,
        /// The type.
        dtype: DType,
        /// The length of its rows.
        n_cols: usize,
    },
    /// A pattern of tensor names is no regular expression.
    Pattern {
        /// The pattern.
        pattern: String,
        /// The complaint of the regular expression's parser.
        message: String,
    },
    /// The importance matrix is damaged.
    Imatrix {
        /// The entry or the part of the file.
        what: String,
        /// The complaint.
        problem: String,
    },
    /// The new file cannot be written.
    Io(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Model(error) => error.fmt(f),
            Error::Tensor { tensor, source } => write!(f, "tensor {tensor:?}: {source}"),
            Error::NeedsImatrix { tensor, dtype } => {
                write!(
                    f,
                    "tensor {tensor:?} would become {dtype}, which needs an importance matrix with data for it"
                )
            }
            Error::ImatrixSize { tensor, found, wanted } => write!(
                f,
                "the importance matrix has {found} numbers for tensor {tensor:?}, which needs {wanted}; \
                 it was made with another model"
            ),
            Error::NotFinite { tensor } => write!(f, "tensor {tensor:?} holds infinities or no numbers"),
            Error::AlreadyQuantized { tensor, dtype } => write!(
                f,
                "tensor {tensor:?} is {dtype} already, and quantising it again makes it worse; \
                 take a model in F16, BF16 or F32, or allow it"
            ),
            Error::NotRows { tensor } => {
                write!(f, "tensor {tensor:?} holds no rows of floats or blocks; take an original model")
            }
            Error::Layer { tensor } => write!(f, "the name of tensor {tensor:?} does not tell its layer"),
            Error::NoFallback { tensor, dtype, n_cols } => {
                write!(
                    f,
                    "tensor {tensor:?} has rows of {n_cols}, which do not divide into blocks of {dtype}"
                )
            }
            Error::Pattern { pattern, message } => {
                write!(f, "{pattern:?} is no regular expression: {message}")
            }
            Error::Imatrix { what, problem } => write!(f, "importance matrix: {what}: {problem}"),
            Error::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Model(error) => Some(error),
            Error::Tensor { source, .. } => Some(source),
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<backstitch_models::Error> for Error {
    fn from(error: backstitch_models::Error) -> Self {
        Error::Model(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::Io(error)
    }
}
