//! Vocabularies against llama.cpp's answers: every text gives its tokens, and every list of tokens
//! its text.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use backstitch_models::Token;
use backstitch_models::gguf::Gguf;
use backstitch_models::sampler::DryBreakers;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab, WriteSpecial};

/// The vocabularies of a supported kind.
const NAMES: [&str; 9] =
    ["gpt2", "llama", "llama_tied_freqs", "qwen2", "deepseek2", "gptoss", "t5", "bert", "rwkv6"];

#[test]
fn small_vocabularies_agree_with_llama_cpp() -> Result<(), Box<dyn Error>> {
    for name in NAMES {
        let vocab = vocab(&goldens().join(format!("models/{name}.gguf")))?;
        let wrong = differences(&vocab, &goldens().join(format!("tokenizers/{name}.tsv")))?;
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// Test with a vocabulary that is too large for this repository: `SMOLLM2` names the model file,
/// SmolLM2-135M-Instruct in any format.
#[test]
#[ignore = "needs a model file: SMOLLM2=path cargo test -- --ignored smollm2"]
fn smollm2_agrees_with_llama_cpp() -> Result<(), Box<dyn Error>> {
    let vocab = vocab(Path::new(&std::env::var("SMOLLM2")?))?;
    let wrong = differences(&vocab, &goldens().join("real/tokenizer_smollm2.tsv"))?;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_text_that_ends_repetitions_is_found_among_the_tokens() -> Result<(), Box<dyn Error>> {
    for name in ["gpt2", "llama", "qwen2", "rwkv6"] {
        let vocab = vocab(&goldens().join(format!("models/{name}.gguf")))?;
        let found = |breakers: &DryBreakers, text: &str| {
            let mut tokens = Vec::new();
            vocab.tokenize(text, AddSpecial::No, ParseSpecial::No, &mut tokens);
            (1..=tokens.len()).any(|end| breakers.end(&tokens[..end]))
        };
        let lines = DryBreakers::of_texts(&vocab, &["\n", ""]);
        let turns = DryBreakers::of_texts(&vocab, &["\n\nUser:"]);
        for before in ["", "a", "the end.", "two words "] {
            assert!(!found(&lines, before) && !found(&turns, before), "{name}: {before:?}");
            assert!(found(&lines, &format!("{before}\nnext")), "{name}: {before:?}");
            assert!(found(&turns, &format!("{before}\n\nUser: hello")), "{name}: {before:?}");
        }
        assert!(!found(&turns, "a\n\nUse"), "{name}");
        let newline = (0..vocab.n_vocab() as u32).map(Token).filter(|&id| vocab.piece(id).contains(&b'\n'));
        assert!(newline.clone().count() > 0 && newline.clone().all(|id| lines.has(id)), "{name}");
    }
    Ok(())
}

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens")
}

fn vocab(model: &Path) -> Result<Vocab, Box<dyn Error>> {
    Ok(Vocab::from_gguf(&Gguf::parse(&fs::read(model)?)?)?)
}

/// Return the differences from a table with tab-separated columns: the text in hexadecimal digits,
/// its tokens without and with special tokens parsed, those with the model's beginning and end
/// added, and in hexadecimal digits the texts of the first two lists, with control tokens written
/// in the second.
fn differences(vocab: &Vocab, table: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut wrong = Vec::new();
    for (line, row) in fs::read_to_string(table)?.lines().enumerate() {
        let columns: Vec<&str> = row.split('\t').collect();
        let &[text, plain, special, whole, plain_text, special_text] = columns.as_slice() else {
            return Err(format!("line {line} has {} columns", columns.len()).into());
        };
        let text = String::from_utf8(hex(text)?)?;
        for (wanted, add, parse) in [
            (plain, AddSpecial::No, ParseSpecial::No),
            (special, AddSpecial::No, ParseSpecial::Yes),
            (whole, AddSpecial::Yes, ParseSpecial::Yes),
        ] {
            let mut tokens = Vec::new();
            vocab.tokenize(&text, add, parse, &mut tokens);
            let wanted = ids(wanted)?;
            if tokens != wanted {
                wrong.push(format!(
                    "line {line}: {text:?} {add:?} {parse:?}: {tokens:?} instead of {wanted:?}"
                ));
            }
        }
        for (tokens, wanted, write) in
            [(plain, plain_text, WriteSpecial::No), (special, special_text, WriteSpecial::Yes)]
        {
            let (got, wanted) = (vocab.detokenize(&ids(tokens)?, write), hex(wanted)?);
            if got != wanted {
                let [got, wanted] = [got, wanted].map(|text| String::from_utf8_lossy(&text).into_owned());
                wrong.push(format!("line {line}: {tokens} {write:?}: {got:?} instead of {wanted:?}"));
            }
        }
    }
    Ok(wrong)
}

fn ids(list: &str) -> Result<Vec<Token>, std::num::ParseIntError> {
    list.split_whitespace().map(|id| id.parse().map(Token)).collect()
}

fn hex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let digits =
        text.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
    digits.collect()
}
