//! Vocabularies with merges.

use super::special::Specials;
use super::tokens::{Kind, Tokens, looks_special, user_defined, wrong};
use super::{Sources, Tokenizer, pre};
use crate::error::Error;
use crate::metadata::Metadata;

/// Score of tokens whose order is that of the merges.
const NO_SCORE: f32 = -1000.0;

/// Set the keys of a vocabulary with merges of bytes.
pub(super) fn set(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let tokenizer = Tokenizer::read(sources.folder)?;
    let tokens = tokens(&tokenizer, sources)?;
    let specials = Specials::read(sources, Some(&tokenizer), tokens.len())?;
    let pre = match sources.pre_tokenizer {
        Some(pre) => pre.into(),
        None => pre::name(&tokenizer, &tokens, &specials)?,
    };
    tokens.write("gpt2", Some(&pre), false, meta);
    meta.set("tokenizer.ggml.merges", tokenizer.merges());
    specials.write(meta);
    Ok(())
}

/// Collect the tokens of `tokenizer.json` by number.
///
/// # Errors
/// [`Error::Format`] if a token lies beyond the vocabulary of the model, or the pieces have scores;
/// [`Error::Key`] if the model has more tokens than its embedding.
pub(super) fn tokens(tokenizer: &Tokenizer, sources: Sources<'_>) -> Result<Tokens, Error> {
    let path = &tokenizer.path;
    let pieces =
        tokenizer.numbered().ok_or_else(|| wrong(path, "pieces with scores", "a vocabulary with numbers"))?;
    let mut tokens = Tokens::padding(sources.vocab_size(tokenizer.n_tokens())?);
    let n = tokens.len();
    let beyond = |text: &str, id: usize| {
        wrong(
            path,
            format!("the token {text:?} with number {id}"),
            format!("numbers below {n}, the vocab_size"),
        )
    };
    for (text, id) in pieces {
        if !tokens.set(*id, text.as_str(), NO_SCORE, Kind::Normal) {
            return Err(beyond(text, *id));
        }
    }
    for (&id, added) in &tokenizer.added {
        let is_special = added.special || looks_special(&added.content);
        let is_set = if is_special {
            tokens.set(id, added.content.as_str(), NO_SCORE, Kind::Control)
        } else {
            tokens.set(id, user_defined(&added.content), NO_SCORE, Kind::UserDefined)
        };
        if !is_set {
            return Err(beyond(&added.content, id));
        }
    }
    Ok(tokens)
}

/// Set the keys of a vocabulary with merges of characters and a token for each byte.
pub(super) fn set_byte_fallback(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let tokenizer = Tokenizer::read(sources.folder)?;
    let tokens = fallback_tokens(&tokenizer, sources)?;
    let specials = Specials::read(sources, Some(&tokenizer), tokens.len())?;
    tokens.write("llama", Some("default"), true, meta);
    specials.write(meta);
    Ok(())
}

/// Set the keys of Gemma 4's vocabulary.
pub(super) fn set_gemma4(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    /// Marks that people see although the files call them special.
    const VISIBLE: &[&str] = &[
        "<|channel>",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|\"|>",
    ];
    let tokenizer = Tokenizer::read(sources.folder)?;
    let mut tokens = fallback_tokens(&tokenizer, sources)?;
    tokens.mark(VISIBLE, Kind::UserDefined);
    let specials = Specials::read(sources, Some(&tokenizer), tokens.len())?;
    tokens.write("gemma4", None, true, meta);
    meta.set("tokenizer.ggml.merges", tokenizer.merges());
    specials.write(meta);
    meta.set("tokenizer.ggml.add_space_prefix", false);
    meta.set("tokenizer.ggml.add_bos_token", true);
    Ok(())
}

/// Collect the tokens of a vocabulary with a token for each byte. It has as many as the file, not
/// as the model.
fn fallback_tokens(tokenizer: &Tokenizer, sources: Sources<'_>) -> Result<Tokens, Error> {
    let path = &tokenizer.path;
    let pieces =
        tokenizer.numbered().ok_or_else(|| wrong(path, "pieces with scores", "a vocabulary with numbers"))?;
    let n = tokenizer.n_tokens();
    if n > sources.limit {
        let wanted = format!("at most {}, the rows of the embedding", sources.limit);
        return Err(wrong(path, format!("{n} tokens"), wanted));
    }
    let mut tokens = Tokens::padding(n);
    let hole = |text: &str, id: usize| {
        wrong(
            path,
            format!("the token {text:?} with number {id}"),
            format!("numbers below {n} without holes"),
        )
    };
    for (text, id) in pieces {
        let special = tokenizer.added.get(id).is_some_and(|added| added.named);
        let kind = match (is_byte(text), special) {
            (true, _) => Kind::Byte,
            (false, true) => Kind::Control,
            (false, false) => Kind::Normal,
        };
        if !tokens.set(*id, text.as_str(), NO_SCORE, kind) {
            return Err(hole(text, *id));
        }
    }
    for (&id, added) in tokenizer.added.iter().filter(|(id, _)| **id >= pieces.len()) {
        let kind = if added.named { Kind::Control } else { Kind::UserDefined };
        if !tokens.set(id, added.content.as_str(), NO_SCORE, kind) {
            return Err(hole(&added.content, id));
        }
    }
    Ok(tokens)
}

/// Return true for a text such as `<0x0A>`.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    fn tokens_of(file: &str, config: &str) -> Result<Tokens, Error> {
        let tokenizer = Tokenizer::parse(Path::new("tokenizer.json"), file.as_bytes(), None)?;
        let config = Config::parse(Path::new("config.json"), config.as_bytes())?;
        let folder = Path::new(".");
        tokens(
            &tokenizer,
            Sources { folder, config: &config, limit: 8, pre_tokenizer: None, notes_prefix: false },
        )
    }

    #[test]
    fn holes_are_filled_and_numbers_beyond_the_model_refused() {
        let file = r#"{"added_tokens": [{"id": 3, "content": "<|x|>"}, {"id": 4, "content": "a\u2581b"}],
            "model": {"vocab": {"a": 0, "b": 2}}}"#;
        let tokens = tokens_of(file, r#"{"vocab_size": 6}"#).unwrap();
        assert_eq!(tokens.lists().0, ["a", "[PAD1]", "b", "<|x|>", "a b", "[PAD5]"]);
        let error = tokens_of(file, r#"{"vocab_size": 4}"#).unwrap_err().to_string();
        assert!(error.contains("with number 4, wanted numbers below 4"), "{error}");
        let error = tokens_of(file, r#"{"vocab_size": 2000000000}"#).unwrap_err().to_string();
        assert!(error.contains("at most 8, the rows of the embedding"), "{error}");
    }
}
