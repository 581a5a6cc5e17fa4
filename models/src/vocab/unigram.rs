//! Unigram: of all segmentations of a text into tokens, the one with the greatest sum of scores
//! (Kudo, "Subword regularization", 2018, arXiv 1804.10959).
//!
//! The text is normalised first, by the model's own table of characters and by writing spaces as
//! `▁`. The best segmentation is then found by dynamic programming over the positions of the text
//! (Viterbi). A character that is not a token scores ten less than the worst token; neighbours of
//! that kind become one unknown token.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use backstitch_kv::Token;

use super::automaton::{Automaton, Direction};
use super::charsmap::CharsMap;
use super::error::VocabError;
use super::reserve::try_collect;
use super::source::VocabSource;
use super::spm::SPACE;
use super::strings::Strings;

/// The amount by which an unknown character scores less than the worst token.
const PENALTY: f32 = 10.0;

/// GGUF's number for normal tokens. Together with the next two, these are the kinds found in texts.
const NORMAL: i32 = 1;
/// GGUF's number for user-defined tokens.
const USER: i32 = 4;
/// GGUF's number for unused tokens.
const UNUSED: i32 = 5;

/// A Unigram tokeniser.
#[derive(Clone, Debug)]
pub(super) struct Unigram {
    automaton: Automaton,
    scores: Vec<f32>,
    unknown: f64,
    unk: Option<Token>,
    charsmap: CharsMap,
    /// True if runs of spaces count as one, and those at the ends as none.
    merge_spaces: bool,
    add_space_prefix: bool,
}

/// The best segmentation of the text up to a position.
#[derive(Clone, Copy, Debug)]
struct Best {
    /// The last token; `None` is an unknown character.
    token: Option<u32>,
    /// The offset at which it starts.
    start: usize,
    score: f64,
}

impl Unigram {
    /// Build the tokeniser for the tokens in `texts`.
    ///
    /// # Errors
    /// `Score` for a score that is not a number, `Charsmap` for a damaged table; those of
    /// [`Automaton::new`].
    pub(super) fn new(
        source: &VocabSource<'_>,
        texts: &Strings,
        unk: Option<Token>,
        add_space_prefix: bool,
    ) -> Result<Self, VocabError> {
        let n_vocab = texts.len();
        let kind = |id: usize| source.types.get(id).copied().unwrap_or(NORMAL);
        let score_of = |id: usize| source.scores.get(id).copied().unwrap_or(0.0);
        if let Some(index) = (0..n_vocab).find(|&id| score_of(id).is_nan()) {
            return Err(VocabError::Score { index });
        }
        let normal = (0..n_vocab).filter(|&id| kind(id) == NORMAL);
        let worst = normal.map(score_of).reduce(f32::min).unwrap_or(0.0);
        let found = (0..n_vocab as u32).filter(|&id| [NORMAL, USER, UNUSED].contains(&kind(id as usize)));
        Ok(Self {
            automaton: Automaton::new(found, texts, Direction::Forwards)?,
            // User-defined tokens are always taken.
            scores: try_collect(n_vocab, (0..).map(|id| if kind(id) == USER { 0.0 } else { score_of(id) }))?,
            unknown: f64::from(worst - PENALTY),
            unk,
            charsmap: CharsMap::new(&source.charsmap)?,
            merge_spaces: source.merge_spaces.unwrap_or(false),
            add_space_prefix,
        })
    }

    /// Append the tokens of `text`.
    pub(super) fn tokenize(&self, text: &str, texts: &Strings, out: &mut Vec<Token>) {
        let text = self.normalize(text);
        let best = self.best(&text, texts);
        let (start, mut end, mut after_unknown) = (out.len(), text.len(), false);
        while let Some(&Best { token, start, .. }) = best.get(end).filter(|_| end > 0) {
            match token {
                Some(id) => out.push(Token(id)),
                None if after_unknown => {}
                None => out.extend(self.unk),
            }
            (end, after_unknown) = (start, token.is_none());
        }
        out[start..].reverse();
    }

    /// Return the best segmentation up to each position of the text.
    fn best(&self, text: &str, texts: &Strings) -> Vec<Best> {
        let mut best = vec![Best { token: None, start: 0, score: f64::MIN }; text.len() + 1];
        best[0].score = 0.0;
        let mut node = 0;
        for (start, c) in text.char_indices() {
            let end = start + c.len_utf8();
            for &byte in &text.as_bytes()[start..end] {
                node = self.automaton.step(node, byte);
            }
            let mut known = false;
            // Ties go to the longer token, which comes first.
            for id in self.automaton.ending(node) {
                let len = texts.at(id).len();
                known |= len == c.len_utf8();
                let score = self.scores.get(id as usize).map_or(0.0, |&score| f64::from(score));
                improve(&mut best, Some(id), end - len, end, score);
            }
            if !known {
                improve(&mut best, None, start, end, self.unknown);
            }
        }
        best
    }

