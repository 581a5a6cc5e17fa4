//! Vocabularies: from text to tokens and back.
//!
//! A model works only with the tokens it was trained on, so tokenisation must give exactly the
//! tokens of the model's own tokeniser. The goldens are llama.cpp's answers. Vocabularies come from
//! files and are untrusted until checked: building one either succeeds or reports what is wrong, in
//! time and memory linear in its size, and no text can make tokenising slow.
//!
//! The parts of the module:
//!
//! - [`VocabSource`] is the unchecked input, and [`Vocab`] the result; `build.rs` makes one of the
//!   other.
//! - `special.rs` works out the kinds and roles of tokens.
//! - `partition.rs` cuts a text at the special tokens that are written out in it.
//! - One tokeniser turns the text between them into tokens: `bpe.rs` (with the pre-tokenisers in
//!   `pre.rs`), its variants `spaced.rs` and `dna.rs`, `spm.rs`, `unigram.rs` (with the
//!   normalisation table of `charsmap.rs`), `plamo.rs`, `wordpiece.rs` or `rwkv.rs`.
//! - `strings.rs`, `merges.rs` and `automaton.rs` are the look-up tables of these.
//! - `alphabet.rs` is the alphabet in which byte-pair vocabularies write bytes.
//! - `bounded.rs` stops tokenising a text that has too many tokens.
//! - `text.rs` turns tokens back into text.
//!
//! ```
//! use backstitch_models::Model;
//! use backstitch_models::vocab::{AddSpecial, ParseSpecial, WriteSpecial};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let vocab = model.vocab();
//! let mut tokens = Vec::new();
//! vocab.tokenize("Once upon a time", AddSpecial::Start, ParseSpecial::No, &mut tokens);
//! assert_eq!(vocab.detokenize(&tokens, WriteSpecial::No), b"Once upon a time");
//! # Ok::<(), backstitch_models::Error>(())
//! ```

mod alphabet;
mod automaton;
mod bounded;
mod bpe;
mod build;
mod charsmap;
mod dna;
pub(crate) mod error;
mod merges;
mod partition;
mod pieces;
mod plamo;
mod pre;
mod reserve;
mod rwkv;
mod source;
mod spaced;
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
use self::dna::Dna;
use self::partition::{Fragment, Partition};
use self::pieces::Pieces;
use self::plamo::Plamo;
use self::rwkv::Rwkv;
use self::spaced::Spaced;
use self::special::{Attr, Specials};
use self::spm::Spm;
use self::strings::Strings;
use self::unigram::Unigram;
use self::wordpiece::WordPiece;

pub use self::bounded::TokenizeError;
pub use self::error::VocabError;
pub use self::source::{Roles, VocabSource};
pub use self::text::TextStream;

/// The choice to add the tokens that the model wants around a text.
///
/// A text that something else follows, as an answer follows a prompt, has no end: models that were
/// trained with an end-of-sequence token behind every text would continue with another one. So the
/// token that ends a text stands behind texts that are read whole: those that an encoder reads,
/// that are embedded, or whose perplexity is measured. Prompts get the token that begins one alone;
/// [`Model::prompt_special`](crate::Model::prompt_special) tells which of the two a prompt of a
/// model is.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::vocab::{AddSpecial, ParseSpecial};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let count = |add| {
///     let mut tokens = Vec::new();
///     model.vocab().tokenize("a cat", add, ParseSpecial::No, &mut tokens);
///     tokens.len()
/// };
/// let n_added = usize::from(model.vocab().adds_bos()) + usize::from(model.vocab().adds_eos());
/// assert_eq!(count(AddSpecial::Yes), count(AddSpecial::No) + n_added);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddSpecial {
    /// Add nothing.
    No,
    /// Add the beginning-of-sequence token if the model asks for it: the text will be continued.
    Start,
    /// Add the beginning-of-sequence and the end-of-sequence token, as far as the model asks for
    /// them: the text is whole.
    Yes,
}

