//! Mixtures of experts: for each token, the best few of many networks.
//!
//! The pairs of tokens and experts of a ubatch are sorted by expert, so that the matrices of an
//! expert are read once for all of its tokens. Every row is computed as if it were alone, and a
//! token's results are added in the order of their weights, best first: neither depends on the
//! other tokens.

mod adapt;

use super::frame::Frame;
use super::routing::{Choice, choose};
use super::rows::{activation_kernel, each_piece, gate_kernel};
use crate::{
    error::Error,
    graph::{ExpertNetwork, ExpertScratch, ExpertSizes, Step, WeightId},
    weights::Weights,
};
use alloc::vec;
use backstitch_core::{
    KernelSet,
    matmul::{Input, Product, Write, matmul},
    packed::BLOCK,
    pool::Pool,
    quantized::quantize,
};
use core::ops::Range;

/// Products with the same input in one go; fewer matrices leave threads without work.
const AT_ONCE: usize = 4;

/// The tensors of a mixture; those that it lacks are empty or none.
struct Tensors<'w> {
    up: WeightId,
    down: WeightId,
    gate: Option<WeightId>,
    selection_bias: &'w [f32],
    up_bias: &'w [f32],
    down_bias: &'w [f32],
    gate_bias: &'w [f32],
    factors: &'w [f32],
}

impl<'w> Tensors<'w> {
    fn of(step: &Step, sizes: &ExpertSizes, weights: &'w Weights) -> Result<Self, Error> {
        let mut ids = step.weights.iter().copied();
        let mut next = || ids.next().ok_or(Error::Operands { operation: step.name });
        let (up, down, has_gate) = (next()?, next()?, sizes.network.has_gate());
        let gate = if has_gate { Some(next()?) } else { None };
        let tensors = sizes.tensors;
        let mut vector = |is_there: bool| if is_there { weights.vector(next()?) } else { Ok(&[][..]) };
        Ok(Tensors {
            up,
            down,
            gate,
            selection_bias: vector(tensors.has_selection_bias)?,
            up_bias: vector(tensors.has_biases)?,
            down_bias: vector(tensors.has_biases)?,
            gate_bias: vector(tensors.has_biases && has_gate)?,
            factors: vector(tensors.has_factors)?,
        })
    }
}

/// The workspace of a ubatch: pairs of tokens and experts. Those of a token are neighbours in
/// `experts`, `weights` and `places`, those of an expert in all other pieces.
struct Pairs<'s> {
    /// The number of the expert.
    experts: &'s mut [u32],
    /// The weight of its result.
    weights: &'s mut [f32],
    /// The place of the pair in the other pieces.
    places: &'s mut [u32],
    /// The number of the expert at each place.
    sorted: &'s mut [u32],
    /// The inputs of one expert's matrices in 8-bit blocks.
    blocks: &'s mut [f32],
    /// The products with gate matrices.
    gate: &'s mut [f32],
    /// The products with up matrices.
    up: &'s mut [f32],
    /// The input in floats, then the results.
    rows: &'s mut [f32],
}

impl<'s> Pairs<'s> {
    fn new(mut scratch: &'s mut [f32], n_pairs: usize, at: ExpertScratch) -> Result<Self, Error> {
        let mut piece = |width: usize| {
            let (piece, rest) =
                core::mem::take(&mut scratch).split_at_mut_checked(n_pairs * width).ok_or(Error::Arena)?;
            scratch = rest;
            Ok::<_, Error>(piece)
        };
        Ok(Pairs {
            experts: bytemuck::cast_slice_mut(piece(1)?),
            weights: piece(1)?,
            places: bytemuck::cast_slice_mut(piece(1)?),
            sorted: bytemuck::cast_slice_mut(piece(1)?),
            blocks: piece(at.blocks)?,
            gate: piece(at.hidden)?,
            up: piece(at.hidden)?,
            rows: piece(at.row)?,
        })
    }

    /// Sort the pairs by expert: set their places. `ends` has an element an expert, and is used up.
    fn sort(&mut self, ends: &mut [u32]) {
        ends.fill(0);
        for &expert in &*self.experts {
            ends[expert as usize] += 1;
        }
        let mut start = 0;
        for end in &mut *ends {
            start += core::mem::replace(end, start);
        }
        for (place, &expert) in self.places.iter_mut().zip(&*self.experts) {
            *place = ends[expert as usize];
            ends[expert as usize] += 1;
            self.sorted[*place as usize] = expert;
        }
    }

    /// Leave the pairs of a single token in their order.
    fn keep_order(&mut self) {
        self.sorted.copy_from_slice(self.experts);
        (0..).zip(&mut *self.places).for_each(|(i, place)| *place = i);
    }
}

/// Return each chosen expert with the places of its pairs.
fn runs(sorted: &[u32]) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
    let mut start = 0;
    sorted.chunk_by(|a, b| a == b).map(move |run| {
        start += run.len();
        (run[0] as usize, start - run.len()..start)
    })
}

/// Return the rows of `width` at some places.
fn rows(range: &Range<usize>, width: usize) -> Range<usize> {
    range.start * width..range.end * width
}

