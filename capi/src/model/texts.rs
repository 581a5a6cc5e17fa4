//! Tokens as C reads them: texts that end with a zero, scores, attributes.

use backstitch_models::Error;
use backstitch_models::gguf::Gguf;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab, VocabSource};
use std::ffi::{CStr, CString};

/// Attributes of tokens, by llama.h's bits.
pub mod attr {
    /// The unknown token.
    pub const UNKNOWN: i32 = 1;
    /// A token that is never used.
    pub const UNUSED: i32 = 1 << 1;
    /// A token of text.
    pub const NORMAL: i32 = 1 << 2;
    /// A control token.
    pub const CONTROL: i32 = 1 << 3;
    /// A token that users defined.
    pub const USER_DEFINED: i32 = 1 << 4;
    /// A byte.
    pub const BYTE: i32 = 1 << 5;
}

/// Texts, scores and types of all tokens.
#[derive(Debug)]
pub struct Texts {
    /// The kind of vocabulary, by llama.h's numbers.
    pub kind: i32,
    texts: Vec<CString>,
    scores: Vec<f32>,
    types: Vec<i32>,
}

impl Texts {
    /// Read the vocabulary of a file.
    ///
    /// # Errors
    /// Those of [`VocabSource::from_gguf`].
    pub fn read(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let source = VocabSource::from_gguf(gguf)?;
        let kind = match source.model {
            "llama" => 1,
            "gpt2" | "gemma4" | "whitespace" | "hybriddna" => 2,
            "bert" => 3,
            "t5" => 4,
            "rwkv" => 5,
            "plamo2" => 6,
            _ => 0,
        };
        let texts = source.tokens.iter().map(|text| crate::log::c_string(text)).collect();
        Ok(Texts { kind, texts, scores: source.scores, types: source.types })
    }

    /// Return the text of a token.
    pub fn text(&self, token: usize) -> Option<&CStr> {
        self.texts.get(token).map(CString::as_c_str)
    }

    /// Return the score of a token; 0 if the file states none.
    pub fn score(&self, token: usize) -> f32 {
        self.scores.get(token).copied().unwrap_or(0.0)
    }

    /// Return the attributes of a token: those of the file, and that it is hidden from readers.
    pub fn attributes(&self, token: usize, is_hidden: bool) -> i32 {
        let own = match self.types.get(token) {
            Some(2) => attr::UNKNOWN,
            Some(3) => attr::CONTROL,
            Some(4) => attr::USER_DEFINED,
            Some(5) => attr::UNUSED,
            Some(6) => attr::BYTE,
            Some(1) | None => attr::NORMAL,
            Some(_) => 0,
        };
        match is_hidden && own & (attr::CONTROL | attr::UNKNOWN) == 0 {
            true => attr::CONTROL,
            false => own,
        }
    }
}

/// Return the token that a line end becomes; -1 if there is none.
pub fn line_end(vocab: &Vocab) -> i32 {
    let mut tokens = Vec::new();
    vocab.tokenize("\n", AddSpecial::No, ParseSpecial::No, &mut tokens);
    tokens.last().map_or(-1, |token| token.0 as i32)
}
