//! Quantised weights times several tokens, on instructions that multiply two tokens by two rows
//! (I8MM).
//!
//! A panel is unpacked, some blocks at a time, to the order that the instructions read; then all
//! tokens pass, four at a time. Fewer than four tokens, left over or alone, go to the product of
//! the set without these instructions, as do types with sub-block scales. The operations on every
//! output and their order are the same there and here.
//!
//! The order of a block's elements, and the two numbers that each vector of scales holds twice, are
//! those of [`crate::isa::mmla`].

use super::sink::{Sink, Write};
use super::sums::panels;
use super::tokens::Tile;
use crate::block::activations::{GROUP, QBlock};
use crate::format::layout;
use crate::format::{Factors, Format};
use crate::isa::cache;
use crate::isa::mmla::{Block, NOTHING, Sums, TOKENS};
use crate::isa::neon::{Mixed, Neon};
use crate::kernel_set::MultiplyBlocks;
use crate::pool::Band;

/// The most blocks of a panel that are unpacked at once: they stay in the nearest cache while the
/// tokens pass.
const DEPTH: usize = 24;

/// The most tokens that pass one panel after the other.
const MOST: usize = 8 * GROUP;

/// The workspace on the stack: a part of a panel, and the sums of all tokens that meet it.
struct Room {
    blocks: [Block; DEPTH],
    sums: [Sums; MOST / TOKENS],
}

/// Multiply all panels `w` by all rows `x` of `n_blocks` blocks; `without_pairs` is called for what
/// these instructions do not take.
#[inline(always)]
pub(crate) fn multiply<Q: Format>(
    s: Neon<Mixed>,
    without_pairs: MultiplyBlocks,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    if const { Q::SUB_BLOCKS } {
        return without_pairs(w, x, n_blocks, out, write);
    }
    let n_tokens = x.len() / n_blocks;
    if n_tokens < TOKENS {
        return without_pairs(w, x, n_blocks, out, write);
    }
    // The tokens of the last group may be too few.
    let n_rest = if n_tokens % GROUP < TOKENS { n_tokens % GROUP } else { 0 };
    let (x, rest) = x.split_at((n_tokens - n_rest) * n_blocks);
    let mut room = Room { blocks: [Block::ZERO; DEPTH], sums: [NOTHING; MOST / TOKENS] };
    // They stay in half of the second cache.
    let n_together = (cache::quarters(2) / size_of::<QBlock>() / n_blocks).clamp(GROUP, MOST) / GROUP * GROUP;
    for (i, x) in x.chunks(n_together * n_blocks).enumerate() {
        for (p, panel) in panels::<Q>(w, n_blocks).enumerate() {
            let sink = Sink { out: &mut *out, panel: p, token: i * n_together, write };
            one_panel::<Q>(s, &mut room, panel, n_blocks, x, sink);
        }
    }
    if n_rest > 0 {
        without_pairs(w, rest, n_blocks, &mut out.rows_from(n_tokens - n_rest), write);
    }
}

/// Multiply one panel by the tokens `x`, in whole groups but for the last, which has at least four.
#[inline(always)]
fn one_panel<Q: Format>(
    s: Neon<Mixed>,
    room: &mut Room,
    panel: &[u8],
    n_blocks: usize,
    x: &[QBlock],
    mut sink: Sink<'_, '_>,
) {
    let n_tiles = (x.len() / n_blocks).div_ceil(TOKENS);
    room.sums[..n_tiles].fill(NOTHING);
    let depth = n_blocks.div_ceil(n_blocks.div_ceil(DEPTH));
    for start in (0..n_blocks).step_by(depth) {
        let blocks = &mut room.blocks[..depth.min(n_blocks - start)];
        let minima = unpack::<Q>(s, panel, start, blocks);
        for (i, sums) in room.sums[..n_tiles].iter_mut().enumerate() {
            let tile = Tile::<TOKENS>::new(x, n_blocks, i);
            let x = &tile.x[start * tile.stride..];
            if minima {
                s.add_blocks::<true>(blocks, x, tile.stride, sums);
            } else {
                s.add_blocks::<false>(blocks, x, tile.stride, sums);
            }
        }
    }
    for (i, sums) in room.sums[..n_tiles].iter().enumerate() {
        let tile = Tile::<TOKENS>::new(x, n_blocks, i);
        for token in tile.n_old..TOKENS {
            sink.put(s, tile.first + token, s.lanes(sums, token));
        }
    }
}

/// Unpack some blocks of a panel from `start` on; return true if they have minima.
#[inline(always)]
fn unpack<Q: Format>(s: Neon<Mixed>, panel: &[u8], start: usize, out: &mut [Block]) -> bool {
    let mut minima = false;
    for (i, out) in (start..).zip(out) {
        let Some((head, scales, quants)) = layout::block::<Q>(panel, i) else { break };
        if let Factors::Whole { scale, min } = Q::factors(s, Q::head(s, head), scales) {
            s.store_block(Q::vectors(s, quants), Q::BIAS.by(), scale, min, out);
            minima |= min.is_some();
        }
    }
    minima
}
