//! Errors of building a vocabulary.

use alloc::boxed::Box;

/// The reason that a vocabulary could not be built.
///
/// # Example
/// ```
/// use backstitch_models::vocab::{Vocab, VocabError, VocabSource};
///
/// let source = VocabSource { model: "tekken", ..VocabSource::default() };
/// let error = Vocab::new(&source).unwrap_err();
/// assert!(matches!(error, VocabError::Model { found } if &*found == "tekken"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VocabError {
    /// The tokeniser (`tokenizer.ggml.model`) is not supported.
    #[error(
        "tokenizer.ggml.model is {:?}, which is not supported; gpt2, gemma4, llama, t5, bert, rwkv, plamo2, \
         whitespace, hybriddna and none are",
        shorten(.found)
    )]
    Model {
        /// The name of the tokeniser.
        found: Box<str>,
    },
    /// The pre-tokeniser (`tokenizer.ggml.pre`) is not supported.
    #[error(
        "tokenizer.ggml.pre is {:?}, which is not supported; convert the model again if the name is mistaken",
        shorten(.found)
    )]
    Pre {
        /// The name of the pre-tokeniser.
        found: Box<str>,
    },
    /// A key that the tokeniser needs is missing.
    #[error("{key} is missing; convert the model again")]
    Missing {
        /// The metadata key.
        key: &'static str,
    },
    /// A list that needs an entry for every token is shorter.
    #[error("{key} has {found} of {wanted} entries, one for each token; convert the model again")]
    Short {
        /// The metadata key.
        key: &'static str,
        /// The number of entries.
        found: usize,
        /// The number of tokens.
        wanted: usize,
    },
    /// A merge is not two non-empty texts with one space between them.
    #[error(
        "tokenizer.ggml.merges[{index}] is not two texts with a space between them; convert the model again"
    )]
    Merge {
        /// The index of the merge in the list.
        index: usize,
    },
    /// A score is not a number.
    #[error("tokenizer.ggml.scores[{index}] is not a number; convert the model again")]
    Score {
        /// The token that the score belongs to.
        index: usize,
    },
    /// The table that normalises characters is damaged.
    #[error("tokenizer.ggml.precompiled_charsmap {what}; convert the model again")]
    Charsmap {
        /// The damage, as a predicate: "is shorter than it says".
        what: &'static str,
    },
    /// No token stands for a byte, and the tokeniser needs one for each.
    #[error("tokenizer.ggml.tokens has no byte token <0x{byte:02X}>; convert the model again")]
    Byte {
        /// The byte.
        byte: u8,
    },
    /// A token is too long to search texts for it in linear time.
    #[error(
        "tokenizer.ggml.tokens[{index}] stands for {found} bytes, and at most {limit} are allowed; convert \
         the model again"
    )]
    TooLong {
        /// The token.
        index: usize,
        /// The number of its bytes.
        found: usize,
        /// The most bytes it may have.
        limit: usize,
    },
    /// There are more tokens or merges than any vocabulary has, or their texts are longer together.
    #[error("{what} exceed what any vocabulary needs; convert the model again")]
    TooLarge {
        /// The things of which there are too many, such as "the merges".
        what: &'static str,
    },
    /// The token texts were chosen so that the look-up table degenerates.
    #[error(
        "the token texts collide in the look-up table, as only a malicious file makes them; get the file \
         from another source"
    )]
    Collisions,
    /// The allocator refused memory.
    #[error("out of memory: {n_bytes} bytes for the vocabulary")]
    OutOfMemory {
        /// The number of bytes asked for.
        n_bytes: u64,
    },
}

/// Return at most the first 64 characters. Names come from files and may be megabytes long.
fn shorten(text: &str) -> &str {
    text.char_indices().nth(64).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}
