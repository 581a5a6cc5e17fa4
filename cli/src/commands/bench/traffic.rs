//! The work of evaluating tokens: the bytes that have to be read, and the operations.
//!
//! Bytes are those of weights and caches, operations those of products with weight matrices.
//! Attention, norms and recurrences compute as well, but little in comparison, so shares of the
//! limits are a little too low rather than too high.

use crate::footprint;
use backstitch_core::PackedType;
use backstitch_models::graph::{Kind, StackOf, Step, WeightShape};
use backstitch_models::{Context, Model};
use std::collections::BTreeSet;
use std::ops::{Add, Mul};

/// Bytes to read and operations to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of weights and caches.
    pub bytes: u64,
    /// Multiplications and additions with quantised weights.
    pub byte_ops: u64,
    /// Multiplications and additions with weights that are floats.
    pub float_ops: u64,
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            byte_ops: self.byte_ops + other.byte_ops,
            float_ops: self.float_ops + other.float_ops,
        }
    }
}

impl Mul<u64> for Work {
    type Output = Self;

    fn mul(self, n: u64) -> Self {
        Self { bytes: self.bytes * n, byte_ops: self.byte_ops * n, float_ops: self.float_ops * n }
    }
}

/// Return the work of a prompt of `n_tokens` after `depth` others, with logits for the last token
/// of each logical batch.
///
/// Weights and the cache are read once for each physical batch. The cache grows meanwhile, so it is
/// counted with half of the prompt in it.
pub fn prompt(ctx: &Context, depth: u32, n_tokens: u32) -> Work {
    let (n_batch, n_ubatch) = (ctx.params().n_batch.max(1), ctx.params().n_ubatch.max(1));
    let rest = n_tokens % n_batch;
    let n_batches = u64::from(n_tokens.div_ceil(n_batch));
    let n_ubatches = u64::from(n_tokens / n_batch) * u64::from(n_batch.div_ceil(n_ubatch))
        + u64::from(rest.div_ceil(n_ubatch));
    let (inner, outer) = parts(ctx.model());
    let together = n_tokens.min(n_batch).min(n_ubatch) as usize;
    let (inner_bytes, outer_bytes) = (bytes(ctx.model(), inner, together), bytes(ctx.model(), outer, 1));
    let read = (inner_bytes + cache(ctx, depth + n_tokens / 2)) * n_ubatches + outer_bytes * n_batches;
    let ops = products(ctx.model(), inner) * u64::from(n_tokens) + products(ctx.model(), outer) * n_batches;
    Work { bytes: read, ..ops }
}

/// Return the work of generating `n_tokens` in each of `n_seqs` sequences together, after `depth`
/// others.
pub fn generation(ctx: &Context, depth: u32, n_tokens: u32, n_seqs: u32) -> Work {
    let (model, n_seqs) = (ctx.model(), u64::from(n_seqs));
    let steps = model.graph().steps();
    let step = Work {
        bytes: bytes(model, steps, 1) + cache(ctx, depth + n_tokens / 2) * n_seqs,
        ..products(model, steps) * n_seqs
    };
    step * u64::from(n_tokens)
}

/// Split the steps of the model: those for every token, and those for tokens whose logits are
/// wanted.
fn parts(model: &Model) -> (&[Step], &[Step]) {
    let steps = model.graph().steps();
    let outputs =
        steps.iter().position(|step| matches!(step.kind, Kind::SelectOutputs | Kind::Logits { .. }));
    steps.split_at(outputs.unwrap_or(steps.len()))
}

/// Return the bytes of weights that the steps read: each weight once, without tables of embeddings,
/// of which only rows are read, and with as many experts as `n_tokens` can choose.
fn bytes(model: &Model, steps: &[Step], n_tokens: usize) -> u64 {
    let mut used = BTreeSet::new();
    for step in steps.iter().filter(|step| !matches!(step.kind, Kind::Embed { .. })) {
        used.extend(&step.weights);
    }
    let n_used = n_experts_used(model).saturating_mul(n_tokens);
    let used = used.into_iter().filter_map(|weight| model.graph().weight(weight));
    used.map(|info| footprint::weight(info, n_used)).sum()
}

/// Return the operations of one token: two for each weight of the matrices that it is multiplied
/// by.
fn products(model: &Model, steps: &[Step]) -> Work {
    let mut work = Work::default();
    for step in steps.iter().filter(|step| !matches!(step.kind, Kind::Embed { .. })) {
        for &weight in &step.weights {
            let shape = model.graph().weight(weight).map(|info| &info.shape);
            let (n, kind) = match shape {
                Some(WeightShape::Matrix { rows, n_cols, kind }) => (rows.len() * n_cols, *kind),
                Some(WeightShape::Stack { of, n_matrices, rows, n_cols, kind, .. }) => {
                    let n_experts = n_experts_used(model).min(*n_matrices);
                    let n = if *of == StackOf::Experts { n_experts } else { *n_matrices };
                    (n * rows.len() * n_cols, *kind)
                }
                _ => continue,
            };
            match kind {
                PackedType::F32 | PackedType::F16 | PackedType::BF16 => work.float_ops += 2 * n as u64,
                _ => work.byte_ops += 2 * n as u64,
            }
        }
    }
    work
}

/// Return the number of experts that the router chooses for one token.
fn n_experts_used(model: &Model) -> usize {
    model.hparams().experts.map_or(0, |experts| experts.n_used)
}

/// Return the bytes of caches and recurrent states of a sequence with `n_tokens`.
fn cache(ctx: &Context, n_tokens: u32) -> u64 {
    let model = ctx.model();
    footprint::cache(model.hparams(), model.graph(), n_tokens.max(1), ctx.params())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded;
    use backstitch_models::Params;

    fn context() -> Context {
        let model = Model::from_bytes(embedded::GGUF).unwrap();
        Context::new(&model, Params::default().n_ctx(256).n_batch(64).n_ubatch(16)).unwrap()
    }

    #[test]
    fn a_prompt_reads_weights_once_for_each_physical_batch() {
        let ctx = context();
        let (one, more) = (prompt(&ctx, 0, 16), prompt(&ctx, 0, 17));
        assert!(more.bytes > one.bytes + one.bytes / 2, "{one:?} {more:?}");
        let (inner, outer) = parts(ctx.model());
        let each = products(ctx.model(), inner);
        let rest = products(ctx.model(), outer);
        assert_eq!(more.byte_ops, 17 * each.byte_ops + rest.byte_ops);
        assert_eq!(prompt(&ctx, 0, 65).byte_ops, 65 * each.byte_ops + 2 * rest.byte_ops);
    }

    #[test]
    fn generation_multiplies_all_matrices_and_reads_them_once_for_all_sequences() {
        let ctx = context();
        let (one, two) = (generation(&ctx, 0, 4, 1), generation(&ctx, 0, 4, 2));
        assert!(one.byte_ops > 0 && two.byte_ops == 2 * one.byte_ops);
        let weights = bytes(ctx.model(), ctx.model().graph().steps(), 1);
        assert_eq!(one.bytes, 4 * (weights + cache(&ctx, 2)));
        assert_eq!(two.bytes, 4 * (weights + 2 * cache(&ctx, 2)));
    }
}
