//! The tokens still in play, and the few operations samplers are made of.

use alloc::vec::Vec;
use backstitch_kv::Token;
use core::cmp::Ordering;

/// A token that may come next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: Token,
    /// Its logit, never NaN.
    pub logit: f32,
    /// What the sampler at work computed last: see [`Candidates::softmax`] and [`Candidates::keep_prefix`].
    pub score: f32,
}

/// The tokens that may come next, in a defined order.
///
/// Holds one buffer of `n_vocab` entries; nothing here allocates as long as no longer row of logits is
/// loaded.
#[derive(Debug, Clone)]
pub struct Candidates {
    items: Vec<Candidate>,
    /// Whether `items` are in the order of [`by_logit`].
    sorted: bool,
}

impl Candidates {
    /// An empty list with room for `n_vocab` tokens.
    pub fn new(n_vocab: usize) -> Self {
        Self { items: Vec::with_capacity(n_vocab), sorted: false }
    }

    /// Replaces the list by one candidate a logit, in token order. `logits`: `[n_vocab]`.
    pub fn load(&mut self, logits: &[f32]) {
        self.items.clear();
        self.items.extend(logits.iter().zip(0u32..).map(|(&logit, id)| Candidate {
            id: Token(id),
            logit: number(logit),
            score: 0.0,
        }));
        self.sorted = false;
    }

    /// The candidates in their current order.
    pub fn items(&self) -> &[Candidate] {
        &self.items
    }

    /// The largest logit; minus infinity when there is no candidate.
    pub fn max_logit(&self) -> f32 {
        self.items.iter().fold(f32::NEG_INFINITY, |max, c| if c.logit > max { c.logit } else { max })
    }

    /// Gives every candidate the logit that `f` returns for it. NaN becomes minus infinity.
    pub fn map(&mut self, f: impl Fn(&Candidate) -> f32) {
        for c in &mut self.items {
            c.logit = number(f(c));
        }
        self.sorted = false;
    }

    /// Changes the logit of `token` by `delta`, if the token is still in play.
    pub fn add(&mut self, token: Token, delta: f32) {
        // Right after loading a token's place is its number.
        let place = match self.items.get(token.0 as usize) {
            Some(c) if c.id == token => Some(token.0 as usize),
            _ => self.items.iter().position(|c| c.id == token),
        };
        if let Some(c) = place.and_then(|i| self.items.get_mut(i)) {
            c.logit = number(c.logit + delta);
            self.sorted = false;
        }
    }

    /// Drops every candidate with a logit below `least`, but never those with the largest logit. Keeps the
    /// order.
    pub fn keep_at_least(&mut self, least: f32) {
        let least = if least < self.max_logit() { least } else { self.max_logit() };
        self.items.retain(|c| c.logit >= least);
    }

    /// Keeps the `k` candidates with the largest logits (at least one), sorted. O(n) for small `k`.
    pub fn keep_best(&mut self, k: usize) {
        let k = k.max(1);
        if k < self.items.len() && !self.sorted {
            self.gather_best(k);
        }
        self.items.truncate(k);
        self.sort();
    }

    /// Moves the `k` best to the front in one pass: most candidates lose against the k-th best seen so far
    /// at the first comparison. `k >= 1`.
    fn gather_best(&mut self, k: usize) {
        let room = (2 * k).max(64);
        let (mut held, mut bar) = (0, None);
        for i in 0..self.items.len() {
            let c = self.items[i];
            if bar.is_some_and(|bar| by_logit(&c, &bar) == Ordering::Greater) {
                continue;
            }
            self.items[held] = c;
            held += 1;
            if held == room {
                bar = Some(*self.items[..held].select_nth_unstable_by(k - 1, by_logit).1);
                held = k;
            }
        }
        self.items.truncate(held);
        if k < held {
            self.items.select_nth_unstable_by(k - 1, by_logit);
        }
    }

