//! The model inside the program: a story teller of 3.5 million parameters, so that the first command tells
//! something.

/// Its file, in GGUF format.
pub use backstitch_demo::GGUF;

/// How its stories begin when nobody says otherwise.
pub const BEGINNING: &str = "Once upon a time";
