//! The construction of a [`Vocab`] from its source, tokeniser by tokeniser.

use alloc::vec::Vec;
use backstitch_kv::Token;

use super::bpe::Bpe;
use super::error::VocabError;
use super::partition::Partition;
use super::pieces::Pieces;
use super::pre::Pre;
use super::rwkv::{self, Rwkv};
use super::source::{Roles, VocabSource};
use super::special::{Attr, Specials};
use super::spm::{self, Spm};
use super::strings::Strings;
use super::unigram::Unigram;
use super::wordpiece::WordPiece;
use super::{Tokenizer, Vocab, alphabet};

impl Vocab {
    /// Build a byte-pair vocabulary.
    pub(super) fn bpe(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        let name = source.pre.unwrap_or("default");
        let pre = Pre::named(name).ok_or_else(|| VocabError::Pre { found: name.into() })?;
        let mut texts = token_texts(source)?;
        let specials = Specials::new(source, Roles::default(), &texts)?;
        let bpe = Bpe::new(pre, &mut texts, source.merges)?;
        let mut vocab = Self::with(source, texts, specials, Tokenizer::Bpe(bpe))?;
        vocab.add_bos = source.add_bos.unwrap_or(pre.add_bos);
        vocab.clean_spaces = pre.clean_spaces;
        Ok(vocab)
    }

    /// Build a SentencePiece vocabulary.
    pub(super) fn spm(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        if source.scores.is_empty() {
            return Err(VocabError::Missing { key: "tokenizer.ggml.scores" });
        }
        let texts = token_texts(source)?;
        let defaults = Roles { bos: Some(1), eos: Some(2), unk: Some(0), ..Roles::default() };
        let specials = Specials::new(source, defaults, &texts)?;
        let spm = Spm::new(&texts, &source.scores, specials.roles.unk.map(Token))?;
        let mut vocab = Self::with(source, texts, specials, Tokenizer::Spm(spm))?;
        vocab.add_bos = source.add_bos.unwrap_or(true);
        vocab.add_space_prefix = source.add_space_prefix.unwrap_or(true);
        Ok(vocab)
    }

    /// Build a Unigram vocabulary.
    pub(super) fn unigram(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        if source.scores.is_empty() {
            return Err(VocabError::Missing { key: "tokenizer.ggml.scores" });
        }
        let texts = token_texts(source)?;
        let defaults = Roles { eos: Some(1), unk: Some(2), pad: Some(0), ..Roles::default() };
        let specials = Specials::new(source, defaults, &texts)?;
        let add_space_prefix = source.add_space_prefix.unwrap_or(true);
        let unigram = Unigram::new(source, &texts, specials.roles.unk.map(Token), add_space_prefix)?;
        let mut vocab = Self::with(source, texts, specials, Tokenizer::Unigram(unigram))?;
        vocab.add_bos = source.add_bos.unwrap_or(false);
        vocab.add_eos = source.add_eos.unwrap_or(true);
        vocab.add_space_prefix = add_space_prefix;
        Ok(vocab)
    }

    /// Build a WordPiece vocabulary. A text always stands between the classification token and a
    /// separator.
    pub(super) fn wordpiece(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        let texts = token_texts(source)?;
        let defaults = Roles {
            bos: Some(101),
            unk: Some(100),
            sep: Some(102),
            pad: Some(0),
            mask: Some(103),
            ..Roles::default()
        };
        let mut specials = Specials::new(source, defaults, &texts)?;
        specials.roles.eos = specials.roles.sep.or(specials.roles.eos);
        let wordpiece = WordPiece::new(&texts, specials.roles.unk.map(Token))?;
        let mut vocab = Self::with(source, texts, specials, Tokenizer::WordPiece(wordpiece))?;
        (vocab.add_bos, vocab.add_eos, vocab.clean_spaces) = (true, true, true);
        Ok(vocab)
    }

    /// Build an RWKV vocabulary.
    pub(super) fn rwkv(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        let texts = token_texts(source)?;
        let specials = Specials::new(source, Roles::default(), &texts)?;
        let mut vocab = Self::with(source, texts, specials, Tokenizer::Rwkv(Rwkv::default()))?;
        vocab.tokenizer = Tokenizer::Rwkv(Rwkv::new(&vocab.pieces, vocab.specials.roles.unk.map(Token))?);
        vocab.add_bos = source.add_bos.unwrap_or(false);
        Ok(vocab)
    }

