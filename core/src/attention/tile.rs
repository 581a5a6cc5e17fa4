//! One tile: query rows that share a key head and a sequence, over all spans or one.

use super::{Seen, Task};
use crate::cell::{BLOCK_CELLS, CellType, Extent, SPAN_CELLS};
use crate::kernels::attention::{
    Join, MAX_ROWS, Masks, Panels, Running, SPAN_BLOCKS, Scores, Shaping, tile_height,
};
use crate::kernels::quantised_cells::{Floats, PIECE};
use core::ops::Range;

/// Dimensions of the queries that are laid out for the kernels at once; longer heads are done in pieces.
const Q_DIMS: usize = 256;

/// The workspace of a job: 58 KiB of its stack, of which 26 are touched where cells are floats.
pub(super) struct Work {
    scores: [Scores; MAX_ROWS],
    masks: [Masks; MAX_ROWS],
    /// `[d, rows]`
    q: [f32; Q_DIMS * MAX_ROWS],
    /// Some dimensions of quantised keys or values, once there are any.
    floats: Option<Floats>,
}

impl Work {
    pub(super) fn new() -> Self {
        let (scores, masks) = ([[0.0; SPAN_CELLS]; MAX_ROWS], [[0; SPAN_BLOCKS]; MAX_ROWS]);
        Self { scores, masks, q: [0.0; Q_DIMS * MAX_ROWS], floats: None }
    }
}

/// Where the results of a group of heads go: row i of `[n_tokens, group]` lies in a matrix of wider rows.
pub(super) struct Rows<'a> {
    pub(super) data: &'a mut [f32],
    /// Floats of one head's row.
    pub(super) width: usize,
    /// Rows from one token to the next.
    pub(super) stride: usize,
    /// The row of the first token's first head.
    pub(super) first: usize,
    pub(super) group: usize,
}

impl Rows<'_> {
    /// The rows of a tile.
    fn tile(&mut self, rows: Range<usize>) -> [&mut [f32]; MAX_ROWS] {
        let (stride, first, group) = (self.stride, self.first, self.group);
        let mut places = rows.map(|i| i / group * stride + first + i % group);
        let mut chunks = self.data.chunks_exact_mut(self.width.max(1));
        let mut next = 0;
        core::array::from_fn(|_| {
            let Some(place) = places.next() else { return Default::default() };
            let row = chunks.nth(place - next);
            next = place + 1;
            row.unwrap_or_default()
        })
    }
}

/// What a job is to do with its tiles.
#[derive(Clone, Copy)]
pub(super) enum Extend {
    /// All spans; rows of `d_v` results.
    All,
    /// One span; rows of `d_v` weighted values, maximum, sum.
    One(usize),
}

/// Some rows of one key head and one sequence.
struct Tile<'s> {
    head: usize,
    extents: &'s [Extent],
    /// What each row sees.
    slots: [Range<usize>; MAX_ROWS],
    n_rows: usize,
    /// The rows that the kernels take: no fewer.
    height: usize,
}

impl Tile<'_> {
    /// Which cells of block `i` of the table row r sees.
    fn mask(&self, r: usize, i: usize) -> u32 {
        let live = self.extents.get(i).map_or(0, |extent| extent.live);
        let inside = |slot: usize| slot.saturating_sub(i * BLOCK_CELLS).min(BLOCK_CELLS);
        let (start, end) = (inside(self.slots[r].start), inside(self.slots[r].end));
        live & ((1u64 << end) - (1u64 << start)) as u32
    }

    /// The spans of which some row may see something.
    fn spans(&self) -> Range<usize> {
        let rows = self.slots[..self.n_rows].iter().filter(|slots| !slots.is_empty());
        let spans = rows.map(|slots| slots.start / SPAN_CELLS..slots.end.div_ceil(SPAN_CELLS));
        spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }
}

