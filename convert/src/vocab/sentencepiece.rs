//! SentencePiece's models: a small reader of their protocol buffers, and the vocabulary they make.

use std::path::Path;

use serde_json::Value;

use super::special::Specials;
use super::tokens::{Kind, Tokens, looks_special, user_defined, wrong};
use super::{Sources, Tokenizer};
use crate::error::Error;
use crate::json::{Entries, parse, read_file, read_json};
use crate::metadata::Metadata;

/// Score of added tokens.
const ADDED_SCORE: f32 = -1000.0;

/// The pieces of a model, and its treatment of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Text, score and kind of each piece.
    pub(super) pieces: Vec<(String, f32, u64)>,
    /// Kind of the model: 1 for scores, 2 for merges.
    pub(super) kind: u64,
    /// True if a space is put before texts.
    pub(super) adds_prefix: bool,
    /// True if spaces are joined and trimmed.
    pub(super) removes_spaces: bool,
    /// Replacements of characters, compiled.
    pub(super) charsmap: Vec<u8>,
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed(u32),
}

/// Parse a model; `path` is for errors.
///
/// # Errors
/// [`Error::Format`] if it is no such message, or a piece is no text.
pub fn parse_model(path: &Path, bytes: &[u8]) -> Result<Model, Error> {
    // Absent fields have these values.
    let mut model = Model { kind: 1, adds_prefix: true, removes_spaces: true, ..Model::default() };
    let broken = || wrong(path, "a damaged message", "a model of SentencePiece");
    let mut rest = bytes;
    while !rest.is_empty() {
        match field(&mut rest).ok_or_else(broken)? {
            (1, Field::Bytes(piece)) => model.pieces.push(parse_piece(piece).ok_or_else(broken)?),
            (2, Field::Bytes(trainer)) => each(trainer, |number, field| {
                if let (3, Field::Number(kind)) = (number, field) {
                    model.kind = kind;
                }
            })
            .ok_or_else(broken)?,
            (3, Field::Bytes(normalizer)) => each(normalizer, |number, field| match (number, field) {
                (2, Field::Bytes(map)) => model.charsmap = map.into(),
                (3, Field::Number(flag)) => model.adds_prefix = flag != 0,
                (4, Field::Number(flag)) => model.removes_spaces = flag != 0,
                _ => {}
            })
            .ok_or_else(broken)?,
            _ => {}
        }
    }
    if model.pieces.is_empty() { Err(broken()) } else { Ok(model) }
}

/// Parse the text, score and kind of a piece.
fn parse_piece(bytes: &[u8]) -> Option<(String, f32, u64)> {
    let mut piece = (Some(String::new()), 0.0, Kind::Normal as u64);
    each(bytes, |number, field| match (number, field) {
        (1, Field::Bytes(text)) => piece.0 = String::from_utf8(text.into()).ok(),
        (2, Field::Fixed(bits)) => piece.1 = f32::from_bits(bits),
        (3, Field::Number(kind)) => piece.2 = kind,
        _ => {}
    })?;
    Some((piece.0?, piece.1, piece.2))
}

/// Call a function for each field of a message; `None` if it is damaged.
fn each(mut bytes: &[u8], mut visit: impl FnMut(u64, Field<'_>)) -> Option<()> {
    while !bytes.is_empty() {
        let (number, field) = field(&mut bytes)?;
        visit(number, field);
    }
    Some(())
}

/// Take the number and the value of the next field; `None` if it is damaged.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let tag = varint(bytes)?;
    let field = match tag & 7 {
        0 => Field::Number(varint(bytes)?),
        1 => {
            take(bytes, 8)?;
            Field::Number(0)
        }
        2 => {
            let n = usize::try_from(varint(bytes)?).ok()?;
            Field::Bytes(take(bytes, n)?)
        }
        5 => Field::Fixed(u32::from_le_bytes(*take(bytes, 4)?.first_chunk()?)),
        _ => return None,
    };
    Some((tag >> 3, field))
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(taken)
}

/// Take a number of 1 to 10 bytes, 7 bits in each.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(bytes, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Make the tokens of a model, `n` of them.
pub(super) fn tokens(model: &Model, n: usize) -> Tokens {
    let mut tokens = Tokens::padding(n);
    for (id, (text, score, kind)) in model.pieces.iter().enumerate().take(n) {
        // Pieces that people defined are split like others.
        let kinds = [Kind::Unknown, Kind::Control, Kind::Unused, Kind::Byte];
        let kind = kinds.into_iter().find(|known| *known as u64 == *kind).unwrap_or(Kind::Normal);
        tokens.set(id, text.as_str(), *score, kind);
    }
    tokens
}

