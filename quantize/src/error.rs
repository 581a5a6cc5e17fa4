//! Errors of this crate.

use backstitch_core::DType;

/// The reason why a model cannot be quantised, or an importance matrix not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model or the importance matrix is no valid GGUF file, or lacks a key.
    #[error(transparent)]
    Model(#[from] backstitch_models::Error),
    /// The data of a tensor cannot be read or encoded.
    #[error("tensor {tensor:?}: {source}")]
    Tensor {
        /// The name of the tensor.
        tensor: String,
        /// The error.
        source: backstitch_core::Error,
    },
    /// A tensor would get a type of so few bits that an importance matrix is needed, and there is
    /// none, or none for this tensor.
    #[error("tensor {tensor:?} would become {dtype}, which needs an importance matrix with data for it")]
    NeedsImatrix {
        /// The name of the tensor.
        tensor: String,
        /// The type that it would get.
        dtype: DType,
    },
    /// The importance matrix is that of another model.
    #[error(
        "the importance matrix has {found} numbers for tensor {tensor:?}, which needs {wanted}; \
         it was made with another model"
    )]
    ImatrixSize {
        /// The name of the tensor.
        tensor: String,
        /// The numbers that the importance matrix has for it.
        found: usize,
        /// The numbers that it needs.
        wanted: usize,
    },
    /// A tensor, or the importance of one, holds infinities or no numbers, or numbers too large for
    /// the type that it would get.
    #[error("tensor {tensor:?} holds infinities, no numbers, or numbers too large for its new type")]
    NotFinite {
        /// The name of the tensor.
        tensor: String,
    },
    /// A tensor is quantised already, and quantising it again was not asked for.
    #[error(
        "tensor {tensor:?} is {dtype} already, and quantising it again makes it worse; \
         take a model in F16, BF16 or F32, or allow it"
    )]
    AlreadyQuantized {
        /// The name of the tensor.
        tensor: String,
        /// The type that it has.
        dtype: DType,
    },
    /// A tensor's type cannot be turned into floats or is in panels.
    #[error("tensor {tensor:?} holds no rows of floats or blocks; take an original model")]
    NotRows {
        /// The name of the tensor.
        tensor: String,
    },
    /// The name of a tensor of a model with experts does not tell its layer.
    #[error("the name of tensor {tensor:?} does not tell its layer")]
    Layer {
        /// The name of the tensor.
        tensor: String,
    },
    /// The rows of a tensor do not divide into blocks of its type, and no other type takes its
    /// place.
    #[error("tensor {tensor:?} has rows of {n_cols}, which do not divide into blocks of {dtype}")]
    NoFallback {
        /// The name of the tensor.
        tensor: String,
        /// The type.
        dtype: DType,
        /// The length of its rows.
        n_cols: usize,
    },
    /// A pattern of tensor names is no regular expression.
    #[error("{pattern:?} is no regular expression: {message}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The complaint of the regular expression's parser.
        message: String,
    },
    /// The importance matrix is damaged.
    #[error("importance matrix: {what}: {problem}")]
    Imatrix {
        /// The entry or the part of the file.
        what: String,
        /// The complaint.
        problem: String,
    },
    /// The new file cannot be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
