//! Quantised weights times quantised activations: the choice of a kernel by the number of tokens.

use super::few_tokens::multiply_near;
use super::sink::Write;
use super::unpacked;
use crate::block::activations::{GROUP, QBlock};
use crate::format::Format;
use crate::isa::{Simd, cache};
use crate::pool::Band;

/// Return true if the set has [`unpacked`]. The compiler makes loops of it that keep the sums in
/// memory for the others.
const fn unpacks<S: Simd>() -> bool {
    S::N_REGISTERS >= 32 || S::FEW_BITS
}

/// Return the fewest tokens for which [`unpacked`] is faster, as measured with AVX-512 and AVX2.
const fn least_unpacked<S: Simd>() -> usize {
    if S::N_REGISTERS >= 32 { 32 } else { 6 }
}

/// Multiply all panels `w` by all rows `x` of `n_blocks` blocks.
#[inline(always)]
pub(crate) fn multiply<S: Simd, Q: Format>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    if const { unpacks::<S>() } && x.len() / n_blocks >= const { least_unpacked::<S>() } {
        return unpacked::multiply::<S, Q>(s, w, x, n_blocks, out, write);
    }
    let group = GROUP * n_blocks;
    // Half of the second cache holds activations, while one panel after the other passes.
    let n_groups = (cache::quarters(2) / size_of::<QBlock>() / group).max(1);
    for (i, x) in x.chunks(n_groups * group).enumerate() {
        multiply_near::<S, Q>(s, w, x, n_blocks, i * n_groups * GROUP, out, write);
    }
}
