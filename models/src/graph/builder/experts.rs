//! Mixtures of experts.

use super::{Builder, linear::Linear};
use crate::{
    error::Error,
    graph::{
        experts::{ExpertNetwork, ExpertScratch, ExpertSizes, ExpertTensors, Routing},
        kind::Kind,
        step::Step,
        value::Value,
        weight::{StackOf, WeightId, WeightShape, packed_type},
    },
};
use alloc::{format, vec, vec::Vec};
use core::ops::Range;

/// A mixture of experts: its numbers, and where its router looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// Experts.
    pub n_expert: usize,
    /// Experts chosen for a token.
    pub n_used: usize,
    /// Width of each expert.
    pub n_ff: usize,
    /// The way from the router's logits to the chosen experts and their weights.
    pub routing: Routing,
    /// The network of each expert.
    pub network: ExpertNetwork,
    /// The router's logits, `[n_tokens, n_expert]`; none: products of the experts' input with
    /// `ffn_gate_inp`.
    pub logits: Option<Value>,
}

impl Builder<'_, '_> {
    /// Add a mixture of experts over `x` to `residual`; tensors and errors as [`Builder::mixture`].
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn add_mixture(&mut self, residual: Value, x: Value, mixture: Mixture) -> Result<(), Error> {
        self.mix(residual, x, mixture, true)
    }

    /// Return a mixture of experts over `x`, as wide as `x`. Tensors have the usual names
    /// (`ffn_up_exps`, `ffn_down_exps`, `ffn_gate_exps` or, gate and up in one,
    /// `ffn_gate_up_exps`); biases of experts and of their selection, and factors, are used where
    /// the file has them.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn mixture(&mut self, x: Value, mixture: Mixture) -> Result<Value, Error> {
        let out = self.value("mixture", self.width(x), self.rows(x));
        self.mix(out, x, mixture, false)?;
        Ok(out)
    }

    fn mix(&mut self, residual: Value, x: Value, mixture: Mixture, add: bool) -> Result<(), Error> {
        let Mixture { n_expert, n_used, n_ff, routing, network, logits } = mixture;
        let (n_in, n_out) = (self.width(x), self.width(residual));
        // Few files lack the suffix.
        let bias = ["exp_probs_b.bias", "exp_probs_b"].into_iter().find(|name| self.has(name));
        let tensors = ExpertTensors {
            has_selection_bias: bias.is_some(),
            has_biases: self.has("ffn_down_exps.bias"),
            has_factors: self.has("ffn_down_exps.scale"),
        };
        let mut weights = self.expert_matrices(n_expert, n_ff, [n_in, n_out], network)?;
        if let Some(bias) = bias {
            weights.push(self.vector(bias, n_expert)?);
        }
        if tensors.has_biases {
            weights.push(self.vector("ffn_up_exps.bias", n_expert * n_ff)?);
            weights.push(self.vector("ffn_down_exps.bias", n_expert * n_out)?);
            if network.has_gate() {
                weights.push(self.vector("ffn_gate_exps.bias", n_expert * n_ff)?);
            }
        }
        if tensors.has_factors {
            weights.push(self.vector("ffn_down_exps.scale", n_expert)?);
        }
        let router = match logits {
            Some(logits) => logits,
            None => self.linear(x, Linear::new("ffn_gate_inp", n_expert))?,
        };
        let pairs = n_used * ExpertScratch::new(n_in, n_ff, n_out).width();
        let scratch = self.value("scratch", pairs, self.rows(x));
        let sizes = ExpertSizes { n_used, n_ff, routing, network, tensors, add };
        let step = Step::new("experts", Kind::Experts(sizes)).reading([x, router]);
        let step = if add { step.reading([residual]) } else { step };
        self.push(step.writing([router, scratch, residual]).using(weights));
        Ok(())
    }

    /// Add up, down and, if there are any, gate matrices; errors as [`Builder::linear`].
    fn expert_matrices(
        &mut self,
        n_expert: usize,
        n_ff: usize,
        [n_in, n_out]: [usize; 2],
        network: ExpertNetwork,
    ) -> Result<Vec<WeightId>, Error> {
        const FUSED: &str = "ffn_gate_up_exps.weight";
        let down = [n_expert, n_out, n_ff];
        if network.has_gate() && self.has(FUSED) {
            let shape = [n_expert, 2 * n_ff, n_in];
            return Ok(vec![
                self.stacked_rows(FUSED, shape, n_ff..2 * n_ff)?,
                self.stacked("ffn_down_exps.weight", down)?,
                self.stacked_rows(FUSED, shape, 0..n_ff)?,
            ]);
        }
        let names: &[&str] = if network.has_gate() { &["up", "down", "gate"] } else { &["up", "down"] };
        let matrix = |name: &&str| {
            let shape = if *name == "down" { down } else { [n_expert, n_ff, n_in] };
            self.stacked(&format!("ffn_{name}_exps.weight"), shape)
        };
        names.iter().map(matrix).collect()
    }

    /// Add a stack of matrices of experts, `[n_expert, n_rows, n_cols]`; errors as
    /// [`Builder::linear`].
    fn stacked(&mut self, name: &str, shape: [usize; 3]) -> Result<WeightId, Error> {
        self.stacked_rows(name, shape, 0..shape[1])
    }

    /// Add some rows of each matrix of a stack; errors as [`Builder::linear`].
    fn stacked_rows(&mut self, name: &str, shape: [usize; 3], rows: Range<usize>) -> Result<WeightId, Error> {
        self.stack_of(StackOf::Experts, name, shape, rows)
    }

    /// Add some rows of each matrix of a stack, `[n_matrices, n_rows, n_cols]`; errors as
    /// [`Builder::linear`].
    pub(super) fn stack_of(
        &mut self,
        of: StackOf,
        name: &str,
        shape: [usize; 3],
        rows: Range<usize>,
    ) -> Result<WeightId, Error> {
        let [n_matrices, n_rows, n_cols] = shape;
        let info = self.tensor(name)?;
        info.expect_shape(&shape)?;
        let kind = packed_type(&info)?;
        Ok(self.add_weight(&info, WeightShape::Stack { of, n_matrices, n_rows, rows, n_cols, kind }))
    }
}
