//! Attention over a layer's cache.

use super::Frame;
use crate::{
    context::Params,
    error::Error,
    graph::{Graph, Op, Scores, Value},
};
use backstitch_core::{
    attention::{Attention, Seen, store},
    cell::CellLayout,
};
use backstitch_kv::{AttentionSpec, Ubatch};

/// `f32`s that let every layer of `graph` use all threads.
pub(super) fn scratch_len(graph: &Graph, params: &Params, n_threads: usize) -> usize {
    if n_threads == 1 {
        return 0;
    }
    let of_step = |op: &Op| match *op {
        Op::Attend { layer, n_head, scores: Scores { scale, soft_cap }, .. } => {
            match &graph.layers()[layer].attention {
                AttentionSpec::Cached(spec) | AttentionSpec::Uncached { layer: spec, .. } => {
                    let (k_type, v_type) = (params.type_k, params.type_v);
                    let (n_head_kv, d_k, d_v) = (spec.n_head_kv, spec.d_k, spec.d_v);
                    let layout = CellLayout { n_head_kv, d_k, d_v, k_type, v_type };
                    let attention = Attention { n_head, scale, soft_cap, sinks: &[], layout };
                    attention.scratch_len(params.n_ctx as usize, params.n_ubatch as usize)
                }
                _ => 0,
            }
        }
        _ => 0,
    };
    graph.steps().iter().map(|step| of_step(&step.op)).max().unwrap_or(0)
}

impl Frame<'_> {
    /// Stores the ubatch's keys and values, then attends to all that each token sees.
    pub(super) fn attend(
        &mut self,
        layer: usize,
        [q, k, v, out]: [Value; 4],
        n_head: usize,
        Scores { scale, soft_cap }: Scores,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let [q, k, v, out] = self.values.slices([q, k, v, out])?;
        if let Some(to) = ubatch.store(layer) {
            let cell = |i: usize| to.cells.get(i).map_or((u32::MAX, 0), |cell| (cell.block, cell.cell));
            store(self.set, self.pool, &to.layout, k, v, &cell, to.storage)?;
        }
        let cache = ubatch.attention(layer).ok_or(Error::NoLayer { layer })?;
        let seen = |i: usize| match cache.visible().get(i) {
            Some(visible) => Seen { extents: cache.table(visible), slots: visible.lo..visible.hi },
            None => Seen { extents: &[], slots: 0..0 },
        };
        let attention = Attention { n_head, scale, soft_cap, sinks: &[], layout: cache.layout };
        Ok(attention.run(self.set, self.pool, q, cache.storage, &seen, self.scratch, out)?)
    }
}