/// Set the keys of a vocabulary. `with_tokenizer` takes added tokens from `tokenizer.json` as well.
pub(super) fn set(sources: Sources<'_>, with_tokenizer: bool, meta: &mut Metadata) -> Result<(), Error> {
    let path = sources.folder.join("tokenizer.model");
    let model = parse_model(&path, &read_file(&path)?)?;
    let mut tokens = tokens(&model, sources.vocab_size(model.pieces.len())?);
    add_listed(sources.folder, &model, &mut tokens)?;
    add_configured(sources.folder, &model, with_tokenizer, &mut tokens)?;
    let is_there = sources.folder.join("tokenizer.json").is_file();
    let tokenizer = is_there.then(|| Tokenizer::read(sources.folder)).transpose()?;
    if let Some(tokenizer) = tokenizer.as_ref().filter(|_| with_tokenizer) {
        for added in tokenizer.listed() {
            let kind = if added.special { Kind::Control } else { Kind::UserDefined };
            model.expect_free(&tokenizer.path, added.id, &added.content)?;
            tokens.set(added.id, added.content.as_str(), ADDED_SCORE, kind);
        }
    }
    let specials = Specials::read(sources, tokenizer.as_ref(), tokens.len())?;
    tokens.write("llama", Some("default"), true, meta);
    specials.write(meta);
    Ok(())
}

impl Model {
    /// Check that an added token does not take the number of a piece that texts are split into.
    /// Those that are reserved for people's tokens may get other texts.
    ///
    /// # Errors
    /// [`Error::Format`] with both; `path` is the file of the added token.
    fn expect_free(&self, path: &Path, id: usize, text: &str) -> Result<(), Error> {
        let is_text = |kind| [Kind::Normal as u64, Kind::Byte as u64].contains(&kind);
        match self.pieces.get(id) {
            Some((piece, _, kind))
                if is_text(*kind) && !looks_special(piece) && user_defined(piece) != user_defined(text) =>
            {
                let found = format!("the added token {text:?} with number {id}, which is that of {piece:?}");
                Err(wrong(path, found, "one token for each number"))
            }
            _ => Ok(()),
        }
    }
}

/// Add the tokens of `added_tokens.json`.
///
/// # Errors
/// [`Error::Format`] if one takes the number of a piece; the errors of reading the file.
pub(super) fn add_listed(folder: &Path, model: &Model, tokens: &mut Tokens) -> Result<(), Error> {
    let path = folder.join("added_tokens.json");
    if path.is_file() {
        let listed: Entries<usize> = parse(&path, &read_file(&path)?)?;
        for (text, id) in listed.0 {
            model.expect_free(&path, id, &text)?;
            tokens.set(id, text, ADDED_SCORE, Kind::UserDefined);
        }
    }
    Ok(())
}

/// Add the tokens of `tokenizer_config.json`. With `literally` they keep their texts and kinds.
fn add_configured(folder: &Path, model: &Model, literally: bool, tokens: &mut Tokens) -> Result<(), Error> {
    let path = folder.join("tokenizer_config.json");
    let config = read_json(&path)?;
    let listed = config.as_ref().and_then(|config| config.get("added_tokens_decoder"));
    for (id, token) in listed.and_then(Value::as_object).into_iter().flatten() {
        let text = token.get("content").and_then(Value::as_str);
        let (Ok(id), Some(text)) = (id.parse(), text) else { continue };
        model.expect_free(&path, id, text)?;
        let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
        if special || !literally && looks_special(text) {
            tokens.set(id, text, ADDED_SCORE, Kind::Control);
        } else {
            let text = if literally { text.into() } else { user_defined(text) };
            tokens.set(id, text, ADDED_SCORE, Kind::UserDefined);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encode a field of bytes.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    #[test]
    fn models_are_parsed_and_damage_is_noticed() {
        let score = [&[2 << 3 | 5][..], &(-1.5f32).to_le_bytes()].concat();
        let piece = [bytes(1, b"ab"), score, vec![3 << 3, 6]].concat();
        let model = [bytes(1, &piece), bytes(2, &[3 << 3, 2]), bytes(3, &[3 << 3, 0])].concat();
        let path = Path::new("tokenizer.model");
        let parsed = parse_model(path, &model).unwrap();
        assert_eq!(parsed.pieces, [("ab".to_owned(), -1.5, 6)]);
        assert_eq!((parsed.kind, parsed.adds_prefix, parsed.removes_spaces), (2, false, true));
        for n in 0..model.len() {
            // A message that ends between fields is a shorter message.
            let cut = parse_model(path, &model[..n]);
            assert!(cut.is_err() || n == piece.len() + 2 || n == piece.len() + 6, "{n}");
        }
        assert!(parse_model(path, &[0xff; 12]).is_err());
    }

    #[test]
    fn added_tokens_do_not_take_the_numbers_of_pieces() {
        let pieces = [("<s>", Kind::Control), ("\u{2581}a", Kind::Normal), ("<0x0A>", Kind::Byte)];
        let pieces = pieces.map(|(text, kind)| (text.to_owned(), 0.0, kind as u64)).into();
        let model = Model { pieces, ..Model::default() };
        let folder = tempfile::tempdir().unwrap();
        let added = |id: usize, text: &str| {
            let listed = serde_json::json!({ text: id }).to_string();
            std::fs::write(folder.path().join("added_tokens.json"), listed).unwrap();
            add_listed(folder.path(), &model, &mut tokens(&model, 4)).map_err(|error| error.to_string())
        };
        for (id, text) in [(0, "<|start|>"), (1, " a"), (2, "<0x0A>"), (3, "new")] {
            assert_eq!(added(id, text), Ok(()));
        }
        for (id, text) in [(1, "b"), (2, "b")] {
            let error = added(id, text).unwrap_err();
            let wanted = format!("added_tokens.json: found the added token \"b\" with number {id}");
            assert!(error.contains(&wanted), "{error}");
        }
    }
}
