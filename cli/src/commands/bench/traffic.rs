//! How many bytes generating one token has to read.

use backstitch_core::packed::packed_bytes;
use backstitch_models::graph::{Op, WeightInfo, WeightShape};
use backstitch_models::{Context, Model, Params};
use std::collections::BTreeSet;

/// Bytes of weights: all that some operation but a look-up of embeddings uses, of experts those that are chosen.
pub fn weights(model: &Model) -> u64 {
    let mut used = BTreeSet::new();
    let steps = model.graph().steps().iter().filter(|step| !matches!(step.op, Op::Embed { .. }));
    steps.for_each(|step| {
        step.op.each_weight(|weight| {
            used.insert(weight);
        })
    });
    let n_used = model.hparams().experts.map_or(0, |experts| experts.n_used);
    used.into_iter().filter_map(|weight| model.graph().weight(weight)).map(|info| bytes(info, n_used)).sum()
}

fn bytes(info: &WeightInfo, n_used: usize) -> u64 {
    let matrix = |kind, n_rows, n_cols| packed_bytes(kind, n_rows, n_cols).unwrap_or(0) as u64;
    match &info.shape {
        WeightShape::Matrix { rows, n_cols, kind } => matrix(*kind, rows.len(), *n_cols),
        WeightShape::Experts { n_expert, n_rows, n_cols, kind } => {
            matrix(*kind, *n_rows, *n_cols) * n_used.min(*n_expert) as u64
        }
        WeightShape::Columns { n_rows, n_cols } => 4 * (n_rows * n_cols) as u64,
        WeightShape::Vector { len } => 4 * *len as u64,
    }
}

/// Bytes of caches and states of `n_seqs` sequences that hold `n_tokens` each.
pub fn cache(model: &Model, ctx: &Context, n_tokens: u32, n_seqs: u32) -> u64 {
    let one = Params { n_ctx: n_tokens.max(1), n_seq_max: 1, ..*ctx.params() };
    Context::memory_bytes(model.graph().layers(), &one) * u64::from(n_seqs)
}