    /// Sorts by descending logit, lower token first among equals.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.items.sort_unstable_by(by_logit);
            self.sorted = true;
        }
    }

    /// Sets every score to the candidate's unnormalised probability, `exp(logit - max_logit)`, and returns
    /// their sum in current order; zero if every candidate is banned.
    pub fn softmax(&mut self) -> f64 {
        let max = self.max_logit();
        if max == f32::NEG_INFINITY {
            self.rate(|_| 0.0);
            return 0.0;
        }
        let mut sum = 0.0;
        for c in &mut self.items {
            c.score = weight(c.logit, max);
            sum += f64::from(c.score);
        }
        sum
    }

    /// Gives every candidate the score that `f` returns for it.
    pub fn rate(&mut self, f: impl Fn(&Candidate) -> f32) {
        for c in &mut self.items {
            c.score = f(c);
        }
    }

    /// Walks the candidates in the order of `compare` and drops all that come after the first for which
    /// `enough` returns true; what is kept is sorted by logit afterwards. Sorts no more than about twice
    /// what it keeps.
    pub fn keep_prefix(
        &mut self,
        compare: impl Fn(&Candidate, &Candidate) -> Ordering,
        mut enough: impl FnMut(&Candidate) -> bool,
    ) {
        let (mut done, mut step) = (0, 64);
        while done < self.items.len() {
            let rest = &mut self.items[done..];
            let step_here = step.min(rest.len());
            if step_here < rest.len() {
                rest.select_nth_unstable_by(step_here - 1, &compare);
            }
            let chunk = &mut rest[..step_here];
            chunk.sort_unstable_by(&compare);
            if let Some(last) = chunk.iter().position(&mut enough) {
                self.items.truncate(done + last + 1);
                break;
            }
            done += step_here;
            step = done;
        }
        self.sorted = false;
        self.sort();
    }
}

/// Descending logit, then ascending token: a total order, because no logit is NaN.
pub(super) fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// `exp(logit - max)`, and 1 for the largest even where it is infinite.
pub(super) fn weight(logit: f32, max: f32) -> f32 {
    if logit == max { 1.0 } else { libm::expf(logit - max) }
}

fn number(x: f32) -> f32 {
    if x.is_nan() { f32::NEG_INFINITY } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn loaded(logits: &[f32]) -> Candidates {
        let mut candidates = Candidates::new(logits.len());
        candidates.load(logits);
        candidates
    }

    fn ids(candidates: &Candidates) -> Vec<u32> {
        candidates.items().iter().map(|c| c.id.0).collect()
    }

    #[test]
    fn equal_logits_come_in_token_order() {
        let mut candidates = loaded(&[1.0, 3.0, 1.0, 3.0, -0.0, 0.0]);
        candidates.sort();
        assert_eq!(ids(&candidates), [1, 3, 0, 2, 4, 5]);
    }

    #[test]
    fn what_is_not_a_number_is_least() {
        let mut candidates = loaded(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]);
        candidates.sort();
        assert_eq!(ids(&candidates), [1, 3, 0, 2]);
        assert_eq!(candidates.softmax(), 1.0);
    }

    #[test]
    fn add_finds_a_token_in_any_order() {
        let mut candidates = loaded(&[0.0, 1.0, 2.0]);
        candidates.add(Token(1), 0.5);
        assert_eq!(candidates.items()[1].logit, 1.5);
        candidates.sort();
        candidates.add(Token(0), 9.0);
        candidates.add(Token(77), 9.0);
        candidates.sort();
        assert_eq!(ids(&candidates), [0, 2, 1]);
    }

    #[test]
    fn keep_at_least_never_drops_the_best() {
        let mut candidates = loaded(&[1.0, 2.0, 2.0]);
        candidates.keep_at_least(f32::INFINITY);
        assert_eq!(ids(&candidates), [1, 2]);
        candidates.keep_at_least(f32::NAN);
        assert_eq!(ids(&candidates), [1, 2]);
    }

    #[test]
    fn loading_the_vocabulary_again_allocates_nothing() {
        let mut candidates = loaded(&[0.0; 100]);
        let before = candidates.items().as_ptr();
        candidates.keep_best(3);
        candidates.load(&[1.0; 100]);
        assert_eq!(candidates.items().as_ptr(), before);
    }

    proptest! {
        #[test]
        fn keep_best_is_the_front_of_a_full_sort(
            logits in prop::collection::vec((-20i8..20).prop_map(f32::from), 1..600),
            k in 0usize..300,
        ) {
            let mut full = loaded(&logits);
            full.sort();
            let mut best = loaded(&logits);
            best.keep_best(k);
            prop_assert_eq!(ids(&best), &ids(&full)[..k.max(1).min(logits.len())]);
        }

        #[test]
        fn keep_prefix_is_the_front_of_a_full_sort(
            logits in prop::collection::vec((-20i8..20).prop_map(f32::from), 1..600),
            n in 1usize..600,
        ) {
            let mut full = loaded(&logits);
            full.sort();
            let mut prefix = loaded(&logits);
            let mut seen = vec![];
            prefix.keep_prefix(by_logit, |c| { seen.push(c.id.0); seen.len() == n });
            prop_assert_eq!(&seen, &ids(&full)[..n.min(logits.len())]);
            prop_assert_eq!(ids(&prefix), seen);
        }
    }
}
