//! `tokenizer.json`, and what `tokenizer_config.json` adds to it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::tokens::wrong;
use crate::error::Error;
use crate::json::{Entries, parse, read_file, read_json};

/// A tokenizer, with the added tokens of all files.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Added tokens by number, each with that number in it.
    pub(super) added: BTreeMap<usize, Added>,
    /// Number of added tokens in `tokenizer.json`.
    n_listed: usize,
}

/// The content of `tokenizer.json`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    pub normalizer: Value,
    #[serde(default)]
    pub pre_tokenizer: Value,
    #[serde(default)]
    pub post_processor: Value,
    #[serde(default)]
    pub decoder: Value,
    pub model: Model,
}

/// A token beside the vocabulary.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Added {
    #[serde(default)]
    pub id: usize,
    pub content: String,
    #[serde(default)]
    pub special: bool,
    /// True if the configuration gives the token a role.
    #[serde(skip)]
    pub named: bool,
}

/// The vocabulary and how texts are split into it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Model {
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    pub vocab: Pieces,
    #[serde(default)]
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: Option<bool>,
    #[serde(default)]
    pub ignore_merges: Option<bool>,
    #[serde(default)]
    pub unk_id: Option<usize>,
}

/// The pieces of a vocabulary.
#[derive(Clone, Debug)]
pub(super) enum Pieces {
    /// Texts with their numbers.
    Numbered(Vec<(String, usize)>),
    /// Texts with their scores, numbered in order.
    Scored(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for Pieces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PiecesVisitor)
    }
}

struct PiecesVisitor;

impl<'de> Visitor<'de> for PiecesVisitor {
    type Value = Pieces;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of numbers or a list of scores")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Pieces, A::Error> {
        Entries::deserialize(MapAccessDeserializer::new(map)).map(|entries| Pieces::Numbered(entries.0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Pieces, A::Error> {
        let mut pieces = Vec::new();
        while let Some(piece) = list.next_element()? {
            pieces.push(piece);
        }
        Ok(Pieces::Scored(pieces))
    }
}

/// A pair of texts that are joined, in either form of the format.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair([String; 2]),
}

impl Tokenizer {
    /// Read `tokenizer.json` and `tokenizer_config.json` of a folder.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::FileTooLarge`] or [`Error::Format`] if they are unlike their
    /// names.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("tokenizer.json");
        let config = read_json(&folder.join("tokenizer_config.json"))?;
        Self::parse(&path, &read_file(&path)?, config.as_ref())
    }

    /// Parse `tokenizer.json`; `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Format`] if it is not what it seems, or two tokens have one number.
    pub fn parse(path: &Path, bytes: &[u8], config: Option<&Value>) -> Result<Self, Error> {
        let mut file: File = parse(path, bytes)?;
        let mut added = BTreeMap::new();
        for token in std::mem::take(&mut file.added_tokens) {
            let (id, content) = (token.id, token.content.clone());
            if let Some(other) = added.insert(id, token).filter(|other| other.content != content) {
                let found = format!("the added tokens {:?} and {content:?} with number {id}", other.content);
                return Err(wrong(path, found, "one token for each number"));
            }
        }
        let n_listed = added.len();
        let mut tokenizer = Self { path: path.into(), file, added, n_listed };
        tokenizer.check_numbers()?;
        if let Some(config) = config {
            tokenizer.add_configured(config);
        }
        Ok(tokenizer)
    }

    /// Check that no two pieces have one number.
    fn check_numbers(&self) -> Result<(), Error> {
        let Pieces::Numbered(pieces) = &self.file.model.vocab else { return Ok(()) };
        let mut seen: HashMap<usize, &str> = HashMap::new();
        for (text, id) in pieces {
            if let Some(other) = seen.insert(*id, text) {
                let found = format!("the tokens {other:?} and {text:?} with number {id}");
                return Err(wrong(&self.path, found, "one token for each number"));
            }
        }
        Ok(())
    }

