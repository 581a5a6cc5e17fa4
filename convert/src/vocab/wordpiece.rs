//! Vocabularies of whole words and their ends: BERT's.

use std::path::Path;

use serde_json::json;

use super::special::Specials;
use super::tokens::Kind;
use super::{Sources, Tokenizer, bpe};
use crate::error::Error;
use crate::json::read_text;
use crate::metadata::Metadata;

/// Set the keys of a vocabulary of `tokenizer.json` or `vocab.txt`.
pub(super) fn set(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let tokenizer = if sources.folder.join("tokenizer.json").is_file() {
        Tokenizer::read(sources.folder)?
    } else {
        of_lines(sources.folder)?
    };
    let mut tokens = bpe::tokens(&tokenizer, sources)?;
    // GGUF marks the beginnings of words, not their continuations.
    tokens.map(|text, kind| match text.strip_prefix("##") {
        _ if kind == Kind::Control => text.into(),
        Some(end) => end.into(),
        None => format!("\u{2581}{text}"),
    });
    let specials = Specials::read(sources, Some(&tokenizer), tokens.len())?;
    let n_types = sources.config.number(&["type_vocab_size"])?.unwrap_or(1);
    meta.set("tokenizer.ggml.token_type_count", n_types);
    // All such vocabularies split texts in one way, which has several names.
    tokens.write("bert", Some(sources.pre_tokenizer.unwrap_or("jina-v2-en")), false, meta);
    specials.write(meta);
    Ok(())
}

/// Make a tokenizer of `vocab.txt`, a token in each line.
fn of_lines(folder: &Path) -> Result<Tokenizer, Error> {
    const SPECIAL: [&str; 5] = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"];
    let path = folder.join("vocab.txt");
    let text = read_text(&path)?.unwrap_or_default();
    let mut vocab = serde_json::Map::new();
    let mut added = Vec::new();
    for (id, line) in text.lines().enumerate() {
        let is_special = SPECIAL.contains(&line);
        added.extend(is_special.then(|| json!({"id": id, "content": line, "special": true})));
        if vocab.insert(line.into(), id.into()).is_some() {
            let (found, wanted) = (format!("the line {line:?} twice"), "each token once".into());
            return Err(Error::Format { path, found, wanted });
        }
    }
    let template = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "[SEP]"}}],
        "pair": []});
    let file = json!({"added_tokens": added, "post_processor": template,
        "model": {"type": "WordPiece", "vocab": vocab}});
    Tokenizer::parse(&path, file.to_string().as_bytes(), None)
}
