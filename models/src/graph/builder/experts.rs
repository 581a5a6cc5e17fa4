//! Mixtures of experts.

use super::{Builder, linear::Linear};
use crate::{
    error::Error,
    graph::{
        experts::{ExpertScratch, ExpertSizes},
        kind::Kind,
        step::Step,
        value::Value,
        weight::{WeightId, WeightShape, packed_type},
    },
};

/// The tensors of a mixture of experts, and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// Name of the router, `NAME.weight`, `[n_expert, n_embd]`.
    pub router: &'static str,
    /// Name of the gate matrices, `[n_expert, n_ff, n_embd]`.
    pub gate: &'static str,
    /// Name of the up matrices, `[n_expert, n_ff, n_embd]`.
    pub up: &'static str,
    /// Name of the down matrices, `[n_expert, n_embd, n_ff]`.
    pub down: &'static str,
    /// Experts.
    pub n_expert: usize,
    /// The other numbers.
    pub sizes: ExpertSizes,
}

impl Mixture {
    /// A mixture with the usual names of tensors.
    pub const fn new(n_expert: usize, sizes: ExpertSizes) -> Self {
        Mixture {
            router: "ffn_gate_inp",
            gate: "ffn_gate_exps.weight",
            up: "ffn_up_exps.weight",
            down: "ffn_down_exps.weight",
            n_expert,
            sizes,
        }
    }
}

impl Builder<'_, '_> {
    /// Add a mixture of experts over `x` to `residual`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn add_mixture(&mut self, residual: Value, x: Value, mixture: Mixture) -> Result<(), Error> {
        let Mixture { n_expert, sizes, .. } = mixture;
        let (n_in, n_out) = (self.width(x), self.width(residual));
        let gate = self.expert_matrices(mixture.gate, [n_expert, sizes.n_ff, n_in])?;
        let up = self.expert_matrices(mixture.up, [n_expert, sizes.n_ff, n_in])?;
        let down = self.expert_matrices(mixture.down, [n_expert, n_out, sizes.n_ff])?;
        let router = self.linear(x, Linear::new(mixture.router, n_expert))?;
        let scratch = self.value("scratch", ExpertScratch::new(n_out, sizes.n_ff).end, self.rows(x));
        let step = Step::new("experts", Kind::Experts(sizes)).reading([x, router, residual]);
        self.push(step.writing([router, scratch, residual]).using([gate, up, down]));
        Ok(())
    }

    /// Add one matrix an expert, `[n_expert, n_rows, n_cols]`; errors as [`Builder::linear`].
    fn expert_matrices(&mut self, name: &str, shape: [usize; 3]) -> Result<WeightId, Error> {
        let [n_expert, n_rows, n_cols] = shape;
        let (name, info) = self.tensor(name)?;
        info.expect_shape(&shape)?;
        let kind = packed_type(&info)?;
        Ok(self.add_weight(name, WeightShape::Experts { n_expert, n_rows, n_cols, kind }))
    }
}
