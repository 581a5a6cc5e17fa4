//! The candidate tokens of one draw, and the operations that samplers are made of.

use super::{Generator, Rng};
use alloc::vec::Vec;
use backstitch_kv::Token;
use core::cmp::Ordering;

/// The number of logits that are compared with the best ones at once.
const PIECE: usize = 64;

/// A token that may come next.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::Candidates;
///
/// let mut candidates = Candidates::new(2);
/// candidates.load(&[0.5, f32::NAN]);
/// let last = candidates.items()[1];
/// assert_eq!((last.id, last.logit), (Token(1), f32::NEG_INFINITY));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: Token,
    /// The logit, never NaN.
    pub logit: f32,
    /// The score that the current sampler computed last: see [`Candidates::softmax`],
    /// [`Candidates::set_scores`] and [`Candidates::keep_prefix`].
    pub score: f32,
}

/// The tokens that may come next, in a defined order.
///
/// The list holds one buffer of `n_vocab` entries. Its methods allocate only if a longer row of
/// logits is loaded than the buffer was made for.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Candidates;
///
/// let mut candidates = Candidates::new(4);
/// candidates.load(&[1.0, 3.0, 2.0, 3.0]);
/// candidates.keep_best(3);
/// let ids: Vec<u32> = candidates.items().iter().map(|c| c.id.0).collect();
/// assert_eq!(ids, [1, 3, 2]); // the lower token first among equals
/// ```
#[derive(Debug, Clone)]
pub struct Candidates {
    items: Vec<Candidate>,
    /// True if `items` are in the order of [`by_logit`].
    sorted: bool,
    /// The sum of the scores of the last softmax.
    total: f64,
    /// The random numbers of the chain at this draw.
    rng: Rng,
    /// The number with which a sampler wants to draw instead of the chain's.
    unit: Option<f64>,
    /// The least number of candidates that samplers which drop the unlikely ones keep.
    min_keep: usize,
    generator: Generator,
}

impl Candidates {
    /// Make an empty list with capacity for `n_vocab` tokens.
    pub fn new(n_vocab: usize) -> Self {
        Self {
            items: Vec::with_capacity(n_vocab),
            sorted: false,
            total: 0.0,
            rng: Rng::new(0),
            unit: None,
            min_keep: 0,
            generator: Generator::Backstitch,
        }
    }

    /// Keep at least `min_keep` candidates, and follow the conventions of `generator`.
    pub(super) fn with_rules(self, min_keep: usize, generator: Generator) -> Self {
        Self { min_keep, generator, ..self }
    }

    /// Return the least number of candidates that a sampler should keep if it drops unlikely ones;
    /// 0 if there is no such number ([`Settings::min_keep`](super::Settings::min_keep)).
    pub fn min_keep(&self) -> usize {
        self.min_keep
    }

    /// Return true if the order of the candidates, and what is banned instead of dropped, are those
    /// of llama.cpp, so that its random numbers choose the same tokens.
    pub(super) fn follows_llama(&self) -> bool {
        self.generator == Generator::Llama
    }

    /// Replace the list by one candidate per logit, in token order. `logits`: `[n_vocab]`.
    pub fn load(&mut self, logits: &[f32]) {
        self.clear();
        self.items.extend(logits.iter().zip(0u32..).map(candidate));
    }

    /// Replace the list by these candidates, in their order.
    pub(super) fn load_listed(&mut self, listed: impl IntoIterator<Item = (Token, f32)>) {
        self.clear();
        self.items.extend(listed.into_iter().map(|(id, logit)| candidate((&logit, id.0))));
    }

    /// Replace the list by some of the candidates of [`Candidates::load`], among them the `k` best.
    pub(super) fn load_best(&mut self, logits: &[f32], k: usize) {
        let (k, capacity) = (k.max(1), k.saturating_mul(2).max(64));
        if logits.len() <= capacity {
            return self.load(logits);
        }
        self.clear();
        let mut threshold = None;
        for (first, piece) in (0u32..).step_by(PIECE).zip(logits.chunks(PIECE)) {
            // Of equal logits the one of the lower token is better, which came before.
            let is_better = |logit: f32| threshold.is_none_or(|threshold| logit > threshold);
            // Without a branch for each logit; few pieces have a better one.
            if !piece.iter().fold(false, |any, &logit| any | is_better(logit)) {
                continue;
            }
            for (logit, id) in piece.iter().zip(first..) {
                if threshold.is_some_and(|threshold| *logit <= threshold || logit.is_nan()) {
                    continue;
                }
                self.items.push(candidate((logit, id)));
                if self.items.len() == capacity {
                    threshold = Some(self.items.select_nth_unstable_by(k - 1, by_logit).1.logit);
                    self.items.truncate(k);
                }
            }
        }
    }

    /// Drop all candidates, and what was found out about them.
    fn clear(&mut self) {
        self.items.clear();
        self.sorted = false;
        self.total = 0.0;
        self.unit = None;
    }

