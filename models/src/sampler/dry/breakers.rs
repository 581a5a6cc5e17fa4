//! The texts that end a repetition, as tokens.

use crate::vocab::{ParseSpecial, Vocab};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// The most tokens after the first of a breaker that spans several.
const MAX_TAIL: usize = 20;
/// The most bytes of a text that count, as in llama.cpp.
const MAX_TEXT: usize = 40;
/// The most texts that count, which bounds the time to look through a vocabulary.
const MAX_TEXTS: usize = 256;

/// Tokens, and sequences of tokens, across which [`Dry`](super::Dry) sees no repetition. Clones
/// share them.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::DryBreakers;
///
/// let breakers = DryBreakers::new(&[vec![Token(7)], vec![Token(1), Token(2)]]);
/// assert!(breakers.end(&[Token(0), Token(1), Token(2)]) && !breakers.end(&[Token(2)]));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DryBreakers(Arc<Breakers>);

#[derive(Debug, Default, PartialEq)]
struct Breakers {
    /// True for each token that is a breaker alone.
    tokens: Vec<bool>,
    /// Breakers of several tokens, sorted by the last.
    sequences: Vec<Vec<Token>>,
    /// Indices of the sequences, sorted by their first token.
    by_head: Vec<usize>,
}

impl DryBreakers {
    /// Make breakers of sequences of tokens. Empty sequences are ignored.
    pub fn new(sequences: &[Vec<Token>]) -> Self {
        let mut breakers = Breakers::default();
        sequences.iter().for_each(|sequence| breakers.add(sequence));
        breakers.sequences.sort_unstable_by_key(|sequence| sequence.last().copied());
        breakers.sequences.dedup();
        breakers.by_head = (0..breakers.sequences.len()).collect();
        breakers.by_head.sort_by_key(|&index| breakers.sequences[index].first().copied());
        DryBreakers(Arc::new(breakers))
    }

    /// Make breakers of texts: every token whose text contains one of `texts`, and every token that
    /// ends with the beginning of one, followed by the tokens of the rest. Empty texts are ignored.
    /// The first 40 bytes of a text count, and the first 256 texts.
    pub fn of_texts(vocab: &Vocab, texts: &[&str]) -> Self {
        let texts = texts.iter().take(MAX_TEXTS).map(|text| &text[..text.floor_char_boundary(MAX_TEXT)]);
        let texts: Vec<&str> = texts.collect();
        let mut sequences = Vec::new();
        for id in (0..vocab.n_vocab() as u32).map(Token) {
            let piece = vocab.piece(id);
            for text in texts.iter().filter(|text| !text.is_empty()) {
                if piece.windows(text.len()).any(|part| part == text.as_bytes()) {
                    sequences.push(vec![id]);
                } else {
                    sequences.extend(rests(piece, text).map(|rest| with_tail(vocab, id, rest)));
                }
            }
        }
        Self::new(&sequences)
    }

    /// Return true if `tokens` end with a breaker.
    pub fn end(&self, tokens: &[Token]) -> bool {
        let Some(&last) = tokens.last() else { return false };
        let sequences = &self.0.sequences;
        let first = sequences.partition_point(|sequence| sequence.last() < Some(&last));
        let mut ending = sequences[first..].iter().take_while(|sequence| sequence.last() == Some(&last));
        self.has(last) || ending.any(|sequence| tokens.ends_with(sequence))
    }

    /// Return the length of the longest breaker with which `tokens` begin.
    pub(super) fn longest(&self, tokens: &[Token]) -> Option<usize> {
        let &head = tokens.first()?;
        let sequences = self.0.by_head.iter().filter_map(|&index| self.0.sequences.get(index));
        let first = self.0.by_head.partition_point(|&index| {
            self.0.sequences.get(index).is_some_and(|sequence| sequence.first() < Some(&head))
        });
        let beginning = sequences.skip(first).take_while(|sequence| sequence.first() == Some(&head));
        let whole = beginning.filter(|sequence| tokens.starts_with(sequence)).map(Vec::len);
        whole.chain(self.has(head).then_some(1)).max()
    }

    /// Return true if `token` alone is a breaker.
    pub fn has(&self, token: Token) -> bool {
        self.0.tokens.get(token.0 as usize) == Some(&true)
    }
}

impl Breakers {
    fn add(&mut self, sequence: &[Token]) {
        let &[token] = sequence else {
            return if !sequence.is_empty() {
                self.sequences.push(sequence.to_vec())
            };
        };
        let at = token.0 as usize;
        if at >= self.tokens.len() {
            self.tokens.resize(at + 1, false);
        }
        self.tokens[at] = true;
    }
}

/// Return what follows each beginning of `text` with which `piece` ends.
fn rests<'t>(piece: &[u8], text: &'t str) -> impl Iterator<Item = &'t str> {
    let ends = text.char_indices().skip(1).map(|(at, _)| at);
    ends.filter(|&at| piece.ends_with(&text.as_bytes()[..at])).map(|at| &text[at..])
}

/// Return `head` and the tokens of `rest`.
fn with_tail(vocab: &Vocab, head: Token, rest: &str) -> Vec<Token> {
    let mut sequence = vec![head];
    vocab.tokenize_behind(rest, ParseSpecial::No, &mut sequence);
    sequence.truncate(1 + MAX_TAIL);
    sequence
}
