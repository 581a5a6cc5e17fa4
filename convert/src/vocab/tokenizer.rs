//! `tokenizer.json`, or a file of another form that says the same, and what `tokenizer_config.json`
//! adds to it.

mod ranks;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::tokens::{user_defined, wrong};
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
    /// Roles of tokens, for folders without `tokenizer_config.json`.
    pub(super) roles: Option<Value>,
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
    /// Beginning of texts inside of words, which merged texts lose.
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
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
    /// Files of a folder that are read, the first that is there.
    pub(super) const FILES: [&str; 3] = ["tokenizer.json", "tekken.json", "tiktoken.model"];

    /// Read `tokenizer.json`, `tekken.json` or `tiktoken.model`, and `tokenizer_config.json` of a
    /// folder.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::FileTooLarge`] or [`Error::Format`] if they are unlike their
    /// names.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let config = read_json(&folder.join("tokenizer_config.json"))?;
        let [json, tekken, tiktoken] = Self::FILES.map(|name| folder.join(name));
        if !json.is_file() && tekken.is_file() {
            let (file, roles) = ranks::parse_tekken(&tekken, &read_file(&tekken)?)?;
            let tokenizer = Self::of_file(&tekken, file, config.as_ref().or(Some(&roles)))?;
            return Ok(Self { roles: Some(roles), ..tokenizer });
        }
        if !json.is_file() && tiktoken.is_file() {
            let file = ranks::parse_tiktoken(&tiktoken, &read_file(&tiktoken)?)?;
            return Self::of_file(&tiktoken, file, config.as_ref());
        }
        Self::parse(&json, &read_file(&json)?, config.as_ref())
    }

    /// Parse `tokenizer.json`; `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Format`] if it is not what it seems, two tokens have one number, or a merge is of
    /// texts that are no tokens.
    pub fn parse(path: &Path, bytes: &[u8], config: Option<&Value>) -> Result<Self, Error> {
        Self::of_file(path, parse(path, bytes)?, config)
    }

    /// Check the content of a file, and add what `tokenizer_config.json` says.
    fn of_file(path: &Path, mut file: File, config: Option<&Value>) -> Result<Self, Error> {
        let mut added = BTreeMap::new();
        for token in std::mem::take(&mut file.added_tokens) {
            let (id, content) = (token.id, token.content.clone());
            if let Some(other) = added.insert(id, token).filter(|other| other.content != content) {
                return Err(two_tokens(path, &other.content, &content, id));
            }
        }
        let n_listed = added.len();
        let mut tokenizer = Self { path: path.into(), file, added, n_listed, roles: None };
        tokenizer.check_numbers()?;
        tokenizer.check_merges()?;
        if let Some(config) = config {
            tokenizer.add_configured(config)?;
        }
        tokenizer.check_added()?;
        Ok(tokenizer)
    }

    /// Check that no two pieces have one number.
    fn check_numbers(&self) -> Result<(), Error> {
        let Pieces::Numbered(pieces) = &self.file.model.vocab else { return Ok(()) };
        let mut seen: HashMap<usize, &str> = HashMap::new();
        for (text, id) in pieces {
            if let Some(other) = seen.insert(*id, text) {
                return Err(two_tokens(&self.path, other, text, *id));
            }
        }
        Ok(())
    }

    /// Check that merges join two pieces to a third.
    fn check_merges(&self) -> Result<(), Error> {
        let Some(pieces) = self.numbered() else { return Ok(()) };
        let known: HashSet<&str> = pieces.iter().map(|piece| piece.0.as_str()).collect();
        let prefix = self.file.model.continuing_subword_prefix.as_deref().unwrap_or_default();
        for (index, merge) in self.file.model.merges.iter().enumerate() {
            let pair = match merge {
                Merge::Text(text) => text.split_once(' ').filter(|(_, b)| !b.contains(' ')),
                Merge::Pair([a, b]) => Some((a.as_str(), b.as_str())),
            };
            let merge_is = |found: &str, wanted| wrong(&self.path, format!("merge {index}, {found}"), wanted);
            let Some((a, b)) = pair else {
                return Err(merge_is(&format!("{merge:?}"), "two texts with a space between them"));
            };
            let merged = format!("{a}{}", b.strip_prefix(prefix).unwrap_or(b));
            if let Some(text) = [a, b, &merged].into_iter().find(|text| !known.contains(text)) {
                let found = format!("{a:?} and {b:?}, although {text:?} is no token");
                return Err(merge_is(&found, "two tokens whose texts together are a third"));
            }
        }
        Ok(())
    }

    /// Check that no added token has the number of another piece.
    fn check_added(&self) -> Result<(), Error> {
        let by_number: HashMap<usize, &str> = match &self.file.model.vocab {
            Pieces::Numbered(pieces) => pieces.iter().map(|(text, id)| (*id, text.as_str())).collect(),
            Pieces::Scored(pieces) => pieces.iter().map(|piece| piece.0.as_str()).enumerate().collect(),
        };
        for (id, added) in &self.added {
            // One list may have spaces where the other has marks of them.
            let other = by_number.get(id).filter(|text| user_defined(text) != user_defined(&added.content));
            if let Some(other) = other {
                return Err(two_tokens(&self.path, other, &added.content, *id));
            }
        }
        Ok(())
    }

    /// Add what `tokenizer_config.json` lists, and make its special tokens special.
    ///
    /// # Errors
    /// [`Error::Format`] if it gives a number of `tokenizer.json` to another token.
    fn add_configured(&mut self, config: &Value) -> Result<(), Error> {
        let listed = config.get("added_tokens_decoder").and_then(Value::as_object);
        for (id, token) in listed.into_iter().flatten() {
            let content = token.get("content").and_then(Value::as_str);
            let (Ok(id), Some(content)) = (id.parse(), content) else { continue };
            let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
            let token = Added { id, content: content.into(), special, named: false };
            let known = self.added.entry(id).or_insert(token);
            if known.content != content {
                let path = self.path.with_file_name("tokenizer_config.json");
                return Err(two_tokens(&path, &known.content, content, id));
            }
        }
        let named: HashSet<&str> = special_texts(config).collect();
        if let Pieces::Numbered(pieces) = &self.file.model.vocab {
            for (text, id) in pieces.iter().filter(|(text, _)| named.contains(text.as_str())) {
                let token = Added { id: *id, content: text.clone(), special: true, named: true };
                self.added.entry(*id).or_insert(token);
            }
        }
        for token in self.added.values_mut() {
            token.named = named.contains(token.content.as_str());
            token.special |= token.named;
        }
        Ok(())
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

/// Make the error of two tokens with one number.
fn two_tokens(path: &Path, one: &str, other: &str, id: usize) -> Error {
    wrong(path, format!("the tokens {one:?} and {other:?} with number {id}"), "one token for each number")
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
    use serde_json::json;

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
            (
                r#"{"added_tokens": [{"id": 1, "content": "x"}], "model": {"vocab": {"a": 0, "b": 1}}}"#,
                "\"b\" and \"x\" with number 1",
            ),
            (
                r#"{"added_tokens": [{"id": 1, "content": "x"}], "model": {"vocab": [["a", 0], ["b", 1]]}}"#,
                "\"b\" and \"x\" with number 1",
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
    fn configured_tokens_do_not_take_the_numbers_of_others() {
        let file = r#"{"added_tokens": [{"id": 1, "content": "x"}], "model": {"vocab": {"\u2581": 0}}}"#;
        let with = |id: &str, content: &str| {
            let config = json!({ "added_tokens_decoder": { id: { "content": content } } });
            Tokenizer::parse(Path::new("tokenizer.json"), file.as_bytes(), Some(&config))
        };
        for (id, content) in [("0", " "), ("1", "x"), ("2", "y")] {
            assert!(with(id, content).is_ok(), "{id}");
        }
        let error = with("1", "y").unwrap_err().to_string();
        assert!(
            error.contains("tokenizer_config.json: found the tokens \"x\" and \"y\" with number 1"),
            "{error}"
        );
        let error = with("0", "y").unwrap_err().to_string();
        assert!(error.contains("\"y\" with number 0, wanted one token for each number"), "{error}");
    }

    #[test]
    fn both_forms_of_merges_are_read() {
        let vocab = r#"{"a": 0, "b": 1, "ab": 2, "c d": 3, "e": 4, "c de": 5}"#;
        let text = format!(r#"{{"model": {{"vocab": {vocab}, "merges": ["a b", ["c d", "e"]]}}}}"#);
        assert_eq!(parse(&text).unwrap().merges(), ["a b", "cĠd e"]);
        let prefix = r#"{"model": {"vocab": {"a": 0, "@b": 1, "ab": 2}, "merges": ["a @b"],
            "continuing_subword_prefix": "@"}}"#;
        assert!(parse(prefix).is_ok());
    }

    #[test]
    fn merges_of_unknown_tokens_are_refused() {
        for (merges, wanted) in [
            (r#"["a b", "a c"]"#, "merge 1, \"a\" and \"c\", although \"c\" is no token, wanted two tokens"),
            (r#"[["c", "a"]]"#, "merge 0, \"c\" and \"a\", although \"c\" is no token"),
            (r#"["b a"]"#, "although \"ba\" is no token"),
            (r#"["ab"]"#, "merge 0, Text(\"ab\"), wanted two texts with a space between them"),
            (r#"["a b a"]"#, "wanted two texts with a space between them"),
        ] {
            let text =
                format!(r#"{{"model": {{"vocab": {{"a": 0, "b": 1, "ab": 2}}, "merges": {merges}}}}}"#);
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}\nwanted: {wanted}");
        }
    }
}
