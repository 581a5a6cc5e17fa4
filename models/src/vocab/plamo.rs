//! PLaMo 2's tokeniser: of all segmentations of a text into tokens, the one with the greatest sum
//! of scores, as in `unigram.rs`, but without normalisation and with bytes for characters that are
//! not tokens.
//!
//! Scores are rounded to whole ten-thousandths and segmentations are compared from the end of the
//! text, so ties fall as in llama.cpp (`llama-vocab.cpp`, `llm_tokenizer_plamo2`).

use alloc::vec;
use alloc::vec::Vec;

use backstitch_kv::Token;

use super::automaton::{Automaton, Direction};
use super::error::VocabError;
use super::reserve::try_collect;
use super::source::VocabSource;
use super::special::{Attr, Specials};
use super::strings::Strings;

/// The cost of a character written as bytes.
const BYTES_COST: i64 = 10_000_000;
/// The cost from which on a token is never taken.
const NEVER: i64 = 20_000_000;

/// A PLaMo tokeniser.
#[derive(Clone, Debug)]
pub(super) struct Plamo {
    /// The automaton of the tokens back to front, which finds the tokens that start at each
    /// position.
    automaton: Automaton,
    /// The scores of the tokens in ten-thousandths, negated.
    costs: Vec<i64>,
    /// The token of each byte.
    bytes: Vec<Token>,
}

/// The best segmentation of the text from a position on.
#[derive(Clone, Copy)]
struct Best {
    cost: i64,
    /// The first token; `None` is a character written as bytes.
    token: Option<u32>,
    /// The length of the token or the character, in bytes.
    len: usize,
}

impl Plamo {
    /// Build the tokeniser for the tokens in `texts`.
    ///
    /// # Errors
    /// `Score` for a score that is not a number, `Byte` for a byte without a token; those of
    /// [`Automaton::new`].
    pub(super) fn new(
        source: &VocabSource<'_>,
        specials: &Specials,
        texts: &Strings,
    ) -> Result<Self, VocabError> {
        let n_vocab = texts.len();
        let score = |id: usize| source.scores.get(id).copied().unwrap_or(0.0);
        if let Some(index) = (0..n_vocab).find(|&id| score(id).is_nan()) {
            return Err(VocabError::Score { index });
        }
        let cost = |id| if score(id).is_finite() { -rounded(score(id)) } else { NEVER };
        let is_byte = |id: u32| specials.attr(id).any(Attr::BYTE);
        let mut bytes = Vec::with_capacity(256);
        for byte in 0..=255 {
            let found = texts.find(alloc::format!("<0x{byte:02X}>").as_bytes());
            bytes.push(found.filter(|&id| is_byte(id)).map(Token).ok_or(VocabError::Byte { byte })?);
        }
        let found = (0..n_vocab as u32).filter(|&id| !is_byte(id));
        Ok(Self {
            automaton: Automaton::new(found, texts, Direction::Backwards)?,
            costs: try_collect(n_vocab, (0..n_vocab).map(cost))?,
            bytes,
        })
    }

    /// Append the tokens of `text`, without a byte order mark in front.
    pub(super) fn tokenize(&self, text: &str, texts: &Strings, out: &mut Vec<Token>) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let best = self.best(text, texts);
        let mut at = 0;
        while let Some(&Best { token, len, .. }) = best.get(at).filter(|_| at < text.len()) {
            match token {
                Some(id) => out.push(Token(id)),
                None => {
                    let bytes = text.as_bytes().get(at..at + len).unwrap_or(&[]);
                    out.extend(bytes.iter().filter_map(|&byte| self.bytes.get(usize::from(byte))));
                }
            }
            at += len.max(1);
        }
    }

    /// Return the best segmentation from each position of the text on.
    fn best(&self, text: &str, texts: &Strings) -> Vec<Best> {
        let mut best = vec![Best { cost: 0, token: None, len: 0 }; text.len() + 1];
        let cost_from = |best: &[Best], at: usize| best.get(at).map_or(0, |best| best.cost);
        let mut node = 0;
        for (start, c) in text.char_indices().rev() {
            let len = c.len_utf8();
            for &byte in text.as_bytes().get(start..start + len).unwrap_or(&[]).iter().rev() {
                node = self.automaton.step(node, byte);
            }
            let mut here: Option<Best> = None;
            // The longest token comes first, and wins ties.
            for id in self.automaton.ending(node) {
                let cost = self.costs.get(id as usize).copied().unwrap_or(NEVER);
                let len = texts.at(id).len();
                let cost_here = cost_from(&best, start + len) + cost;
                if cost < NEVER && here.is_none_or(|here| cost_here < here.cost) {
                    here = Some(Best { cost: cost_here, token: Some(id), len });
                }
            }
            let bytes = Best { cost: cost_from(&best, start + len) + BYTES_COST, token: None, len };
            let here = here.filter(|here| here.cost <= bytes.cost).unwrap_or(bytes);
            best.get_mut(start).into_iter().for_each(|best| *best = here);
        }
        best
    }
}

