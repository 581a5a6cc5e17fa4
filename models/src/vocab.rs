//! Vocabularies: from text to tokens and back.
//!
//! A model only works with the tokens it was trained on, so what comes out here has to be exactly what its own tokeniser gives:
//! the goldens are llama.cpp's answers. Vocabularies come from files and are hostile until checked: building one either
//! succeeds or says what is wrong, in time and memory linear in its size, and no text can make tokenising slow.
//!
//! How to read this: [`VocabSource`] is the raw material, [`Vocab`] the result. `special.rs` works out kinds and roles of
//! tokens, `partition.rs` cuts a text at special tokens written out in it, then one tokeniser turns what is between into
//! tokens: `bpe.rs` (with the word cutters in `pre.rs`), `spm.rs`, `unigram.rs` (with the table of `charsmap.rs`), `wordpiece.rs` or
//! `rwkv.rs`. `strings.rs`, `merges.rs` and `automaton.rs` are what they look things up in, `alphabet.rs` is how byte-pair vocabularies write bytes, and `text.rs` goes back to text.

mod alphabet;
mod automaton;
mod bpe;
mod charsmap;
mod error;
mod merges;
mod partition;
mod pre;
mod room;
mod rwkv;
mod source;
mod special;
mod spm;
mod strings;
mod text;
mod unigram;
mod wordpiece;

use alloc::vec::Vec;
use backstitch_kv::Token;
use core::ops::Range;

use crate::error::Error;
use crate::gguf::Gguf;

use self::bpe::Bpe;
use self::partition::{Partition, Piece};
use self::pre::Pre;
use self::room::{make_room, room_for};
use self::rwkv::Rwkv;
use self::special::{Attr, Specials};
use self::spm::Spm;
use self::strings::Strings;
use self::unigram::Unigram;
use self::wordpiece::WordPiece;

pub use self::error::VocabError;
pub use self::source::{Roles, VocabSource};
pub use self::text::TextStream;

/// Whether the tokens that the model wants around a text are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddSpecial {
    /// Only what is in the text.
    No,
    /// The beginning and the end of a sequence, as far as the model asks for them.
    Yes,
}

/// Whether control tokens written out in a text become those tokens. User-defined tokens always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseSpecial {
    /// They are text like any other: right for what users type.
    No,
    /// They steer the model: right for text whose every byte is trusted. For conversations there is
    /// [`Vocab::tokenize_trusted`].
    Yes,
}

/// Whether control tokens are written out when tokens become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSpecial {
    /// They are left out.
    No,
    /// Their text is written.
    Yes,
}

/// The tokens of a model. Immutable, and shared by everything that uses the model.
#[derive(Clone, Debug)]
pub struct Vocab {
    /// Texts of the tokens, as the file writes them, then those that only merges have.
    texts: Strings,
    /// What each token stands for, one after the other.
    pieces: Vec<u8>,
    /// Where the piece of each token ends.
    piece_ends: Vec<u32>,
    specials: Specials,
    /// Finds all special tokens.
    parse_all: Partition,
    /// Finds user-defined tokens.
    parse_user: Partition,
    tokenizer: Tokenizer,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    clean_spaces: bool,
}

/// The ways of turning plain text into tokens.
#[derive(Clone, Debug)]
enum Tokenizer {
    Bpe(Bpe),
    Spm(Spm),
    Unigram(Unigram),
    WordPiece(WordPiece),
    Rwkv(Rwkv),
}

impl Vocab {
    /// Builds a vocabulary. Cost: O(size of `source`), but sorting its special tokens.
    ///
    /// Of tokens with the same text the first one is found in texts, all of them become that text. A token with an empty
    /// text is never found.
    ///
    /// # Errors
    /// Every variant of [`VocabError`].
    pub fn new(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        match source.model {
            "gpt2" => Self::bpe(source),
            "llama" => Self::spm(source),
            "t5" => Self::unigram(source),
            "bert" => Self::wordpiece(source),
            "rwkv" => Self::rwkv(source),
            other => Err(VocabError::Model { found: other.into() }),
        }
    }

    /// The vocabulary of a model file.
    ///
    /// # Errors
    /// As [`VocabSource::from_gguf`], and [`Error::Vocab`].
    pub fn from_gguf(gguf: &Gguf<'_>) -> Result<Self, Error> {
        Ok(Self::new(&VocabSource::from_gguf(gguf)?)?)
    }

