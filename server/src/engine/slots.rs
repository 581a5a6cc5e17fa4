//! Slots: the engine's running requests as llama-server's clients see them, and files of their
//! sequences.

use std::time::Duration;

/// The layout of a saved sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotLayout {
    /// Backstitch's state file.
    #[default]
    Backstitch,
    /// llama.cpp's sequence file.
    Llama,
}

/// A sequence that was saved or restored.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SlotFile {
    /// The number of tokens of the sequence.
    pub n_tokens: usize,
    /// The bytes of the file.
    pub n_bytes: u64,
    /// The time that it took.
    pub elapsed: Duration,
}
