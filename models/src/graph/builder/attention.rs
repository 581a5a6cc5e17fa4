//! Attention over a layer's cache, and over texts that sequences share.

use super::Builder;
use crate::{
    error::Error,
    graph::{Op, Rows, Scores, Value, WeightId, WeightShape},
    weights::decodable,
};

impl Builder<'_, '_> {
    /// Stores `k` and `v` in this layer's cache and attends with `q`; `d_v` is the width of a value head.
    pub fn attend(
        &mut self,
        q: Value,
        k: Value,
        v: Value,
        n_head: usize,
        d_v: usize,
        scores: Scores,
    ) -> Value {
        let out = self.value("attn", n_head * d_v, Rows::Tokens);
        let layer = self.layer.unwrap_or_default();
        self.push(Op::Attend { layer, q, k, v, out, n_head, scores, terms: None });
        out
    }

    /// As [`Builder::attend`], with terms by distance from [`Builder::distances`] added to the scores.
    pub fn attend_by_distance(
        &mut self,
        [q, k, v]: [Value; 3],
        n_head: usize,
        d_v: usize,
        scores: Scores,
        terms: WeightId,
    ) -> Value {
        let out = self.value("attn", n_head * d_v, Rows::Tokens);
        let layer = self.layer.unwrap_or_default();
        self.push(Op::Attend { layer, q, k, v, out, n_head, scores, terms: Some(terms) });
        out
    }

    /// A table `[n_bucket, n_head]` of terms for scores: the nearer distances have a bucket each, farther ones share theirs with more
    /// and more. With `both_ways`, half of the buckets are for tokens ahead.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn distances(
        &mut self,
        name: &str,
        n_bucket: usize,
        n_head: usize,
        both_ways: bool,
    ) -> Result<WeightId, Error> {
        let (name, info) = self.tensor(name)?;
        info.expect_shape(&[n_bucket, n_head])?;
        decodable(&info)?;
        Ok(self.add_weight(name, WeightShape::Distances { n_bucket, n_head, both_ways }))
    }

    /// Stores `k` and `v` of the text that is being encoded in a layer of [`Builder::text_layer`].
    pub fn store_text(&mut self, layer: usize, k: Value, v: Value) {
        self.push(Op::StoreText { layer, k, v });
    }

    /// Attends with `q` to all of the encoded text.
    pub fn cross(&mut self, layer: usize, q: Value, n_head: usize, d_v: usize, scores: Scores) -> Value {
        let out = self.value("cross", n_head * d_v, Rows::Tokens);
        self.push(Op::Cross { layer, q, out, n_head, scores });
        out
    }
}
