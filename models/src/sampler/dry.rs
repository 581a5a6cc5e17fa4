//! DRY: penalties for tokens that would continue a repetition.

mod breakers;

pub use breakers::DryBreakers;

use super::{Candidates, History, Sampler};
use crate::error::Error;
use crate::saved_reader::SavedReader;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// The settings of [`Dry`].
///
/// # Example
/// ```
/// use backstitch_models::sampler::DryParams;
///
/// let params = DryParams { multiplier: 0.8, ..DryParams::default() };
/// assert_eq!((params.base, params.allowed_length), (1.75, 2));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DryParams {
    /// The penalty of a repetition one token longer than allowed; 0 is off.
    pub multiplier: f32,
    /// The factor of the penalty for each further token; below 1 is off.
    pub base: f32,
    /// The longest repetition, in tokens, that costs nothing.
    pub allowed_length: usize,
    /// The number of recent tokens searched for repetitions; 0 is off.
    pub last_n: usize,
}

impl DryParams {
    /// Return true if these settings penalise nothing.
    pub(super) fn are_off(&self) -> bool {
        let is_on = self.multiplier != 0.0 && self.base >= 1.0 && self.last_n > 0;
        !is_on
    }
}

impl Default for DryParams {
    fn default() -> Self {
        DryParams { multiplier: 0.0, base: 1.75, allowed_length: 2, last_n: 0 }
    }
}

/// Lower the logits of tokens that would extend a repetition of recent tokens.
///
/// If the last `n` tokens occurred before and `token` followed them there, `token` would make the
/// repetition `n + 1` tokens long. Its logit is lowered by `multiplier * base^(n - allowed_length)`
/// if `n` is at least `allowed_length`. Repetitions do not reach back across a breaker: a sequence
/// of tokens such as a line end or the mark of a turn. A breaker of one token is never penalised.
///
/// The sampler keeps a window of `last_n` tokens, apart from the [`History`] of its chain.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::{Chain, Dry, DryBreakers, DryParams, Greedy};
///
/// let params = DryParams { multiplier: 1.0, last_n: 16, ..DryParams::default() };
/// let dry = Dry::new(&params, &DryBreakers::default());
/// let mut chain = Chain::builder(3).with(dry).with(Greedy).build();
/// for id in [0, 1, 2, 0, 1] {
///     chain.accept(Token(id));
/// }
/// // 2 followed 0, 1 before.
/// assert_eq!(chain.sample(&[0.0, 0.5, 1.0]), Some(Token(1)));
/// ```
#[derive(Debug, Clone)]
pub struct Dry {
    params: DryParams,
    breakers: DryBreakers,
    /// The window, oldest first; `2 * last_n` tokens of capacity, so that moving it to the front is
    /// rare.
    window: Vec<Token>,
    /// Length of the repetition that ends at each token of the window, newest first.
    lengths: Vec<usize>,
    /// Token and length of the repetitions found, sorted by token.
    found: Vec<(Token, usize)>,
}

impl Dry {
    /// Make a sampler with an empty window.
    pub fn new(params: &DryParams, breakers: &DryBreakers) -> Dry {
        let n = params.last_n;
        Dry {
            params: params.clone(),
            breakers: breakers.clone(),
            window: Vec::with_capacity(2 * n),
            lengths: Vec::with_capacity(n),
            found: Vec::with_capacity(n),
        }
    }

    /// Return the tokens that are searched: at most `last_n`, oldest first.
    fn recent(&self) -> &[Token] {
        let start = self.window.len().saturating_sub(self.params.last_n);
        self.window.get(start..).unwrap_or(&[])
    }

    /// Return the number of tokens behind the breaker that begins last among `recent`, as in
    /// llama.cpp: another one may end behind it.
    fn after_breaker(&self, recent: &[Token]) -> usize {
        let tails = (0..recent.len()).rev().filter_map(|start| recent.get(start..));
        let mut behind = tails.filter_map(|tail| Some(tail.len() - self.breakers.longest(tail)?));
        behind.next().unwrap_or(recent.len())
    }

