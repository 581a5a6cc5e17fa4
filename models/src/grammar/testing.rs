//! A vocabulary for tests, and a measure of their work.

use alloc::{format, string::String, vec::Vec};
use std::time::{Duration, Instant};

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

/// The work of a test since a moment.
pub(super) struct Work {
    start: Instant,
    /// The processor time of the thread by then, where the system tells it.
    used: Option<Duration>,
}

impl Work {
    pub(super) fn begin() -> Self {
        Self { start: Instant::now(), used: used() }
    }

    /// Check that it took seconds, not minutes. Where the system tells it, the time that the thread
    /// had a processor counts, so that other programs slow no test down.
    pub(super) fn check_small(&self, what: impl core::fmt::Display) {
        let used = used().zip(self.used).map(|(now, before)| now.saturating_sub(before));
        let spent = used.unwrap_or_else(|| self.start.elapsed());
        assert!(spent.as_secs() < 20, "{spent:?}: {:.200}", format!("{what}"));
    }
}

/// Return the time for which this thread had a processor, as Linux tells it.
fn used() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(told.split(' ').next()?.parse().ok()?))
}
