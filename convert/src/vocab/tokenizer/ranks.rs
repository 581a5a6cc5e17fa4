//! Vocabularies of tiktoken, in Mistral's `tekken.json` and in `tiktoken.model`: the bytes of
//! tokens in the order in which they are preferred.
//!
//! Such a vocabulary has no merges. Of all neighbours, those whose bytes together are the earliest
//! token are joined first. So each way to cut a token into two others is a merge, in the order of
//! the tokens, and the vocabulary becomes the content of a `tokenizer.json`.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Added, File, Merge, Model, Pieces};
use crate::error::Error;
use crate::json::parse;
use crate::vocab::base64::base64;
use crate::vocab::tokens::wrong;

/// Most bytes of a token: all ways to cut it are looked at. Real ones have a few hundred.
const MAX_TOKEN: usize = 1024;
/// The most bytes of merges: each way to cut a token in two tokens is one, so a small file could
/// ask for a lot. Published vocabularies have about 10 MB.
const MAX_MERGES: usize = 64 << 20;

/// `tekken.json`.
#[derive(Deserialize)]
struct Tekken {
    config: Settings,
    vocab: Vec<Ranked>,
    special_tokens: Vec<Special>,
}

/// The numbers of `tekken.json`.
#[derive(Deserialize)]
struct Settings {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

/// A token of `tekken.json` by its bytes, which are written in base 64.
#[derive(Deserialize)]
struct Ranked {
    rank: usize,
    token_bytes: String,
}

/// A token of `tekken.json` that no text is split into.
#[derive(Deserialize)]
struct Special {
    rank: usize,
    token_str: String,
}

/// Parse `tekken.json`; `path` is for errors. Returns what `tokenizer.json` and
/// `tokenizer_config.json` would hold.
///
/// # Errors
/// [`Error::Format`] if it is not what it seems.
pub(super) fn parse_tekken(path: &Path, bytes: &[u8]) -> Result<(File, Value), Error> {
    let tekken: Tekken = parse(path, bytes)?;
    let Settings { pattern, default_vocab_size, default_num_special_tokens: n_special } = tekken.config;
    let n =
        default_vocab_size.checked_sub(n_special).filter(|n| *n <= tekken.vocab.len()).ok_or_else(|| {
            let found = format!("{} tokens, {default_vocab_size} with special ones", tekken.vocab.len());
            wrong(path, found, format!("at least as many beside the {n_special} special ones"))
        })?;
    // Tokens of larger vocabularies follow behind the model's.
    let ranked = tekken.vocab.into_iter().take(n);
    let ranked = ranked.map(|token| Some((base64(&token.token_bytes)?, token.rank.checked_add(n_special)?)));
    let ranked = ranked.collect::<Option<Vec<_>>>();
    let ranked = ranked.ok_or_else(|| wrong(path, "token_bytes of another form", "base 64"))?;
    let pre_tokenizer = json!({ "type": "Split", "pattern": { "Regex": pattern } });
    let mut file = file(path, ranked, pre_tokenizer)?;
    for Special { rank, token_str } in tekken.special_tokens {
        file.added_tokens.push(Added { id: rank, content: token_str, special: true, named: false });
    }
    // The numbers of their roles are the same in all such files.
    let roles = json!({
        "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "add_bos_token": true, "add_eos_token": false,
    });
    Ok((file, roles))
}

/// Parse `tiktoken.model`: a line with the bytes of each token, in base 64, and its number.
///
/// # Errors
/// [`Error::Format`] if it is not what it seems.
pub(super) fn parse_tiktoken(path: &Path, bytes: &[u8]) -> Result<File, Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| wrong(path, error.to_string(), "UTF-8"))?;
    let token = |line: &str| {
        let (token, rank) = line.split_once(' ')?;
        Some((base64(token)?, rank.trim_end().parse().ok()?))
    };
    let lines = text.lines().enumerate().filter(|line| !line.1.trim().is_empty());
    let ranked = lines.map(|(number, line)| {
        let found = || format!("line {}, which is another", number + 1);
        token(line).ok_or_else(|| wrong(path, found(), "base 64 and a number"))
    });
    // The expression that splits texts stands in a program beside it.
    file(path, ranked.collect::<Result<_, _>>()?, json!({ "type": "tiktoken" }))
}