/// The choice to turn control tokens that are written out in a text into those tokens. User-defined
/// tokens always are.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::vocab::{AddSpecial, ParseSpecial};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let vocab = model.vocab();
/// let bos = vocab.bos().unwrap();
/// let text = String::from_utf8_lossy(vocab.token_text(bos)).into_owned();
/// let count = |parse| {
///     let mut tokens = Vec::new();
///     vocab.tokenize(&text, AddSpecial::No, parse, &mut tokens);
///     tokens.iter().filter(|&&token| token == bos).count()
/// };
/// assert_eq!((count(ParseSpecial::No), count(ParseSpecial::Yes)), (0, 1));
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseSpecial {
    /// Treat them as ordinary text. This is right for text that users type.
    No,
    /// Turn them into control tokens, which steer the model. This is right only for text whose
    /// every byte is trusted. For conversations there is [`Vocab::tokenize_trusted`].
    Yes,
}

/// The choice to write control tokens out when tokens become text.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::vocab::WriteSpecial;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let vocab = model.vocab();
/// let bos = [vocab.bos().unwrap()];
/// assert_eq!(vocab.detokenize(&bos, WriteSpecial::No), b"");
/// assert_eq!(vocab.detokenize(&bos, WriteSpecial::Yes), vocab.piece(bos[0]));
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSpecial {
    /// Leave them out.
    No,
    /// Write their text.
    Yes,
}

/// The tokens of a model, and its tokeniser.
///
/// A vocabulary is immutable, and everything that uses the model shares it. [`Vocab::new`] has
/// checked it: ids below [`Vocab::n_vocab`] are tokens, and every other id acts as a token without
/// text.
///
/// # Example
/// ```
/// use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab, VocabSource};
///
/// let tokens = ["a", "b", "ab"];
/// let source = VocabSource {
///     model: "gpt2",
///     tokens: &tokens,
///     merges: &["a b"],
///     ..VocabSource::default()
/// };
/// let vocab = Vocab::new(&source)?;
/// let mut ids = Vec::new();
/// vocab.tokenize("abb", AddSpecial::No, ParseSpecial::No, &mut ids);
/// assert_eq!(ids.iter().map(|id| id.0).collect::<Vec<_>>(), [2, 1]);
/// # Ok::<(), backstitch_models::vocab::VocabError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Vocab {
    /// The texts of the tokens as the file writes them, followed by the texts that only merges
    /// have.
    texts: Strings,
    pieces: Pieces,
    specials: Specials,
    /// The index of all special tokens.
    all_specials: Partition,
    /// The index of user-defined tokens that do not steer the model.
    user_defined: Partition,
    tokenizer: Tokenizer,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    clean_spaces: bool,
}

/// The algorithm that turns plain text into tokens.
#[derive(Clone, Debug)]
enum Tokenizer {
    Bpe(Bpe),
    Spaced(Spaced),
    Dna(Dna),
    Spm(Spm),
    Unigram(Unigram),
    WordPiece(WordPiece),
    Rwkv(Rwkv),
    Plamo(Plamo),
    /// The model has no texts, and no text has tokens.
    None,
}

impl Vocab {
    /// Build a vocabulary. This takes time linear in the size of `source`, apart from sorting its
    /// special tokens.
    ///
    /// If several tokens have the same text, tokenising finds the first of them, and each of them
    /// becomes that text. A token with an empty text is never found.
    ///
    /// # Errors
    /// A [`VocabError`] for the first thing that is wrong.
    pub fn new(source: &VocabSource<'_>) -> Result<Self, VocabError> {
        match source.model {
            "gpt2" => Self::bpe(source),
            "gemma4" => Self::gemma4(source),
            "whitespace" => Self::spaced(source),
            "hybriddna" => Self::dna(source),
            "llama" => Self::spm(source),
            "t5" => Self::unigram(source),
            "bert" => Self::wordpiece(source),
            "rwkv" => Self::rwkv(source),
            "plamo2" => Self::plamo(source),
            "none" | "no_vocab" => Self::without_texts(source),
            other => Err(VocabError::Model { found: other.into() }),
        }
    }

    /// Build the vocabulary of a model file.
    ///
    /// # Errors
    /// Those of [`VocabSource::from_gguf`]; [`Error::Vocab`] with the error of [`Vocab::new`].
    pub fn from_gguf(gguf: &Gguf<'_>) -> Result<Self, Error> {
        Ok(Self::new(&VocabSource::from_gguf(gguf)?)?)
    }

