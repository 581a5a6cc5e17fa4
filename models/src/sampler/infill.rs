//! Infill: choosing among tokens that fill a gap in a text.

use super::{Candidate, Candidates, History, Sampler};
use crate::vocab::Vocab;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Choose between ending the text that fills a gap and a few certain tokens.
///
/// The text ends if the tokens that end it are likely compared with the others. Otherwise
/// candidates whose text begins with that of another are merged with it into the likelier one.
/// Candidates with a clear share remain, and those that end the text. If none has a clear share,
/// the text ends. It belongs after [`TopK`](super::TopK) and [`TopP`](super::TopP); of more
/// candidates than 512 only the likeliest 512 are merged, and the others dropped.
///
/// # Example
/// ```
/// # let file = backstitch_demo::GGUF;
/// use backstitch_models::Model;
/// use backstitch_models::sampler::{Chain, Infill, TopK};
///
/// let model = Model::from_bytes(file)?;
/// let infill = Infill::new(model.vocab());
/// let chain = Chain::builder(model.vocab().n_vocab()).with(TopK(40)).with(infill).build();
/// # let _ = chain;
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Infill {
    texts: Arc<Texts>,
    /// The token that ends a text if no candidate is certain.
    end: Option<Token>,
}

/// The texts of a vocabulary.
#[derive(Debug, PartialEq)]
struct Texts {
    bytes: Vec<u8>,
    /// The end of each token's text in `bytes`; a control token has none.
    ends: Vec<usize>,
    /// The tokens that end a text, ascending.
    eog: Vec<Token>,
}

/// The most candidates that are merged, which bounds the time for a token.
const MAX_MERGED: usize = 512;
/// The least share of a candidate after merging.
const CLEAR: f64 = 0.2;

impl Infill {
    /// Make a sampler for the tokens of `vocab`. Clones share the texts.
    pub fn new(vocab: &Vocab) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for token in (0..vocab.n_vocab() as u32).map(Token) {
            if !vocab.is_hidden(token) {
                bytes.extend_from_slice(vocab.piece(token));
            }
            ends.push(bytes.len());
        }
        let end = vocab.roles().eot.map(Token).or(vocab.eos()).or(vocab.eog().first().copied());
        Infill { texts: Arc::new(Texts { bytes, ends, eog: vocab.eog().to_vec() }), end }
    }

    /// Never end a text with a token that `biases` ban.
    pub(super) fn without_banned(mut self, biases: &[(Token, f32)]) -> Self {
        let is_banned = |token: &Token| biases.contains(&(*token, f32::NEG_INFINITY));
        self.end = self.end.filter(|token| !is_banned(token));
        self
    }

    /// Merge the scores of candidates of which one begins with the text of the other.
    fn merge(&self, items: &mut [Candidate]) {
        for i in 0..items.len() {
            for j in 0..items.len() {
                let (a, b) = (items[i], items[j]);
                if a.score == 0.0 {
                    break;
                }
                let text = self.texts.of(a.id);
                if i == j || b.score == 0.0 || text.is_empty() || !self.texts.of(b.id).starts_with(text) {
                    continue;
                }
                let (kept, merged) = if b.score > a.score { (j, i) } else { (i, j) };
                items[kept].score += items[merged].score;
                (items[merged].score, items[merged].logit) = (0.0, f32::NEG_INFINITY);
            }
        }
    }
}

impl Texts {
    fn of(&self, token: Token) -> &[u8] {
        let at = token.0 as usize;
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&start| start);
        self.ends.get(at).and_then(|&end| self.bytes.get(start..end)).unwrap_or_default()
    }

    fn end(&self, candidate: &Candidate) -> bool {
        self.eog.binary_search(&candidate.id).is_ok()
    }
}

/// Return the sum of the scores of the candidates that fulfil a condition.
fn sum(items: &[Candidate], counts: impl Fn(&Candidate) -> bool) -> f64 {
    items.iter().filter(|c| counts(c)).map(|c| f64::from(c.score)).sum()
}

