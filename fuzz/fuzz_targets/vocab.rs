//! Untrusted vocabularies, and arbitrary text.
//!
//! The input is a recipe: tokens, merges, kinds, scores and roles, valid and invalid, and a text.
//! Building the vocabulary must fail with an error that can be printed, or succeed in memory
//! bounded by its source. Then every text becomes tokens of the vocabulary, and these become text
//! again. Byte pairs over a whole alphabet give back exactly the text.
#![no_main]

use std::iter::once;

use arbitrary::{Arbitrary, Result, Unstructured};
use backstitch_models::Token;
use backstitch_models::vocab::{
    AddSpecial, ParseSpecial, Roles, TextStream, Vocab, VocabSource, WriteSpecial,
};
use backstitch_testing::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The bytes of tables per byte of source. The most expensive sources are empty and one-byte texts.
const TABLES_PER_BYTE: u64 = 40;
/// The smallest size of the tables, with an entry for each byte.
const SLACK: u64 = 1 << 15;

/// Names of pre-tokenisers, and one that does not exist.
const PRES: [&str; 16] = [
    "default",
    "whitespace",
    "mmbert",
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "qwen35",
    "smollm",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "falcon",
    "bloom",
    "gpt-4o",
    "tekken",
    "none",
];

/// Names of tokenisers, and one that does not exist.
const MODELS: [&str; 12] = [
    "gpt2",
    "gemma4",
    "whitespace",
    "hybriddna",
    "llama",
    "bert",
    "t5",
    "rwkv",
    "plamo2",
    "no_vocab",
    "none",
    "unknown",
];

/// Texts with a special meaning to some code.
const TEXTS: [&str; 25] = [
    "<dna>",
    "</dna>",
    "<oov>",
    "ACGTAC\u{e000}",
    "<s>",
    "a",
    "b",
    "aa",
    "Ġ",
    "Ġa",
    "▁",
    "▁a",
    " ",
    "\n",
    "'s",
    "é",
    "e\u{301}",
    "中",
    "<|im_end|>",
    "<|end|>",
    "</s>",
    "<mask>",
    "<0x61>",
    "<0x",
    "1",
];

