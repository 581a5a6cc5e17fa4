//! Float weights times float activations.

use super::write_lanes;
use crate::isa::{LANES, Simd};
use crate::matmul::Write;
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

/// `P` panels times `T` rows.
#[inline(always)]
fn tile<S: Simd, E: Element, const P: usize, const T: usize>(
    s: S,
    w: [&[[E; LANES]]; P],
    x: [&[f32]; T],
) -> [[S::F; P]; T] {
    let n = x[0].len();
    let (w, x) = (w.map(|w| &w[..n]), x.map(|x| &x[..n]));
    let mut acc = [[s.splat(0.0); P]; T];
    for k in 0..n {
        let column: [S::F; P] = core::array::from_fn(|p| E::load(s, &w[p][k]));
        for t in 0..T {
            let x = s.splat(x[t][k]);
            for p in 0..P {
                acc[t][p] = s.fma(column[p], x, acc[t][p]);
            }
        }
    }
    acc
}

/// All panels times all rows.
#[inline(always)]
fn multiply<S: Simd, E: Element>(
    s: S,
    w: &[u8],
    x: &[f32],
    n_cols: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    let panel_bytes = (n_cols * size_of::<[E; LANES]>()).next_multiple_of(64);
    let n_panels = w.len() / panel_bytes.max(1);
    let n_tokens = out.n_rows();
    let panel = |p: usize| -> &[[E; LANES]] {
        bytemuck::cast_slice(&w[p * panel_bytes..][..n_cols * size_of::<[E; LANES]>()])
    };
    let row = |t: usize| &x[t * n_cols..][..n_cols];
    let mut p = 0;
    while p < n_panels {
        let (mut t, n_left) = (0, n_panels - p);
        let mut done = 1;
        while t < n_tokens {
            let left = n_tokens - t;
            macro_rules! step {
                ($p:literal, $t:literal) => {{
                    let panels = core::array::from_fn(|i| panel((p + i).min(n_panels - 1)));
                    let rows = core::array::from_fn(|i| row((t + i).min(n_tokens - 1)));
                    let y = tile::<S, E, $p, $t>(s, panels, rows);
                    for (i, y) in y.into_iter().enumerate().take(left) {
                        for (j, y) in y.into_iter().enumerate().take(n_left) {
                            write_lanes(s, y, out, t + i, p + j, write);
                        }
                    }
                    t += $t;
                    done = $p;
                }};
            }
            match n_tokens {
                1 => step!(4, 1),
                2..=4 => step!(2, 4),
                _ => step!(2, 8),
            }
        }
        p += done;
    }
}

/// F32.
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

/// F16.
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

/// BF16.
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