    /// Build the fields that do not depend on the tokeniser.
    fn with(
        source: &VocabSource<'_>,
        texts: Strings,
        specials: Specials,
        tokenizer: Tokenizer,
    ) -> Result<Self, VocabError> {
        const USER: Attr = Attr::USER;
        const ALL: Attr = USER.or(Attr::CONTROL).or(Attr::UNKNOWN);
        let mut vocab = Self {
            pieces: Pieces::default(),
            all_specials: Partition::new(&specials, ALL, &texts)?,
            user_defined: Partition::new(&specials, USER, &texts)?,
            texts,
            specials,
            tokenizer,
            add_bos: false,
            add_eos: source.add_eos.unwrap_or(false),
            add_space_prefix: source.add_space_prefix.unwrap_or(false),
            clean_spaces: false,
        };
        let mut pieces = Pieces::with_capacity(source.tokens.len())?;
        for id in 0..vocab.n_vocab() as u32 {
            // No piece is longer than the text of its token.
            pieces.push(vocab.texts.at(id).len(), |out| vocab.write_piece(id, out))?;
        }
        vocab.pieces = pieces;
        Ok(vocab)
    }

    /// Append the bytes that token `id` stands for.
    fn write_piece(&self, id: u32, out: &mut Vec<u8>) {
        let (attr, text) = (self.specials.attr(id), self.texts.at(id));
        if let Tokenizer::Rwkv(_) = self.tokenizer {
            rwkv::unescape(text, out);
        } else if attr.any(Attr::CONTROL.or(Attr::USER).or(Attr::UNKNOWN)) {
            out.extend_from_slice(text);
        } else if attr.any(Attr::BYTE) {
            match byte_of(text) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(text),
            }
        } else if attr.any(Attr::NORMAL) {
            match &self.tokenizer {
                Tokenizer::Spm(_) | Tokenizer::Unigram(_) | Tokenizer::WordPiece(_) => {
                    spm::unescape(text, out);
                }
                Tokenizer::Bpe(_) if alphabet::decode(text, out) => {}
                Tokenizer::Bpe(_) | Tokenizer::Rwkv(_) => out.extend_from_slice(text),
            }
        }
    }
}

/// The most tokens; the largest vocabularies have a quarter of a million.
const MAX_TOKENS: usize = 1 << 20;
/// The most bytes of all token texts, beside [`TEXT_OF_TOKEN`] per token. The bound exists because
/// every byte of a text may become a node of a table.
const MAX_TEXTS: usize = 4 << 20;
/// The bytes of text per token that do not count towards [`MAX_TEXTS`].
const TEXT_OF_TOKEN: usize = 6;

/// Return the texts of the tokens, after checking that the lists beside them are long enough.
fn token_texts(source: &VocabSource<'_>) -> Result<Strings, VocabError> {
    let wanted = source.tokens.len();
    if wanted == 0 {
        return Err(VocabError::Missing { key: "tokenizer.ggml.tokens" });
    }
    let lists =
        [("tokenizer.ggml.scores", source.scores.len()), ("tokenizer.ggml.token_type", source.types.len())];
    for (key, found) in lists {
        if found != 0 && found < wanted {
            return Err(VocabError::Short { key, found, wanted });
        }
    }
    let n_bytes = source.tokens.iter().map(|text| text.len()).sum();
    if wanted > MAX_TOKENS || n_bytes > MAX_TEXTS + TEXT_OF_TOKEN * wanted {
        return Err(VocabError::TooLarge { what: "the list of tokens" });
    }
    let mut texts = Strings::with_capacity(wanted, n_bytes)?;
    for text in source.tokens {
        texts.push(text.as_bytes())?;
    }
    Ok(texts)
}

/// Return the byte that a text such as `<0x0A>` stands for.
fn byte_of(text: &[u8]) -> Option<u8> {
    let hex = text.strip_prefix(b"<0x")?.strip_suffix(b">").filter(|hex| hex.len() == 2)?;
    u8::from_str_radix(core::str::from_utf8(hex).ok()?, 16).ok()
}