    /// Fill `found` with the tokens that followed an earlier occurrence of the last tokens, and the
    /// length of the longest occurrence before each.
    fn search(&mut self) {
        self.found.clear();
        let most = self.after_breaker(self.recent());
        if most < self.params.allowed_length {
            return;
        }
        let mut lengths = core::mem::take(&mut self.lengths);
        repetitions(self.recent(), &mut lengths);
        let recent = self.window.get(self.window.len() - lengths.len()..).unwrap_or(&[]);
        // `lengths[i]` belongs to the token `i` before the last; the one after it followed.
        for (&length, &token) in lengths.iter().skip(1).zip(recent.iter().rev()) {
            let length = length.min(most);
            if length >= self.params.allowed_length {
                self.found.push((token, length));
            }
        }
        self.lengths = lengths;
        self.found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        self.found.dedup_by_key(|&mut (token, _)| token);
    }

    fn penalty(&self, length: usize) -> f32 {
        // Beyond this exponent the power is infinite.
        let most = if self.params.base > 1.000_001 {
            libm::logf(f32::MAX) / libm::logf(self.params.base)
        } else {
            f32::MAX
        };
        let exponent = ((length - self.params.allowed_length) as f32).min(libm::floorf(most));
        self.params.multiplier * libm::powf(self.params.base, exponent)
    }
}

/// Write into `lengths`, for each token of `recent` from the newest back, the length of the
/// repetition that ends there: the number of tokens up to it that equal the last tokens. The newest
/// repeats itself, which counts as 0.
///
/// This is the Z algorithm on the reversed tokens (Gusfield, "Algorithms on strings, trees and
/// sequences", 1997): O(n), because matches found before are used again.
fn repetitions(recent: &[Token], lengths: &mut Vec<usize>) {
    let n = recent.len();
    let at = |i: usize| recent.get(n - 1 - i);
    lengths.clear();
    lengths.resize(n, 0);
    let (mut start, mut end) = (0, 0);
    for i in 1..n {
        let known = lengths.get(i - start).copied().unwrap_or(0);
        let mut length = if i < end { known.min(end - i) } else { 0 };
        while i + length < n && at(i + length) == at(length) {
            length += 1;
        }
        if i + length > end {
            (start, end) = (i, i + length);
        }
        if let Some(slot) = lengths.get_mut(i) {
            *slot = length;
        }
    }
}