    /// Add what `tokenizer_config.json` lists, and make its special tokens special.
    fn add_configured(&mut self, config: &Value) {
        let listed = config.get("added_tokens_decoder").and_then(Value::as_object);
        for (id, token) in listed.into_iter().flatten() {
            let content = token.get("content").and_then(Value::as_str);
            let (Ok(id), Some(content)) = (id.parse(), content) else { continue };
            let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
            self.added.entry(id).or_insert(Added { id, content: content.into(), special, named: false });
        }
        let named: Vec<&str> = special_texts(config).collect();
        if let Pieces::Numbered(pieces) = &self.file.model.vocab {
            for (text, id) in pieces.iter().filter(|(text, _)| named.contains(&text.as_str())) {
                let token = Added { id: *id, content: text.clone(), special: true, named: true };
                self.added.entry(*id).or_insert(token);
            }
        }
        for token in self.added.values_mut() {
            token.named = named.contains(&token.content.as_str());
            token.special |= token.named;
        }
    }

    /// Return the added tokens in the order of their numbers.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Added> {
        self.added.values()
    }

    /// Return the pieces with numbers; `None` if they have scores.
    pub(super) fn numbered(&self) -> Option<&[(String, usize)]> {
        match &self.file.model.vocab {
            Pieces::Numbered(pieces) => Some(pieces),
            Pieces::Scored(_) => None,
        }
    }

    /// Return the number of entries of both lists, with those that stand in both counted twice.
    pub(super) fn n_entries(&self) -> usize {
        self.n_listed + self.numbered().map_or(0, <[_]>::len)
    }

    /// Return the number of different tokens.
    pub(super) fn n_tokens(&self) -> usize {
        match &self.file.model.vocab {
            Pieces::Numbered(pieces) => {
                let ids: HashSet<usize> = pieces.iter().map(|piece| piece.1).collect();
                ids.len() + self.added.keys().filter(|id| !ids.contains(id)).count()
            }
            Pieces::Scored(pieces) => {
                pieces.len() + self.added.keys().filter(|id| **id >= pieces.len()).count()
            }
        }
    }

    /// Return true for a vocabulary in SentencePiece's manner: merges of characters, and a token
    /// for each byte.
    pub fn falls_back_to_bytes(&self) -> bool {
        let is_sequence = self.file.decoder.get("type").and_then(Value::as_str) == Some("Sequence");
        self.file.model.kind.as_deref() == Some("BPE")
            && self.file.model.byte_fallback == Some(true)
            && is_sequence
    }

    /// Return the merges, each as two texts with a space between them. Spaces inside of a text
    /// become `Ġ`, as in the alphabet of bytes.
    pub(super) fn merges(&self) -> Vec<String> {
        let visible = |text: &String| text.replace(' ', "\u{120}");
        let joined = |merge: &Merge| match merge {
            Merge::Text(text) => text.clone(),
            Merge::Pair([a, b]) => format!("{} {}", visible(a), visible(b)),
        };
        self.file.model.merges.iter().map(joined).collect()
    }
}

/// Return the texts of the special tokens that a configuration names.
pub(super) fn special_texts(config: &Value) -> impl Iterator<Item = &str> {
    const ROLES: [&str; 7] =
        ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
    let more = config.get("additional_special_tokens").and_then(Value::as_array);
    ROLES.iter().filter_map(|role| config.get(role)).chain(more.into_iter().flatten()).filter_map(text_of)
}

/// Return the text of a token that is written as a text or as an object.
pub(super) fn text_of(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content").and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Tokenizer, Error> {
        Tokenizer::parse(Path::new("tokenizer.json"), text.as_bytes(), None)
    }

    #[test]
    fn duplicates_are_refused() {
        let cases = [
            (r#"{"model": {"vocab": {"a": 0, "a": 1}}}"#, "the key \"a\" appears twice"),
            (r#"{"model": {"vocab": {"a": 0, "b": 0}}}"#, "\"a\" and \"b\" with number 0"),
            (
                r#"{"added_tokens": [{"id": 5, "content": "x"}, {"id": 5, "content": "y"}],
                    "model": {"vocab": {}}}"#,
                "\"x\" and \"y\" with number 5",
            ),
            (r#"{"model": {"vocab": {"a": -1}}}"#, "invalid value"),
            (r#"{"model": {"vocab": 7}}"#, "an object of numbers or a list of scores"),
            (r#"{}"#, "missing field `model`"),
        ];
        for (text, wanted) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}\nwanted: {wanted}");
        }
    }

    #[test]
    fn both_forms_of_merges_are_read() {
        let tokenizer = parse(r#"{"model": {"vocab": {}, "merges": ["a b", ["c d", "e"]]}}"#).unwrap();
        assert_eq!(tokenizer.merges(), ["a b", "cĠd e"]);
    }
}
