//! Quantises GGUF models as llama.cpp b10434 does, byte for byte.
//!
//! [`Quantizer`] takes a parsed model and [`Options`] and plans a type for each tensor: a
//! [`FileType`] names a mixture of types, and [`mix`] says which tensor gets which. Writing streams
//! one tensor after the other; a few rows of each thread are in memory. An [`Imatrix`] says which
//! errors matter; types of few bits need one.
//!
//! ```
//! use backstitch_core::pool::Inline;
//! use backstitch_models::gguf::Gguf;
//! use backstitch_quantize::{FileType, Options, Quantizer};
//!
//! let model = Gguf::parse(backstitch_demo::GGUF)?;
//! let mut options = Options::new(FileType::Q8_0);
//! options.allow_requantize = true;
//! let quantizer = Quantizer::new(&model, &options)?;
//! let mut file = Vec::new();
//! quantizer.write(&Inline, &mut file, &mut |_| {})?;
//! assert!(Gguf::parse(&file)?.tensors().len() == model.tensors().len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod file_type;
pub mod imatrix;
pub mod mix;
mod options;
mod quantizer;

pub use error::Error;
pub use file_type::FileType;
pub use imatrix::{Imatrix, collect};
pub use options::{Options, Pattern};
pub use quantizer::{PlannedTensor, Quantizer};
