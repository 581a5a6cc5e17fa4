//! Rotations by position.

use super::Builder;
use crate::{
    error::Error,
    graph::{
        kind::Kind,
        rotation::{LongRotation, RopeId, RotationChoice},
        step::Step,
        value::{Rows, Value},
    },
};
use alloc::{vec, vec::Vec};
use backstitch_core::rope::Rope;
use backstitch_kv::Rotation;

/// A rotation to declare.
#[derive(Clone, Copy)]
pub struct RopeSpec<'f> {
    /// The parameters.
    pub rope: Rope,
    /// Divisors of the frequencies.
    pub factors: RopeFactors,
    /// Pairs of dimensions that do not turn.
    pub is_fixed: &'f dyn Fn(usize) -> bool,
}

/// Divisors of a rotation's frequencies, by the names of their tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeFactors {
    /// No divisors.
    None,
    /// One vector for all contexts; the frequencies stay where the file lacks it.
    Optional(&'static str),
    /// One vector for contexts of up to `n_ctx_orig` tokens, another for longer ones.
    ByLength {
        /// Name of the first.
        short: &'static str,
        /// Name of the second.
        long: &'static str,
        /// The longest context that uses the first.
        n_ctx_orig: u32,
    },
}

impl Builder<'_, '_> {
    /// Declare a rotation, unless there is an equal one.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn rope(&mut self, spec: RopeSpec<'_>) -> Result<RopeId, Error> {
        let choice = match spec.factors {
            RopeFactors::None => RotationChoice { usual: turned(&spec, &[])?, long: None },
            RopeFactors::Optional(name) => {
                let is_there = self.gguf.tensor(name).is_some();
                let divisors = if is_there { self.divisors(spec.rope, name)? } else { vec![] };
                RotationChoice { usual: turned(&spec, &divisors)?, long: None }
            }
            RopeFactors::ByLength { short, long, n_ctx_orig } => {
                let usual = turned(&spec, &self.divisors(spec.rope, short)?)?;
                let rotation = turned(&spec, &self.divisors(spec.rope, long)?)?;
                RotationChoice { usual, long: Some(LongRotation { beyond: n_ctx_orig, rotation }) }
            }
        };
        let all = &mut self.graph.rotations;
        let number = all.iter().position(|known| are_equal(known, &choice)).unwrap_or_else(|| {
            all.push(choice);
            all.len() - 1
        });
        Ok(RopeId(number as u32))
    }

    /// Read divisors of the frequencies, which belong to no layer; errors as [`Builder::vector`].
    fn divisors(&self, rope: Rope, name: &str) -> Result<Vec<f32>, Error> {
        let missing = || Error::MissingTensor { tensor: name.into() };
        let info = self.gguf.tensor(name).ok_or_else(missing)?;
        info.expect_shape(&[rope.n_rot / 2])?;
        let mut divisors = vec![0.0; rope.n_rot / 2];
        info.dtype().decode(self.gguf.tensor_data(&info), &mut divisors)?;
        Ok(divisors)
    }

    pub(super) fn rotation(&self, rope: RopeId) -> &RotationChoice {
        &self.graph.rotations[rope.0 as usize]
    }

    /// Rotate the `n_head` heads of `x` in place.
    pub fn rotate(&mut self, x: Value, rope: RopeId, n_head: usize) {
        let known = self.angles.iter().find(|(of, _)| *of == rope).map(|(_, angles)| *angles);
        let angles = known.unwrap_or_else(|| {
            let width = self.rotation(rope).usual.rope.row_len();
            let out = self.value("angles", width, Rows::Tokens);
            self.push(Step::new("angles", Kind::Angles(rope)).writing([out]));
            self.angles.push((rope, out));
            out
        });
        self.push(Step::new("rotate", Kind::Rotate { rope, n_head }).changing(x).reading([angles]));
    }
}

/// Return the rotation with its frequencies divided and the fixed pairs at rest.
fn turned(spec: &RopeSpec<'_>, divisors: &[f32]) -> Result<Rotation, Error> {
    let rope = spec.rope;
    let mut frequencies = vec![0.0; rope.n_rot / 2];
    rope.frequencies(divisors, &mut frequencies)?;
    for (_, frequency) in frequencies.iter_mut().enumerate().filter(|(pair, _)| (spec.is_fixed)(*pair)) {
        *frequency = 0.0;
    }
    Ok(Rotation { rope, frequencies })
}

fn are_equal(x: &RotationChoice, y: &RotationChoice) -> bool {
    let same = |x: &Rotation, y: &Rotation| x.rope == y.rope && x.frequencies == y.frequencies;
    let long = match (&x.long, &y.long) {
        (None, None) => true,
        (Some(x), Some(y)) => x.beyond == y.beyond && same(&x.rotation, &y.rotation),
        _ => false,
    };
    long && same(&x.usual, &y.usual)
}
