//! PLaMo's vocabulary: a list of a token, a score and a kind in each line.

use serde_json::Value;

use super::Sources;
use super::tokenizer::text_of;
use super::tokens::{Kind, Tokens, wrong};
use crate::error::Error;
use crate::json::{parse, read_json, read_text};
use crate::metadata::Metadata;

/// Score of padding.
const PADDING_SCORE: f32 = -1000.0;

/// Set the keys of a vocabulary of `tokenizer.jsonl`.
pub(super) fn set(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let path = sources.folder.join("tokenizer.jsonl");
    let text = read_text(&path)?.unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let n = sources.vocab_size(lines.len())?.max(lines.len());
    let mut tokens = Tokens::padding(n);
    for id in 0..n {
        // Padding is counted from 1.
        let number = (id + 1).saturating_sub(lines.len());
        tokens.set(id, format!("[PAD{number}]"), PADDING_SCORE, Kind::Unused);
    }
    for (id, line) in lines.into_iter().enumerate() {
        let entry: Value = parse(&path, line.as_bytes())?;
        let text = entry.get(0).and_then(Value::as_str);
        let score = entry.get(1).and_then(Value::as_f64);
        let (Some(text), Some(score)) = (text, score) else {
            return Err(wrong(&path, format!("{line:.40} in line {}", id + 1), "a token and a score"));
        };
        let kind = match entry.get(2).and_then(Value::as_str) {
            Some("UNKNOWN") => Kind::Unknown,
            Some("CONTROL") => Kind::Control,
            Some("BYTE") => Kind::Byte,
            _ if text.starts_with("<|plamo:") && text.ends_with("|>") => Kind::Control,
            _ => Kind::Normal,
        };
        tokens.set(id, text, score as f32, kind);
    }
    let config = read_json(&sources.folder.join("tokenizer_config.json"))?.unwrap_or_default();
    for (role, key) in
        [("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("sep", "seperator"), ("unk", "unknown")]
    {
        let text = config.get(format!("{role}_token")).and_then(text_of);
        if let Some(id) = text.and_then(|text| tokens.find(text)) {
            meta.set(&format!("tokenizer.ggml.{key}_token_id"), id as u32);
        }
    }
    // `<|plamo:op|>` ends turns.
    meta.set("tokenizer.ggml.eot_token_id", 4u32);
    tokens.write("plamo2", Some("default"), true, meta);
    meta.set("tokenizer.ggml.add_space_prefix", false);
    Ok(())
}
