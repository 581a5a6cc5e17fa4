//! From Hugging Face folders to GGUF files.
//!
//! A folder holds a checkpoint (safetensors files), `config.json` and the files of a tokenizer.
//! [`Plan`] makes a GGUF file of it, with the names and keys of llama.cpp. Everything that the
//! file will hold is planned and checked first; then the tensors are computed and written one after
//! the other, so memory holds one of them at most.
//!
//! - [`safetensors`] and [`checkpoint`] read weights, [`config`] reads numbers, `vocab` tokenizers.
//! - `family` says what each architecture does with them: tables of names and small edits.
//! - `tensor` computes, `plan` chooses element types, `metadata` collects keys.
//! - `adapter` does the same for LoRA adapters ([`Plan::of_adapter`]).
//!
//! ```no_run
//! use backstitch_convert::{Options, Plan};
//!
//! let mut plan = Plan::of_folder("SmolLM2-135M".as_ref(), &Options::default())?;
//! let file = std::fs::File::create("model.gguf").map_err(backstitch_convert::Error::Write)?;
//! plan.write(std::io::BufWriter::new(file), |done, total| println!("{done} of {total} bytes"))?;
//! # Ok::<(), backstitch_convert::Error>(())
//! ```

mod adapter;
mod check;
pub mod checkpoint;
pub mod config;
mod convert;
pub mod error;
mod family;
mod general;
mod json;
pub mod metadata;
mod names;
mod plan;
pub mod safetensors;
mod tensor;
mod vocab;

pub use convert::{Options, Plan};
pub use error::Error;
pub use family::classes;
pub use plan::OutType;
pub use vocab::{Tokenizer, parse_sentencepiece};