/// Make the content of a `tokenizer.json` of tokens with their numbers, which are also their ranks.
fn file(path: &Path, ranked: Vec<(Vec<u8>, usize)>, pre_tokenizer: Value) -> Result<File, Error> {
    let mut ranks: HashMap<&[u8], usize> = HashMap::new();
    for (token, rank) in &ranked {
        if token.is_empty() || token.len() > MAX_TOKEN {
            let found = format!("token {rank} of {} bytes", token.len());
            return Err(wrong(path, found, format!("1 to {MAX_TOKEN} bytes")));
        }
        if let Some(other) = ranks.insert(token, *rank) {
            return Err(wrong(path, format!("the bytes of token {other} again as {rank}"), "each once"));
        }
    }
    let alphabet = alphabet();
    let written = |token: &[u8]| -> String {
        token.iter().filter_map(|&byte| alphabet.get(usize::from(byte))).collect()
    };
    // The rank of the result, then those of the parts.
    let mut merges: Vec<([usize; 3], [&[u8]; 2])> = Vec::new();
    let mut n_bytes = 0;
    for (token, rank) in &ranked {
        for at in 1..token.len() {
            let (a, b) = token.split_at(at);
            if let (Some(&left), Some(&right)) = (ranks.get(a), ranks.get(b)) {
                n_bytes += token.len();
                if n_bytes > MAX_MERGES {
                    let found = format!("merges of more than {n_bytes} bytes");
                    return Err(wrong(path, found, format!("at most {MAX_MERGES}")));
                }
                merges.push(([*rank, left, right], [a, b]));
            }
        }
    }
    merges.sort_unstable();
    let merges = merges.into_iter().map(|(_, pair)| Merge::Pair(pair.map(written))).collect();
    let vocab = Pieces::Numbered(ranked.iter().map(|(token, rank)| (written(token), *rank)).collect());
    let model = Model {
        kind: Some("BPE".into()),
        vocab,
        merges,
        continuing_subword_prefix: None,
        byte_fallback: None,
        ignore_merges: None,
        unk_id: None,
    };
    Ok(File {
        added_tokens: Vec::new(),
        normalizer: Value::Null,
        pre_tokenizer,
        post_processor: Value::Null,
        decoder: Value::Null,
        model,
    })
}

/// Return the characters that bytes are written as in GPT-2's manner: printable ones of Latin-1 as
/// themselves, the others in order from U+0100.
fn alphabet() -> Vec<char> {
    let mut moved = (256..).filter_map(char::from_u32);
    let written = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(byte.into()),
        _ => moved.next(),
    };
    (0..=255).filter_map(written).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::Tokenizer;

    #[test]
    fn every_cut_of_a_token_into_two_is_a_merge_as_early_as_the_token() {
        // b, a, space, ab, aab, and a token that no two others make.
        let lines = "Yg== 0\nYQ== 1\nIA== 2\nYWI= 3\nYWE= 4\nYWFi 5\nIHp6 6\n";
        let tokenizer = Tokenizer::of_file(
            Path::new("x"),
            parse_tiktoken(Path::new("x"), lines.as_bytes()).unwrap(),
            None,
        );
        let tokenizer = tokenizer.unwrap();
        assert_eq!(tokenizer.merges(), ["a b", "a a", "a ab", "aa b"]);
        assert_eq!(tokenizer.numbered().unwrap()[6], ("\u{120}zz".to_owned(), 6));
        for (lines, wanted) in [
            ("Yg== 0\nYg== 1\n", "the bytes of token 0 again as 1"),
            ("\nYg==\n", "line 2, which is another, wanted base 64 and a number"),
            ("Y*== 0\n", "line 1"),
            ("== 0\n", "token 0 of 0 bytes, wanted 1 to 1024 bytes"),
        ] {
            let error = parse_tiktoken(Path::new("x"), lines.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_small_file_does_not_ask_for_many_merges() {
        let zeros = |n: usize| "AAAA".repeat(n / 3) + ["", "AA==", "AAA="][n % 3];
        let lines: String = (1..=MAX_TOKEN).map(|n| format!("{} {n}\n", zeros(n))).collect();
        let error = parse_tiktoken(Path::new("x"), lines.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("merges of more than"), "{error}");
    }

    #[test]
    fn tokens_of_tekken_stand_behind_the_special_ones() {
        let file = |size: usize| {
            let tokens = ["YQ==", "Yg==", "YWI=", "YWE="];
            let token = |(rank, bytes)| json!({ "rank": rank, "token_bytes": bytes, "token_str": "x" });
            json!({
                "config": {
                    "pattern": "x", "default_vocab_size": size, "default_num_special_tokens": 2,
                },
                "vocab": tokens.iter().enumerate().map(token).collect::<Vec<_>>(),
                "special_tokens": [{ "rank": 1, "token_str": "<s>", "is_control": true }],
            })
            .to_string()
        };
        let (tokens, roles) = parse_tekken(Path::new("x"), file(5).as_bytes()).unwrap();
        let tokenizer = Tokenizer::of_file(Path::new("x"), tokens, Some(&roles)).unwrap();
        let pieces = tokenizer.numbered().unwrap().iter().map(|piece| (piece.0.as_str(), piece.1));
        assert_eq!(pieces.collect::<Vec<_>>(), [("a", 2), ("b", 3), ("ab", 4)]);
        assert_eq!(
            tokenizer.listed().map(|added| (added.id, added.special)).collect::<Vec<_>>(),
            [(1, true)]
        );
        for size in [1, 7] {
            let error = parse_tekken(Path::new("x"), file(size).as_bytes()).unwrap_err().to_string();
            assert!(error.contains("found 4 tokens"), "{error}");
        }
    }
}