impl Frame<'_> {
    /// Choose the experts of all tokens, run each expert's network for all of its tokens, and add
    /// what they return to the residual stream.
    pub(super) fn experts(&mut self, step: &Step, sizes: ExpertSizes) -> Result<(), Error> {
        let refused = Error::Operands { operation: step.name };
        let (&x, [router, scratch, out]) = (step.reads.first().ok_or(refused)?, step.writes()?);
        let tensors = Tensors::of(step, &sizes, self.weights)?;
        let [n_in, n_expert, n_out] = [x, router, out].map(|value| self.values.width(value).max(1));
        let tokens_of_x = self.values.graph.info(x).rows;
        let [x, router, scratch, out] = self.values.slices([x, router, scratch, out])?;
        if x.is_empty() {
            return Ok(());
        }
        let n_used = sizes.n_used;
        let at = ExpertScratch::new(n_in, sizes.n_ff, n_out);
        let mut pairs = Pairs::new(scratch, x.len() / n_in * n_used, at)?;
        let tokens = pairs.experts.chunks_exact_mut(n_used).zip(pairs.weights.chunks_exact_mut(n_used));
        for (logits, (experts, weights)) in router.chunks_exact_mut(n_expert).zip(tokens) {
            let choice = Choice { experts, weights };
            choose(self.set, &sizes.routing, logits, tensors.selection_bias, choice);
        }
        let networks = Networks { set: self.set, pool: self.pool, weights: self.weights, tensors, sizes };
        if x.len() == n_in && !sizes.routing.is_before {
            pairs.keep_order();
            networks.hidden_of_one(x, &mut pairs)?;
        } else {
            pairs.sort(bytemuck::cast_slice_mut(&mut router[..n_expert]));
            networks.hidden_of_many(x, n_in, &mut pairs)?;
        }
        let adapting = &mut self.adapters;
        if adapting.is_any {
            networks.adapt_hidden(x, n_in, tokens_of_x, &mut pairs, adapting)?;
        }
        networks.activate(&mut pairs)?;
        networks.results(n_out, &mut pairs)?;
        if adapting.is_any {
            networks.adapt_results(n_out, tokens_of_x, &mut pairs, adapting)?;
        }
        let Pairs { weights, places, rows, .. } = pairs;
        if !sizes.add {
            out.fill(0.0);
        }
        each_piece(self.pool, out, n_out, |first, out| {
            for (i, out) in out.chunks_exact_mut(n_out).enumerate() {
                for pair in (first + i) * n_used..(first + i + 1) * n_used {
                    let weight = if sizes.routing.is_before { 1.0 } else { weights[pair] };
                    let row = &rows[places[pair] as usize * n_out..][..n_out];
                    out.iter_mut().zip(row).for_each(|(out, y)| *out += weight * y);
                }
            }
        })
    }
}

/// The rows that the matrices of an expert were multiplied by, for one token.
pub(super) struct Inputs<'x> {
    pub expert: usize,
    /// The number of experts.
    pub n_expert: usize,
    /// The input of gate and up.
    pub input: &'x [f32],
    /// The input of down.
    pub hidden: &'x [f32],
}

impl Frame<'_> {
    /// Call `show` for each token and each of its experts, after the step of the mixture ran and
    /// before the next one does.
    pub(super) fn each_expert_input(
        &mut self,
        step: &Step,
        sizes: ExpertSizes,
        show: &mut dyn FnMut(Inputs<'_>),
    ) -> Result<(), Error> {
        let refused = Error::Operands { operation: step.name };
        let (&x, [router, scratch, out]) = (step.reads.first().ok_or(refused)?, step.writes()?);
        let [n_in, n_expert, n_out] = [x, router, out].map(|value| self.values.width(value).max(1));
        let [x, scratch] = self.values.slices([x, scratch])?;
        let (n_used, n_ff) = (sizes.n_used, sizes.n_ff);
        let at = ExpertScratch::new(n_in, n_ff, n_out);
        let pairs = Pairs::new(scratch, x.len() / n_in * n_used, at)?;
        let mut scaled = vec![0.0; n_in];
        for (pair, &place) in pairs.places.iter().enumerate() {
            let row = &x[pair / n_used * n_in..][..n_in];
            let weight = if sizes.routing.is_before { pairs.weights[pair] } else { 1.0 };
            scaled.iter_mut().zip(row).for_each(|(scaled, x)| *scaled = weight * x);
            let hidden = &pairs.up[place as usize * n_ff..][..n_ff];
            show(Inputs { expert: pairs.experts[pair] as usize, n_expert, input: &scaled, hidden });
        }
        Ok(())
    }
}

/// The networks of a mixture, and the kernels and threads that run them.
struct Networks<'m> {
    set: &'static KernelSet,
    pool: &'m dyn Pool,
    weights: &'m Weights,
    tensors: Tensors<'m>,
    sizes: ExpertSizes,
}

