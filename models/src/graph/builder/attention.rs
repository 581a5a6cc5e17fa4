//! Attention over the cells of a cache: this layer's, another's, or an encoder output's.

use super::Builder;
use crate::{
    error::Error,
    graph::{
        computation::attention_of,
        kind::{Kind, Scores},
        rotation::RopeId,
        step::{Carried, Step},
        value::{Rows, Value},
        weight::{WeightId, WeightShape, decodable},
    },
};
use backstitch_kv::{AttentionLayer, AttentionSpec, LayerSpec, Window};

/// The shape of a layer's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    /// Heads of keys and values.
    pub n_head_kv: usize,
    /// Elements of one head's key.
    pub d_k: usize,
    /// Elements of one head's value.
    pub d_v: usize,
    /// The positions that a token sees; none: all of its sequence.
    pub window: Option<Window>,
    /// The rotation that keys carry, so that a K-shift can move them; none: they hold no position.
    pub rope: Option<RopeId>,
}

/// Queries, keys and values of the same tokens.
#[derive(Clone, Copy, Debug)]
pub struct Qkv {
    /// Queries, `[n_tokens, n_head, d_k]`.
    pub q: Value,
    /// Keys, `[n_tokens, n_head_kv, d_k]`.
    pub k: Value,
    /// Values, `[n_tokens, n_head_kv, d_v]`.
    pub v: Value,
}

/// A table `[n_bucket, n_head]` of relative position biases: near distances have a bucket each,
/// farther ones share theirs with more and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketTable<'n> {
    /// Name of the tensor.
    pub name: &'n str,
    /// Buckets.
    pub n_bucket: usize,
    /// Query heads.
    pub n_head: usize,
    /// True if half of the buckets are for tokens ahead.
    pub both_ways: bool,
}

impl Builder<'_, '_> {
    /// Start the next layer. With `cells` it attends to all earlier tokens of a sequence, or those
    /// in its window, and keeps their keys and values in a cache.
    pub fn layer(&mut self, cells: Option<Cells>) {
        let attention = cells.map(|cells| AttentionSpec::Cached(self.attention_layer(cells)));
        self.start_layer(attention.unwrap_or(AttentionSpec::Absent), cells.and_then(|cells| cells.rope));
    }

    /// Start the next layer, of an encoder: tokens attend to all others of their text, and nothing
    /// is kept.
    pub fn encoder_layer(&mut self, cells: Cells) {
        let layer = self.attention_layer(cells);
        self.start_layer(AttentionSpec::BatchOnly { layer, causal: false }, cells.rope);
    }

    /// Start the next layer, which attends to the keys and values that layer `of` of the memory
    /// stored, and stores none itself.
    pub fn sharing_layer(&mut self, of: usize) {
        self.start_layer(AttentionSpec::SharedWith(of), None);
    }

    /// Add a layer of the memory for cross attention: keys and values of the encoder output.
    /// Returns its number, which [`Builder::store`] and [`Builder::attend_over`] take.
    pub fn cross_layer(&mut self, cells: Cells) -> usize {
        let attention = AttentionSpec::Cross(self.attention_layer(cells));
        self.add_layer(attention, cells.rope)
    }

    fn start_layer(&mut self, attention: AttentionSpec, rope: Option<RopeId>) {
        self.layer = Some(self.add_layer(attention, rope));
        self.block(self.n_layer);
        self.n_layer += 1;
    }

    fn add_layer(&mut self, attention: AttentionSpec, rope: Option<RopeId>) -> usize {
        self.graph.layers.push(LayerSpec { attention, ..LayerSpec::default() });
        self.graph.cell_ropes.push(rope);
        self.graph.layers.len() - 1
    }

    fn attention_layer(&self, cells: Cells) -> AttentionLayer {
        let Cells { n_head_kv, d_k, d_v, window, rope } = cells;
        let rope = rope.map(|rope| self.rotation(rope).usual.clone());
        AttentionLayer { n_head_kv, d_k, d_v, window, rope }
    }

    /// Store `k` and `v` in this layer's cache and attend with `q`. Heads have the sizes that the
    /// layer's [`Cells`] state.
    pub fn attend(&mut self, qkv: Qkv, scores: Scores) -> Value {
        self.attend_with(qkv, scores, None)
    }

    /// Do the work of [`Builder::attend`] with relative position biases from [`Builder::buckets`]
    /// added to the scores, or with sinks from [`Builder::sinks`].
    pub fn attend_with(
        &mut self,
        qkv: Qkv,
        scores: Scores,
        weights: impl IntoIterator<Item = WeightId>,
    ) -> Value {
        let Some(layer) = self.layer else {
            self.note(Error::OutsideLayer { operation: "attend" });
            return qkv.q;
        };
        self.store(layer, qkv.k, qkv.v);
        self.attend_over(layer, qkv.q, scores, weights)
    }

    /// Attend with `q` to the keys and values that the layer named to [`Builder::sharing_layer`]
    /// stored.
    pub fn attend_shared(&mut self, q: Value, scores: Scores) -> Value {
        let Some(layer) = self.layer else {
            self.note(Error::OutsideLayer { operation: "attend" });
            return q;
        };
        self.attend_over(layer, q, scores, None)
    }

    /// Store keys and values in the cells of a layer of the memory.
    pub fn store(&mut self, layer: usize, k: Value, v: Value) {
        let mut step = Step::new("store_kv", Kind::StoreKv).reading([k, v]);
        step.carries = Some(Carried::Cells { layer });
        self.push(step);
    }

    /// Attend with `q` to the cells of a layer of the memory.
    pub fn attend_over(
        &mut self,
        layer: usize,
        q: Value,
        scores: Scores,
        weights: impl IntoIterator<Item = WeightId>,
    ) -> Value {
        let Some((n_head, d_v)) = self.heads(layer, q) else {
            self.note(Error::NoLayer { layer });
            return q;
        };
        let out = self.value("attn", n_head * d_v, Rows::Tokens);
        let kind = Kind::Attend { n_head, scores };
        let mut step = Step::new("attend", kind).reading([q]).writing([out]).using(weights);
        step.carries = Some(Carried::Cells { layer });
        self.push(step);
        out
    }

    /// Return the heads of `q` and the width of their values.
    fn heads(&self, layer: usize, q: Value) -> Option<(usize, usize)> {
        let spec = self.graph.layers.get(layer)?;
        let spec = match spec.attention {
            AttentionSpec::SharedWith(of) => self.graph.layers.get(of)?,
            _ => spec,
        };
        let cells = attention_of(spec)?;
        Some((self.width(q).checked_div(cells.d_k)?, cells.d_v))
    }

    /// Add the vector `name`, a sink for each of `n_head` query heads, if the file has it; errors
    /// as [`Builder::vector`].
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn sinks(&mut self, name: &str, n_head: usize) -> Result<Option<WeightId>, Error> {
        self.optional_vector(name, n_head)
    }

    /// Add a table of relative position biases.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn buckets(&mut self, table: BucketTable<'_>) -> Result<WeightId, Error> {
        let BucketTable { name, n_bucket, n_head, both_ways } = table;
        let info = self.tensor(name)?;
        info.expect_shape(&[n_bucket, n_head])?;
        decodable(&info)?;
        Ok(self.add_weight(&info, WeightShape::Distances { n_bucket, n_head, both_ways }))
    }
}
