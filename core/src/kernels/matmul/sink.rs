//! Outputs of a product: from accumulators in lanes to rows of the output matrix.
//!
//! A panel's outputs for one token are sixteen neighbours in a row of the output matrix, fewer in
//! the last panel. Jobs own bands of columns, so writes of different jobs never meet.

use crate::isa::{LANES, Simd};
use crate::pool::Band;

/// The treatment of what the output held before a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `out = y`.
    Store,
    /// `out = out + y`, rounded once: the residual stream.
    Add,
}

/// Write lanes `y` of panel `panel` of the band to row `token` of `out`.
#[inline(always)]
pub(super) fn write_lanes<S: Simd>(
    s: S,
    y: S::F,
    out: &mut Band<'_, f32>,
    token: usize,
    panel: usize,
    write: Write,
) {
    let row = out.row(token);
    let first = (panel * LANES).min(row.len());
    let row = &mut row[first..];
    if let Some(row) = row.first_chunk_mut() {
        let y = if write == Write::Add { s.add(s.load(row), y) } else { y };
        return s.store(y, row);
    }
    let mut lanes = [0.0; LANES];
    s.store(y, &mut lanes);
    for (out, y) in row.iter_mut().zip(lanes) {
        *out = if write == Write::Add { *out + y } else { y };
    }
}

/// The place of the outputs of one panel and one group of tokens.
pub(super) struct Sink<'b, 'a> {
    pub out: &'b mut Band<'a, f32>,
    pub panel: usize,
    /// The first token of the group.
    pub token: usize,
    pub write: Write,
}

impl Sink<'_, '_> {
    // A function and no closure: closures are compiled without the instruction set's features.
    #[inline(always)]
    pub(super) fn put<S: Simd>(&mut self, s: S, token: usize, y: S::F) {
        self.put_at(s, 0, token, y);
    }

    /// Write `y`, the outputs of `token` with the `p`-th panel after the sink's.
    #[inline(always)]
    pub(super) fn put_at<S: Simd>(&mut self, s: S, p: usize, token: usize, y: S::F) {
        write_lanes(s, y, self.out, self.token + token, self.panel + p, self.write);
    }

    /// Prefetch the lines that the outputs of `G` tokens with `P` panels go to.
    #[inline(always)]
    pub(super) fn fetch<S: Simd, const P: usize, const G: usize>(&mut self, s: S, token: usize) {
        for i in 0..G {
            let row = self.out.row(self.token + token + i);
            for p in 0..P {
                if let Some(out) = row.get((self.panel + p) * LANES) {
                    s.prefetch(out, 0);
                }
            }
        }
    }
}