impl Networks<'_> {
    /// Multiply the input of the only token by the gate and up matrices of its experts.
    fn hidden_of_one(&self, x: &[f32], pairs: &mut Pairs<'_>) -> Result<(), Error> {
        let (n_ff, input) = (self.sizes.n_ff, self.input(x, x.len(), pairs.blocks)?);
        for (id, out) in [(self.tensors.gate, &mut *pairs.gate), (Some(self.tensors.up), &mut *pairs.up)] {
            let Some(id) = id else { continue };
            let groups = pairs.experts.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE * n_ff));
            for (experts, out) in groups {
                let any = self.weights.matrix(id, experts[0] as usize)?;
                let mut outs = out.chunks_exact_mut(n_ff);
                let product =
                    |_| Product { weights: any, out: outs.next().unwrap_or_default(), write: Write::Store };
                let mut products: [Product<'_>; AT_ONCE] = core::array::from_fn(product);
                for (product, &expert) in products.iter_mut().zip(experts) {
                    product.weights = self.weights.matrix(id, expert as usize)?;
                }
                matmul(self.set, self.pool, input, &mut products[..experts.len()])?;
            }
        }
        Ok(())
    }

    /// Gather the inputs of each expert, and multiply them by its gate and up matrices.
    fn hidden_of_many(&self, x: &[f32], n_in: usize, pairs: &mut Pairs<'_>) -> Result<(), Error> {
        let (n_ff, n_used) = (self.sizes.n_ff, self.sizes.n_used);
        for (pair, &place) in pairs.places.iter().enumerate() {
            let row = &mut pairs.rows[place as usize * n_in..][..n_in];
            row.copy_from_slice(&x[pair / n_used * n_in..][..n_in]);
            if self.sizes.routing.is_before {
                (self.set.scale_in_place)(row, pairs.weights[pair]);
            }
        }
        for (expert, range) in runs(pairs.sorted) {
            let input = self.input(&pairs.rows[rows(&range, n_in)], n_in, pairs.blocks)?;
            let out = rows(&range, n_ff);
            let up = self.weights.matrix(self.tensors.up, expert)?;
            let up = Product { weights: up, out: &mut pairs.up[out.clone()], write: Write::Store };
            match self.tensors.gate {
                Some(gate) => {
                    let gate = self.weights.matrix(gate, expert)?;
                    let gate = Product { weights: gate, out: &mut pairs.gate[out], write: Write::Store };
                    matmul(self.set, self.pool, input, &mut [gate, up])?;
                }
                None => matmul(self.set, self.pool, input, &mut [up])?,
            }
        }
        Ok(())
    }

    /// Return rows of `width` as the input of matrices, in 8-bit blocks too where they can be.
    fn input<'r>(&self, x: &'r [f32], width: usize, room: &'r mut [f32]) -> Result<Input<'r>, Error> {
        if !width.is_multiple_of(BLOCK) {
            return Ok(Input::floats(x, width)?);
        }
        let blocks = quantize(self.set, self.pool, x, width, bytemuck::cast_slice_mut(room))?;
        Ok(Input::both(x, blocks)?)
    }

    /// Turn the products with gate and up matrices into the input of the down matrices.
    fn activate(&self, pairs: &mut Pairs<'_>) -> Result<(), Error> {
        let (n_ff, tensors) = (self.sizes.n_ff, &self.tensors);
        self.add_biases(pairs.sorted, tensors.up_bias, n_ff, pairs.up);
        self.add_biases(pairs.sorted, tensors.gate_bias, n_ff, pairs.gate);
        let (gate, set) = (&*pairs.gate, self.set);
        each_piece(self.pool, pairs.up, n_ff, |first, up| {
            let gate = &gate[first * n_ff..][..up.len()];
            match self.sizes.network {
                ExpertNetwork::Gated(activation) => gate_kernel(set, activation)(up, gate),
                ExpertNetwork::ClampedSwish => (set.mul_clamped_swish)(up, gate),
                ExpertNetwork::Plain(activation) => activation_kernel(set, activation)(up),
            }
        })
    }

    /// Multiply by the down matrix of each expert.
    fn results(&self, n_out: usize, pairs: &mut Pairs<'_>) -> Result<(), Error> {
        let (n_ff, tensors) = (self.sizes.n_ff, &self.tensors);
        for (expert, range) in runs(pairs.sorted) {
            let input = self.input(&pairs.up[rows(&range, n_ff)], n_ff, pairs.blocks)?;
            let weights = self.weights.matrix(tensors.down, expert)?;
            let out = &mut pairs.rows[rows(&range, n_out)];
            matmul(self.set, self.pool, input, &mut [Product { weights, out, write: Write::Store }])?;
            if let Some(&factor) = tensors.factors.get(expert) {
                (self.set.scale_in_place)(&mut pairs.rows[rows(&range, n_out)], factor);
            }
        }
        self.add_biases(pairs.sorted, tensors.down_bias, n_out, pairs.rows);
        Ok(())
    }

    /// Add the bias of its expert, if there are any, to each row.
    fn add_biases(&self, sorted: &[u32], biases: &[f32], width: usize, x: &mut [f32]) {
        for (row, &expert) in x.chunks_exact_mut(width).zip(sorted) {
            if let Some(bias) = biases.get(rows(&(expert as usize..expert as usize + 1), width)) {
                (self.set.add)(row, bias);
            }
        }
    }
}
