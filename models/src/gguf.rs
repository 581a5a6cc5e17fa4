//! GGUF, the file format of models: metadata, then a table of tensors, then their data.
//!
//! [`Gguf`] is a checked view of such a file. [`Gguf::parse`] walks the whole header once and
//! validates everything in it. After that, no call on the view can meet a damaged byte, run out of
//! bounds or panic. The view borrows the bytes: names, strings and tensor data are slices of the
//! file. The view allocates one index entry for each key, each tensor and each string in an array.
//! Each of these takes more bytes in the file than a fixed fraction of its index entry, so memory
//! is bounded by the real length of the file, whatever its header claims.
//!
//! The parts of the module:
//!
//! - [`Value`] is the value of a metadata key.
//! - `cursor` reads bytes in order and knows its offset, so that every error can name it.
//! - `reader` builds the view from the two.
//! - `reads` remembers what was looked up.
//! - `keys` looks metadata up by name and Rust type.
//! - [`Source`] finds the bytes on disk, in one file or in several shards.
//! - [`Writer`] goes the other way, from values and tensors to a file.
//!
//! The format document is <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. This module
//! reads versions 2 and 3 in little-endian order, and refuses arrays of arrays.
//!
//! ```
//! use backstitch_models::gguf::Gguf;
//!
//! let gguf = Gguf::parse(backstitch_demo::GGUF)?;
//! assert_eq!(gguf.architecture()?, "falcon-h1");
//! let n_layer = gguf.keys()?.u32("block_count")?;
//! assert!(gguf.tensor(&format!("blk.{}.attn_q.weight", n_layer - 1)).is_some());
//! # Ok::<(), backstitch_models::Error>(())
//! ```

mod cursor;
mod keys;
mod reader;
mod reads;
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
pub use tensor::TensorInfo;
pub use value::{Array, FromValue, Mismatch, Value, ValueType};
pub use writer::Writer;