    fn bpe(source: &VocabSource<'_>) -> Result<Self, VocabError> {
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

    fn spm(source: &VocabSource<'_>) -> Result<Self, VocabError> {
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

    fn unigram(source: &VocabSource<'_>) -> Result<Self, VocabError> {
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

    /// A text always stands between the classification token and a separator.
    fn wordpiece(source: &VocabSource<'_>) -> Result<Self, VocabError> {
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

    fn rwkv(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        let texts = token_texts(source)?;
        let specials = Specials::new(source, Roles::default(), &texts)?;
        let mut vocab = Self::with(source, texts, specials, Tokenizer::Rwkv(Rwkv::default()))?;
        vocab.tokenizer = Tokenizer::Rwkv(Rwkv::new(&vocab)?);
        vocab.add_bos = source.add_bos.unwrap_or(false);
        Ok(vocab)
    }

    /// The parts that do not depend on the tokeniser.
    fn with(
        source: &VocabSource<'_>,
        texts: Strings,
        specials: Specials,
        tokenizer: Tokenizer,
    ) -> Result<Self, VocabError> {
        const USER: Attr = Attr::USER;
        const ALL: Attr = USER.or(Attr::CONTROL).or(Attr::UNKNOWN);
        let mut vocab = Self {
            pieces: Vec::new(),
            piece_ends: room_for(source.tokens.len())?,
            parse_all: Partition::new(&specials, ALL, &texts)?,
            parse_user: Partition::new(&specials, USER, &texts)?,
            texts,
            specials,
            tokenizer,
            add_bos: false,
            add_eos: source.add_eos.unwrap_or(false),
            add_space_prefix: source.add_space_prefix.unwrap_or(false),
            clean_spaces: false,
        };
        for id in 0..vocab.n_vocab() as u32 {
            let mut piece = core::mem::take(&mut vocab.pieces);
            // No piece is longer than the text of its token.
            make_room(&mut piece, vocab.texts.at(id).len())?;
            vocab.write_piece(id, &mut piece);
            vocab.pieces = piece;
            let end = u32::try_from(vocab.pieces.len());
            vocab.piece_ends.push(end.map_err(|_| VocabError::TooLarge { what: "the pieces of tokens" })?);
        }
        Ok(vocab)
    }

    /// Appends what token `id` stands for.
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

    /// How many tokens there are.
    pub fn n_vocab(&self) -> usize {
        self.specials.attrs.len()
    }

    /// Appends the tokens of `text` to `out`.
    ///
    /// Takes `O(n log n)` time for `n` bytes, whatever they are; with Unigram vocabularies, times the number of tokens that are ends of one another; with RWKV's, times the length
    /// of the longest token, which is bounded. Bytes that a byte-pair vocabulary cannot express are left
    /// out; the others have the unknown token for them.
    pub fn tokenize(&self, text: &str, add: AddSpecial, parse: ParseSpecial, out: &mut Vec<Token>) {
        let whole = 0..text.len();
        let trusted = match parse {
            ParseSpecial::No => &[],
            ParseSpecial::Yes => core::slice::from_ref(&whole),
        };
        self.tokenize_trusted(text, trusted, add, out);
    }

    /// Append the tokens of a `text` of which some parts may steer the model and others may not, to `out`.
    /// Control tokens written out in it become those tokens where all of their bytes lie in one of the ranges
    /// `trusted`; anywhere else they are text like any other. User-defined tokens always are tokens. All text
    /// is tokenised as if it came from one writer: no token changes because a range ends there. Ranges are
    /// byte offsets in ascending order that do not overlap.
    ///
    /// Costs as much as [`tokenize`](Self::tokenize).
    pub fn tokenize_trusted(
        &self,
        text: &str,
        trusted: &[Range<usize>],
        add: AddSpecial,
        out: &mut Vec<Token>,
    ) {
        let partition = if trusted.is_empty() { &self.parse_user } else { &self.parse_all };
        if add == AddSpecial::Yes && self.add_bos {
            out.extend(self.bos());
        }
        self.tokenize_pieces(partition.pieces(text, trusted, &self.specials, &self.texts), true, out);
        if add == AddSpecial::Yes && self.add_eos {
            out.extend(self.eos());
        }
    }

    /// Append the tokens of a `text` that goes on where another one ended to `out`: together they are the text
    /// of both, because no space is put before it, and nothing is added. Control tokens written out in it are
    /// treated as in [`tokenize`](Self::tokenize).
    pub fn tokenize_behind(&self, text: &str, parse: ParseSpecial, out: &mut Vec<Token>) {
        let whole = 0..text.len();
        let (partition, trusted) = match parse {
            ParseSpecial::No => (&self.parse_user, &[][..]),
            ParseSpecial::Yes => (&self.parse_all, core::slice::from_ref(&whole)),
        };
        self.tokenize_pieces(partition.pieces(text, trusted, &self.specials, &self.texts), false, out);
    }

    /// Appends the tokens of `pieces`, the first of which begins a text if `begins`.
    fn tokenize_pieces(&self, pieces: Vec<Piece<'_>>, mut begins: bool, out: &mut Vec<Token>) {
        for piece in pieces {
            match piece {
                Piece::Token(token) => out.push(token),
                Piece::Text(text) => self.tokenize_plain(text, begins, out),
            }
            begins = matches!(piece, Piece::Token(_));
        }
    }

    /// Appends the tokens of text without special tokens; `first` at the start of a text and after a special token.
    fn tokenize_plain(&self, text: &str, first: bool, out: &mut Vec<Token>) {
        match &self.tokenizer {
            Tokenizer::Bpe(bpe) => bpe.tokenize(text, &self.texts, out),
            Tokenizer::Spm(spm) => spm.tokenize(text, self.add_space_prefix && first, &self.texts, out),
            Tokenizer::Unigram(unigram) => unigram.tokenize(text, &self.texts, out),
            Tokenizer::WordPiece(wordpiece) => wordpiece.tokenize(text, &self.texts, out),
            Tokenizer::Rwkv(rwkv) => rwkv.tokenize(text, self, out),
        }
    }

    /// What `token` stands for, control tokens written out. Not always valid UTF-8: a character can take several tokens
    /// ([`TextStream`] puts them together). Empty for an unused token and past the end of the vocabulary.
    pub fn piece(&self, token: Token) -> &[u8] {
        let i = token.0 as usize;
        let start = i.checked_sub(1).and_then(|i| self.piece_ends.get(i)).map_or(0, |&end| end as usize);
        let end = self.piece_ends.get(i).map_or(0, |&end| end as usize);
        self.pieces.get(start..end).unwrap_or(&[])
    }

    /// The text of `token` as the model file writes it.
    pub fn token_text(&self, token: Token) -> &[u8] {
        if (token.0 as usize) < self.n_vocab() { self.texts.at(token.0) } else { &[] }
    }

    /// The first token whose text in the model file is `text`.
    pub fn find(&self, text: &[u8]) -> Option<Token> {
        self.texts.find(text).filter(|&id| (id as usize) < self.n_vocab()).map(Token)
    }

    /// The text of `tokens`, tidied as the model's own tokeniser does: without the space put in front when tokenising, and
    /// for some vocabularies without spaces before punctuation. For text that has to come back as it was, join [`piece`]s.
    ///
    /// [`piece`]: Self::piece
    pub fn detokenize(&self, tokens: &[Token], write: WriteSpecial) -> Vec<u8> {
        let mut text = Vec::new();
        for (i, &token) in tokens.iter().enumerate() {
            if write == WriteSpecial::No && self.is_hidden(token) {
                continue;
            }
            let piece = self.piece(token);
            let strip = i == 0 && self.add_space_prefix;
            text.extend_from_slice(piece.strip_prefix(b" ").filter(|_| strip).unwrap_or(piece));
        }
        if self.clean_spaces { text::clean_spaces(&text) } else { text }
    }

    /// Return true if `token` is no part of what users read: a control token or the unknown token.
    pub fn is_hidden(&self, token: Token) -> bool {
        self.specials.attr(token.0).any(Attr::CONTROL.or(Attr::UNKNOWN))
    }

    /// Return true if text behind `token` begins as at the start of a text: it was cut out before tokenising.
    pub(crate) fn is_special(&self, token: Token) -> bool {
        self.specials.attr(token.0).any(Attr::CONTROL.or(Attr::UNKNOWN).or(Attr::USER))
    }

    /// Whether generation ends with `token`.
    pub fn is_eog(&self, token: Token) -> bool {
        self.specials.eog.binary_search(&token).is_ok()
    }

    /// All tokens that generation ends with, in ascending order.
    pub fn eog(&self) -> &[Token] {
        &self.specials.eog
    }

    /// The token at the beginning of a sequence.
    pub fn bos(&self) -> Option<Token> {
        self.specials.roles.bos.map(Token)
    }

    /// The token at the end of a sequence.
    pub fn eos(&self) -> Option<Token> {
        self.specials.roles.eos.map(Token)
    }

    /// All roles that tokens play.
    pub fn roles(&self) -> &Roles {
        &self.specials.roles
    }

    /// Whether [`AddSpecial::Yes`] puts a token in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos().is_some()
    }

    /// Whether [`AddSpecial::Yes`] puts a token at the end.
    pub fn adds_eos(&self) -> bool {
        self.add_eos && self.eos().is_some()
    }
}

/// The most tokens; the largest vocabularies have a million.
const MAX_TOKENS: usize = 1 << 20;
/// The most bytes of all texts, beside so many of each token: every byte of a text may become a node of a table.
const MAX_TEXTS: usize = 4 << 20;
const TEXT_OF_TOKEN: usize = 6;

/// The texts of the tokens, after checking that the lists beside them are long enough.
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

/// The byte that `<0x0A>` and the like stand for.
fn byte_of(text: &[u8]) -> Option<u8> {
    let hex = text.strip_prefix(b"<0x")?.strip_suffix(b">").filter(|hex| hex.len() == 2)?;
    u8::from_str_radix(core::str::from_utf8(hex).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    fn source<'a>(model: &'a str, tokens: &'a [&'a str]) -> VocabSource<'a> {
        let scores =
            if model == "llama" { tokens.iter().map(|text| text.len() as f32).collect() } else { Vec::new() };
        VocabSource { model, tokens, scores, ..VocabSource::default() }
    }

    fn tokens(vocab: &Vocab, text: &str, add: AddSpecial, parse: ParseSpecial) -> Vec<u32> {
        let mut tokens = Vec::new();
        vocab.tokenize(text, add, parse, &mut tokens);
        tokens.iter().map(|token| token.0).collect()
    }

    #[test]
    fn control_tokens_are_parsed_when_asked_and_user_defined_ones_always() -> Result<(), VocabError> {
        let mut source = source("gpt2", &["<", "c", ">", "<c>", "<u>", "u"]);
        source.types = [1, 1, 1, 3, 4, 1].to_vec();
        let vocab = Vocab::new(&source)?;
        assert_eq!(tokens(&vocab, "<c><u>", AddSpecial::No, ParseSpecial::No), [0, 1, 2, 4]);
        assert_eq!(tokens(&vocab, "<c><u>", AddSpecial::No, ParseSpecial::Yes), [3, 4]);
        let all = [3, 4, 1].map(Token);
        assert_eq!(vocab.detokenize(&all, WriteSpecial::No), b"<u>c");
        assert_eq!(vocab.detokenize(&all, WriteSpecial::Yes), b"<c><u>c");
        Ok(())
    }

    #[test]
    fn beginning_and_end_are_added_when_there_are_such_tokens() -> Result<(), VocabError> {
        let mut source = source("gpt2", &["a", "B", "E"]);
        (source.add_bos, source.add_eos) = (Some(true), Some(true));
        let without = Vocab::new(&source)?;
        assert!(!without.adds_bos() && !without.adds_eos());
        assert_eq!(tokens(&without, "a", AddSpecial::Yes, ParseSpecial::No), [0]);
        (source.roles.bos, source.roles.eos) = (Some(1), Some(2));
        let with = Vocab::new(&source)?;
        assert_eq!(tokens(&with, "a", AddSpecial::Yes, ParseSpecial::No), [1, 0, 2]);
        assert_eq!(tokens(&with, "", AddSpecial::Yes, ParseSpecial::No), [1, 2]);
        assert_eq!(tokens(&with, "a", AddSpecial::No, ParseSpecial::No), [0]);
        Ok(())
    }

    #[test]
    fn a_space_is_put_before_text_that_starts_and_taken_away_again() -> Result<(), VocabError> {
        let mut source = source("llama", &["<unk>", "<s>", "</s>", "▁", "a", "▁a"]);
        source.types = [2, 3, 3, 1, 1, 1].to_vec();
        let vocab = Vocab::new(&source)?;
        assert_eq!(tokens(&vocab, "a a</s>a", AddSpecial::Yes, ParseSpecial::Yes), [1, 5, 5, 2, 5]);
        assert_eq!(vocab.detokenize(&[Token(5), Token(5)], WriteSpecial::No), b"a a");
        assert_eq!(vocab.piece(Token(5)), b" a");
        assert_eq!(vocab.token_text(Token(5)), "▁a".as_bytes());
        Ok(())
    }

    #[test]
    fn what_a_token_stands_for_depends_on_its_kind() -> Result<(), VocabError> {
        let texts = ["Ġa", "Ġc", "Ġu", "x", "<0x0A>", "<0xg1>", "▁", ""];
        let mut source = source("gpt2", &texts);
        source.types = [1, 3, 4, 5, 6, 6, 1, 1].to_vec();
        let vocab = Vocab::new(&source)?;
        for (id, wanted) in (0..).zip([" a", "Ġc", "Ġu", "", "\n", "<0xg1>", "▁", ""]) {
            assert_eq!(vocab.piece(Token(id)), wanted.as_bytes(), "{id}");
        }
        assert_eq!(vocab.piece(Token(8)), b"");
        assert_eq!(vocab.piece(Token(u32::MAX)), b"");
        Ok(())
    }

    #[test]
    fn of_equal_tokens_the_first_is_found_and_all_have_the_text() -> Result<(), VocabError> {
        let vocab = Vocab::new(&source("gpt2", &["b", "a", "a", ""]))?;
        assert_eq!(tokens(&vocab, "aab", AddSpecial::No, ParseSpecial::Yes), [1, 1, 0]);
        assert_eq!(vocab.detokenize(&[Token(1), Token(2), Token(3), Token(4)], WriteSpecial::Yes), b"aa");
        assert_eq!(vocab.find(b""), None);
        Ok(())
    }

    #[test]
    fn what_is_wrong_with_a_vocabulary_is_said() {
        let tokens = &["a", "b"];
        let plain = source("gpt2", tokens);
        let cases = [
            (VocabSource { model: "none", ..plain.clone() }, VocabError::Model { found: "none".into() }),
            (VocabSource { pre: Some("new"), ..plain.clone() }, VocabError::Pre { found: "new".into() }),
            (source("gpt2", &[]), VocabError::Missing { key: "tokenizer.ggml.tokens" }),
            (
                VocabSource { model: "llama", ..plain.clone() },
                VocabError::Missing { key: "tokenizer.ggml.scores" },
            ),
            (
                VocabSource { types: [1].to_vec(), ..plain.clone() },
                VocabError::Short { key: "tokenizer.ggml.token_type", found: 1, wanted: 2 },
            ),
            (
                VocabSource { scores: [0.0].to_vec(), ..source("llama", tokens) },
                VocabError::Short { key: "tokenizer.ggml.scores", found: 1, wanted: 2 },
            ),
            (VocabSource { merges: &["ab"], ..plain.clone() }, VocabError::Merge { index: 0 }),
        ];
        for (source, wanted) in cases {
            assert_eq!(Vocab::new(&source).err(), Some(wanted));
        }
        let long = String::from_utf8_lossy(&[b'x'; 1000]).into_owned();
        assert!(alloc::format!("{}", VocabError::Pre { found: long.into() }).len() < 250);
    }

    /// Every text, special tokens and unfinished ones among it, comes back from a complete byte-pair vocabulary.
    fn complete(pre: &str) -> Result<Vocab, VocabError> {
        let bytes: Vec<String> = (0..=255)
            .map(|byte| {
                let mut text = Vec::new();
                alphabet::encode(byte, &mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
            .collect();
        let mut tokens: Vec<&str> = bytes.iter().map(String::as_str).collect();
        tokens.extend(["<|x|>", "Ġa", "aa", "Ġaa", "Ãł"]);
        let types = (0..tokens.len()).map(|id| if id == 256 { 3 } else { 1 }).collect();
        let merges = &["Ġ a", "a a", "Ġa a", "Ã ł"];
        Vocab::new(&VocabSource { pre: Some(pre), types, merges, ..source("gpt2", &tokens) })
    }

    proptest! {
        #[test]
        fn text_comes_back_from_byte_pairs(text in "([ a-c]|<\\|x\\|>|à|\\PC|\\s){0,60}") {
            for pre in ["default", "gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-v3"] {
                let vocab = complete(pre)?;
                for parse in [ParseSpecial::No, ParseSpecial::Yes] {
                    let mut tokens = Vec::new();
                    vocab.tokenize(&text, AddSpecial::No, parse, &mut tokens);
                    let pieces: Vec<u8> = tokens.iter().flat_map(|&token| vocab.piece(token)).copied().collect();
                    prop_assert_eq!(&pieces, text.as_bytes());
                }
            }
        }
    }
}
