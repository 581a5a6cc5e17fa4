//! The model inside the program: a story teller of 3.5 million parameters, which fits examples and tests too.
#![no_std]

/// Its file, in GGUF format.
pub static GGUF: &[u8] = include_bytes!("../demo.gguf");