fuzz_target!(|input: &[u8]| {
    let _ = run(&mut Unstructured::new(input));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let whole_alphabet = u.arbitrary()?;
    let mut tokens = texts(u, 40, text)?;
    if whole_alphabet {
        tokens.extend(alphabet());
    }
    let merges = texts(u, 40, |u| Ok(text(u)? + if u.ratio(9, 10)? { " " } else { "" } + &text(u)?))?;
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    let plain = whole_alphabet && u.arbitrary()?;
    let model = if plain { "gpt2" } else { *u.choose(&MODELS)? };
    let pre = if u.arbitrary()? { Some(*u.choose(&PRES)?) } else { None };
    let source = VocabSource {
        model,
        // One of them drops white space, another one writes no bytes as letters.
        pre: pre.filter(|&pre| !plain || !["whitespace", "mmbert"].contains(&pre)),
        name: if plain { None } else { *u.choose(&[None, Some("phi-3"), Some("modern-bert")])? },
        scores: if matches!(model, "llama" | "t5" | "plamo2") {
            numbers(u, tokens.len())?
        } else {
            Vec::new()
        },
        types: if plain {
            Vec::new()
        } else {
            numbers::<u8>(u, tokens.len())?.iter().map(|n| i32::from(n % 8)).collect()
        },
        architecture: None,
        size: if u.ratio(1, 4)? { Some(u.int_in_range(0..=64)?) } else { None },
        tokens: &tokens,
        merges: if matches!(model, "gpt2" | "gemma4" | "whitespace" | "hybriddna" | "unknown") {
            &merges
        } else {
            &[]
        },
        roles: roles(u)?,
        add_bos: u.arbitrary()?,
        add_eos: u.arbitrary()?,
        add_space_prefix: u.arbitrary()?,
        merge_spaces: u.arbitrary()?,
        lowercase: u.arbitrary()?,
        strip_accents: u.arbitrary()?,
        charsmap: if model == "t5" { u.arbitrary()? } else { Vec::new() },
        suppressed: if u.ratio(1, 8)? { numbers(u, 4)? } else { Vec::new() },
    };
    let (built, tally) = ALLOCATOR.during_here(|| Vocab::new(&source));
    let texts = tokens.iter().chain(&merges).map(|text| 8 + text.len());
    let n_bytes: usize = texts.sum::<usize>() + source.charsmap.len();
    let limit = SLACK + TABLES_PER_BYTE * n_bytes as u64;
    assert!(tally.bytes <= limit, "{} bytes allocated for {n_bytes}", tally.bytes);
    match built {
        Ok(vocab) => check(&vocab, &text_of(u)?, plain),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

fn check(vocab: &Vocab, text: &str, plain: bool) {
    for parse in [ParseSpecial::No, ParseSpecial::Yes] {
        let mut bare = Vec::new();
        vocab.tokenize(text, AddSpecial::No, parse, &mut bare);
        let mut whole = Vec::new();
        vocab.tokenize(text, AddSpecial::Yes, parse, &mut whole);
        let bos = vocab.bos().filter(|_| vocab.adds_bos());
        let eos = vocab.eos().filter(|_| vocab.adds_eos());
        assert!(whole.iter().eq(bos.iter().chain(&bare).chain(&eos)));
        assert!(bare.iter().all(|token| (token.0 as usize) < vocab.n_vocab()));
        let pieces: Vec<u8> = bare.iter().flat_map(|&token| vocab.piece(token)).copied().collect();
        if plain {
            assert_eq!(pieces, text.as_bytes(), "{bare:?}");
        }
        let (mut stream, mut streamed) = (TextStream::default(), String::new());
        bare.iter().for_each(|&token| stream.push(vocab.piece(token), &mut streamed));
        stream.finish(&mut streamed);
        assert_eq!(streamed, String::from_utf8_lossy(&pieces));
        let tidy = vocab.detokenize(&bare, WriteSpecial::Yes);
        assert!(tidy.len() <= pieces.len());
        let _ = vocab.detokenize(&bare, WriteSpecial::No);
    }
    for id in (0..vocab.n_vocab() as u32).chain(once(u32::MAX)) {
        let _ = (vocab.is_eog(Token(id)), vocab.is_hidden(Token(id)), vocab.token_text(Token(id)));
    }
}

/// Return a few texts, each made by `one`.
fn texts(
    u: &mut Unstructured<'_>,
    most: usize,
    one: fn(&mut Unstructured<'_>) -> Result<String>,
) -> Result<Vec<String>> {
    let n = u.int_in_range(0..=most)?;
    (0..n).map(|_| one(u)).collect()
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    if u.ratio(1, 8)? {
        return String::arbitrary(u);
    }
    let n = u.int_in_range(0..=3)?;
    (0..n).map(|_| u.choose(&TEXTS).copied()).collect()
}

/// Return the text to cut: sometimes a long repetition, to find slow cases.
fn text_of(u: &mut Unstructured<'_>) -> Result<String> {
    let times = if u.ratio(1, 8)? { 500 } else { 1 };
    let part = texts(u, 12, text)?.concat() + &String::arbitrary(u)?;
    Ok(part.repeat(times))
}

fn numbers<'a, T: Arbitrary<'a>>(u: &mut Unstructured<'a>, n: usize) -> Result<Vec<T>> {
    let n = if u.ratio(1, 16)? { n / 2 } else { n };
    (0..n).map(|_| u.arbitrary()).collect()
}

fn roles(u: &mut Unstructured<'_>) -> Result<Roles> {
    let mut role = || Ok(if u.arbitrary()? { Some(u.arbitrary::<u8>()?.into()) } else { None });
    Ok(Roles { bos: role()?, eos: role()?, eot: role()?, unk: role()?, pad: role()?, ..Roles::default() })
}

/// Return the characters with which byte-pair vocabularies write the 256 bytes.
fn alphabet() -> impl Iterator<Item = String> {
    (0..324)
        .filter_map(char::from_u32)
        .filter(|&c| matches!(c, '!'..='~' | '¡'..='¬' | '®'..='ń'))
        .map(String::from)
}
