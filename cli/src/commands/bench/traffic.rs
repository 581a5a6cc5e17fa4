//! How many bytes generating one token has to read.

use crate::footprint;
use backstitch_models::graph::Op;
use backstitch_models::{Context, Model};
use std::collections::BTreeSet;

/// Bytes of weights: all that some operation but a look-up of embeddings uses, of experts those that are chosen.
pub fn weights(model: &Model) -> u64 {
    let mut used = BTreeSet::new();
    for step in model.graph().steps().iter().filter(|step| !matches!(step.op, Op::Embed { .. })) {
        step.op.each_weight(|weight| {
            used.insert(weight);
        });
    }
    let n_used = model.hparams().experts.map_or(0, |experts| experts.n_used);
    let used = used.into_iter().filter_map(|weight| model.graph().weight(weight));
    used.map(|info| footprint::weight(info, n_used)).sum()
}

/// Bytes of caches and states of `n_seqs` sequences that hold `n_tokens` each.
pub fn cache(ctx: &Context, n_tokens: u32, n_seqs: u32) -> u64 {
    footprint::cache(ctx.model().graph(), n_tokens.max(1), ctx.params()) * u64::from(n_seqs)
}
