//! Float weights times float activations.
//!
//! An output is one chain of fused multiply-adds along K, from +0.0. A tile is up to four panels
//! times up to eight tokens; a vector of weights, one column of sixteen rows, meets the activation
//! of each token as a broadcast number. Tiles at the edges compute missing panels or tokens a
//! second time instead of taking another path.
//!
//! ```text
//!             token 0   token 1     acc[t][p]: sixteen outputs of panel p for token t
//! panel 0       acc       acc       for k = 0, 1, ...:
//! panel 1       acc       acc           acc[t][p] += w[p][k] (16 rows) * x[t][k] (one number)
//! ```

use super::sink::{Write, write_lanes};
use crate::isa::stream::Fetch;
use crate::isa::{LANES, Simd};
use crate::pool::Band;

/// An element type of float panels.
trait Element: bytemuck::Pod {
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F;
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct F16(u16);

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Bf16(u16);

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F {
        s.load(w)
    }
}

impl Element for F16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F {
        s.load_f16(bytemuck::must_cast_ref(w))
    }
}

impl Element for Bf16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, w: &[Self; LANES]) -> S::F {
        s.load_bf16(bytemuck::must_cast_ref(w))
    }
}

/// Columns that are multiplied between two looks at the lengths of slices.
const STEP: usize = 16;

/// Compute `P` panels times `T` rows: `acc[t][p] = sum over k of w[p][k] * x[t][k]`.
#[inline(always)]
fn tile<S: Simd, E: Element, const P: usize, const T: usize>(
    s: S,
    w: [&[[E; LANES]]; P],
    x: [&[f32]; T],
    fetch: Fetch,
) -> [[S::F; P]; T] {
    let mut acc = [[s.splat(0.0); P]; T];
    // Arrays, because the lengths of so many slices would be compared for each column.
    let (w, x) = (w.map(|w| w.as_chunks::<STEP>()), x.map(|x| x.as_chunks::<STEP>()));
    for i in 0..x[0].0.len() {
        let mut columns = [&w[0].0[i]; P];
        for p in 1..P {
            columns[p] = &w[p].0[i];
        }
        let mut rows = [&x[0].0[i]; T];
        for t in 1..T {
            rows[t] = &x[t].0[i];
        }
        for k in 0..STEP {
            if k.is_multiple_of(64 / size_of::<[E; LANES]>()) && fetch == Fetch::Both {
                for column in &columns {
                    // The panels are streams of their own, so that each is that much nearer. Ahead
                    // of its end is the start of the next one, which is near already.
                    s.prefetch_l2(&column[k], Fetch::SECOND_AHEAD / P);
                    s.prefetch(&column[k], Fetch::FIRST_FROM_SECOND / P);
                }
            }
            column(
                s,
                core::array::from_fn(|p| &columns[p][k]),
                core::array::from_fn(|t| rows[t][k]),
                &mut acc,
            );
        }
    }
    for k in 0..x[0].1.len() {
        column(s, core::array::from_fn(|p| &w[p].1[k]), core::array::from_fn(|t| x[t].1[k]), &mut acc);
    }
    acc
}

/// Add the products of one column.
#[inline(always)]
fn column<S: Simd, E: Element, const P: usize, const T: usize>(
    s: S,
    w: [&[E; LANES]; P],
    x: [f32; T],
    acc: &mut [[S::F; P]; T],
) {
    let w: [S::F; P] = core::array::from_fn(|p| E::load(s, w[p]));
    for t in 0..T {
        let x = s.splat(x[t]);
        for p in 0..P {
            acc[t][p] = s.fma(w[p], x, acc[t][p]);
        }
    }
}

/// A product of whole panels with rows of activations.
struct Work<'a, E> {
    /// `[n_cols]` columns of each panel, then the padding to 64 bytes.
    w: &'a [[E; LANES]],
    /// Columns from panel to panel.
    stride: usize,
    n_panels: usize,
    x: &'a [f32],
    n_cols: usize,
    write: Write,
}

