//! Quantised weights times many tokens, on the tiles of AMX.
//!
//! Two panels are unpacked, some blocks at a time, to what tiles load; then all tokens pass, 32 at
//! a time. Fewer than sixteen tokens, left over or alone, go to the product of AVX-512, as do rows
//! of few blocks and types with sub-block scales. The operations on every output and their order
//! are the same there and here.

use super::sink::{Sink, Write};
use super::sums::panels;
use super::tokens::Tile;
use crate::block::activations::{GROUP, QBlock};
use crate::format::layout;
use crate::format::{Factors, Format};
use crate::isa::amx::{Block, Product, Sums, TOKENS, Tiles};
use crate::isa::avx512::Avx512;
use crate::isa::{LANES, Simd, cache};
use crate::kernel_set::MultiplyBlocks;
use crate::pool::Band;

/// The most blocks of a panel that are unpacked at once: they stay in the nearest cache while the
/// tokens pass.
const DEPTH: usize = 24;

/// The most tokens that pass one pair of panels after the other.
const MOST: usize = 12 * GROUP;

/// The fewest blocks a panel for which tiles pay: to turn and write the sums of fewer takes as long
/// as to multiply them without.
const LEAST: usize = 16;

// So many blocks and tokens meet in tests of whole models (`rows_long_enough_for_tiles` in
// `models/tests/exact.rs`).
const _: () = assert!(LEAST <= 24 && TOKENS <= 61, "no whole model is tested on tiles any more");

/// The workspace on the stack: parts of two panels, and the sums of all tokens that meet them.
struct Room {
    blocks: [[Block; DEPTH]; 2],
    sums: [[Sums; 4]; MOST / (2 * TOKENS)],
}

/// Multiply all panels `w` by all rows `x` of `n_blocks` blocks; `without_tiles` is called for what
/// tiles do not take.
#[inline(always)]
pub(crate) fn multiply<Q: Format>(
    s: Avx512,
    without_tiles: MultiplyBlocks,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    if const { Q::SUB_BLOCKS } {
        return without_tiles(w, x, n_blocks, out, write);
    }
    let n_tokens = x.len() / n_blocks;
    if n_tokens < TOKENS || n_blocks < LEAST {
        return without_tiles(w, x, n_blocks, out, write);
    }
    let Some(mut tiles) = Tiles::configure() else {
        return without_tiles(w, x, n_blocks, out, write);
    };
    // The tokens of the last group may be too few for a tile.
    let n_rest = if n_tokens % GROUP < TOKENS { n_tokens % GROUP } else { 0 };
    let (x, rest) = x.split_at((n_tokens - n_rest) * n_blocks);
    let mut room =
        Room { blocks: [[Block::ZERO; DEPTH]; 2], sums: [[[[0.0; LANES]; TOKENS]; 4]; MOST / (2 * TOKENS)] };
    let n_together = together(n_tokens - n_rest, n_blocks);
    for (i, x) in x.chunks(n_together * n_blocks).enumerate() {
        let mut panels = panels::<Q>(w, n_blocks).enumerate();
        while let Some((panel, first)) = panels.next() {
            let second = panels.next().map(|(_, panel)| panel);
            let sink = Sink { out: &mut *out, panel, token: i * n_together, write };
            two_panels::<Q>(s, &mut tiles, &mut room, [Some(first), second], n_blocks, x, sink);
        }
    }
    if n_rest > 0 {
        without_tiles(w, rest, n_blocks, &mut out.rows_from(n_tokens - n_rest), write);
    }
}

/// Return the number of tokens that pass together: whole groups, about as many in each pass. They
/// stay in the second cache, with little else.
fn together(n_tokens: usize, n_blocks: usize) -> usize {
    let fit = (cache::quarters(3) / size_of::<QBlock>() / n_blocks).clamp(GROUP, MOST) / GROUP;
    let n_groups = n_tokens.div_ceil(GROUP);
    n_groups.div_ceil(n_groups.div_ceil(fit)) * GROUP
}

/// Multiply one or two panels by the tokens `x`, in whole groups but for the last, which has at
/// least sixteen.
#[inline(always)]
fn two_panels<Q: Format>(
    s: Avx512,
    tiles: &mut Tiles,
    room: &mut Room,
    panels: [Option<&[u8]>; 2],
    n_blocks: usize,
    x: &[QBlock],
    mut sink: Sink<'_, '_>,
) {
    let depth = n_blocks.div_ceil(n_blocks.div_ceil(DEPTH));
    for start in (0..n_blocks).step_by(depth) {
        let end = n_blocks.min(start + depth);
        let mut minima = false;
        for (panel, blocks) in panels.iter().zip(&mut room.blocks) {
            if let Some(panel) = panel {
                minima = unpack::<Q>(s, panel, start, &mut blocks[..end - start]);
            }
        }
        let w = room.blocks.each_ref().map(|blocks| &blocks[..end - start]);
        let n_tiles = (x.len() / n_blocks).div_ceil(TOKENS);
        for (i, sums) in (0..n_tiles).step_by(2).zip(&mut room.sums) {
            if start == 0 {
                *sums = [[[0.0; LANES]; TOKENS]; 4];
            }
            let tokens: [Tile<'_, TOKENS>; 2] =
                [Tile::new(x, n_blocks, i), Tile::new(x, n_blocks, (i + 1).min(n_tiles - 1))];
            let product = Product {
                w,
                x: [&tokens[0].x[start * tokens[0].stride..], &tokens[1].x[start * tokens[1].stride..]],
                strides: [tokens[0].stride, tokens[1].stride],
                minima,
            };
            tiles.multiply(product, sums);
            if end == n_blocks {
                let [a, b, c, d] = &*sums;
                put(s, &mut sink, &tokens[0], a, panels[1].map(|_| b));
                if i + 1 < n_tiles {
                    put(s, &mut sink, &tokens[1], c, panels[1].map(|_| d));
                }
            }
        }
    }
}

/// Write the sums of the tokens that are new, with one panel or two.
#[inline(always)]
fn put(s: Avx512, sink: &mut Sink<'_, '_>, tile: &Tile<'_, TOKENS>, left: &Sums, right: Option<&Sums>) {
    for i in tile.n_old..TOKENS {
        sink.put(s, tile.first + i, s.load(&left[i]));
        if let Some(right) = right {
            sink.panel += 1;
            sink.put(s, tile.first + i, s.load(&right[i]));
            sink.panel -= 1;
        }
    }
}

/// Unpack some blocks of a panel from `start` on, as tiles load them; return true if they have
/// minima.
#[inline(always)]
fn unpack<Q: Format>(s: Avx512, panel: &[u8], start: usize, out: &mut [Block]) -> bool {
    let mut minima = false;
    for (i, out) in (start..).zip(out) {
        let Some((head, scales, quants)) = layout::block::<Q>(panel, i) else { break };
        let vectors = Q::vectors(s, quants);
        for (vector, out) in vectors.into_iter().zip(&mut out.q) {
            s.store_less(vector, Q::BIAS.by(), out);
        }
        if let Factors::Whole { scale, min } = Q::factors(s, Q::head(s, head), scales) {
            s.store(scale, &mut out.scales);
            if let Some(min) = min {
                s.store(min, &mut out.mins);
                minima = true;
            }
        }
    }
    minima
}