impl<'s> Task<'_, 's> {
    /// Does all tokens' rows of one key head, tile by tile.
    pub(super) fn tiles(
        &self,
        work: &mut Work,
        head: usize,
        tokens: Range<usize>,
        extend: Extend,
        rows: &mut Rows<'_>,
    ) {
        let group = self.attention.group();
        let n_rows = tokens.len() * group;
        let tallest = (self.set.attention_rows)();
        let seen = |row: usize| (self.seen)(tokens.start + row / group);
        let mut start = 0;
        while start < n_rows {
            let extents = seen(start).extents;
            let mut tile = Tile { head, extents, slots: [const { 0..0 }; MAX_ROWS], n_rows: 0, height: 0 };
            for row in start..n_rows.min(start + tallest) {
                let seen: Seen<'s> = seen(row);
                if !core::ptr::eq(seen.extents, extents) {
                    break;
                }
                tile.slots[tile.n_rows] = seen.slots();
                tile.n_rows += 1;
            }
            tile.height = tile_height(tile.n_rows);
            let end = start + tile.n_rows;
            let first_row = tokens.start * group + start;
            self.tile(work, &tile, first_row, extend, rows.tile(start..end));
            start = end;
        }
    }

    fn tile(
        &self,
        work: &mut Work,
        tile: &Tile<'_>,
        first_row: usize,
        extend: Extend,
        mut out: [&mut [f32]; MAX_ROWS],
    ) {
        let d_v = self.attention.layout.d_v;
        let out = &mut out[..tile.n_rows];
        let mut running = Running::START;
        let mut packed = None;
        let spans = match extend {
            Extend::All => tile.spans(),
            Extend::One(span) => span..span + 1,
        };
        let (mut values, mut stats): ([&mut [f32]; MAX_ROWS], [&mut [f32]; MAX_ROWS]) = Default::default();
        for (r, out) in out.iter_mut().enumerate() {
            (values[r], stats[r]) = core::mem::take(out).split_at_mut(d_v);
        }
        let values = &mut values[..tile.n_rows];
        for span in spans {
            self.span(work, tile, first_row, &mut packed, span, &mut running, values);
        }
        for (r, (values, stats)) in values.iter_mut().zip(&mut stats).enumerate() {
            match extend {
                Extend::All => {
                    let head = tile.head * self.attention.group() + (first_row + r) % self.attention.group();
                    let sink = self.attention.sinks.get(head).copied();
                    (self.set.finish_row)(values, running.max[r], running.sum[r], sink);
                }
                Extend::One(_) => stats.copy_from_slice(&[running.max[r], running.sum[r]]),
            }
        }
    }

    /// Joins one span to a tile's results. `packed` remembers which dimensions of the queries are laid out.
    #[expect(clippy::too_many_arguments, reason = "the state of a loop's body")]
    fn span(
        &self,
        work: &mut Work,
        tile: &Tile<'_>,
        first_row: usize,
        packed: &mut Option<Range<usize>>,
        span: usize,
        running: &mut Running,
        out: &mut [&mut [f32]],
    ) {
        let attention = self.attention;
        let layout = &attention.layout;
        let Work { scores, masks, q, floats } = work;
        let blocks = span * SPAN_BLOCKS..(span + 1) * SPAN_BLOCKS;
        let masks = &mut masks[..tile.height];
        for (r, masks) in masks.iter_mut().enumerate() {
            let row = r.min(tile.n_rows - 1);
            *masks = core::array::from_fn(|i| tile.mask(row, blocks.start + i));
        }
        let masks = &*masks;
        let panels = |part: &dyn Fn(usize) -> Range<usize>| -> Panels<'_> {
            core::array::from_fn(|i| {
                let seen = masks.iter().any(|masks| masks[i] != 0);
                let extent = tile.extents.get(blocks.start + i).filter(|_| seen);
                extent.and_then(|extent| self.cache.get(part(extent.block as usize))).unwrap_or(&[])
            })
        };
        let keys = panels(&|block| layout.k_range(block, tile.head));
        let values = panels(&|block| layout.v_range(block, tile.head));
        if keys.iter().all(|keys| keys.is_empty()) {
            return;
        }
        for start in (0..layout.d_k).step_by(Q_DIMS) {
            let dims = start..layout.d_k.min(start + Q_DIMS);
            if packed.as_ref() != Some(&dims) {
                self.pack(q, tile, first_row, &dims);
                *packed = Some(dims.clone());
            }
            let q = &q[..dims.len() * tile.height];
            self.scores(q, dims, &keys, &values, floats, &mut scores[..tile.height]);
        }
        let scores = &mut scores[..tile.height];
        let mut shaping = Shaping { scale: attention.scale, cap: attention.soft_cap };
        if let Some(relative) = &attention.relative {
            let group = attention.group();
            let row = |r: usize| {
                let row = first_row + r.min(tile.n_rows - 1);
                (tile.head * group + row % group, row / group)
            };
            let extents = tile.extents.get(blocks.start..blocks.end.min(tile.extents.len())).unwrap_or(&[]);
            relative.shape(scores, masks, shaping.scale, extents, row);
            // Times one changes no bit.
            shaping.scale = 1.0;
        }
        let joined = (self.set.softmax_span)(scores, masks, shaping, running);
        self.values(scores, masks, &values, &joined, floats, out);
    }

    /// Dot products of the queries' dimensions `dims` with a span's keys, joined to those of the dimensions before.
    fn scores(
        &self,
        q: &[f32],
        dims: Range<usize>,
        keys: &Panels<'_>,
        values: &Panels<'_>,
        floats: &mut Option<Floats>,
        scores: &mut [Scores],
    ) {
        let (set, layout) = (self.set, &self.attention.layout);
        let direct = match layout.k_type {
            CellType::F32 => set.scores_f32,
            CellType::F16 => set.scores_f16,
            CellType::BF16 => set.scores_bf16,
            CellType::Q8_0 | CellType::Q4_0 => {
                let decode = if layout.k_type == CellType::Q8_0 { set.keys_q8_0 } else { set.keys_q4_0 };
                let floats = floats.get_or_insert_with(none);
                for (i, q) in q.chunks(PIECE * scores.len()).enumerate() {
                    let piece = dims.start / PIECE + i;
                    decode(keys, layout.d_k, piece, floats);
                    let soon = if piece == 0 { values } else { &Panels::default() };
                    (set.scores_f32)(q, &decoded(keys, floats), soon, piece > 0, scores);
                }
                return;
            }
        };
        let bytes = BLOCK_CELLS * layout.k_type.unit_bytes();
        let piece = |keys: &[u8]| dims.start * bytes..dims.end.min(keys.len() / bytes) * bytes;
        let keys: Panels<'_> = keys.each_ref().map(|keys| keys.get(piece(keys)).unwrap_or(&[]));
        // What is fetched for later is fetched once.
        let soon = if dims.start == 0 { values } else { &Panels::default() };
        direct(q, &keys, soon, dims.start > 0, scores);
    }

    /// A span's weighted values, joined to those of the spans before.
    fn values(
        &self,
        scores: &[Scores],
        masks: &[Masks],
        values: &Panels<'_>,
        joined: &Join,
        floats: &mut Option<Floats>,
        out: &mut [&mut [f32]],
    ) {
        let (set, layout) = (self.set, &self.attention.layout);
        let direct = match layout.v_type {
            CellType::F32 => set.values_f32,
            CellType::F16 => set.values_f16,
            CellType::BF16 => set.values_bf16,
            CellType::Q8_0 | CellType::Q4_0 => {
                let decode = if layout.v_type == CellType::Q8_0 { set.values_q8_0 } else { set.values_q4_0 };
                let floats = floats.get_or_insert_with(none);
                for piece in 0..layout.d_v / PIECE {
                    decode(values, layout.d_v, piece, floats);
                    let mut pieces: [&mut [f32]; MAX_ROWS] = Default::default();
                    let n_rows = out.len();
                    for (part, row) in pieces.iter_mut().zip(&mut *out) {
                        *part = &mut row[piece * PIECE..][..PIECE];
                    }
                    let floats = decoded(values, floats);
                    (set.values_f32)(scores, masks, &floats, joined, &mut pieces[..n_rows]);
                }
                return;
            }
        };
        direct(scores, masks, values, joined, out);
    }

    /// Lays out some dimensions of a tile's queries as `[d, rows]`; rows that are missing repeat the last.
    fn pack(&self, q: &mut [f32], tile: &Tile<'_>, first_row: usize, dims: &Range<usize>) {
        let (n_head, d_k, group) = (self.attention.n_head, self.attention.layout.d_k, self.attention.group());
        for r in 0..tile.height {
            let row = first_row + r.min(tile.n_rows - 1);
            let row = row / group * n_head + tile.head * group + row % group;
            let row = &self.q[row * d_k..][dims.clone()];
            for (q, x) in q.iter_mut().skip(r).step_by(tile.height).zip(row) {
                *q = *x;
            }
        }
    }
}

fn none() -> Floats {
    [[0.0; _]; SPAN_BLOCKS]
}

/// The floats of those blocks that are there.
fn decoded<'a>(parts: &Panels<'_>, floats: &'a Floats) -> Panels<'a> {
    core::array::from_fn(|i| if parts[i].is_empty() { &[][..] } else { bytemuck::cast_slice(&floats[i]) })
}
