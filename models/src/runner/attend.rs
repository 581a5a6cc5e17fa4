//! Attention over a layer's cache.

use super::Frame;
use crate::{
    context::Params,
    error::Error,
    graph::{Graph, Op, Scores, Value, WeightId},
    weights::REACH,
};
use backstitch_core::{
    attention::{Attention, Relative, Seen, store},
    cell::CellLayout,
};
use backstitch_kv::{AttentionSpec, Ubatch};

/// `f32`s that let every layer of `graph` use all threads.
pub(super) fn scratch_len(graph: &Graph, params: &Params, n_threads: usize) -> usize {
    if n_threads == 1 {
        return 0;
    }
    let of_step = |op: &Op| match *op {
        Op::Attend { layer, n_head, scores, .. } | Op::Cross { layer, n_head, scores, .. } => {
            let Scores { scale, soft_cap } = scores;
            match &graph.layers()[layer].attention {
                AttentionSpec::Cached(spec)
                | AttentionSpec::Uncached { layer: spec, .. }
                | AttentionSpec::Cross(spec) => {
                    let (k_type, v_type) = (params.type_k, params.type_v);
                    let (n_head_kv, d_k, d_v) = (spec.n_head_kv, spec.d_k, spec.d_v);
                    let layout = CellLayout { n_head_kv, d_k, d_v, k_type, v_type };
                    let attention = Attention { n_head, scale, soft_cap, sinks: &[], relative: None, layout };
                    attention.scratch_len(params.n_ctx as usize, params.n_ubatch as usize)
                }
                AttentionSpec::Absent | AttentionSpec::SharedWith(_) => 0,
            }
        }
        _ => 0,
    };
    graph.steps().iter().map(|step| of_step(&step.op)).max().unwrap_or(0)
}

impl Frame<'_> {
    /// Stores the ubatch's keys and values, unless the layer uses those of another.
    pub(super) fn store(
        &mut self,
        layer: usize,
        k: Value,
        v: Value,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let [k, v] = self.values.slices([k, v])?;
        if let Some(to) = ubatch.store(layer) {
            let cell = |i: usize| to.cells.get(i).map_or((u32::MAX, 0), |cell| (cell.block, cell.cell));
            store(self.set, self.pool, &to.layout, k, v, &cell, to.storage)?;
        }
        Ok(())
    }

    /// Attends to all that each token sees; `terms` are added to scores by distance.
    pub(super) fn attend(
        &mut self,
        layer: usize,
        [q, out]: [Value; 2],
        n_head: usize,
        (Scores { scale, soft_cap }, terms): (Scores, Option<WeightId>),
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let [q, out] = self.values.slices([q, out])?;
        let cache = ubatch.attention(layer).ok_or(Error::NoLayer { layer })?;
        let tokens = ubatch.tokens();
        let seen = |i: usize| match cache.visible().get(i) {
            Some(visible) => Seen { extents: cache.table(visible), slots: visible.lo..visible.hi },
            None => Seen { extents: &[], slots: 0..0 },
        };
        let q_pos = |i: usize| tokens.get(i).map_or(0, |token| token.pos.0);
        let k_pos = |block: u32| cache.positions(block).map(|pos| pos.0);
        let terms = terms.map(|id| self.weights.vector(id));
        let relative = terms.map(|terms| Relative { terms, reach: REACH, q_pos: &q_pos, k_pos: &k_pos });
        let attention = Attention { n_head, scale, soft_cap, sinks: &[], relative, layout: cache.layout };
        Ok(attention.run(self.set, self.pool, q, cache.storage, &seen, self.scratch, out)?)
    }
}
