//! GGUF, the file format of models: metadata, then a table of tensors, then their data.
//!
//! [`Gguf`] is a checked view of such a file. [`Gguf::parse`] walks the whole header once and validates everything in it:
//! after that, no call on the view can meet a damaged byte, run out of bounds or panic. The view borrows the bytes; names,
//! texts and tensor data are slices of the file. What it allocates is one index entry a key, a tensor and a text in an
//! array, each of which takes more room in the file than a fixed fraction of its entry, so memory is bounded by the file's
//! real length, whatever its header claims.
//!
//! How to read this module: [`value`](Value) is what a metadata key can hold, `cursor` reads bytes and knows where it is,
//! `reader` puts the two together, `keys` looks things up by name and type, [`Source`] finds the bytes on disk, in
//! one file or several, and [`Writer`] goes the other way.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Of it, this module reads versions 2 and 3 in
//! little-endian order, and refuses arrays of arrays.

mod cursor;
mod keys;
mod reader;
#[cfg(feature = "std")]
mod source;
mod split;
mod stream;
mod tensor;
#[cfg(test)]
mod tests;
mod value;
mod writer;

pub use keys::{Keys, PerLayer};
pub use reader::{Gguf, KeyValue};
#[cfg(feature = "std")]
pub use source::{Access, Source};
pub use split::SplitName;
pub(crate) use stream::read_stream;
pub use tensor::{MAX_RANK, TensorInfo};
pub use value::{Array, FromValue, Mismatch, Value, ValueType};
pub use writer::Writer;