    /// Draw with `unit` instead of the chain's next random number. `unit`: `0.0..1.0`.
    pub(super) fn set_unit(&mut self, unit: f64) {
        self.unit = Some(unit);
    }

    /// Set the random numbers that [`Candidates::chance`] follows from.
    pub(super) fn set_chance(&mut self, rng: Rng) {
        self.rng = rng;
    }

    /// Return a random number in `0.0..1.0` for a sampler's own decision.
    ///
    /// It follows from the position of the chain's random numbers alone, and is independent of the
    /// number that the draw uses: each draw has another one, all samplers of a draw have the same
    /// one, and a sequence that is rolled back has the former ones again.
    pub fn chance(&self) -> f64 {
        Rng::new(!self.rng.state().rotate_left(32)).unit()
    }

    /// Return the candidates in their current order.
    pub fn items(&self) -> &[Candidate] {
        &self.items
    }

    /// Return the candidates, to change their scores, or to ban some.
    pub(super) fn items_mut(&mut self) -> &mut [Candidate] {
        self.sorted = false;
        &mut self.items
    }

    /// Return the candidates that are not banned, each with its probability at the last
    /// [`Candidates::softmax`], in their current order.
    pub fn probabilities(&self) -> impl Iterator<Item = (Token, f32)> + '_ {
        let likely = self.items.iter().filter(|c| self.total > 0.0 && c.score > 0.0);
        likely.map(|c| (c.id, (f64::from(c.score) / self.total) as f32))
    }

    /// Return the largest logit; minus infinity if there is no candidate.
    pub fn max_logit(&self) -> f32 {
        self.items.iter().fold(f32::NEG_INFINITY, |max, c| if c.logit > max { c.logit } else { max })
    }

    /// Give every candidate the logit that `f` returns for it. NaN becomes minus infinity.
    pub fn map(&mut self, f: impl Fn(&Candidate) -> f32) {
        for c in &mut self.items {
            c.logit = number(f(c));
        }
        self.sorted = false;
    }

    /// Add `delta` to the logit of `token`, if the token is still a candidate.
    pub fn add(&mut self, token: Token, delta: f32) {
        // Right after loading, the index of a token is its id.
        let index = match self.items.get(token.0 as usize) {
            Some(c) if c.id == token => Some(token.0 as usize),
            _ => self.items.iter().position(|c| c.id == token),
        };
        if let Some(c) = index.and_then(|i| self.items.get_mut(i)) {
            c.logit = number(c.logit + delta);
            self.sorted = false;
        }
    }

    /// Drop every candidate with a logit below `least`, but never those with the largest logit. The
    /// order stays.
    pub fn keep_at_least(&mut self, least: f32) {
        let least = if least < self.max_logit() { least } else { self.max_logit() };
        self.items.retain(|c| c.logit >= least);
    }

    /// Give every candidate with a logit below `least` a logit of minus infinity, but never those
    /// with the largest logit.
    pub(super) fn ban_below(&mut self, least: f32) {
        let least = if least < self.max_logit() { least } else { self.max_logit() };
        self.map(|c| if c.logit >= least { c.logit } else { f32::NEG_INFINITY });
    }

    /// Ban all candidates but the first of those with the largest logit.
    pub(super) fn ban_all_but_best(&mut self) {
        let max = self.max_logit();
        let best = self.items.iter().find(|c| c.logit == max).map(|c| c.id);
        self.map(|c| if Some(c.id) == best { c.logit } else { f32::NEG_INFINITY });
    }

    /// Keep the candidates for which `stays` returns true, given each with its probability at the
    /// last [`Candidates::softmax`], and those with the largest logit. The order stays.
    pub(super) fn keep_if(&mut self, stays: impl Fn(&Candidate, f32) -> bool) {
        let (max, total) = (self.max_logit(), self.total);
        self.items.retain(|c| c.logit == max || stays(c, (f64::from(c.score) / total) as f32));
    }

    /// Keep the candidates for which `stays` returns true, in their order. There has to be one.
    pub(super) fn keep_scored(&mut self, stays: impl Fn(&Candidate) -> bool) {
        self.items.retain(stays);
    }

    /// Replace the list by one candidate.
    pub(super) fn set_only(&mut self, token: Token) {
        self.items.clear();
        self.items.push(Candidate { id: token, logit: 1.0, score: 0.0 });
    }

    /// Keep the `k` candidates with the largest logits (at least one), sorted. O(n) for small `k`.
    pub fn keep_best(&mut self, k: usize) {
        let k = k.max(1);
        if k < self.items.len() && !self.sorted {
            self.gather_best(k);
        }
        self.items.truncate(k);
        self.sort();
    }

    /// Drop the `n` candidates with the largest logits, but never the last one. The others are
    /// sorted.
    pub fn drop_best(&mut self, n: usize) {
        self.sort();
        let n = n.min(self.items.len().saturating_sub(1));
        self.items.drain(..n);
    }

    /// Move the `k` best candidates to the front in one pass; `k >= 1`.
    ///
    /// Most candidates lose their first comparison, with the k-th best found so far.
    fn gather_best(&mut self, k: usize) {
        let capacity = (2 * k).max(64);
        let (mut len, mut threshold) = (0, None);
        for i in 0..self.items.len() {
            let c = self.items[i];
            if threshold.is_some_and(|threshold| by_logit(&c, &threshold) == Ordering::Greater) {
                continue;
            }
            self.items[len] = c;
            len += 1;
            if len == capacity {
                threshold = Some(*self.items[..len].select_nth_unstable_by(k - 1, by_logit).1);
                len = k;
            }
        }
        self.items.truncate(len);
        if k < len {
            self.items.select_nth_unstable_by(k - 1, by_logit);
        }
    }

    /// Sort by descending logit, the lower token first among equals.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.items.sort_unstable_by(by_logit);
            self.sorted = true;
        }
    }

    /// Set every score to the candidate's unnormalised probability, `exp(logit - max_logit)`, and
    /// return their sum in current order; zero if every candidate is banned.
    pub fn softmax(&mut self) -> f64 {
        let max = self.max_logit();
        self.total = 0.0;
        if max == f32::NEG_INFINITY {
            self.set_scores(|_| 0.0);
            return 0.0;
        }
        let mut sum = 0.0;
        for c in &mut self.items {
            c.score = weight(c.logit, max);
            sum += f64::from(c.score);
        }
        self.total = sum;
        sum
    }

    /// Return the token at the fraction `unit` of the distribution, or at the fraction that a
    /// sampler chose; `None` if every candidate is banned. `unit`: `0.0..1.0`.
    pub(super) fn draw(&mut self, unit: f64) -> Option<Token> {
        let goal = self.unit.unwrap_or(unit) * self.softmax();
        let reaches = |sum: f64| sum > goal || self.follows_llama() && sum >= goal;
        let mut sum = 0.0;
        let mut last = None;
        for c in self.items.iter().filter(|c| c.score > 0.0) {
            last = Some(c.id);
            sum += f64::from(c.score);
            if reaches(sum) {
                break;
            }
        }
        last
    }

    /// Give every candidate the score that `f` returns for it.
    pub fn set_scores(&mut self, f: impl Fn(&Candidate) -> f32) {
        for c in &mut self.items {
            c.score = f(c);
        }
    }

    /// Walk the candidates in the order of `compare`, and drop all that come after the first for
    /// which `enough` returns true. The candidates kept are sorted by logit afterwards. This sorts
    /// no more than about twice the number of candidates that it keeps.
    pub fn keep_prefix(
        &mut self,
        compare: impl Fn(&Candidate, &Candidate) -> Ordering,
        enough: impl FnMut(&Candidate) -> bool,
    ) {
        self.keep_prefix_in_order(compare, enough);
        self.sort();
    }

    /// Drop candidates as [`Candidates::keep_prefix`], and leave the others in the order of
    /// `compare`.
    pub(super) fn keep_prefix_in_order(
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
    }
}

