//! Vocabularies: from the files of a tokenizer to the metadata of GGUF.

mod base64;
mod bpe;
mod hash;
mod plamo;
mod pre;
mod rwkv;
mod sentencepiece;
mod special;
mod tokenizer;
mod tokens;
mod unigram;
mod wordpiece;

use std::path::Path;

use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;

pub use sentencepiece::parse_model as parse_sentencepiece;
pub use tokenizer::Tokenizer;

/// A kind of vocabulary, named by its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `tokenizer.json` with merges of bytes, or a file with ranks of bytes.
    Bpe,
    /// `tokenizer.model` of SentencePiece.
    SentencePiece,
    /// `tokenizer.model`, with the added tokens of `tokenizer.json`.
    SentencePieceAdded,
    /// `tokenizer.json` with merges of characters that falls back to bytes.
    ByteFallback,
    /// `tokenizer.json` of Gemma 4: merges of characters, kept as merges.
    Gemma4,
    /// `tokenizer.json` with whole words, or `vocab.txt`.
    WordPiece,
    /// `spiece.model` or `tokenizer.model` with scores of pieces.
    Unigram,
    /// `tokenizer.json` or `sentencepiece.bpe.model` of XLM-RoBERTa, with scores of pieces.
    XlmRoberta,
    /// `rwkv_vocab_v20230424.txt`.
    RwkvWorld,
    /// `tokenizer.jsonl`.
    Plamo,
}

/// The sources of a vocabulary.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// Folder of the files.
    pub folder: &'a Path,
    /// Numbers of the model.
    pub config: &'a Config,
    /// Most tokens that the model can have: the rows of its embedding, and some padding.
    pub limit: usize,
    /// Name of the pre-tokeniser, if the caller knows it.
    pub pre_tokenizer: Option<&'a str>,
    /// True if `tokenizer_config.json` decides if a space is put before texts.
    pub notes_prefix: bool,
}

impl Sources<'_> {
    /// Return the number of tokens that `config.json` gives, or `otherwise`.
    ///
    /// # Errors
    /// [`Error::Key`] if it is more than the model can have.
    pub fn vocab_size(&self, otherwise: usize) -> Result<usize, Error> {
        const KEYS: &[&str] = &["vocab_size"];
        let size = self.config.number(KEYS)?.map_or(otherwise, |n| n as usize);
        if size > self.limit.max(otherwise.saturating_add(PADDING)) {
            let wanted = format!("at most {}, the rows of the embedding", self.limit);
            return Err(self.config.wrong(KEYS, &wanted));
        }
        Ok(size)
    }
}

/// Tokens that a model may have beyond the rows of its embedding, to fill a multiple of 64.
pub(crate) const PADDING: usize = 64;

impl Style {
    /// Return true if the files of the style are there.
    fn is_there(self, folder: &Path) -> bool {
        let any = |names: &[&str]| names.iter().any(|name| folder.join(name).is_file());
        match self {
            Self::Bpe => any(&Tokenizer::FILES),
            Self::Gemma4 => any(&["tokenizer.json"]),
            Self::ByteFallback => {
                any(&["tokenizer.json"])
                    && Tokenizer::read(folder).is_ok_and(|file| file.falls_back_to_bytes())
            }
            Self::SentencePiece | Self::SentencePieceAdded => any(&["tokenizer.model"]),
            Self::WordPiece => any(&["tokenizer.json", "vocab.txt"]),
            Self::Unigram => any(&["tokenizer.model", "spiece.model"]),
            Self::XlmRoberta => any(&["sentencepiece.bpe.model", "tokenizer.json"]),
            Self::RwkvWorld => any(&["rwkv_vocab_v20230424.txt"]),
            Self::Plamo => any(&["tokenizer.jsonl"]),
        }
    }

    /// Return the files of which one must be there.
    const fn files(self) -> &'static str {
        match self {
            Self::Bpe => "tokenizer.json, tekken.json or tiktoken.model",
            Self::ByteFallback | Self::Gemma4 => "tokenizer.json",
            Self::SentencePiece | Self::SentencePieceAdded => "tokenizer.model",
            Self::WordPiece => "tokenizer.json or vocab.txt",
            Self::Unigram => "spiece.model or tokenizer.model",
            Self::XlmRoberta => "sentencepiece.bpe.model or tokenizer.json",
            Self::RwkvWorld => "rwkv_vocab_v20230424.txt",
            Self::Plamo => "tokenizer.jsonl",
        }
    }
}

/// Count the tokens that the files of a vocabulary name.
///
/// # Errors
/// The errors of reading them.
pub(crate) fn count(folder: &Path, config: &Config) -> Result<usize, Error> {
    if folder.join("tokenizer.model").is_file() {
        return config.size(&["vocab_size"]);
    }
    let tokenizer = Tokenizer::read(folder)?;
    Ok(tokenizer.n_entries())
}

/// Set the keys of the vocabulary, of the first style whose files are there.
///
/// # Errors
/// [`Error::MissingFile`] if there are none of any style, [`Error::UnreadVocabulary`] if there are
/// others; [`Error::Format`] and [`Error::Key`] if they contradict each other or the model;
/// [`Error::UnknownPreTokenizer`].
pub(crate) fn set(styles: &[Style], sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let Some(style) = styles.iter().find(|style| style.is_there(sources.folder)) else {
        let wanted = styles.iter().map(|style| style.files()).collect::<Vec<_>>().join(" or ");
        // A file of another form says more than the absence of those that would do.
        let unread = ["vocab.json", "tekken.json", "tiktoken.model"].map(|name| sources.folder.join(name));
        return Err(match unread.into_iter().find(|path| path.is_file()) {
            Some(path) => Error::UnreadVocabulary { path, wanted },
            None => Error::MissingFile { folder: sources.folder.into(), wanted },
        });
    };
    match style {
        Style::Bpe => bpe::set(sources, meta),
        Style::SentencePiece => sentencepiece::set(sources, false, meta),
        Style::SentencePieceAdded => sentencepiece::set(sources, true, meta),
        Style::ByteFallback => bpe::set_byte_fallback(sources, meta),
        Style::Gemma4 => bpe::set_gemma4(sources, meta),
        Style::WordPiece => wordpiece::set(sources, meta),
        Style::Unigram => unigram::set(sources, meta),
        Style::XlmRoberta => unigram::set_xlm_roberta(sources, meta),
        Style::RwkvWorld => rwkv::set(sources, meta),
        Style::Plamo => plamo::set(sources, meta),
    }
}
