//! What a vocabulary is built from.
//!
//! A plain struct of borrowed slices stands between the file format and the tokenisers, so that either can be tested and
//! fuzzed without the other. The fields mirror the `tokenizer.ggml.*` metadata of a GGUF file.

use alloc::vec::Vec;

use crate::error::Error;
use crate::gguf::{Array, Gguf, Value};

use super::error::VocabError;

/// The raw material of a [`Vocab`](super::Vocab), as a model file states it and not yet checked.
#[derive(Clone, Debug, Default)]
pub struct VocabSource<'a> {
    /// Which tokeniser: `gpt2` (byte pairs), `llama` (SentencePiece) or `rwkv` (the longest token that fits).
    pub model: &'a str,
    /// Which pre-tokeniser cuts text into words before byte pairs are merged; absent means `default`.
    pub pre: Option<&'a str>,
    /// The model's name: a few families need special treatment of white space that the file does not state otherwise.
    pub name: Option<&'a str>,
    /// The text of each token.
    pub tokens: &'a [&'a str],
    /// A score for each token, or empty. More than there are tokens is allowed, fewer is not.
    pub scores: Vec<f32>,
    /// A kind for each token (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte), or empty.
    pub types: Vec<i32>,
    /// Pairs of texts joined by a space, the most important first (byte pairs only).
    pub merges: &'a [&'a str],
    /// The roles some tokens play.
    pub roles: Roles,
    /// Whether a text starts with the beginning-of-sequence token.
    pub add_bos: Option<bool>,
    /// Whether a text ends with the end-of-sequence token.
    pub add_eos: Option<bool>,
    /// Whether a text starts with a space that is not in it.
    pub add_space_prefix: Option<bool>,
    /// Whether runs of spaces count as one (Unigram only).
    pub merge_spaces: Option<bool>,
    /// How characters are normalised (Unigram only): the bytes of `precompiled_charsmap`, or none.
    pub charsmap: Vec<u8>,
}

/// Tokens with a role, as indices into the vocabulary. An index past its end counts as absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Beginning of a sequence.
    pub bos: Option<u32>,
    /// End of a sequence.
    pub eos: Option<u32>,
    /// End of a turn.
    pub eot: Option<u32>,
    /// End of a message.
    pub eom: Option<u32>,
    /// Stands for what the vocabulary cannot express.
    pub unk: Option<u32>,
    /// Separator.
    pub sep: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Mask.
    pub mask: Option<u32>,
    /// Padding when filling in the middle.
    pub fim_pad: Option<u32>,
    /// Repository name when filling in the middle.
    pub fim_rep: Option<u32>,
    /// File separator when filling in the middle.
    pub fim_sep: Option<u32>,
}

impl<'a> VocabSource<'a> {
    /// What the metadata of `gguf` states.
    ///
    /// # Errors
    /// [`Error::MissingKey`] without `tokenizer.ggml.model`, [`Error::WrongType`] and [`Error::OutOfRange`] for a key of `tokenizer.ggml`
    /// that cannot be read.
    pub fn from_gguf(gguf: &'a Gguf<'_>) -> Result<Self, Error> {
        Ok(Self {
            model: gguf.str("tokenizer.ggml.model")?,
            pre: gguf.optional("tokenizer.ggml.pre")?,
            name: gguf.optional("general.name")?,
            tokens: gguf.optional("tokenizer.ggml.tokens")?.unwrap_or(&[]),
            scores: gguf.optional("tokenizer.ggml.scores")?.unwrap_or_default(),
            types: gguf.optional("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: gguf.optional("tokenizer.ggml.merges")?.unwrap_or(&[]),
            roles: Roles::from_gguf(gguf),
            add_bos: gguf.optional("tokenizer.ggml.add_bos_token")?,
            add_eos: gguf.optional("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: gguf.optional("tokenizer.ggml.add_space_prefix")?,
            merge_spaces: gguf.optional("tokenizer.ggml.remove_extra_whitespaces")?,
            charsmap: bytes(gguf, "tokenizer.ggml.precompiled_charsmap")?,
        })
    }
}

/// An array of bytes, which converters write with and without sign.
fn bytes(gguf: &Gguf<'_>, key: &str) -> Result<Vec<u8>, Error> {
    let Some(array) = gguf.optional::<&Array<'_>>(key)? else { return Ok(Vec::new()) };
    let byte = |value| match value {
        Value::U8(byte) => Some(byte),
        Value::I8(byte) => Some(byte.cast_unsigned()),
        _ => None,
    };
    let bytes = array.iter().map(byte).collect::<Option<_>>();
    Ok(bytes.ok_or(VocabError::Charsmap { what: "is no list of bytes" })?)
}

impl Roles {
    /// The roles stated in `gguf`. Converters write -1 and other numbers out of range for "none".
    fn from_gguf(gguf: &Gguf<'_>) -> Self {
        let role = |key: &str| gguf.entry(key)?.value.as_integer()?.try_into().ok();
        Self {
            bos: role("tokenizer.ggml.bos_token_id"),
            eos: role("tokenizer.ggml.eos_token_id"),
            eot: role("tokenizer.ggml.eot_token_id"),
            eom: role("tokenizer.ggml.eom_token_id"),
            unk: role("tokenizer.ggml.unknown_token_id"),
            sep: role("tokenizer.ggml.seperator_token_id"), // spelled so in the format
            pad: role("tokenizer.ggml.padding_token_id"),
            mask: role("tokenizer.ggml.mask_token_id"),
            fim_pad: role("tokenizer.ggml.fim_pad_token_id"),
            fim_rep: role("tokenizer.ggml.fim_rep_token_id"),
            fim_sep: role("tokenizer.ggml.fim_sep_token_id"),
        }
    }
}
