//! What can be wrong with a vocabulary.

use alloc::boxed::Box;
use core::fmt;

/// Why a vocabulary could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VocabError {
    /// The tokeniser (`tokenizer.ggml.model`) is not one of those known here.
    Model {
        /// Its name.
        found: Box<str>,
    },
    /// The pre-tokeniser (`tokenizer.ggml.pre`) is not one of those known here.
    Pre {
        /// Its name.
        found: Box<str>,
    },
    /// A part that this tokeniser cannot do without is missing.
    Missing {
        /// The metadata key.
        key: &'static str,
    },
    /// A list that should have an entry for every token is shorter.
    Short {
        /// The metadata key.
        key: &'static str,
        /// How many entries it has.
        found: usize,
        /// How many tokens there are.
        wanted: usize,
    },
    /// A merge is not two non-empty texts with one space between them.
    Merge {
        /// Its index in the list.
        index: usize,
    },
    /// A score is not a number.
    Score {
        /// The token it belongs to.
        index: usize,
    },
    /// The table that normalises characters is damaged.
    Charsmap {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A token is longer than texts can be searched for in good time.
    TooLong {
        /// The token.
        index: usize,
        /// Its bytes.
        found: usize,
        /// The most it may have.
        limit: usize,
    },
    /// There are more tokens than any vocabulary has, or their texts are longer together.
    TooLarge {
        /// What is too large.
        what: &'static str,
    },
    /// The texts were chosen so that the look-up table degenerates.
    Collisions,
    /// An allocation was refused.
    OutOfMemory {
        /// Its size.
        n_bytes: u64,
    },
}

impl fmt::Display for VocabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model { found } => write!(
                f,
                "tokenizer.ggml.model is {:?}, which is not supported; gpt2, llama, t5, bert and rwkv are",
                shorten(found)
            ),
            Self::Pre { found } => write!(
                f,
                "tokenizer.ggml.pre is {:?}, which is not supported; convert the model again if the name is mistaken",
                shorten(found)
            ),
            Self::Missing { key } => write!(f, "{key} is missing; convert the model again"),
            Self::Short { key, found, wanted } => {
                write!(f, "{key} has {found} entries for {wanted} tokens; convert the model again")
            }
            Self::Merge { index } => {
                write!(f, "tokenizer.ggml.merges[{index}] is not two texts with a space between them")
            }
            Self::Score { index } => write!(f, "tokenizer.ggml.scores[{index}] is not a number"),
            Self::Charsmap { what } => {
                write!(f, "tokenizer.ggml.precompiled_charsmap {what}; convert the model again")
            }
            Self::TooLong { index, found, limit } => {
                write!(
                    f,
                    "tokenizer.ggml.tokens[{index}] stands for {found} bytes, of which at most {limit} are taken"
                )
            }
            Self::TooLarge { what } => write!(f, "{what} take more than 4 GiB"),
            Self::Collisions => {
                f.write_str("the token texts collide in the look-up table; the file was made to do that")
            }
            Self::OutOfMemory { n_bytes } => write!(f, "out of memory: {n_bytes} bytes for the vocabulary"),
        }
    }
}

impl core::error::Error for VocabError {}

/// At most the first 64 characters: names come from files and may be megabytes long.
fn shorten(text: &str) -> &str {
    text.char_indices().nth(64).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}
