//! The model inside the program: a story teller of 3.5 million parameters, so that the first command tells something.

/// Its file, in GGUF format.
pub static GGUF: &[u8] = include_bytes!("../../demo/demo.gguf");

/// How its stories begin when nobody says otherwise.
pub const BEGINNING: &str = "Once upon a time";
