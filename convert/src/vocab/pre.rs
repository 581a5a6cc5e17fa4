//! The name of the pre-tokeniser: how texts are cut before merges apply.
//!
//! Engines know pre-tokenisers by name. The regular expressions of `tokenizer.json` give a first
//! name that cuts texts in the same way. With it a text is split as the model does, and the hash of
//! its tokens is looked up among the known vocabularies, some of which have a name of their own. If
//! the expressions say nothing, the names are tried: the right one leads to the hash of its own
//! vocabulary.

mod known;

use std::collections::BTreeSet;

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

/// Letters with case, as DeepSeek lists them. Characters that have other forms are escaped, so that
/// no program that normalises texts changes them.
const CASED: &str = concat!(
    "\\s?[A-Za-z\u{b5}À-ÖØ-öø-ƺƼ-ƿ\u{1c4}-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-\u{3f5}Ϸ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-Ჺ",
    "Ჽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-\u{1fbc}\u{1fbe}ῂ-ῄῆ-\u{1fcc}ῐ-\u{1fd3}ῖ-",
    "\u{1fdb}ῠ-Ῥῲ-ῴῶ-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}",
    "\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}",
    "\u{2145}-\u{2149}ⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}",
    "\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
);
const EAST_ASIAN: &str = "[一-龥ࠀ-一가-퟿]+";
const FULL_WIDTH: &str = "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-。]+";

/// Steps of pre-tokenisers, and the name of one that does the same. `bytes` is GPT-2's own
/// expression, `digits` takes each digit alone, `numbers` all digits in a row; other steps are
/// expressions.
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
    (&["[\r\n]", CASED, FULL_WIDTH, r"\s+$", EAST_ASIAN, "digits"], "deepseek-llm"),
    (&["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, "digits"], "deepseek-coder"),
    (&[BLOOM], "bloom"),
    (&[BLOOM, "digits"], "viking"),
    (&["punctuation", "bytes", "[0-9][0-9][0-9]"], "falcon"),
    (&["punctuation", "bytes", "numbers", "[0-9][0-9][0-9]"], "falcon"),
];

/// Return the name of the pre-tokeniser of a vocabulary with merges.
///
/// # Errors
/// [`Error::UnknownPreTokenizer`] if its steps are none of the known ones, and neither is the
/// vocabulary.
pub(super) fn name(tokenizer: &Tokenizer, tokens: &Tokens, specials: &Specials) -> Result<String, Error> {
    named(tokenizer, known::NAMES, |pre| hash(tokenizer, tokens, specials, pre))
}

/// Return the name of a pre-tokeniser, with known vocabularies by their hashes; `hash` computes
/// that of this vocabulary if a pre-tokeniser of a name splits the text.
fn named(
    tokenizer: &Tokenizer,
    names: &[(&str, &str)],
    hash: impl Fn(&str) -> Option<String>,
) -> Result<String, Error> {
    let mut steps = Vec::new();
    collect(&tokenizer.file.pre_tokenizer, &mut steps);
    if let Some(first) = by_steps(&steps, tokenizer) {
        let hash = hash(first);
        let known = names.iter().find(|row| hash.as_deref() == Some(row.0)).map(|row| row.1);
        return Ok(known.unwrap_or(first).into());
    }
    let distinct: BTreeSet<&str> = names.iter().map(|row| row.1).collect();
    let is_own = |name: &&str| hash(name).is_some_and(|hash| names.contains(&(hash.as_str(), *name)));
    let known = distinct.into_iter().find(is_own).map(str::to_owned);
    known.ok_or_else(|| Error::UnknownPreTokenizer {
        path: tokenizer.path.clone(),
        found: format!("{steps:?}"),
    })
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
        Some("Digits") => match flag("individual_digits") {
            Some(true) => steps.push("digits".into()),
            _ => steps.push("numbers".into()),
        },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::tokens::Kind;
    use serde_json::json;
    use std::path::Path;

    /// Make a vocabulary of the digit 3 alone, twice and thrice, whose pre-tokeniser has these
    /// steps.
    fn threes(steps: &[Value]) -> (Tokenizer, Tokens) {
        let texts = ["\u{120}", "3", "33", "333"];
        let vocab: serde_json::Map<String, Value> =
            texts.iter().zip(0..).map(|(text, id)| ((*text).into(), json!(id))).collect();
        let file = json!({
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": steps },
            "model": { "vocab": vocab, "merges": ["3 3", "33 3"] },
        });
        let file = file.to_string();
        let tokenizer = Tokenizer::parse(Path::new("tokenizer.json"), file.as_bytes(), None).unwrap();
        let mut tokens = Tokens::padding(texts.len());
        texts.iter().enumerate().for_each(|(id, text)| {
            tokens.set(id, *text, 0.0, Kind::Normal);
        });
        (tokenizer, tokens)
    }

    #[test]
    fn steps_of_published_vocabularies_have_names() {
        let split = |regex: &str| json!({ "type": "Split", "pattern": { "Regex": regex } });
        let digits = |alone: bool| json!({ "type": "Digits", "individual_digits": alone });
        let bytes = |regex: bool| json!({ "type": "ByteLevel", "use_regex": regex });
        let punctuation = json!({ "type": "Punctuation", "behavior": "Contiguous" });
        let deepseek = ["[\r\n]", CASED, FULL_WIDTH, r"\s+$", EAST_ASIAN].map(split);
        let published = [
            ([&deepseek[..], &[digits(true), bytes(false)]].concat(), "deepseek-llm"),
            (vec![punctuation, bytes(true), digits(false), split("[0-9][0-9][0-9]")], "falcon"),
        ];
        for (steps, wanted) in published {
            let (tokenizer, tokens) = threes(&steps);
            assert_eq!(name(&tokenizer, &tokens, &Specials::default()).unwrap(), wanted);
        }
    }

    #[test]
    fn unknown_steps_of_a_known_vocabulary_have_its_name() {
        let (tokenizer, tokens) = threes(&[json!({ "type": "Split", "pattern": { "Regex": "3+?" } })]);
        let specials = Specials::default();
        let hash = |pre: &str| hash(&tokenizer, &tokens, &specials, pre);
        let (youtu, superbpe) = (hash("youtu").unwrap(), hash("superbpe").unwrap());
        assert_ne!(youtu, superbpe);
        let known = [("0", "no such name"), (superbpe.as_str(), "superbpe"), (youtu.as_str(), "youtu")];
        assert_eq!(named(&tokenizer, &known, hash).unwrap(), "superbpe");
        assert_eq!(named(&tokenizer, &known[2..], hash).unwrap(), "youtu");
        // A hash that another name leads to proves nothing.
        let crossed = [(superbpe.as_str(), "youtu"), (youtu.as_str(), "superbpe")];
        let error = named(&tokenizer, &crossed, hash).unwrap_err().to_string();
        assert!(error.contains("no engine knows the pre-tokeniser [\"3+?\"]"), "{error}");
    }
}
