//! Attention over a layer's cells.

use super::frame::Frame;
use crate::{
    error::Error,
    graph::{Graph, Kind, Scores, Step, WeightShape},
    params::Params,
    weights::REACH,
};
use backstitch_core::{
    attention::{Attention, BiasRule, PositionBias, Seen, store},
    cell::CellLayout,
};
use backstitch_kv::{AttentionSpec, Ubatch};

/// Return the attention of `n_head` heads over cells of this layout; `scores` and position biases
/// do not change its size.
fn attention<'a>(n_head: usize, scores: Scores, layout: CellLayout) -> Attention<'a> {
    // The kernel takes 0 for no cap.
    let (scale, soft_cap) = (scores.scale, scores.soft_cap.map_or(0.0, |cap| cap));
    Attention { n_head, scale, soft_cap, sinks: &[], position_bias: None, layout }
}

/// Return the `f32`s that let every attention of `graph` use all threads.
pub(super) fn scratch_len(graph: &Graph, params: &Params, n_threads: usize) -> usize {
    if n_threads == 1 {
        return 0;
    }
    let of_step = |step: &Step| {
        let Kind::Attend { n_head, scores } = step.kind else { return 0 };
        let Ok(layout) = step.cells().and_then(|layer| layout(graph, params, layer)) else { return 0 };
        let (n_ctx, n_ubatch) = (params.n_ctx as usize, params.n_ubatch as usize);
        attention(n_head, scores, layout).scratch_len(n_ctx, n_ubatch)
    };
    graph.steps().iter().map(of_step).fold(0, usize::max)
}

/// Return the layout of the cells that a layer attends to.
///
/// # Errors
/// [`Error::NoLayer`] if it attends to none.
fn layout(graph: &Graph, params: &Params, layer: usize) -> Result<CellLayout, Error> {
    match graph.layers().get(layer).map(|layer| &layer.attention) {
        Some(
            AttentionSpec::Cached(spec)
            | AttentionSpec::BatchOnly { layer: spec, .. }
            | AttentionSpec::Cross(spec),
        ) => {
            let (k_type, v_type) = (params.type_k, params.type_v);
            let (n_head_kv, d_k, d_v) = (spec.n_head_kv, spec.d_k, spec.d_v);
            Ok(CellLayout { n_head_kv, d_k, d_v, k_type, v_type })
        }
        Some(AttentionSpec::SharedWith(of)) if *of < layer => layout(graph, params, *of),
        _ => Err(Error::NoLayer { layer }),
    }
}

impl Frame<'_> {
    /// Store the ubatch's keys and values in the layer's cells.
    pub(super) fn store(&mut self, step: &Step, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let [k, v] = self.values.slices(step.reads()?)?;
        let layer = step.cells()?;
        let to = ubatch.store(layer).ok_or(Error::NoLayer { layer })?;
        // There is no such block, so the kernel refuses a token without a cell.
        let cell = |i: usize| to.cells.get(i).map_or((u32::MAX, 0), |cell| (cell.block, cell.cell));
        Ok(store(self.set, self.pool, &to.layout, k, v, &cell, to.blocks)?)
    }

    /// Attend to all cells that each token sees.
    pub(super) fn attend(
        &mut self,
        step: &Step,
        n_head: usize,
        scores: Scores,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let ([q], [out], layer) = (step.reads()?, step.writes()?, step.cells()?);
        let (graph, weights) = (self.values.graph, self.weights);
        let [q, out] = self.values.slices([q, out])?;
        let cache = ubatch.attention(layer).ok_or(Error::NoLayer { layer })?;
        let tokens = ubatch.tokens();
        let seen = |i: usize| match cache.visible().get(i) {
            Some(visible) => Seen { table: cache.table(visible), slots: visible.lo..visible.hi },
            None => Seen { table: &[], slots: 0..0 },
        };
        // The kernel asks for the tokens of the ubatch alone.
        debug_assert!(cache.visible().len() <= tokens.len(), "each row of queries is a token");
        let q_pos = |i: usize| tokens.get(i).map_or(0, |token| token.pos.0);
        let k_pos = |block: u32| cache.positions(block).map(|pos| pos.0);
        let mut rule = scores.max_alibi_bias.map(|max_bias| BiasRule::Slopes { max_bias });
        let mut sinks = &[][..];
        for &id in &step.weights {
            let vector = weights.vector(id)?;
            match graph.weight(id).map(|info| &info.shape) {
                Some(WeightShape::Distances { .. }) => {
                    rule = Some(BiasRule::Table { bias: vector, max_distance: REACH });
                }
                _ => sinks = vector,
            }
        }
        let position_bias = rule.map(|rule| PositionBias { rule, q_pos: &q_pos, k_pos: &k_pos });
        let attention = Attention { position_bias, sinks, ..attention(n_head, scores, cache.layout) };
        Ok(attention.run(self.set, self.pool, q, cache.blocks, &seen, self.scratch, out)?)
    }
}
