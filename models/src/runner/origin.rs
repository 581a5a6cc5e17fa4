//! Outputs that are not finite numbers, and the step from which they come.
//!
//! NaN survives every operation on the way to the outputs, and infinity unless an operation has a
//! finite limit there, so it is enough to look at those. Only a ubatch whose outputs are not finite
//! runs once more, to find where that begins. Its plan is open still, so it writes the same cells
//! and states again, and all of them are undone with the plan.

use super::frame::Frame;
use super::outputs::Outputs;
use super::{Runner, Side};
use crate::cancel::Stoppable;
use crate::error::{Error, NotFinite};
use crate::graph::{Kind, Step, Value, WeightId};
use crate::model::Model;
use alloc::boxed::Box;
use backstitch_kv::Ubatch;

/// The bits of positive infinity; those of finite numbers without their signs are less.
const INFINITY: i32 = f32::INFINITY.to_bits() as i32;

/// Return true if all numbers are finite.
pub(super) fn are_finite(x: &[f32]) -> bool {
    // The largest of integers, which compilers compute with vectors; the order does not matter.
    x.iter().fold(0, |largest, x| largest.max((x.to_bits() & 0x7fff_ffff) as i32)) < INFINITY
}

impl Runner {
    /// Return the error about the ubatch that has just run, whose outputs are not finite.
    pub(super) fn not_finite(
        &mut self,
        model: &Model,
        work: &Stoppable<'_>,
        side: Side,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Error {
        let graph = side.graph(model);
        let what = if outputs.are_embeddings() { "embeddings" } else { "logits" };
        let (mut frame, ..) = self.frame(model, work.pool(), side, ubatch.n_tokens());
        let mut step = None;
        for (i, current) in graph.steps().iter().enumerate() {
            if work.check().is_err() {
                return Error::Cancelled;
            }
            step = Some(current);
            if frame.run(i, current, ubatch, outputs).is_err() || !frame.results_are_finite(current) {
                break;
            }
        }
        let tensor = step.and_then(|step| frame.blamed(step)).map(|id| frame.tensor(id).into());
        Error::NotFinite(Box::new(NotFinite {
            model: model.label().into(),
            what,
            layer: step.and_then(|step| step.layer),
            operation: step.map_or("", |step| step.name),
            tensor,
        }))
    }
}

impl Frame<'_> {
    /// Return the weight to name for a step whose results are not finite: one that is not finite
    /// itself, or else the first.
    fn blamed(&self, step: &Step) -> Option<WeightId> {
        let damaged = step.weights.iter().find(|&&id| !self.weights.are_finite(id));
        damaged.or(step.weights.first()).copied()
    }

    /// Return true if the results of a step that has just run are finite.
    fn results_are_finite(&self, step: &Step) -> bool {
        let is_finite =
            |&value: &Value| self.values.arena.get(self.values.range(value)).is_none_or(are_finite);
        match step.kind {
            // Integers in blocks are no floats.
            Kind::Quantize | Kind::Logits { .. } => true,
            // A workspace stands behind the result, or before it.
            Kind::MatMulHeads { .. } => step.writes.first().is_none_or(is_finite),
            Kind::Experts(_) => step.writes.last().is_none_or(is_finite),
            _ => step.writes.iter().all(is_finite),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nan_and_infinities_are_not_finite() {
        let finite = [0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1)];
        assert!(are_finite(&finite) && are_finite(&[]));
        for wrong in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0xffff_ffff)] {
            for place in [0, 16, 40] {
                let mut x = [1.0; 41];
                x[place] = wrong;
                assert!(!are_finite(&x), "{wrong} at {place}");
            }
        }
    }
}