    /// Return the number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.specials.attrs.len()
    }

    /// Append the tokens of `text` to `out`.
    ///
    /// This takes `O(n log n)` time for `n` bytes, whatever they are. Unigram vocabularies multiply
    /// this by the number of tokens that are ends of one another, RWKV's by the length of the
    /// longest token, which is bounded. Bytes that a byte-pair vocabulary cannot express are left
    /// out; the other tokenisers emit the unknown token for them.
    pub fn tokenize(&self, text: &str, add: AddSpecial, parse: ParseSpecial, out: &mut Vec<Token>) {
        let whole = 0..text.len();
        let trusted = match parse {
            ParseSpecial::No => &[],
            ParseSpecial::Yes => core::slice::from_ref(&whole),
        };
        self.tokenize_trusted(text, trusted, add, out);
    }

    /// Append the tokens of a `text` of which some ranges may steer the model and others may not to
    /// `out`.
    ///
    /// Control tokens that are written out in the text become those tokens if all their bytes lie
    /// in one of the ranges `trusted`; elsewhere they are ordinary text. User-defined tokens are
    /// found everywhere, unless they end texts, fill in the middle or structure messages, as
    /// `<|start|>` of gpt-oss does, which is written out like text. Otherwise the ranges do not
    /// affect the tokens. They are byte offsets in ascending order that do not overlap.
    ///
    /// The cost is that of [`tokenize`](Self::tokenize).
    pub fn tokenize_trusted(
        &self,
        text: &str,
        trusted: &[Range<usize>],
        add: AddSpecial,
        out: &mut Vec<Token>,
    ) {
        let partition = if trusted.is_empty() { &self.user_defined } else { &self.all_specials };
        if add != AddSpecial::No && self.add_bos {
            out.extend(self.bos());
        }
        self.tokenize_fragments(partition.fragments(text, trusted, &self.specials, &self.texts), true, out);
        if add == AddSpecial::Yes && self.add_eos {
            out.extend(self.eos());
        }
    }

    /// Append the tokens of a `text` that continues another one to `out`. No space is put before
    /// it, and no special tokens are added, so the tokens of both texts together are the text of
    /// both. Control tokens that are written out in it are treated as in
    /// [`tokenize`](Self::tokenize).
    pub fn tokenize_behind(&self, text: &str, parse: ParseSpecial, out: &mut Vec<Token>) {
        let whole = 0..text.len();
        let (partition, trusted) = match parse {
            ParseSpecial::No => (&self.user_defined, &[][..]),
            ParseSpecial::Yes => (&self.all_specials, core::slice::from_ref(&whole)),
        };
        self.tokenize_fragments(partition.fragments(text, trusted, &self.specials, &self.texts), false, out);
    }

    /// Append the tokens of `fragments`. `begins` is true if the first one begins a text.
    fn tokenize_fragments(&self, fragments: Vec<Fragment<'_>>, mut begins: bool, out: &mut Vec<Token>) {
        for fragment in fragments {
            match fragment {
                Fragment::Token(token) => out.push(token),
                Fragment::Text(text) => self.tokenize_plain(text, begins, out),
            }
            begins = matches!(fragment, Fragment::Token(_));
        }
    }

    /// Append the tokens of text without special tokens. `first` is true at the start of a text and
    /// after a special token.
    fn tokenize_plain(&self, text: &str, first: bool, out: &mut Vec<Token>) {
        match &self.tokenizer {
            Tokenizer::Bpe(bpe) => bpe.tokenize(text, &self.texts, out),
            Tokenizer::Spaced(spaced) => spaced.tokenize(text, &self.texts, out),
            Tokenizer::Dna(dna) => dna.tokenize(text, &self.texts, out),
            Tokenizer::Spm(spm) => spm.tokenize(text, self.add_space_prefix && first, &self.texts, out),
            Tokenizer::Unigram(unigram) => unigram.tokenize(text, &self.texts, out),
            Tokenizer::WordPiece(wordpiece) => wordpiece.tokenize(text, &self.texts, out),
            Tokenizer::Rwkv(rwkv) => rwkv.tokenize(text, &self.pieces, out),
            Tokenizer::Plamo(plamo) => plamo.tokenize(text, &self.texts, out),
            Tokenizer::None => {}
        }
    }

    /// Return the bytes that `token` stands for, with control tokens written out. They are not
    /// always valid UTF-8, because a character can take several tokens; [`TextStream`] puts it
    /// together. Empty for an unused token and past the end of the vocabulary.
    pub fn piece(&self, token: Token) -> &[u8] {
        self.pieces.of(token)
    }

    /// Return the text of `token` as the model file writes it.
    pub fn token_text(&self, token: Token) -> &[u8] {
        if (token.0 as usize) < self.n_vocab() { self.texts.at(token.0) } else { &[] }
    }

    /// Return the first token whose text in the model file is `text`.
    pub fn find(&self, text: &[u8]) -> Option<Token> {
        self.texts.find(text).filter(|&id| (id as usize) < self.n_vocab()).map(Token)
    }

    /// Return the text of `tokens`, tidied as the model's own tokeniser does: without the space
    /// that tokenising puts in front, and for some vocabularies without spaces before punctuation.
    /// To get text back exactly as it was, join [`piece`]s.
    ///
    /// [`piece`]: Self::piece
    pub fn detokenize(&self, tokens: &[Token], write: WriteSpecial) -> Vec<u8> {
        self.joined(tokens, write, self.add_space_prefix)
    }

    /// Return the text of `tokens` as [`Vocab::detokenize`] does, if they follow others: a space at
    /// their beginning stays.
    pub fn detokenize_behind(&self, tokens: &[Token], write: WriteSpecial) -> Vec<u8> {
        self.joined(tokens, write, false)
    }

    fn joined(&self, tokens: &[Token], write: WriteSpecial, strip_first: bool) -> Vec<u8> {
        let mut text = Vec::new();
        for (i, &token) in tokens.iter().enumerate() {
            if write == WriteSpecial::No && self.is_hidden(token) {
                continue;
            }
            let piece = self.piece(token);
            let strip = i == 0 && strip_first;
            text.extend_from_slice(piece.strip_prefix(b" ").filter(|_| strip).unwrap_or(piece));
        }
        if self.clean_spaces { text::clean_spaces(&text) } else { text }
    }

    /// Return true if `token` is not part of the text that users read: it is a control token or the
    /// unknown token.
    pub fn is_hidden(&self, token: Token) -> bool {
        self.specials.attr(token.0).any(Attr::CONTROL.or(Attr::UNKNOWN))
    }

    /// Return true if `token` is special, so that the text behind it is tokenised like the start of
    /// a text.
    pub(crate) fn is_special(&self, token: Token) -> bool {
        self.specials.attr(token.0).any(Attr::CONTROL.or(Attr::UNKNOWN).or(Attr::USER))
    }

    /// Return true if `token` ends a generation.
    pub fn is_eog(&self, token: Token) -> bool {
        self.specials.eog.binary_search(&token).is_ok()
    }

    /// Return all tokens that end a generation, in ascending order.
    pub fn eog(&self) -> &[Token] {
        &self.specials.eog
    }

    /// Return the beginning-of-sequence token.
    pub fn bos(&self) -> Option<Token> {
        self.specials.roles.bos.map(Token)
    }

    /// Return the end-of-sequence token.
    pub fn eos(&self) -> Option<Token> {
        self.specials.roles.eos.map(Token)
    }

    /// Return the tokens with a role.
    pub fn roles(&self) -> &Roles {
        &self.specials.roles
    }

    /// Return the tokens that the file wants suppressed: a sampler should never draw them.
    pub fn suppressed(&self) -> &[u32] {
        &self.specials.suppressed
    }

    /// Return true if [`AddSpecial::Start`] and [`AddSpecial::Yes`] put a token in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos().is_some()
    }

    /// Return true if [`AddSpecial::Yes`] puts a token at the end.
    pub fn adds_eos(&self) -> bool {
        self.add_eos && self.eos().is_some()
    }
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
        assert_eq!(tokens(&with, "a", AddSpecial::Start, ParseSpecial::No), [1, 0]);
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
            (VocabSource { model: "new", ..plain.clone() }, VocabError::Model { found: "new".into() }),
            (VocabSource { model: "none", ..plain.clone() }, VocabError::Missing { key: "vocab_size" }),
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

    /// Every text, even with special tokens and unfinished ones, comes back from a complete
    /// byte-pair vocabulary.
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