impl Sampler for Infill {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        candidates.sort();
        let total = candidates.softmax();
        if total <= 0.0 {
            return;
        }
        let texts = &self.texts;
        let items = candidates.items();
        let of_ends = sum(items, |c| texts.end(c));
        if 3.0 * of_ends * items.len() as f64 > sum(items, |c| !texts.end(c)) {
            candidates.keep_scored(|c| texts.end(c));
            return;
        }
        candidates.keep_best(MAX_MERGED);
        self.merge(candidates.items_mut());

        let is_clear = |c: &Candidate| !texts.end(c) && f64::from(c.score) >= CLEAR * total;
        let n_clear = candidates.items().iter().filter(|c| is_clear(c)).count();
        if n_clear == 0 {
            // A vocabulary without such a token can only go on.
            return match self.end {
                Some(end) => candidates.set_only(end),
                None => candidates.keep_best(1),
            };
        }
        candidates.keep_scored(|c| texts.end(c) || is_clear(c));
        let least = sum(candidates.items(), |_| true) / (n_clear + 1) as f64;
        candidates.keep_scored(|c| texts.end(c) || f64::from(c.score) >= least);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{after, kept, logits_of};
    use super::*;
    use alloc::vec;

    /// Tokens `a`, `ab`, `b`, `c`, and two that end a text.
    fn infill() -> Infill {
        let mut texts = Texts { bytes: Vec::new(), ends: Vec::new(), eog: vec![Token(4), Token(5)] };
        for text in ["a", "ab", "b", "c", "", ""] {
            texts.bytes.extend(text.bytes());
            texts.ends.push(texts.bytes.len());
        }
        Infill { texts: Arc::new(texts), end: Some(Token(5)) }
    }

    #[test]
    fn a_likely_end_leaves_nothing_else() {
        // 3 * 0.06 * 6 is more than 0.94; 3 * 0.04 * 6 is less than 0.96.
        assert_eq!(kept(&infill(), &logits_of(&[0.54, 0.2, 0.1, 0.1, 0.05, 0.01])), [4, 5]);
        assert_eq!(kept(&infill(), &logits_of(&[0.56, 0.2, 0.1, 0.1, 0.03, 0.01])), [0, 4, 5]);
    }

    #[test]
    fn tokens_that_begin_alike_are_merged_into_the_likelier() {
        // `a` and `ab` have 0.5 together, `b` 0.45: both are above a third.
        assert_eq!(kept(&infill(), &logits_of(&[0.2, 0.3, 0.45, 0.03, 0.01, 0.01])), [2, 1, 4, 5]);
        // 0.7 and 0.25: the latter is below a third.
        assert_eq!(kept(&infill(), &logits_of(&[0.4, 0.3, 0.25, 0.03, 0.01, 0.01])), [0, 4, 5]);
    }

    #[test]
    fn without_a_clear_token_the_text_ends() {
        let logits = logits_of(&[0.01, 0.01, 0.01, 0.01, 0.0, 0.0]);
        let mut even: Vec<f32> = logits.clone();
        even.extend(logits_of(&[0.01; 20]));
        assert_eq!(after(&infill(), &even), [(5, 1.0)]);
        let banned = infill().without_banned(&[(Token(5), f32::NEG_INFINITY)]);
        assert_eq!(kept(&banned, &even).len(), 1);
        assert!(!kept(&banned, &even).contains(&5));
    }

    #[test]
    fn any_number_of_candidates_is_fine() {
        assert_eq!(kept(&infill(), &[f32::NEG_INFINITY; 3]).len(), 3);
        assert_eq!(kept(&infill(), &[1.0]), [0]);
        let many: Vec<f32> = (0..5000).map(|i| if i == 700 { 20.0 } else { 0.0 }).collect();
        assert_eq!(kept(&infill(), &many), [700, 4, 5]);
    }
}
