//! Mixtures of two values, and columns of values.

use super::frame::Frame;
use super::rows::each_piece;
use crate::{
    error::Error,
    graph::{Columns, Step},
};

impl Frame<'_> {
    /// Go from one value towards another, as far as a row of a weight, a value, or both say.
    pub(super) fn lerp(&mut self, step: &Step, row: usize) -> Result<(), Error> {
        let [out] = step.writes()?;
        let (lerp, width) = (self.set.lerp, self.values.width(out));
        let weight = match step.weights.first() {
            Some(&id) => {
                let refused = Error::Operands { operation: step.name };
                self.weights.vector(id)?.get(row * width..(row + 1) * width).ok_or(refused)?
            }
            None => &[],
        };
        // An empty slice stands for the mix that is not there.
        let (x, y, by, out) = match step.reads.len() {
            2 => {
                let [x, y] = step.reads()?;
                let [x, y, out] = self.values.slices([x, y, out])?;
                (x, y, &[][..], out)
            }
            _ => {
                let [x, y, by] = step.reads()?;
                let [x, y, by, out] = self.values.slices([x, y, by, out])?;
                (x, y, &*by, out)
            }
        };
        let (x, y) = (&*x, &*y);
        each_piece(self.pool, out, width, |first, rows| {
            let range = first * width..first * width + rows.len();
            let by = if by.is_empty() { by } else { &by[range.clone()] };
            lerp(&x[range.clone()], &y[range], weight, by, rows);
        })
    }

    /// Copy some columns of every group of columns.
    pub(super) fn columns(&mut self, step: &Step, columns: Columns) -> Result<(), Error> {
        let ([x], [out]) = (step.reads()?, step.writes()?);
        let Columns { first, n, group } = columns;
        let [x, out] = self.values.slices([x, out])?;
        for (group, out) in x.chunks_exact(group.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
            out.copy_from_slice(&group[first..first + n]);
        }
        Ok(())
    }
}
