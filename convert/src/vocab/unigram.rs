//! Vocabularies whose pieces have scores and are chosen together: T5's, XLM-RoBERTa's.

use serde_json::Value;

use super::base64::base64;
use super::special::Specials;
use super::tokenizer::Pieces;
use super::tokens::{Kind, Tokens, wrong};
use super::{Sources, Tokenizer, sentencepiece};
use crate::error::Error;
use crate::json::{read_file, read_json};
use crate::metadata::{Meta, Metadata};

/// The treatment of texts before they are split.
struct Treatment {
    adds_prefix: bool,
    removes_spaces: bool,
    charsmap: Vec<u8>,
}

/// Set the keys of a vocabulary of `spiece.model` or `tokenizer.model`.
pub(super) fn set(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let path = ["tokenizer.model", "spiece.model"].map(|name| sources.folder.join(name));
    let path = path.iter().find(|path| path.is_file()).unwrap_or(&path[0]);
    let model = sentencepiece::parse_model(path, &read_file(path)?)?;
    // A model of merges is no such vocabulary.
    if model.kind == 2 {
        return sentencepiece::set(sources, false, meta);
    }
    let mut tokens = sentencepiece::tokens(&model, sources.vocab_size(model.pieces.len())?);
    sentencepiece::add_listed(sources.folder, &model, &mut tokens)?;
    let specials = Specials::read(sources, tokenizer(sources)?.as_ref(), tokens.len())?;
    tokens.write("t5", Some("default"), true, meta);
    let treatment = Treatment {
        adds_prefix: model.adds_prefix,
        removes_spaces: model.removes_spaces,
        charsmap: model.charsmap,
    };
    treatment.write(meta);
    specials.write(meta);
    Ok(())
}

/// Read `tokenizer.json` if it is there.
fn tokenizer(sources: Sources<'_>) -> Result<Option<Tokenizer>, Error> {
    let is_there = sources.folder.join("tokenizer.json").is_file();
    is_there.then(|| Tokenizer::read(sources.folder)).transpose()
}

/// Set the keys of XLM-RoBERTa's vocabulary.
pub(super) fn set_xlm_roberta(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let path = sources.folder.join("sentencepiece.bpe.model");
    let tokenizer = tokenizer(sources)?;
    let (tokens, treatment) = match &tokenizer {
        _ if path.is_file() => {
            let model = sentencepiece::parse_model(&path, &read_file(&path)?)?;
            shifted(model, sources)?
        }
        Some(tokenizer) => scored(tokenizer, sources)?,
        None => {
            let wanted = "tokenizer.json or sentencepiece.bpe.model".into();
            return Err(Error::MissingFile { folder: sources.folder.into(), wanted });
        }
    };
    let specials = Specials::read(sources, tokenizer.as_ref(), tokens.len())?;
    tokens.write("t5", Some("default"), true, meta);
    treatment.write(meta);
    let n_types = sources.config.number(&["type_vocab_size"])?.unwrap_or(1);
    meta.set("tokenizer.ggml.token_type_count", n_types);
    specials.write(meta);
    Ok(())
}

/// Make the tokens of a model whose first tokens XLM-RoBERTa replaces by four others.
fn shifted(model: sentencepiece::Model, sources: Sources<'_>) -> Result<(Tokens, Treatment), Error> {
    let n = sources.vocab_size(model.pieces.len())?.max(model.pieces.len());
    let mut tokens = sentencepiece::tokens(&model, n);
    tokens.replace_first(
        3,
        &[
            ("<s>", Kind::Control),
            ("<pad>", Kind::Control),
            ("</s>", Kind::Control),
            ("<unk>", Kind::Unknown),
        ],
    );
    let treatment = Treatment {
        adds_prefix: model.adds_prefix,
        removes_spaces: model.removes_spaces,
        charsmap: model.charsmap,
    };
    Ok((tokens, treatment))
}

/// Make the tokens of `tokenizer.json`.
fn scored(tokenizer: &Tokenizer, sources: Sources<'_>) -> Result<(Tokens, Treatment), Error> {
    let path = &tokenizer.path;
    let Pieces::Scored(pieces) = &tokenizer.file.model.vocab else {
        return Err(wrong(path, "pieces with numbers", "a vocabulary with scores"));
    };
    let unknown = tokenizer.file.model.unk_id;
    let mut tokens = Tokens::padding(sources.vocab_size(pieces.len())?.max(pieces.len()));
    for (id, (text, score)) in pieces.iter().enumerate() {
        let added = tokenizer.added.get(&id);
        let kind = match added {
            _ if Some(id) == unknown => Kind::Unknown,
            Some(added) if added.special => Kind::Control,
            Some(_) => Kind::UserDefined,
            None => Kind::Normal,
        };
        tokens.set(id, text.as_str(), *score as f32, kind);
    }
    let config = read_json(&sources.folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let flag = |key: &str| config.get(key).and_then(Value::as_bool);
    let encoded = charsmap(&tokenizer.file.normalizer);
    let decoded = encoded.map(|text| {
        base64(text).ok_or_else(|| wrong(path, "a damaged precompiled_charsmap", "a text in base 64"))
    });
    let treatment = Treatment {
        adds_prefix: flag("add_prefix_space").unwrap_or(true),
        removes_spaces: flag("clean_up_tokenization_spaces").unwrap_or(true),
        charsmap: decoded.transpose()?.unwrap_or_default(),
    };
    Ok((tokens, treatment))
}

/// Find the compiled replacements of a normaliser.
fn charsmap(normalizer: &Value) -> Option<&str> {
    let own = normalizer.get("precompiled_charsmap").and_then(Value::as_str);
    let steps = normalizer.get("normalizers").and_then(Value::as_array);
    own.or_else(|| steps?.iter().find_map(charsmap))
}

impl Treatment {
    fn write(self, meta: &mut Metadata) {
        meta.set("tokenizer.ggml.add_space_prefix", self.adds_prefix);
        meta.set("tokenizer.ggml.remove_extra_whitespaces", self.removes_spaces);
        if !self.charsmap.is_empty() {
            let bytes = self.charsmap.into_iter().collect();
            meta.set("tokenizer.ggml.precompiled_charsmap", Meta::Bytes(bytes));
        }
    }
}
