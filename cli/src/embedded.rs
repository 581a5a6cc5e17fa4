//! The model inside the program: a story model of 3.5 million parameters, so that the first command
//! works before any model was downloaded.

/// The model's file, in GGUF format.
pub use backstitch_demo::GGUF;

/// The prompt of `run` without a model and a prompt.
pub const BEGINNING: &str = "Once upon a time";
