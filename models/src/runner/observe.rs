//! The inputs of products, shown to an observer.
//!
//! Quantisers weigh the errors of a column by what it is multiplied by, so somebody has to look. A
//! step is shown after it ran, when its input still is in the arena. Inputs are shown in floats
//! also where the product takes 8-bit blocks: there they are those of the step that quantises.

use super::experts::Inputs;
use super::frame::Frame;
use crate::{
    error::Error,
    graph::{ExpertSizes, Kind, Step, Value, WeightId},
};
use alloc::boxed::Box;

/// Rows that a matrix of a model was multiplied by.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProductInput<'a> {
    /// The name of the tensor that the matrix is of.
    pub tensor: &'a str,
    /// The number of the expert; 0 if the tensor is not one of experts.
    pub matrix: usize,
    /// The number of experts that have a matrix in the tensor; 1 if it is not one of experts.
    pub n_matrices: usize,
    /// The number of columns. Where each head has a matrix, the columns of all stand side by side.
    pub n_cols: usize,
    /// The rows, `[n_rows, n_cols]`.
    pub rows: &'a [f32],
}

/// A function that is shown the input of every product.
pub type Observer = Box<dyn FnMut(&ProductInput<'_>) + Send>;

impl Frame<'_> {
    /// Show the inputs of the products that `step` computes, or for which it quantises.
    pub(super) fn observe(&mut self, step: &Step, observer: &mut Observer) -> Result<(), Error> {
        match step.kind {
            Kind::Quantize => {
                let ([x], [blocks]) = (step.reads()?, step.writes()?);
                let graph = self.values.graph;
                let takes = |other: &&Step| {
                    matches!(other.kind, Kind::MatMul { .. }) && other.reads.first() == Some(&blocks)
                };
                let weights = graph.steps().iter().filter(takes).flat_map(|other| &other.weights);
                weights.copied().try_for_each(|id| self.show(x, id, observer))
            }
            Kind::MatMul { .. } => {
                let refused = Error::Operands { operation: step.name };
                let &x = step.reads.first().ok_or(refused)?;
                let floats =
                    |id: &WeightId| Ok::<_, Error>(!self.weights.matrix(*id, 0)?.kind().takes_quantized());
                // All matrices of a step take the same input.
                match step.weights.first().map(floats).transpose()? {
                    Some(true) => step.weights.iter().try_for_each(|&id| self.show(x, id, observer)),
                    _ => Ok(()),
                }
            }
            Kind::Logits { .. } => {
                let ([x], Some(&head)) = (step.reads()?, step.weights.first()) else { return Ok(()) };
                self.show(x, head, observer)
            }
            Kind::MatMulHeads { .. } => {
                let ([x], [id]) = (step.reads()?, step.weights()?);
                self.show(x, id, observer)
            }
            Kind::Experts(sizes) => self.show_experts(step, sizes, observer),
            _ => Ok(()),
        }
    }

    /// Show rows that a matrix is multiplied by.
    fn show(&mut self, x: Value, id: WeightId, observer: &mut Observer) -> Result<(), Error> {
        let (n_cols, tensor) = (self.values.width(x), self.tensor(id));
        let [rows] = self.values.slices([x])?;
        observer(&ProductInput { tensor, matrix: 0, n_matrices: 1, n_cols, rows });
        Ok(())
    }

    /// Show the rows that the matrices of each expert are multiplied by.
    fn show_experts(
        &mut self,
        step: &Step,
        sizes: ExpertSizes,
        observer: &mut Observer,
    ) -> Result<(), Error> {
        let [up, down] = [0, 1].map(|i| step.weights.get(i).copied());
        let gate = step.weights.get(2).copied().filter(|_| sizes.network.has_gate());
        let names = [up, gate, down].map(|id| id.map(|id| self.tensor(id)));
        self.each_expert_input(step, sizes, &mut |Inputs { expert, n_expert, input, hidden }| {
            for (tensor, rows) in names.into_iter().zip([input, input, hidden]) {
                let Some(tensor) = tensor else { continue };
                let (matrix, n_matrices, n_cols) = (expert, n_expert, rows.len());
                observer(&ProductInput { tensor, matrix, n_matrices, n_cols, rows });
            }
        })
    }
}
