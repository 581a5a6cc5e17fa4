//! The input of a vocabulary.
//!
//! A plain struct of borrowed slices stands between the file format and the tokenisers, so that
//! each can be tested and fuzzed without the other. The fields mirror the `tokenizer.ggml.*`
//! metadata of a GGUF file.

use alloc::format;
use alloc::vec::Vec;

use crate::error::Error;
use crate::gguf::{Array, Gguf, Value};

use super::error::VocabError;

/// The contents of a [`Vocab`](super::Vocab) as a model file states them, not yet checked.
///
/// # Example
/// ```
/// use backstitch_models::gguf::Gguf;
/// use backstitch_models::vocab::VocabSource;
///
/// let gguf = Gguf::parse(backstitch_demo::GGUF)?;
/// let source = VocabSource::from_gguf(&gguf)?;
/// assert!(source.tokens.contains(&"▁upon") || source.tokens.contains(&"Ġupon"));
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct VocabSource<'a> {
    /// The tokeniser: `gpt2` (byte-pair encoding) and its variants `gemma4`, `whitespace` and
    /// `hybriddna`; `llama` (SentencePiece), `t5` (Unigram), `bert` (WordPiece), `rwkv` (longest
    /// match), `plamo2` (best segmentation); `none` or `no_vocab` for a model without texts.
    pub model: &'a str,
    /// The pre-tokeniser, which cuts text into words before byte pairs are merged; absent means
    /// `default`.
    pub pre: Option<&'a str>,
    /// The name of the model. A few families need special treatment of white space that the file
    /// does not state otherwise.
    pub name: Option<&'a str>,
    /// The architecture of the model, for the same reason.
    pub architecture: Option<&'a str>,
    /// The number of tokens of a model without texts; otherwise unused.
    pub size: Option<u32>,
    /// The text of each token.
    pub tokens: &'a [&'a str],
    /// A score for each token, or empty. Extra entries are allowed, missing ones are not.
    pub scores: Vec<f32>,
    /// A kind for each token (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte), or
    /// empty.
    pub types: Vec<i32>,
    /// Pairs of texts joined by a space, the most important first (byte pairs only).
    pub merges: &'a [&'a str],
    /// The tokens with a role.
    pub roles: Roles,
    /// Tokens that are never to be drawn. Those past the end of the vocabulary count as absent.
    pub suppressed: Vec<i32>,
    /// True if a text starts with the beginning-of-sequence token.
    pub add_bos: Option<bool>,
    /// True if a text ends with the end-of-sequence token.
    pub add_eos: Option<bool>,
    /// True if tokenising puts a space in front of a text.
    pub add_space_prefix: Option<bool>,
    /// True if runs of spaces count as one (Unigram only).
    pub merge_spaces: Option<bool>,
    /// True if text is written in lower case (WordPiece and `whitespace` only).
    pub lowercase: Option<bool>,
    /// True if accents are removed (WordPiece only); absent means as `lowercase`.
    pub strip_accents: Option<bool>,
    /// The table that normalises characters (Unigram only): the bytes of `precompiled_charsmap`, or
    /// empty.
    pub charsmap: Vec<u8>,
}

/// The tokens with a role, as indices into the vocabulary. An index past its end counts as absent.
///
/// # Example
/// ```
/// use backstitch_models::Model;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let roles = model.vocab().roles();
/// assert_eq!(roles.bos, model.vocab().bos().map(|token| token.0));
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The beginning of a sequence.
    pub bos: Option<u32>,
    /// The end of a sequence.
    pub eos: Option<u32>,
    /// The end of a turn.
    pub eot: Option<u32>,
    /// The end of a message.
    pub eom: Option<u32>,
    /// The unknown token, for text that the vocabulary cannot express.
    pub unk: Option<u32>,
    /// The separator.
    pub sep: Option<u32>,
    /// The padding.
    pub pad: Option<u32>,
    /// The mask.
    pub mask: Option<u32>,
    /// The token before the prefix of fill-in-the-middle prompts.
    pub fim_pre: Option<u32>,
    /// The token before the suffix of fill-in-the-middle prompts.
    pub fim_suf: Option<u32>,
    /// The token before the middle of fill-in-the-middle prompts.
    pub fim_mid: Option<u32>,
    /// The padding of fill-in-the-middle prompts.
    pub fim_pad: Option<u32>,
    /// The repository name of fill-in-the-middle prompts.
    pub fim_rep: Option<u32>,
    /// The file separator of fill-in-the-middle prompts.
    pub fim_sep: Option<u32>,
}

