//! A vocabulary for tests.

use alloc::{format, string::String, vec::Vec};

use crate::grammar::Compiler;
use crate::vocab::{Vocab, VocabSource};

/// The first of the tokens for single bytes.
pub(super) const FIRST_BYTE: u32 = 40;

/// Words, of which one is also the text of a token for a byte.
const WORDS: [&str; 12] = ["true", "{\"", "\":", "abc", "ab", "12", "\", \"", "cat", "]", "}", "ее", "a"];

/// Return a vocabulary with an end of the text (2), control tokens (`<|c4|>` to `<|c23|>`), words,
/// and all bytes.
pub(super) fn vocab() -> Vocab {
    let mut tokens: Vec<(String, i32)> =
        Vec::from([("<unk>".into(), 2), ("<s>".into(), 3), ("</s>".into(), 3)]);
    tokens.push(("<user>".into(), 4));
    tokens.extend((4..24).map(|i| (format!("<|c{i}|>"), 3)));
    tokens.extend(WORDS.map(|word| (word.into(), 1)));
    tokens.resize(FIRST_BYTE as usize, (String::from("x"), 5));
    tokens.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6)));
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| text.as_str()).collect();
    let source = VocabSource {
        model: "llama",
        tokens: &texts,
        scores: texts.iter().map(|text| text.len() as f32).collect(),
        types: tokens.iter().map(|(_, kind)| *kind).collect(),
        ..VocabSource::default()
    };
    Vocab::new(&source).unwrap()
}

pub(super) fn compiler() -> Compiler {
    Compiler::new(&vocab()).unwrap()
}