impl<E: Element> Work<'_, E> {
    /// Compute the tile of `P` panels from `first` and `T` rows from `token`.
    ///
    /// A missing panel or row is computed again from the last that is there, and not written.
    #[inline(always)]
    fn tile<S: Simd, const P: usize, const T: usize>(
        &self,
        s: S,
        first: usize,
        token: usize,
        fetch: Fetch,
        out: &mut Band<'_, f32>,
    ) {
        let (n_panels, n_tokens) = (self.n_panels, out.n_rows());
        let mut w = [&self.w[..0]; P];
        for (i, w) in w.iter_mut().enumerate() {
            *w = &self.w[(first + i).min(n_panels - 1) * self.stride..][..self.n_cols];
        }
        let mut x = [&self.x[..0]; T];
        for (i, x) in x.iter_mut().enumerate() {
            *x = &self.x[(token + i).min(n_tokens - 1) * self.n_cols..][..self.n_cols];
        }
        let y = tile::<S, E, P, T>(s, w, x, fetch);
        for (i, y) in y.iter().enumerate().take(n_tokens - token) {
            for (j, y) in y.iter().enumerate().take(n_panels - first) {
                write_lanes(s, *y, out, token + i, first + j, self.write);
            }
        }
    }

    /// Multiply `P` panels from `first` by all rows; return `P`.
    #[inline(always)]
    fn rows<S: Simd, const P: usize>(&self, s: S, first: usize, out: &mut Band<'_, f32>) -> usize {
        let mut t = 0;
        while t < out.n_rows() {
            match out.n_rows() - t {
                5.. if S::N_REGISTERS >= 32 => {
                    self.tile::<S, P, 8>(s, first, t, Fetch::Nothing, out);
                    t += 8;
                }
                3.. if S::N_REGISTERS >= 32 => {
                    self.tile::<S, P, 4>(s, first, t, Fetch::Nothing, out);
                    t += 4;
                }
                _ if S::N_REGISTERS >= 8 => {
                    self.tile::<S, P, 2>(s, first, t, Fetch::Nothing, out);
                    t += 2;
                }
                _ => {
                    self.tile::<S, P, 1>(s, first, t, Fetch::Nothing, out);
                    t += 1;
                }
            }
        }
        P
    }
}

/// Multiply all panels by all rows.
#[inline(always)]
fn multiply<S: Simd, E: Element>(
    s: S,
    w: &[u8],
    x: &[f32],
    n_cols: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    let n_tokens = out.n_rows();
    let w: &[[E; LANES]] = bytemuck::cast_slice(w);
    // Two columns of the halves fill the 64 bytes that panels are padded to.
    let stride = n_cols.next_multiple_of(64 / size_of::<[E; LANES]>());
    let work = Work { w, stride, n_panels: w.len() / stride, x, n_cols, write };
    if n_tokens == 1 && S::N_REGISTERS >= 8 {
        // One token: more panels, so that enough sums are under way at once.
        let panels = (0..work.n_panels).step_by(4);
        // A loop for each, so that none asks. Floats of 32 bits gain 5 % from memory and lose half
        // their speed from the second cache. Processors that fetch to the nearest cache alone were
        // not measured here.
        return match Fetch::for_one_token() {
            Fetch::Both if const { size_of::<E>() < 4 } => {
                panels.for_each(|p| work.tile::<S, 4, 1>(s, p, 0, Fetch::Both, out));
            }
            _ => panels.for_each(|p| work.tile::<S, 4, 1>(s, p, 0, Fetch::Nothing, out)),
        };
    }
    let mut p = 0;
    while p < work.n_panels {
        match work.n_panels - p {
            // Four are two and two: a tile that is not full takes as long as one that is.
            3 | 5.. if S::N_REGISTERS >= 32 => p += work.rows::<S, 3>(s, p, out),
            _ if S::N_REGISTERS >= 8 => p += work.rows::<S, 2>(s, p, out),
            _ => p += work.rows::<S, 1>(s, p, out),
        }
    }
}

/// Multiply F32 weights: `out[t][r] = sum over k of w[r][k] * x[t][k]`.
#[inline(always)]
pub(crate) fn multiply_f32<S: Simd>(
    s: S,
    w: &[u8],
    x: &[f32],
    n_cols: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    multiply::<S, f32>(s, w, x, n_cols, out, write);
}

/// Multiply F16 weights, which become floats exactly.
#[inline(always)]
pub(crate) fn multiply_f16<S: Simd>(
    s: S,
    w: &[u8],
    x: &[f32],
    n_cols: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    multiply::<S, F16>(s, w, x, n_cols, out, write);
}

/// Multiply BF16 weights, which become floats exactly.
#[inline(always)]
pub(crate) fn multiply_bf16<S: Simd>(
    s: S,
    w: &[u8],
    x: &[f32],
    n_cols: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    multiply::<S, Bf16>(s, w, x, n_cols, out, write);
}