impl<'a> VocabSource<'a> {
    /// Read the metadata of `gguf`.
    ///
    /// # Errors
    /// [`Error::MissingKey`] without `tokenizer.ggml.model`; [`Error::WrongType`] or
    /// [`Error::OutOfRange`] for a key of `tokenizer.ggml` that cannot be read.
    pub fn from_gguf(gguf: &'a Gguf<'_>) -> Result<Self, Error> {
        let architecture = gguf.optional("general.architecture")?;
        let size = format!("{}.vocab_size", architecture.unwrap_or(""));
        Ok(Self {
            model: gguf.str("tokenizer.ggml.model")?,
            pre: gguf.optional("tokenizer.ggml.pre")?,
            name: gguf.optional("general.name")?,
            architecture,
            size: gguf.optional(&size)?,
            tokens: gguf.optional("tokenizer.ggml.tokens")?.unwrap_or(&[]),
            scores: scores(gguf)?,
            types: gguf.optional("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: gguf.optional("tokenizer.ggml.merges")?.unwrap_or(&[]),
            roles: Roles::from_gguf(gguf)?,
            suppressed: gguf.optional("tokenizer.ggml.suppress_tokens")?.unwrap_or_default(),
            add_bos: gguf.optional("tokenizer.ggml.add_bos_token")?,
            add_eos: gguf.optional("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: gguf.optional("tokenizer.ggml.add_space_prefix")?,
            merge_spaces: gguf.optional("tokenizer.ggml.remove_extra_whitespaces")?,
            lowercase: gguf.optional("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: gguf.optional("tokenizer.ggml.normalizer.strip_accents")?,
            charsmap: bytes(gguf, "tokenizer.ggml.precompiled_charsmap")?,
        })
    }
}

/// Read the scores. Files that Mistral AI publishes have integers: zeros, since byte pairs need no
/// scores.
fn scores(gguf: &Gguf<'_>) -> Result<Vec<f32>, Error> {
    const KEY: &str = "tokenizer.ggml.scores";
    match gguf.optional::<Vec<i32>>(KEY) {
        Ok(scores) => Ok(scores.unwrap_or_default().into_iter().map(|score| score as f32).collect()),
        Err(_) => Ok(gguf.optional(KEY)?.unwrap_or_default()),
    }
}

/// Read an array of bytes, which converters write with and without sign.
fn bytes(gguf: &Gguf<'_>, key: &str) -> Result<Vec<u8>, Error> {
    let Some(array) = gguf.optional::<&Array<'_>>(key)? else { return Ok(Vec::new()) };
    let byte = |value| match value {
        Value::U8(byte) => Some(byte),
        Value::I8(byte) => Some(byte.cast_unsigned()),
        _ => None,
    };
    let bytes = array.iter().map(byte).collect::<Option<_>>();
    Ok(bytes.ok_or(VocabError::Charsmap { what: "is not an array of bytes" })?)
}

impl Roles {
    /// Read the roles. Converters write -1 and other numbers out of range for "none".
    ///
    /// # Errors
    /// [`Error::WrongType`] if a role is not an integer.
    fn from_gguf(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let role = |key: &str| match gguf.optional::<u32>(key) {
            Err(Error::OutOfRange { .. }) => Ok(None),
            role => role,
        };
        // Files of before 2024 name these otherwise.
        let part = |new: &str, old: &str| Ok::<_, Error>(role(new)?.or(role(old)?));
        Ok(Self {
            bos: role("tokenizer.ggml.bos_token_id")?,
            eos: role("tokenizer.ggml.eos_token_id")?,
            eot: role("tokenizer.ggml.eot_token_id")?,
            eom: role("tokenizer.ggml.eom_token_id")?,
            unk: role("tokenizer.ggml.unknown_token_id")?,
            sep: role("tokenizer.ggml.seperator_token_id")?, // spelled so in the format
            pad: role("tokenizer.ggml.padding_token_id")?,
            mask: role("tokenizer.ggml.mask_token_id")?,
            fim_pre: part("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id")?,
            fim_suf: part("tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id")?,
            fim_mid: part("tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id")?,
            fim_pad: role("tokenizer.ggml.fim_pad_token_id")?,
            fim_rep: role("tokenizer.ggml.fim_rep_token_id")?,
            fim_sep: role("tokenizer.ggml.fim_sep_token_id")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Writer;

    fn bos(role: impl Into<Value<'static>>) -> Result<Option<u32>, Error> {
        let mut writer = Writer::new();
        writer.set("tokenizer.ggml.model", "llama")?.set("tokenizer.ggml.bos_token_id", role)?;
        let file = writer.to_bytes();
        Ok(VocabSource::from_gguf(&Gguf::parse(&file)?)?.roles.bos)
    }

    fn scores(scores: impl Into<Value<'static>>) -> Result<Vec<f32>, Error> {
        let mut writer = Writer::new();
        writer.set("tokenizer.ggml.model", "gpt2")?.set("tokenizer.ggml.scores", scores)?;
        let file = writer.to_bytes();
        Ok(VocabSource::from_gguf(&Gguf::parse(&file)?)?.scores)
    }

    #[test]
    fn scores_are_floats_or_integers() {
        assert_eq!(scores([-0.5f32, 1.0].to_vec()).unwrap(), [-0.5, 1.0]);
        assert_eq!(scores([0i32, -3].to_vec()).unwrap(), [0.0, -3.0]);
        assert_eq!(scores([0i32; 0].to_vec()).unwrap(), [0.0; 0]);
        for wrong in [Value::from(["1"].to_vec()), Value::from([true].to_vec()), Value::from(1.0f32)] {
            let error = scores(wrong).unwrap_err();
            assert!(matches!(error, Error::WrongType { wanted: "an array of floats", .. }), "{error}");
        }
    }

    #[test]
    fn a_role_out_of_range_is_none_and_one_of_another_type_an_error() {
        assert_eq!(bos(7u32).unwrap(), Some(7));
        assert_eq!(bos(-1i32).unwrap(), None);
        assert_eq!(bos(u64::MAX).unwrap(), None);
        assert!(matches!(bos("7"), Err(Error::WrongType { .. })));
    }
}
