//! The name of the pre-tokeniser: how texts are cut before merges apply.
//!
//! Engines know pre-tokenisers by name. The regular expressions of `tokenizer.json` give a first
//! name that cuts texts in the same way. With it a text is split as the model does, and the hash of
//! its tokens is looked up among the known vocabularies, some of which have a name of their own.

mod known;

use backstitch_models::gguf::{Gguf, Writer};
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab};
use serde_json::Value;

use super::Tokenizer;
use super::hash::sha256;
use super::special::Specials;
use super::tokens::Tokens;
use crate::error::Error;

/// Contractions of Llama 3 and its heirs.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const BLOOM: &str = " ?[^(\\s|[.,!?…。，、।۔،])]+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Steps of pre-tokenisers, and the name of one that does the same. `bytes` is GPT-2's own
/// expression, `digits` takes each digit alone; other steps are expressions.
const STEPS: &[(&[&str], &str)] = &[
    (&["bytes"], "gpt-2"),
    (&["digits", "bytes"], "smollm"),
    (&[LLAMA3], "llama-bpe"),
    (&[QWEN2], "qwen2"),
    (&[QWEN35], "qwen35"),
    (&[TEKKEN], "tekken"),
    (&[GPT4O], "gpt-4o"),
    (&[SEED_CODER], "seed-coder"),
    (&[r"\p{N}{1,3}", "[一-龥\u{3040}-ゟ゠-ヿ]+", DEEPSEEK3], "deepseek-v3"),
    (&["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", "digits"], "deepseek-coder"),
    (&[BLOOM], "bloom"),
    (&[BLOOM, "digits"], "viking"),
    (&["punctuation", "bytes", "[0-9][0-9][0-9]"], "falcon"),
];

/// Return the name of the pre-tokeniser of a vocabulary with merges.
///
/// # Errors
/// [`Error::UnknownPreTokenizer`] if its steps are none of the known ones.
pub(super) fn name(tokenizer: &Tokenizer, tokens: &Tokens, specials: &Specials) -> Result<String, Error> {
    let mut steps = Vec::new();
    collect(&tokenizer.file.pre_tokenizer, &mut steps);
    let first = by_steps(&steps, tokenizer).ok_or_else(|| Error::UnknownPreTokenizer {
        path: tokenizer.path.clone(),
        found: format!("{steps:?}"),
    })?;
    let known = hash(tokenizer, tokens, specials, first)
        .and_then(|hash| known::NAMES.iter().find(|row| row.0 == hash).map(|row| row.1));
    Ok(known.unwrap_or(first).into())
}

/// Return the name of a pre-tokeniser of the same steps.
fn by_steps(steps: &[String], tokenizer: &Tokenizer) -> Option<&'static str> {
    let name = STEPS.iter().find(|row| row.0.iter().eq(steps.iter())).map(|row| row.1)?;
    // Llama 3 takes whole words of the vocabulary first; others with its expression do not.
    let ignores = tokenizer.file.model.ignore_merges.unwrap_or(false);
    Some(if name == "llama-bpe" && !ignores { "dbrx" } else { name })
}

/// Collect the steps of a pre-tokeniser.
fn collect(step: &Value, steps: &mut Vec<String>) {
    let flag = |key: &str| step.get(key).and_then(Value::as_bool);
    match step.get("type").and_then(Value::as_str) {
        Some("Sequence") => {
            let list = step.get("pretokenizers").and_then(Value::as_array);
            list.into_iter().flatten().for_each(|step| collect(step, steps));
        }
        // Without an expression it only changes the alphabet.
        Some("ByteLevel") if flag("use_regex") == Some(false) => {}
        Some("ByteLevel") => steps.push("bytes".into()),
        Some("Digits") if flag("individual_digits") == Some(true) => steps.push("digits".into()),
        Some("Punctuation") => steps.push("punctuation".into()),
        Some("Split") => {
            let pattern = step.get("pattern");
            let text = |key: &str| pattern.and_then(|pattern| pattern.get(key)).and_then(Value::as_str);
            steps.push(text("Regex").or(text("String")).unwrap_or("").into());
        }
        Some(other) => steps.push(format!("type {other}")),
        None => {}
    }
}

/// Return the hash of the tokens of the known text, split with a pre-tokeniser; `None` if the
/// vocabulary cannot be used.
fn hash(tokenizer: &Tokenizer, tokens: &Tokens, specials: &Specials, pre: &str) -> Option<String> {
    let (texts, kinds) = tokens.lists();
    let merges = tokenizer.merges();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").ok()?;
    writer.set("tokenizer.ggml.model", "gpt2").ok()?;
    writer.set("tokenizer.ggml.pre", pre).ok()?;
    writer.set("tokenizer.ggml.tokens", texts).ok()?;
    writer.set("tokenizer.ggml.token_type", kinds).ok()?;
    writer.set("tokenizer.ggml.merges", merges).ok()?;
    let file = writer.to_bytes();
    let vocab = Vocab::from_gguf(&Gguf::parse(&file).ok()?).ok()?;
    let mut split = Vec::new();
    vocab.tokenize(known::TEXT, AddSpecial::No, ParseSpecial::Yes, &mut split);
    let added = |role: &str| specials.ids.get(role).filter(|_| specials.add.get(role) == Some(&true));
    let ids = split.iter().map(|token| token.to_string());
    let all: Vec<String> = added("bos")
        .map(u32::to_string)
        .into_iter()
        .chain(ids)
        .chain(added("eos").map(u32::to_string))
        .collect();
    Some(sha256(&format!("[{}]", all.join(", "))))
}