impl Sampler for Dry {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if self.params.are_off() {
            return;
        }
        self.search();
        for &(token, length) in &self.found {
            if !self.breakers.has(token) {
                candidates.add(token, -self.penalty(length));
            }
        }
    }

    fn accept(&mut self, token: Token) {
        let n = self.params.last_n;
        if n == 0 {
            return;
        }
        if self.window.len() == 2 * n {
            self.window.copy_within(n + 1.., 0);
            self.window.truncate(n - 1);
        }
        self.window.push(token);
    }

    fn follows_from_tokens(&self) -> bool {
        true
    }

    fn reset(&mut self) {
        self.window.clear();
    }

    /// Append the number of tokens in the window and the tokens, u32 each.
    fn save(&self, bytes: &mut Vec<u8>) {
        let recent = self.recent();
        bytes.extend((recent.len() as u32).to_le_bytes());
        bytes.extend(bytemuck::must_cast_slice::<_, u8>(recent));
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut from = SavedReader::new("the window of DRY", bytes);
        let [n] = from.array::<u32, 1>()?;
        let tokens = from.list(n.into())?;
        from.end()?;
        self.window.clear();
        tokens.into_iter().for_each(|token| self.accept(token));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dry(multiplier: f32, allowed_length: usize, last_n: usize, breakers: &[&[u32]]) -> Dry {
        let breakers: Vec<Vec<Token>> =
            breakers.iter().map(|breaker| breaker.iter().map(|&id| Token(id)).collect()).collect();
        Dry::new(&DryParams { multiplier, base: 1.1, allowed_length, last_n }, &DryBreakers::new(&breakers))
    }

    /// Probabilities of `n_vocab` equally likely tokens after `tokens`.
    fn after(mut dry: Dry, tokens: &[u32], n_vocab: usize) -> Vec<f32> {
        tokens.iter().for_each(|&id| dry.accept(Token(id)));
        let mut candidates = Candidates::new(n_vocab);
        candidates.load(&alloc::vec![0.0; n_vocab]);
        dry.apply(&mut candidates, &History::new(n_vocab, 0));
        let total = candidates.softmax();
        candidates.items().iter().map(|c| (f64::from(c.score) / total) as f32).collect()
    }

    #[test]
    fn a_token_that_would_repeat_is_penalised() {
        // Probabilities that llama.cpp's tests expect.
        let cases: [(Dry, &[u32], &[f32]); 5] = [
            (dry(1.0, 2, 4, &[]), &[0, 1], &[0.25; 4]),
            (dry(1.0, 2, 5, &[]), &[0, 1, 2, 0, 1], &[0.296923, 0.296923, 0.109232, 0.296923]),
            (dry(1.0, 2, 6, &[&[3]]), &[0, 1, 3, 4, 0, 1], &[0.2; 5]),
            (dry(2.0, 2, 5, &[]), &[0, 1, 2, 0, 1], &[0.241818, 0.241818, 0.032727, 0.241818, 0.241818]),
            (dry(1.0, 4, 7, &[]), &[0, 1, 2, 3, 4, 0, 1], &[0.2; 5]),
        ];
        for (dry, tokens, expected) in cases {
            let found = after(dry, tokens, expected.len());
            let is_close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(is_close, "{tokens:?}: {found:?} is not {expected:?}");
        }
    }

    #[test]
    fn a_breaker_ends_repetitions_and_is_never_penalised() {
        let tokens = [0, 1, 2, 7, 0, 1, 2];
        assert!(after(dry(1.0, 2, 16, &[]), &tokens, 8)[7] < 0.1);
        assert_eq!(after(dry(1.0, 2, 16, &[&[7]]), &tokens, 8), [0.125; 8]);
        // A breaker of two tokens right before the end leaves one token to repeat.
        assert_eq!(after(dry(1.0, 2, 16, &[&[0, 1]]), &tokens, 8), [0.125; 8]);
        assert!(after(dry(1.0, 1, 16, &[&[0, 1]]), &tokens, 8)[7] < 0.1);
        // The breaker that begins last counts, of those that begin together the longest.
        let tokens = [2, 7, 5, 0, 1, 2, 7];
        assert!(after(dry(1.0, 2, 16, &[&[0, 1, 2], &[1]]), &tokens, 8)[5] < 0.1);
        assert_eq!(after(dry(1.0, 2, 16, &[&[1, 2], &[1]]), &tokens, 8), [0.125; 8]);
    }

    #[test]
    fn a_saved_window_goes_on_and_damage_is_refused() {
        let mut whole = dry(1.0, 2, 5, &[]);
        [9, 9, 0, 1, 2, 0, 1].into_iter().for_each(|id| whole.accept(Token(id)));
        let mut bytes = Vec::new();
        whole.save(&mut bytes);
        let mut other = dry(1.0, 2, 5, &[]);
        other.restore(&bytes).unwrap();
        assert_eq!(other.recent(), whole.recent());
        for cut in [&bytes[..bytes.len() - 1], &bytes[..2], &[]] {
            assert!(matches!(other.restore(cut), Err(Error::SavedLength { .. })));
        }
    }

    proptest! {
        #[test]
        fn lengths_are_those_of_a_plain_comparison(tokens in prop::collection::vec(0u32..3, 0..60)) {
            let tokens: Vec<Token> = tokens.into_iter().map(Token).collect();
            let mut lengths = Vec::new();
            repetitions(&tokens, &mut lengths);
            for (i, &length) in lengths.iter().enumerate().skip(1) {
                let ends_here = &tokens[..tokens.len() - i];
                let plain = ends_here.iter().rev().zip(tokens.iter().rev()).take_while(|(a, b)| a == b);
                prop_assert_eq!(length, plain.count());
            }
        }

        #[test]
        fn the_window_is_the_last_tokens(tokens in prop::collection::vec(0u32..9, 0..60), n in 1usize..9) {
            let mut dry = dry(1.0, 2, n, &[]);
            let capacity = dry.window.capacity();
            tokens.iter().for_each(|&id| dry.accept(Token(id)));
            let last: Vec<Token> = tokens[tokens.len().saturating_sub(n)..].iter().map(|&id| Token(id)).collect();
            prop_assert_eq!(dry.recent(), &last[..]);
            prop_assert_eq!(dry.window.capacity(), capacity);
        }
    }
}