    /// Return the text with characters mapped, and spaces written as tokens write them.
    fn normalize(&self, text: &str) -> String {
        let mut normal = String::with_capacity(text.len() + SPACE.len());
        let (mut in_word, mut prefixed) = (false, false);
        let mut push = |c: char| match c {
            ' ' => {
                in_word = false;
                if !self.merge_spaces {
                    normal.push_str(SPACE);
                }
            }
            c => {
                if !in_word && (self.merge_spaces || self.add_space_prefix && !prefixed) {
                    normal.push_str(SPACE);
                    prefixed = true;
                }
                in_word = true;
                normal.push(c);
            }
        };
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let (len, mapped) = match self.charsmap.longest(rest) {
                Some((len, mapped)) => (len, Some(mapped)),
                None => (c.len_utf8(), None),
            };
            match mapped {
                Some(mapped) => mapped.chars().for_each(&mut push),
                None => push(c),
            }
            rest = rest.get(len..).unwrap_or("");
        }
        normal
    }
}

/// Extend the best segmentation up to `start` by a token that ends at `end`, if the result is
/// better than the best known.
fn improve(best: &mut [Best], token: Option<u32>, start: usize, end: usize, score: f64) {
    let Some(score) = best.get(start).map(|best| best.score + score) else { return };
    if let Some(best) = best.get_mut(end).filter(|best| score > best.score) {
        *best = Best { token, start, score };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(vocab: &[(&str, f32)], change: impl Fn(&mut VocabSource<'_>), text: &str) -> Vec<u32> {
        let names: Vec<&str> = vocab.iter().map(|(text, _)| *text).collect();
        let mut source = VocabSource {
            tokens: &names,
            scores: vocab.iter().map(|(_, score)| *score).collect(),
            types: vocab.iter().map(|(text, _)| if *text == "<unk>" { 2 } else { 1 }).collect(),
            ..VocabSource::default()
        };
        change(&mut source);
        let mut texts = Strings::with_capacity(0, 0).unwrap();
        names.iter().for_each(|text| drop(texts.push(text.as_bytes())));
        let prefix = source.add_space_prefix.unwrap_or(false);
        let unigram = Unigram::new(&source, &texts, Some(Token(0)), prefix).unwrap();
        let mut out = vec![Token(99)];
        unigram.tokenize(text, &texts, &mut out);
        out.iter().skip(1).map(|token| token.0).collect()
    }

    const VOCAB: [(&str, f32); 7] =
        [("<unk>", 0.0), ("a", -1.0), ("b", -1.0), ("ab", -1.5), ("ba", -3.0), ("▁", -1.0), ("▁a", -1.2)];

    #[test]
    fn the_best_sum_of_scores_wins() {
        assert_eq!(tokens(&VOCAB, |_| (), "aba"), [3, 1]);
        assert_eq!(tokens(&VOCAB, |_| (), "ba"), [2, 1]);
        let equal = [("<unk>", 0.0), ("a", -1.0), ("aa", -2.0)];
        assert_eq!(tokens(&equal, |_| (), "aaa"), [1, 2], "of equal sums the longer last token");
    }

    #[test]
    fn neighbouring_unknown_characters_are_one_unknown_token() {
        assert_eq!(tokens(&VOCAB, |_| (), "xéya中"), [0, 1, 0]);
        assert_eq!(tokens(&VOCAB, |_| (), "").len(), 0);
    }

    #[test]
    fn spaces_are_written_as_the_model_wants_them() {
        assert_eq!(tokens(&VOCAB, |_| (), " a  b"), [6, 5, 5, 2]);
        assert_eq!(tokens(&VOCAB, |source| source.merge_spaces = Some(true), " a  b "), [6, 5, 2]);
        assert_eq!(tokens(&VOCAB, |source| source.add_space_prefix = Some(true), "a b"), [6, 5, 2]);
    }

    #[test]
    fn what_the_user_defined_costs_nothing() {
        let user = |source: &mut VocabSource<'_>| source.types[4] = 4;
        assert_eq!(tokens(&VOCAB, user, "aba"), [1, 4]);
    }

    #[test]
    fn scores_that_are_no_numbers_are_refused_and_infinite_ones_harmless() {
        let texts = Strings::with_capacity(0, 0).unwrap();
        let mut texts = texts;
        ["a", "b"].iter().for_each(|text| drop(texts.push(text.as_bytes())));
        let source = VocabSource { scores: vec![0.0, f32::NAN], ..VocabSource::default() };
        let refused = Unigram::new(&source, &texts, None, false).map(|_| ());
        assert_eq!(refused, Err(VocabError::Score { index: 1 }));
        for score in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            let vocab = [("<unk>", 0.0), ("a", score), ("b", score), ("ab", -score)];
            assert!(tokens(&vocab, |_| (), "abxba").len() <= 5);
        }
    }

    #[test]
    fn a_text_that_almost_is_a_long_token_takes_linear_time() {
        let long = "a".repeat(100_000);
        let almost = alloc::format!("{long}b");
        assert_eq!(tokens(&[("<unk>", 0.0), ("a", -1.0), (&almost, -1.0)], |_| (), &long).len(), 100_000);
    }
}
