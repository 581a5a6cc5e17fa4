//! Untrusted grammars, and random tokens and rollbacks in those that compile.
//!
//! The first byte chooses the language; the rest up to a zero byte is the grammar, and what follows
//! chooses tokens. Compiling must end before the deadline with a grammar or an error that can be
//! printed. Every token of a mask must be accepted, and every other refused. A rollback must lead
//! to the mask that was there before.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use backstitch_models::Token;
use backstitch_models::grammar::{Compiler, Grammar, GrammarError, Matcher, Trigger, Triggers};
use backstitch_models::vocab::{Vocab, VocabSource};
use libfuzzer_sys::fuzz_target;

/// The deadline of a grammar, with time for a slow machine.
const SOON: Duration = Duration::from_secs(15);
/// The longest grammar, so that many are tried.
const MAX_TEXT: usize = 4096;
/// The number of tokens tried with a grammar.
const MAX_TOKENS: usize = 48;

/// Words, control tokens, an end, and all bytes.
static COMPILER: LazyLock<Compiler> = LazyLock::new(|| {
    let mut tokens: Vec<(String, i32)> = vec![("<unk>".into(), 2), ("</s>".into(), 3), ("<|c|>".into(), 3)];
    tokens.extend(["true", "{\"", "\":", "ab", "ba", "a", "12", "]}", "<u>"].map(|word| (word.into(), 1)));
    tokens.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6)));
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| text.as_str()).collect();
    let source = VocabSource {
        model: "llama",
        tokens: &texts,
        scores: vec![0.0; texts.len()],
        types: tokens.iter().map(|(_, kind)| *kind).collect(),
        ..VocabSource::default()
    };
    let vocab = Vocab::new(&source).expect("the vocabulary is well-formed");
    Compiler::new(&vocab).expect("the vocabulary is small")
});

fuzz_target!(|input: &[u8]| {
    let Some((&language, rest)) = input.split_first() else { return };
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let text = String::from_utf8_lossy(&rest[..end.min(MAX_TEXT)]);
    let choices = rest.get(end + 1..).unwrap_or_default();
    let start = Instant::now();
    match compiled(language, &text) {
        Ok(grammar) => walk(&grammar, choices, start),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
});

fn compiled(language: u8, text: &str) -> Result<Grammar, GrammarError> {
    match language % 8 {
        0..=3 => COMPILER.gbnf(text),
        4 | 5 => COMPILER.json_schema(text),
        6 => {
            let _ = Triggers::new(&[Trigger::FullPattern(text.into())]);
            COMPILER.regex(text)
        }
        _ => COMPILER.lark(text),
    }
}

/// Follow random tokens, and go back now and then.
fn walk(grammar: &Grammar, choices: &[u8], start: Instant) {
    let mut matcher = grammar.matcher();
    for &choice in choices.iter().take(MAX_TOKENS) {
        if start.elapsed() > SOON / 3 {
            return; // masks of a hostile grammar may take a fraction of a second each
        }
        let Ok(mask) = matcher.mask() else {
            go_back(&mut matcher, choice);
            continue;
        };
        let mask = mask.clone();
        let n = mask.len();
        if choice >= 0xF0 || n == 0 {
            go_back(&mut matcher, choice);
            continue;
        }
        let token = mask.iter().nth(usize::from(choice) % n).expect("the mask has n tokens");
        let refused = (0..COMPILER.vocab().n_vocab() as u32).map(Token).find(|&token| !mask.contains(token));
        if let Some(refused) = refused {
            assert!(matcher.accept(refused).is_err(), "{refused:?} is not in the mask");
        }
        if let Err(error) = matcher.accept(token) {
            assert!(matches!(error, GrammarError::Stuck { .. }), "{token:?} is in the mask: {error}");
            continue;
        }
        if choice % 4 == 0 && matcher.rollback(1).is_ok() {
            if let Ok(again) = matcher.mask() {
                assert_eq!(again.words(), mask.words());
            }
        }
    }
}

fn go_back(matcher: &mut Matcher, choice: u8) {
    let n = usize::from(choice % 16).min(matcher.tokens().len());
    let _ = matcher.rollback(n);
}