/// Return `score` in ten-thousandths.
fn rounded(score: f32) -> i64 {
    let scaled = f64::from(score) * 1e4;
    // Half is rounded away from zero; the cast saturates.
    i64::from(if scaled < 0.0 { (scaled - 0.5) as i32 } else { (scaled + 0.5) as i32 })
}

#[cfg(test)]
mod tests {
    use super::super::{AddSpecial, ParseSpecial, Vocab};
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    /// Return the vocabulary of byte tokens followed by `tokens`.
    fn vocab(tokens: &[(&str, f32)]) -> Result<Vocab, VocabError> {
        let bytes: Vec<String> = (0..=255).map(|byte| alloc::format!("<0x{byte:02X}>")).collect();
        let texts: Vec<&str> =
            bytes.iter().map(String::as_str).chain(tokens.iter().map(|token| token.0)).collect();
        let scores = bytes.iter().map(|_| 0.0).chain(tokens.iter().map(|token| token.1)).collect();
        let types = (0..texts.len()).map(|id| if id < 256 { 6 } else { 1 }).collect();
        Vocab::new(&VocabSource { model: "plamo2", tokens: &texts, scores, types, ..VocabSource::default() })
    }

    fn tokens(vocab: &Vocab, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        vocab.tokenize(text, AddSpecial::No, ParseSpecial::No, &mut out);
        out.iter().map(|token| token.0).collect()
    }

    #[test]
    fn the_best_sum_wins_and_then_the_longer_token() -> Result<(), VocabError> {
        let vocab = vocab(&[("a", -1.0), ("b", -1.0), ("ab", -2.0), ("ba", -1.5), ("never", -2000.0)])?;
        assert_eq!(tokens(&vocab, "ab"), [258]);
        assert_eq!(tokens(&vocab, "aba"), [256, 259]);
        assert_eq!(tokens(&vocab, "\u{feff}a\u{feff}"), [256, 0xef, 0xbb, 0xbf]);
        assert_eq!(tokens(&vocab, "aé"), [256, 0xc3, 0xa9]);
        assert_eq!(tokens(&vocab, "<0x41>"), "<0x41>".bytes().map(u32::from).collect::<Vec<_>>());
        assert_eq!(tokens(&vocab, "never").len(), 5);
        assert!(tokens(&vocab, "").is_empty());
        Ok(())
    }

    #[test]
    fn every_byte_needs_a_token() {
        let source = VocabSource {
            model: "plamo2",
            tokens: &["<0x00>"],
            scores: [0.0].to_vec(),
            types: [6].to_vec(),
            ..VocabSource::default()
        };
        assert_eq!(Vocab::new(&source).err(), Some(VocabError::Byte { byte: 1 }));
    }

    /// Try all segmentations of a short text.
    fn cheapest(tokens: &[(String, f32)], text: &str) -> i64 {
        let Some(c) = text.chars().next() else { return 0 };
        let bytes = BYTES_COST + cheapest(tokens, text.get(c.len_utf8()..).unwrap_or(""));
        let taken = tokens.iter().filter_map(|(token, score)| {
            Some(cheapest(tokens, text.strip_prefix(token.as_str())?) - rounded(*score))
        });
        taken.fold(bytes, i64::min)
    }

    proptest! {
        #[test]
        fn no_segmentation_is_better(
            found in proptest::collection::btree_map("[abé]{1,3}", -5f32..0.0, 1..6),
            text in "[abéc]{0,8}",
        ) {
            let list: Vec<(String, f32)> = found.into_iter().collect();
            let borrowed: Vec<(&str, f32)> = list.iter().map(|(text, score)| (text.as_str(), *score)).collect();
            let vocab = vocab(&borrowed)?;
            let ids = tokens(&vocab, &text);
            let text_again: Vec<u8> = ids.iter().flat_map(|&id| vocab.piece(Token(id))).copied().collect();
            prop_assert_eq!(&text_again, text.as_bytes());
            let taken = ids.iter().filter_map(|&id| list.get(id.checked_sub(256)? as usize));
            // A character of two bytes takes two byte tokens and costs once.
            let in_bytes = text_again.len() - taken.clone().map(|token| token.0.len()).sum::<usize>();
            let lead_bytes = ids.iter().filter(|&&id| id < 256 && id & 0xc0 != 0x80).count();
            prop_assert!(in_bytes >= lead_bytes);
            let cost = taken.map(|token| -rounded(token.1)).sum::<i64>() + lead_bytes as i64 * BYTES_COST;
            prop_assert_eq!(cost, cheapest(&list, &text));
        }
    }
}
