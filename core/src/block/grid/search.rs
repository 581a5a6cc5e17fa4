//! The search for the scale of a sub-block whose groups choose points of a grid.
//!
//! Several inverse scales are tried. Each group is rounded to the grid for it, the scale that suits
//! these points best is computed, and the best of all is kept; then groups are rounded again with
//! it. The types differ in the number of trials and in which groups are rounded again. As in
//! [`super::super::search`], the order of operations is that of ggml's quantisers.

use super::super::search::Sums;
use super::Grid;

/// Groups that are rounded once more with the best scale.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Those that were no point of the grid.
    OffGrid,
    /// All, if any was no point.
    AllIfAny,
    /// All.
    All,
}

/// A search: the parameters that a type gives it.
pub struct Search<const D: usize> {
    /// The grid.
    pub grid: &'static Grid<D>,
    /// Inverse scales are tried from `-n_steps` to `n_steps` steps around the first guess.
    pub n_steps: i16,
    /// The length of a step.
    pub step: f32,
    /// The groups to round again.
    pub again: Again,
}

/// A sub-block that was fitted to a grid.
pub struct Fit<const S: usize> {
    /// The scale of `2 level + 1`.
    pub scale: f32,
    /// The levels.
    pub levels: [u8; S],
}

impl<const D: usize> Search<D> {
    /// Return the value of the highest level, `2 level + 1`.
    fn highest(&self) -> f32 {
        f32::from(2 * self.grid.levels - 1)
    }

    /// Return the best fit of the magnitudes `x`, of which `max` is the largest. Errors count by
    /// `w`.
    pub fn run<const S: usize>(&self, x: &[f32; S], w: &[f32; S], max: f32) -> Fit<S> {
        self.run_from(x, w, max, Fit { scale: max / self.highest(), levels: [0; S] })
    }

    /// Return the best fit of the magnitudes `x`, of which `max` is about the largest; `fit` if no
    /// trial is any good.
    pub fn run_from<const S: usize>(&self, x: &[f32; S], w: &[f32; S], max: f32, mut fit: Fit<S>) -> Fit<S> {
        let roots = w.map(libm::sqrtf);
        let mut off_grid = [self.again != Again::OffGrid; S];
        let mut best = 0.0;
        for step in -self.n_steps..=self.n_steps {
            let inverse = (self.highest() + f32::from(step) * self.step) / max;
            let (tried, off) = self.round(x, &roots, inverse, 1.0 / inverse);
            let sums = sums(x, w, &tried);
            if sums.qq > 0.0 && sums.xq * sums.xq > best * sums.qq {
                fit = Fit { scale: sums.xq / sums.qq, levels: tried };
                best = fit.scale * sums.xq;
                off_grid = off;
            }
        }
        let wanted = self.again == Again::All || off_grid[..S / D].contains(&true);
        if wanted && fit.scale > 0.0 {
            let (again, _) = self.round(x, &roots, 1.0 / fit.scale, fit.scale);
            let groups = fit.levels.as_chunks_mut::<D>().0.iter_mut().zip(again.as_chunks().0);
            for ((levels, again), off) in groups.zip(off_grid) {
                if off || self.again != Again::OffGrid {
                    *levels = *again;
                }
            }
            let sums = sums(x, w, &fit.levels);
            if sums.qq > 0.0 {
                fit.scale = sums.xq / sums.qq;
            }
        }
        fit
    }

    /// Round all groups to the grid; return the levels, and which of the groups (the first `S / D`)
    /// were no point.
    fn round<const S: usize>(
        &self,
        x: &[f32; S],
        w: &[f32; S],
        inverse: f32,
        scale: f32,
    ) -> ([u8; S], [bool; S]) {
        let (mut rounded, mut off) = ([0; S], [false; S]);
        let groups = x.as_chunks::<D>().0.iter().zip(w.as_chunks::<D>().0);
        for ((levels, off), (x, w)) in rounded.as_chunks_mut::<D>().0.iter_mut().zip(&mut off).zip(groups) {
            *levels = self.grid.levels(x, inverse);
            if self.grid.find(levels).is_none() {
                *off = true;
                *levels = self.grid.closest(levels, |point| error(x, w, point, scale));
            }
        }
        (rounded, off)
    }
}

/// Return the error of a point: its squared distance to `x`, weighted by `w`.
fn error<const D: usize>(x: &[f32; D], w: &[f32; D], point: &[u8; D], scale: f32) -> f32 {
    let elements = x.iter().zip(w).zip(point);
    elements.fold(0.0, |sum, ((x, w), &level)| {
        let diff = scale * f32::from(2 * level + 1) - x;
        sum + w * diff * diff
    })
}

fn sums<const S: usize>(x: &[f32; S], w: &[f32; S], levels: &[u8; S]) -> Sums {
    let mut sums = Sums::default();
    for ((&x, &w), &level) in x.iter().zip(w).zip(levels) {
        sums.add(w, x, f32::from(2 * level + 1));
    }
    sums
}
