//! A list of tokens with their kinds, and scores where the model has some.

use crate::error::Error;
use crate::metadata::Metadata;
use std::path::Path;

/// The kind of a token, by its number in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

/// A token of the list.
#[derive(Clone, Debug)]
struct Token {
    text: String,
    score: f32,
    kind: Kind,
}

/// The tokens of a vocabulary by number, without holes.
#[derive(Clone, Debug)]
pub(super) struct Tokens(Vec<Token>);

/// Score of padding, which no text is split into.
const PADDING_SCORE: f32 = -10000.0;

impl Tokens {
    /// Make a list of padding.
    pub fn padding(n: usize) -> Self {
        Self(
            (0..n)
                .map(|i| Token { text: format!("[PAD{i}]"), score: PADDING_SCORE, kind: Kind::Unused })
                .collect(),
        )
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Set a token; returns false if the list ends before it.
    pub fn set(&mut self, id: usize, text: impl Into<String>, score: f32, kind: Kind) -> bool {
        let token = self.0.get_mut(id);
        let is_there = token.is_some();
        if let Some(token) = token {
            *token = Token { text: text.into(), score, kind };
        }
        is_there
    }

    /// Replace the first `n` tokens by others; the list stays as long as it is.
    pub fn replace_first(&mut self, n: usize, others: &[(&str, Kind)]) {
        let len = self.len();
        let others = others.iter().map(|&(text, kind)| Token { text: text.into(), score: 0.0, kind });
        self.0.splice(..n.min(len), others);
        self.0.truncate(len);
    }

    /// Return the number of the first token with a text.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.0.iter().position(|token| token.text == text)
    }

    /// Return texts and numbers of kinds.
    pub fn lists(&self) -> (Vec<&str>, Vec<i32>) {
        self.0.iter().map(|token| (token.text.as_str(), token.kind as i32)).unzip()
    }

    /// Change the texts of all tokens.
    pub fn map(&mut self, change: impl Fn(&str, Kind) -> String) {
        for token in &mut self.0 {
            token.text = change(&token.text, token.kind);
        }
    }

    /// Change the kind of all tokens with one of these texts.
    pub fn mark(&mut self, texts: &[&str], kind: Kind) {
        let marked = self.0.iter_mut().filter(|token| texts.contains(&token.text.as_str()));
        marked.for_each(|token| token.kind = kind);
    }

    /// Set model, pre-tokeniser and tokens, with scores if asked for.
    pub fn write(self, model: &str, pre: Option<&str>, with_scores: bool, meta: &mut Metadata) {
        meta.set("tokenizer.ggml.model", model);
        if let Some(pre) = pre {
            meta.set("tokenizer.ggml.pre", pre);
        }
        let scores: Vec<f32> = self.0.iter().map(|token| token.score).collect();
        let kinds: Vec<i32> = self.0.iter().map(|token| token.kind as i32).collect();
        meta.set("tokenizer.ggml.tokens", self.0.into_iter().map(|token| token.text).collect::<Vec<_>>());
        if with_scores {
            meta.set("tokenizer.ggml.scores", scores);
        }
        meta.set("tokenizer.ggml.token_type", kinds);
    }
}

/// Return true for a text that only control tokens have, whatever the files say.
pub(super) fn looks_special(text: &str) -> bool {
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&text)
        || text.starts_with("<|") && text.ends_with("|>")
        || text.starts_with("<｜") && text.ends_with("｜>")
        || text.starts_with("<unused") && text.ends_with('>')
}

/// Return the text of a token that people defined: a real space for the mark of one.
pub(super) fn user_defined(text: &str) -> String {
    text.replace('\u{2581}', " ")
}

/// Make the error of a token that cannot be.
pub(super) fn wrong(path: &Path, found: impl Into<String>, wanted: impl Into<String>) -> Error {
    Error::Format { path: path.into(), found: found.into(), wanted: wanted.into() }
}
