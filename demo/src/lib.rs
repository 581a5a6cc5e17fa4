//! The model inside the program: a story teller of 3.5 million parameters, which is small enough
//! for examples and tests too.
#![no_std]

/// The file of the model, in GGUF format.
pub static GGUF: &[u8] = include_bytes!("../demo.gguf");
