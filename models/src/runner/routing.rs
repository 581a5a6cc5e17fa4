//! Routing: the experts of each token, and their weights.

use crate::graph::{ExpertGroups, Gating, Routing};
use backstitch_core::KernelSet;

/// The least sum that weights are divided by: the least normal number of half precision.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// The choice of one token.
pub(super) struct Choice<'c> {
    /// Numbers of the chosen experts, best first.
    pub experts: &'c mut [u32],
    /// Their weights.
    pub weights: &'c mut [f32],
}

/// Choose the experts of one token by its `logits`, which are used up, and by `bias`, which is
/// empty or has an element an expert. Equal experts are taken in order. NaN is better than all
/// numbers, so that its weight reaches the outputs, where it is noticed.
pub(super) fn choose(
    set: &KernelSet,
    routing: &Routing,
    logits: &mut [f32],
    bias: &[f32],
    choice: Choice<'_>,
) {
    match routing.gating {
        Gating::Softmax => (set.softmax_in_place)(logits),
        Gating::Sigmoid => (set.sigmoid_in_place)(logits),
        Gating::SoftmaxOfChosen => {}
    }
    // The bias takes part in the choice alone: weights are read without it.
    let Choice { experts, weights } = choice;
    let allowed = routing.groups.map(|groups| best_groups(groups, logits, bias));
    for (expert, weight) in experts.iter_mut().zip(weights.iter_mut()) {
        let scores = logits.iter().enumerate().map(|(i, x)| (i, x + bias.get(i).copied().unwrap_or(0.0)));
        let free = scores.filter(|&(i, _)| allowed.is_none_or(|(mask, len)| mask >> (i / len) & 1 == 1));
        let best = free.reduce(|best, other| if is_best(best.1, other.1) { best } else { other });
        // Routers have an output an expert, and groups have experts: the model was opened.
        let best = best.map_or(0, |(i, _)| i);
        *expert = best as u32;
        // A chosen expert is not free any more.
        *weight = core::mem::replace(&mut logits[best], f32::NEG_INFINITY);
    }
    if routing.gating == Gating::SoftmaxOfChosen {
        (set.softmax_in_place)(weights);
    }
    if routing.is_renormalised {
        let sum = weights.iter().sum::<f32>().max(LEAST_SUM);
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    if routing.scale != 1.0 {
        weights.iter_mut().for_each(|weight| *weight *= routing.scale);
    }
}

/// Return true if no score is better than the first one of two: none is better than NaN.
fn is_best(first: f32, second: f32) -> bool {
    first >= second || first.is_nan()
}

/// Return the groups whose experts can be chosen, a bit each, and the experts of a group. The two
/// best experts of a group make its score.
fn best_groups(groups: ExpertGroups, probabilities: &[f32], bias: &[f32]) -> (u64, usize) {
    let len = (probabilities.len() / groups.n_group.max(1)).max(1);
    let score = |group: usize| {
        let members = probabilities.iter().enumerate().skip(group * len).take(len);
        let scores = members.map(|(i, p)| p + bias.get(i).copied().unwrap_or(0.0));
        let two = scores.fold([f32::NEG_INFINITY; 2], |[first, second], score| {
            match (is_best(first, score), is_best(second, score)) {
                (false, _) => [score, first],
                (true, false) => [first, score],
                (true, true) => [first, second],
            }
        });
        if len == 1 { two[0] } else { two[0] + two[1] }
    };
    let mut mask = 0u64;
    for _ in 0..groups.n_used {
        let free = (0..groups.n_group).filter(|group| mask >> group & 1 == 0);
        let best = free.fold(None, |best: Option<usize>, group| match best {
            Some(best) if is_best(score(best), score(group)) => Some(best),
            _ => Some(group),
        });
        mask |= best.map_or(0, |group| 1 << group);
    }
    (mask, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    fn chosen(routing: Routing, logits: &[f32], bias: &[f32], n: usize) -> (Vec<u32>, Vec<f32>) {
        let (mut experts, mut weights) = (vec![0; n], vec![0.0; n]);
        let choice = Choice { experts: &mut experts, weights: &mut weights };
        choose(KernelSet::scalar(), &routing, &mut logits.to_vec(), bias, choice);
        (experts, weights)
    }

    fn near(found: &[f32], wanted: &[f32]) -> bool {
        found.iter().zip(wanted).all(|(x, y)| (x - y).abs() < 1e-6)
    }

    #[test]
    fn the_best_are_taken_in_falling_order_ties_by_index() {
        let logits = [0.1f32, 0.4, 0.2, 0.4, 0.05].map(f32::ln);
        let (experts, weights) = chosen(Routing::PLAIN, &logits, &[], 5);
        assert_eq!(experts, [1, 3, 2, 0, 4]);
        let sum = 1.15;
        assert!(near(&weights, &[0.4 / sum, 0.4 / sum, 0.2 / sum, 0.1 / sum, 0.05 / sum]), "{weights:?}");
        let (_, weights) = chosen(Routing { scale: 2.0, ..Routing::RENORMALISED }, &logits, &[], 3);
        assert!(near(&weights, &[0.8, 0.8, 0.4]), "{weights:?}");
    }

    #[test]
    fn a_bias_chooses_and_does_not_weigh() {
        let routing = Routing { gating: Gating::Sigmoid, ..Routing::PLAIN };
        let (experts, weights) = chosen(routing, &[0.0, 1.0, 2.0], &[2.0, 0.0, 0.0], 2);
        assert_eq!(experts, [0, 2]);
        assert!(near(&weights, &[0.5, 0.880_797]), "{weights:?}");
        // Weights near nothing are not blown up to one.
        let routing = Routing { is_renormalised: true, ..routing };
        let (_, weights) = chosen(routing, &[-20.0, -20.0], &[], 1);
        assert!(weights[0] < 1e-4, "{weights:?}");
    }

    #[test]
    fn softmax_over_the_chosen_ones_is_theirs_alone() {
        let routing = Routing { gating: Gating::SoftmaxOfChosen, ..Routing::PLAIN };
        let (experts, weights) = chosen(routing, &[5.0, 1.0, 5.0, -1.0], &[], 2);
        assert_eq!((experts, weights), (vec![0, 2], vec![0.5, 0.5]));
    }

    #[test]
    fn nan_is_chosen_wherever_it_stands() {
        let groups = [None, Some(ExpertGroups { n_group: 2, n_used: 1 })];
        for (place, groups) in (0..6).flat_map(|place| groups.map(|groups| (place, groups))) {
            let mut logits = [3.0, -3.0, 1.0, 2.0, 1.0, 0.0];
            logits[place] = f32::NAN;
            let routing = Routing { gating: Gating::Sigmoid, groups, ..Routing::RENORMALISED };
            let (experts, weights) = chosen(routing, &logits, &[], 2);
            assert!(experts.contains(&(place as u32)), "{place}: {experts:?}");
            assert!(weights.iter().any(|weight| weight.is_nan()), "{place}: {weights:?}");
        }
    }

    #[test]
    fn groups_are_chosen_by_their_two_best() {
        let groups = Some(ExpertGroups { n_group: 2, n_used: 1 });
        let routing = Routing { gating: Gating::Sigmoid, groups, ..Routing::PLAIN };
        // The best expert of all is in the first group, the better pair in the second.
        let (experts, _) = chosen(routing, &[3.0, -3.0, -3.0, 1.0, 1.0, 0.0], &[], 3);
        assert_eq!(experts, [3, 4, 5]);
        let (experts, _) =
            chosen(routing, &[3.0, -3.0, -3.0, 1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 2);
        assert_eq!(experts, [1, 0]);
    }
}
