//! The construction of a [`Vocab`] from its source, tokeniser by tokeniser.

use alloc::vec::Vec;
use backstitch_kv::Token;

use super::bpe::Bpe;
use super::dna::Dna;
use super::error::VocabError;
use super::partition::Partition;
use super::pieces::Pieces;
use super::plamo::Plamo;
use super::pre::{Pre, Writing};
use super::reserve::try_collect;
use super::rwkv::{self, Rwkv};
use super::source::{Roles, VocabSource};
use super::spaced::Spaced;
use super::special::{Attr, Specials};
use super::spm::{self, Spm};
use super::strings::Strings;
use super::unigram::Unigram;
use super::wordpiece::WordPiece;
use super::{Tokenizer, Vocab, alphabet};

impl Vocab {
    /// Build a byte-pair vocabulary.
    pub(super) fn bpe(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        Self::pairs(source, |bpe, _| Tokenizer::Bpe(bpe))
    }

    /// Build a vocabulary of Gemma 4: byte pairs with `▁` for spaces. A text always starts with the
    /// beginning-of-sequence token, because files were published that say otherwise by mistake.
    pub(super) fn gemma4(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        Self::bpe(&VocabSource { pre: Some("gemma4"), ..source.clone() })
    }

    /// Build a byte-pair vocabulary of words without white space.
    pub(super) fn spaced(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        let lowercase = source.lowercase.unwrap_or(source.pre != Some("whitespace"));
        Self::pairs(source, |bpe, _| Tokenizer::Spaced(Spaced { bpe, lowercase }))
    }

    /// Build a byte-pair vocabulary with tokens of genetic sequences.
    pub(super) fn dna(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        Self::pairs(source, |bpe, texts| Tokenizer::Dna(Dna::new(bpe, texts)))
    }

    /// Build a vocabulary with a byte-pair tokeniser, of which `tokenizer` makes its own.
    fn pairs(
        source: &VocabSource<'_>,
        tokenizer: impl FnOnce(Bpe, &Strings) -> Tokenizer,
    ) -> Result<Self, VocabError> {
        let name = source.pre.unwrap_or("default");
        let pre = Pre::named(name).ok_or_else(|| VocabError::Pre { found: name.into() })?;
        let mut texts = token_texts(source)?;
        let specials = Specials::new(source, Roles::default(), &texts)?;
        let bpe = Bpe::new(pre, &mut texts, source.merges)?;
        let tokenizer = tokenizer(bpe, &texts);
        let mut vocab = Self::with(source, texts, specials, tokenizer)?;
        vocab.add_bos =
            source.add_bos.filter(|_| !(pre.whole_line_feeds && pre.add_bos)).unwrap_or(pre.add_bos);
        vocab.clean_spaces = pre.clean_spaces;
        Ok(vocab)
    }

    /// Build a PLaMo 2 vocabulary.
    pub(super) fn plamo(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        if source.scores.is_empty() {
            return Err(VocabError::Missing { key: "tokenizer.ggml.scores" });
        }
        let texts = token_texts(source)?;
        let defaults = Roles { bos: Some(1), eos: Some(2), unk: Some(0), pad: Some(3), ..Roles::default() };
        let specials = Specials::new(source, defaults, &texts)?;
        let plamo = Plamo::new(source, &specials, &texts)?;
        let mut vocab = Self::with(source, texts, specials, Tokenizer::Plamo(plamo))?;
        vocab.add_bos = source.add_bos.unwrap_or(false);
        Ok(vocab)
    }

    /// Build the vocabulary of a model without texts: its tokens are numbers only.
    pub(super) fn without_texts(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        let size = source.size.ok_or(VocabError::Missing { key: "vocab_size" })? as usize;
        if size > MAX_TOKENS {
            return Err(VocabError::TooLarge { what: "the tokens" });
        }
        let tokens = try_collect(size, core::iter::repeat(""))?;
        let source = VocabSource { tokens: &tokens, types: Vec::new(), scores: Vec::new(), ..source.clone() };
        let texts = token_texts(&source)?;
        let specials = Specials::new(&source, Roles::default(), &texts)?;
        Self::with(&source, texts, specials, Tokenizer::None)
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
        let wordpiece = WordPiece::new(source, &texts, specials.roles.unk.map(Token))?;
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
        const SPECIAL: Attr = Attr::USER.or(Attr::CONTROL).or(Attr::UNKNOWN);
        let mut vocab = Self {
            pieces: Pieces::default(),
            all_specials: Partition::new(&specials, |attr| attr.any(SPECIAL), &texts)?,
            user_defined: Partition::new(&specials, Attr::is_found_anywhere, &texts)?,
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
            self.write_normal(id, text, out);
        }
    }

    /// Append the bytes that the plain token `id` stands for, which the file writes as `text`.
    fn write_normal(&self, id: u32, text: &[u8], out: &mut Vec<u8>) {
        let text = if let Tokenizer::Dna(dna) = &self.tokenizer { dna.text_of(id, text) } else { text };
        let bars = match &self.tokenizer {
            Tokenizer::Spm(_) | Tokenizer::Unigram(_) | Tokenizer::WordPiece(_) => true,
            Tokenizer::Bpe(bpe) => bpe.pre.writing == Writing::Bars,
            _ => false,
        };
        let plain = match &self.tokenizer {
            Tokenizer::Plamo(_) => true,
            Tokenizer::Spaced(spaced) => spaced.bpe.pre.writing == Writing::Plain,
            _ => false,
        };
        if bars {
            spm::unescape(text, out);
        } else if plain || !alphabet::decode(text, out) {
            out.extend_from_slice(text);
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