/// Compare by descending logit, then ascending token. This is a total order, because no logit is
/// NaN.
pub(super) fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// Return `exp(logit - max)`, and 1 for the largest logit even if it is infinite.
pub(super) fn weight(logit: f32, max: f32) -> f32 {
    if logit == max { 1.0 } else { libm::expf(logit - max) }
}

/// Replace NaN by minus infinity.
fn candidate((&logit, id): (&f32, u32)) -> Candidate {
    Candidate { id: Token(id), logit: number(logit), score: 0.0 }
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

    proptest! {
        #[test]
        fn the_best_of_a_row_are_those_of_a_list_of_all(
            logits in prop::collection::vec(prop_oneof![
                8 => (-40i8..40).prop_map(|x| f32::from(x) / 4.0),
                1 => Just(f32::NAN), 1 => Just(f32::INFINITY), 1 => Just(f32::NEG_INFINITY), 1 => Just(-0.0),
            ], 1..700),
            k in 0usize..90,
            ascends in any::<bool>(),
        ) {
            let mut logits = logits;
            if ascends {
                logits.sort_by(f32::total_cmp);
            }
            let (mut all, mut best) = (loaded(&logits), Candidates::new(logits.len()));
            best.load_best(&logits, k);
            all.keep_best(k);
            best.keep_best(k);
            prop_assert_eq!(all.items(), best.items());
        }
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
    fn dropping_the_best_leaves_one() {
        let mut candidates = loaded(&[1.0, 3.0, 2.0]);
        candidates.drop_best(1);
        assert_eq!(ids(&candidates), [2, 0]);
        candidates.drop_best(9);
        assert_eq!(ids(&candidates), [0]);
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
