//! Mixtures of experts: for each token, the best few of many networks.

use super::frame::Frame;
use super::products::input_of;
use crate::{
    error::Error,
    graph::{ExpertScratch, ExpertSizes, ExpertWeights, Step},
};
use backstitch_core::{
    matmul::{Product, Write, matmul},
    packed::Packed,
};

impl Frame<'_> {
    /// Run the tokens one after the other, the chosen experts of each in falling order of their
    /// weight.
    pub(super) fn experts(&mut self, step: &Step, sizes: ExpertSizes) -> Result<(), Error> {
        let [x, router, out] = step.reads()?;
        let [_, scratch, _] = step.writes()?;
        let [gate, up, down] = step.weights()?;
        let widths = [x, router, scratch, out].map(|value| self.values.width(value).max(1));
        let [x, router, scratch, out] = self.values.slices([x, router, scratch, out])?;
        let (set, pool, weights) = (self.set, self.pool, self.weights);
        let rows = x.chunks_exact(widths[0]).zip(router.chunks_exact_mut(widths[1]));
        let rooms = scratch.chunks_exact_mut(widths[2]).zip(out.chunks_exact_mut(widths[3]));
        for ((x, router), (scratch, out)) in rows.zip(rooms) {
            (set.softmax_in_place)(router);
            let total = match sizes.weights {
                ExpertWeights::Renormalised => sum_of_best(router, sizes.n_used),
                ExpertWeights::Plain => 1.0,
            };
            for _ in 0..sizes.n_used.min(router.len()) {
                let Some(expert) = best(router) else { break };
                let weight = core::mem::replace(&mut router[expert], f32::NEG_INFINITY) / total * sizes.scale;
                let matrices = [
                    weights.matrix(gate, expert)?,
                    weights.matrix(up, expert)?,
                    weights.matrix(down, expert)?,
                ];
                let result = network(set, pool, x, &matrices, scratch)?;
                out.iter_mut().zip(result).for_each(|(out, y)| *out += weight * y);
            }
        }
        Ok(())
    }
}

/// Return the index of the largest weight, the first of equals; none once all are taken.
fn best(weights: &[f32]) -> Option<usize> {
    let mut best = None;
    for (i, &w) in weights.iter().enumerate() {
        if w > best.map_or(f32::NEG_INFINITY, |b: usize| weights[b]) {
            best = Some(i);
        }
    }
    best
}

/// Return the sum of the `n` largest weights, added largest first; leave them as they are.
fn sum_of_best(weights: &mut [f32], n: usize) -> f32 {
    let mut sum = 0.0;
    let mut below = (f32::INFINITY, 0);
    for _ in 0..n.min(weights.len()) {
        // The next in the order of `best`: smaller, or equal and further on.
        let follows = |&(i, w): &(usize, f32)| w < below.0 || w == below.0 && i >= below.1;
        let candidates = weights.iter().copied().enumerate().filter(follows);
        let next = candidates.fold(None, |best: Option<(usize, f32)>, (i, w)| match best {
            Some((_, b)) if b >= w => best,
            _ => Some((i, w)),
        });
        let Some((i, w)) = next else { break };
        sum += w;
        below = (w, i + 1);
    }
    sum
}

/// Return `down(silu(gate(x)) * up(x))` of one token; the result lies in `scratch`.
fn network<'s>(
    set: &'static backstitch_core::KernelSet,
    pool: &dyn backstitch_core::pool::Pool,
    x: &[f32],
    [gate, up, down]: &[Packed<'_>; 3],
    scratch: &'s mut [f32],
) -> Result<&'s [f32], Error> {
    let (n_embd, n_ff) = (x.len(), gate.n_rows());
    let at = ExpertScratch::new(n_embd, n_ff);
    let (x_room, rest) = scratch.split_at_mut(at.gate);
    let (gate_out, rest) = rest.split_at_mut(at.up - at.gate);
    let (up_out, rest) = rest.split_at_mut(at.product - at.up);
    let (product_room, result) = rest.split_at_mut(at.result - at.product);
    for (weights, out) in [(gate, &mut *gate_out), (up, &mut *up_out)] {
        let input = input_of(set, pool, x, weights, x_room)?;
        matmul(set, pool, input, &mut [Product { weights: *weights, out, write: Write::Store }])?;
    }
    (set.mul_silu)(up_out, gate_out);
    let input = input_of(set, pool, up_out, down, product_room)?;
    let out = &mut result[..n_embd];
    matmul(set, pool, input, &mut [Product { weights: *down, out, write: Write::Store }])?;
    Ok(&result[..n_embd])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_taken_in_falling_order_ties_by_index() {
        let mut weights = [0.1, 0.4, 0.2, 0.4, 0.0];
        assert_eq!(sum_of_best(&mut weights, 2), 0.8);
        assert_eq!(sum_of_best(&mut weights, 3), 0.8 + 0.2);
        let mut order = [0; 5];
        for slot in &mut order {
            *slot = best(&weights).unwrap();
            weights[*slot] = f32::NEG_INFINITY;
        }
        assert_eq!(order, [1, 3, 2, 0, 4]);
        assert_eq!(best(&weights), None);
    }
}
