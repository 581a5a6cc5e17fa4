//! A bundle: tiles of one key head and one sequence that go through the spans side by side.
//!
//! A span's keys and values are fetched once for all tiles of a bundle; those of quantised cells
//! are also made floats once.

use super::task::Task;
use super::tile::{Rows, Tile, live};
use crate::cell::{BLOCK_CELLS, BlockEntry, CellLayout, CellType};
use crate::isa::processor::Processor;
use crate::kernel_set::KernelSet;
use crate::kernels::attention::{
    Join, MAX_ROWS, Masks, Panels, Running, SPAN_BLOCKS, Scores, Shaping, place_row, tile_height,
};
use crate::kernels::quantised_cells::{Floats, PIECE};
use core::ops::Range;

/// Bytes of a block that a kernel reads, and prefetches, with a piece of 32 dimensions.
const PIECE_BYTES: usize = PIECE * BLOCK_CELLS * 4;

/// Panels of a span of which nothing is read.
const NO_PANELS: Panels<'static> = [&[]; SPAN_BLOCKS];

/// At the start of a cache line, so that no vector lies across two.
#[repr(align(64))]
struct Aligned<T>(T);

/// The workspace of a job, on its stack: for at most `TILES` tiles, and `Q` elements of their
/// queries.
pub(super) struct Work<const TILES: usize, const Q: usize> {
    scores: Aligned<[[Scores; MAX_ROWS]; TILES]>,
    masks: [[Masks; MAX_ROWS]; TILES],
    /// The queries of each tile, `[d, rows]`.
    q: [f32; Q],
    /// Some dimensions of keys or values, if they are quantised.
    floats: Option<Aligned<Floats>>,
}

/// The workspace for few rows: 25 KiB, and 32 more for quantised cells. Heads of more than 256
/// dimensions are done in pieces.
pub(super) type Narrow = Work<1, { 256 * MAX_ROWS }>;

/// The workspace for many rows: 123 KiB, and 32 more for quantised cells. Heads of more than 64
/// dimensions have fewer tiles.
pub(super) type Wide = Work<8, { 8 * 64 * MAX_ROWS }>;

impl<const TILES: usize, const Q: usize> Work<TILES, Q> {
    pub(super) fn new() -> Self {
        let scores = Aligned([[[0.0; _]; MAX_ROWS]; TILES]);
        Self { scores, masks: [[[0; _]; MAX_ROWS]; TILES], q: [0.0; Q], floats: None }
    }
}

/// The spans that a job does, and the form of its results.
#[derive(Clone, Copy)]
pub(super) enum Extend {
    /// All spans, before those of the next head; rows of `d_v` results.
    All,
    /// One span, before `then`; rows of `d_v` weighted values, maximum, sum.
    One { span: usize, then: Option<Place> },
}

/// A span of a head.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) head: usize,
    pub(super) span: usize,
}

/// The rows that a job does.
pub(super) struct Part {
    pub(super) head: usize,
    pub(super) tokens: Range<usize>,
    pub(super) extend: Extend,
}

/// Some tiles, and how far they are.
struct Bundle<'s, const TILES: usize> {
    head: usize,
    /// The row of `[n_tokens, group]` from which tiles count theirs.
    base: usize,
    table: &'s [BlockEntry],
    tiles: [Tile; TILES],
    n_tiles: usize,
    /// Dimensions of the queries that are laid out at once, and those that are laid out now.
    q_dims: usize,
    laid_out: Range<usize>,
}

impl<const TILES: usize> Bundle<'_, TILES> {
    fn tiles(&self) -> &[Tile] {
        &self.tiles[..self.n_tiles]
    }

    fn end(&self) -> usize {
        debug_assert!(self.n_tiles > 0, "a bundle takes at least one row");
        self.tiles().last().map_or(usize::MAX, |tile| tile.rows().end)
    }

    /// Return the spans of which some row may see something.
    fn spans(&self) -> Range<usize> {
        let spans = self.tiles().iter().map(Tile::spans).filter(|spans| !spans.is_empty());
        spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }
}

/// The results of a tile so far.
struct Sums<'o> {
    running: Running,
    /// The join of the present span.
    join: Join,
    values: [&'o mut [f32]; MAX_ROWS],
}

/// The bytes of a span.
struct Span<'c, const TILES: usize> {
    /// The keys and values that some tile sees.
    keys: Panels<'c>,
    values: Panels<'c>,
    /// The blocks that each tile sees.
    seen: [[bool; SPAN_BLOCKS]; TILES],
}

impl<const TILES: usize> Span<'_, TILES> {
    /// Return those of some tiles that see something.
    fn seeing(&self, tiles: Range<usize>) -> impl Iterator<Item = usize> {
        tiles.filter(|&t| self.seen[t].contains(&true))
    }

    /// Return those of some panels that tile t sees.
    fn of<'p>(&self, t: usize, panels: &Panels<'p>) -> Panels<'p> {
        core::array::from_fn(|i| if self.seen[t][i] { panels[i] } else { &[] })
    }

    /// Return the floats of the blocks that tile t sees.
    fn floats<'p>(&self, t: usize, floats: &'p Floats) -> Panels<'p> {
        core::array::from_fn(|i| if self.seen[t][i] { bytemuck::cast_slice(&floats[i]) } else { &[][..] })
    }
}

/// Return the bytes that a kernel may prefetch while it reads a piece of floats, if it is the first
/// tile to do so. Empty panels ask for nothing.
fn soon<'p>(is_first: bool, panels: &Panels<'p>, piece: usize) -> Panels<'p> {
    let part = |panel: &'p [u8]| panel.get(piece * PIECE_BYTES..).filter(|_| is_first);
    panels.map(|panel| part(panel).unwrap_or(&[]))
}

/// A kernel that makes floats of a piece of a span's keys or values.
type Open = fn(&Panels<'_>, usize, usize, &mut Floats);

/// Return the kernel that makes floats of quantised keys; none for other keys.
fn open_keys(set: &KernelSet, layout: &CellLayout) -> Option<Open> {
    match layout.k_type {
        CellType::F32 | CellType::F16 | CellType::BF16 => None,
        CellType::Q8_0 => Some(set.keys_q8_0),
        CellType::Q4_0 => Some(set.keys_q4_0),
    }
}

/// Return the kernel that makes floats of quantised values; none for other values.
fn open_values(set: &KernelSet, layout: &CellLayout) -> Option<Open> {
    match layout.v_type {
        CellType::F32 | CellType::F16 | CellType::BF16 => None,
        CellType::Q8_0 => Some(set.values_q8_0),
        CellType::Q4_0 => Some(set.values_q4_0),
    }
}

impl<'t, 's> Task<'t, 's> {
    /// Do all rows of a part, bundle by bundle.
    pub(super) fn part<const TILES: usize, const Q: usize>(
        &self,
        work: &mut Work<TILES, Q>,
        part: &Part,
        rows: &mut Rows<'_>,
    ) {
        let n_rows = part.tokens.len() * self.attention.group();
        let mut start = 0;
        while start < n_rows {
            let mut bundle = self.bundle(part, start..n_rows, Q / MAX_ROWS);
            start = bundle.end();
            let rows = rows.tiles(|t| bundle.tiles[t].rows());
            self.bundle_spans(work, &mut bundle, part, rows);
        }
    }

    /// Return a bundle of the first rows of `rows` that share a sequence, as many as there is room
    /// for.
    ///
    /// `q_room` are the dimensions of the queries of one tile that can be laid out.
    fn bundle<const TILES: usize>(
        &self,
        part: &Part,
        rows: Range<usize>,
        q_room: usize,
    ) -> Bundle<'s, TILES> {
        let (group, d_k) = (self.attention.group(), self.attention.layout.d_k);
        let tallest = (self.set.attention_rows)();
        let most = (q_room / d_k.max(1)).clamp(1, TILES);
        let seen = |row: usize| (self.seen)(part.tokens.start + row / group);
        let table = seen(rows.start).table;
        let rows = rows.start..rows.end.min(rows.start + most * tallest);
        let n_rows = rows.clone().take_while(|&row| core::ptr::eq(seen(row).table, table)).count();
        let tiles = core::array::from_fn(|t| {
            let n_rows = n_rows.saturating_sub(t * tallest).min(tallest);
            let first_row = rows.start + t * tallest;
            let mut slots = [const { 0..0 }; MAX_ROWS];
            for (row, slots) in slots.iter_mut().take(n_rows).enumerate() {
                *slots = seen(first_row + row).slots();
            }
            Tile { first_row, n_rows, height: if n_rows == 0 { 0 } else { tile_height(n_rows) }, slots }
        });
        let (n_tiles, q_dims) = (n_rows.div_ceil(tallest), d_k.min(q_room / most).max(1));
        let base = part.tokens.start * group;
        Bundle { head: part.head, base, table, tiles, n_tiles, q_dims, laid_out: 0..0 }
    }

    /// Take a bundle through its spans.
    fn bundle_spans<const TILES: usize, const Q: usize>(
        &self,
        work: &mut Work<TILES, Q>,
        bundle: &mut Bundle<'_, TILES>,
        part: &Part,
        rows: [[&mut [f32]; MAX_ROWS]; TILES],
    ) {
        let group = self.attention.group();
        let mut stats: [[&mut [f32]; MAX_ROWS]; TILES] = core::array::from_fn(|_| Default::default());
        let mut sums: [Sums<'_>; TILES] = core::array::from_fn(|_| Sums {
            running: Running::START,
            join: Join::NONE,
            values: Default::default(),
        });
        for (rows, (sums, stats)) in rows.into_iter().zip(sums.iter_mut().zip(&mut stats)) {
            let rows = rows.into_iter().filter(|row| !row.is_empty());
            for (row, (values, stats)) in rows.zip(sums.values.iter_mut().zip(stats)) {
                (*values, *stats) = row.split_at_mut(self.attention.layout.d_v);
            }
        }
        let (spans, then) = match part.extend {
            Extend::All => {
                let spans = bundle.spans();
                (spans.clone(), Some(Place { head: bundle.head + 1, span: spans.start }))
            }
            Extend::One { span, then } => (span..span + 1, then),
        };
        for span in spans.clone() {
            let next = span + 1;
            let then = if next < spans.end { Some(Place { head: bundle.head, span: next }) } else { then };
            let soon = self.next_keys(bundle.table, then);
            self.span(work, bundle, span, &soon, &mut sums);
        }
        for (tile, (sums, stats)) in bundle.tiles().iter().zip(sums.iter_mut().zip(&mut stats)) {
            let Running { max, sum } = sums.running;
            for (r, (values, stats)) in sums.values.iter_mut().zip(stats).take(tile.n_rows).enumerate() {
                match part.extend {
                    Extend::All => {
                        let head = bundle.head * group + (tile.first_row + r) % group;
                        let sink = self.attention.sinks.get(head).copied();
                        (self.set.finish_row)(values, max[r], sum[r], sink);
                    }
                    Extend::One { .. } => stats.copy_from_slice(&[max[r], sum[r]]),
                }
            }
        }
    }

    /// Join one span to a bundle's results.
    fn span<const TILES: usize, const Q: usize>(
        &self,
        work: &mut Work<TILES, Q>,
        bundle: &mut Bundle<'_, TILES>,
        span: usize,
        soon: &Panels<'_>,
        sums: &mut [Sums<'_>; TILES],
    ) {
        let live = live(bundle.table, span);
        for (tile, masks) in bundle.tiles().iter().zip(&mut work.masks) {
            tile.masks(span, &live, &mut masks[..tile.height]);
        }
        let view = self.view(bundle, &work.masks, span);
        // Quantised cells become floats once for all tiles; otherwise each tile is done while its
        // scores are in the nearest cache.
        let layout = &self.attention.layout;
        let together = layout.k_type.unit() > 1 || layout.v_type.unit() > 1;
        let n_tiles = bundle.n_tiles;
        for first in (0..n_tiles).step_by(if together { TILES } else { 1 }) {
            let tiles = first..if together { n_tiles } else { first + 1 };
            self.scores(work, bundle, &view, tiles.clone());
            for t in view.seeing(tiles.clone()) {
                let (scores, masks) = (&mut work.scores.0[t], &work.masks[t]);
                self.softmax(scores, masks, bundle, &bundle.tiles[t], span, &mut sums[t]);
            }
            self.values(work, bundle, &view, soon, tiles, sums);
        }
    }

    /// Return the keys that are read next, where fetching them beside the values gains: the memory
    /// would have nothing to do meanwhile.
    ///
    /// Measured on Sapphire Rapids and Zen 4. Of other cells, F32 loses a little, and quantised
    /// ones are bound by their conversion.
    fn next_keys(&self, table: &[BlockEntry], then: Option<Place>) -> Panels<'t> {
        let layout = &self.attention.layout;
        let gains = matches!(layout.k_type, CellType::F16 | CellType::BF16)
            && matches!(Processor::here(), Processor::Intel | Processor::Zen4);
        let then = then.filter(|then| gains && then.head < layout.n_head_kv);
        then.map_or(NO_PANELS, |Place { head, span }| {
            self.panels(table, span, |_, entry| entry.live != 0, layout.k_range(head))
        })
    }

    /// Return the `part` of each block of a span that is `wanted`, by its number in the span. Only
    /// blocks with live cells may be.
    fn panels(
        &self,
        table: &[BlockEntry],
        span: usize,
        wanted: impl Fn(usize, &BlockEntry) -> bool,
        part: Range<usize>,
    ) -> Panels<'t> {
        core::array::from_fn(|i| match table.get(span * SPAN_BLOCKS + i) {
            // `Attention::run` has checked that the blocks of all live cells are there.
            Some(entry) if wanted(i, entry) => &self.blocks.block(entry.block)[part.clone()],
            _ => &[][..],
        })
    }

    /// Return the bytes of a span that the tiles see.
    fn view<const TILES: usize>(
        &self,
        bundle: &Bundle<'_, TILES>,
        masks: &[[Masks; MAX_ROWS]; TILES],
        span: usize,
    ) -> Span<'t, TILES> {
        let layout = &self.attention.layout;
        let mut seen = [[false; SPAN_BLOCKS]; TILES];
        for (tile, (masks, seen)) in bundle.tiles().iter().zip(masks.iter().zip(&mut seen)) {
            let all = masks[..tile.height].iter().flatten().fold(u32::MAX, |all, mask| all & mask);
            *seen = core::array::from_fn(|i| {
                all == u32::MAX || masks[..tile.height].iter().any(|masks| masks[i] != 0)
            });
        }
        let seen_by_any = |i: usize, _: &BlockEntry| seen.iter().any(|seen| seen[i]);
        let keys = self.panels(bundle.table, span, seen_by_any, layout.k_range(bundle.head));
        let values = self.panels(bundle.table, span, seen_by_any, layout.v_range(bundle.head));
        Span { keys, values, seen }
    }

    /// Compute the dot products of some tiles' queries with a span's keys.
    fn scores<const TILES: usize, const Q: usize>(
        &self,
        work: &mut Work<TILES, Q>,
        bundle: &mut Bundle<'_, TILES>,
        view: &Span<'_, TILES>,
        tiles: Range<usize>,
    ) {
        let (set, layout) = (self.set, &self.attention.layout);
        let Work { scores, q, floats, .. } = work;
        let nearest = view.seeing(0..TILES).next();
        let open = open_keys(set, layout);
        for start in (0..layout.d_k).step_by(bundle.q_dims) {
            let dims = start..layout.d_k.min(start + bundle.q_dims);
            if bundle.laid_out != dims {
                self.lay_out(q, bundle, &dims);
                bundle.laid_out = dims.clone();
            }
            let n_pieces = open.map_or(1, |_| dims.len().div_ceil(PIECE));
            for piece in 0..n_pieces {
                let first = start / PIECE + piece;
                if let Some(open) = open {
                    open(&view.keys, layout.d_k, first, &mut floats.get_or_insert_with(none).0);
                }
                for t in view.seeing(tiles.clone()) {
                    let height = bundle.tiles[t].height;
                    let q = &q[t * bundle.q_dims * MAX_ROWS..][..dims.len() * height];
                    let (soon, scores) =
                        (soon(nearest == Some(t), &view.values, first), &mut scores.0[t][..height]);
                    match (open, &*floats) {
                        (Some(_), Some(floats)) => {
                            let q = &q[piece * PIECE * height..];
                            let q = &q[..q.len().min(PIECE * height)];
                            (set.scores_f32)(q, &view.floats(t, &floats.0), &soon, first > 0, scores);
                        }
                        _ => self.scores_as_stored(q, &dims, &view.of(t, &view.keys), &soon, scores),
                    }
                }
            }
        }
    }

    /// Compute the dot products of one tile's queries with keys that are floats.
    fn scores_as_stored(
        &self,
        q: &[f32],
        dims: &Range<usize>,
        keys: &Panels<'_>,
        soon: &Panels<'_>,
        scores: &mut [Scores],
    ) {
        let (set, k_type) = (self.set, self.attention.layout.k_type);
        let kernel = match k_type {
            CellType::BF16 => set.scores_bf16,
            CellType::F16 => set.scores_f16,
            CellType::F32 | CellType::Q8_0 | CellType::Q4_0 => set.scores_f32,
        };
        let bytes = BLOCK_CELLS * k_type.unit_bytes();
        // Blocks that no row sees are empty.
        let cut = |keys: &'_ [u8]| (dims.start * bytes).min(keys.len())..(dims.end * bytes).min(keys.len());
        let keys: Panels<'_> = keys.map(|keys| &keys[cut(keys)]);
        kernel(q, &keys, soon, dims.start > 0, scores);
    }

    /// Turn one tile's scores into exponentials.
    fn softmax<const TILES: usize>(
        &self,
        scores: &mut [Scores; MAX_ROWS],
        masks: &[Masks; MAX_ROWS],
        bundle: &Bundle<'_, TILES>,
        tile: &Tile,
        span: usize,
        sums: &mut Sums<'_>,
    ) {
        let (scores, masks) = (&mut scores[..tile.height], &masks[..tile.height]);
        let attention = self.attention;
        let mut shaping = Shaping { scale: attention.scale, cap: attention.soft_cap };
        if let Some(bias) = &attention.position_bias {
            let group = attention.group();
            let row = |r: usize| {
                let row = bundle.base + tile.row(r);
                (bundle.head * group + row % group, row / group)
            };
            let blocks = span * SPAN_BLOCKS..((span + 1) * SPAN_BLOCKS).min(bundle.table.len());
            // The tile sees a cell of this span, so the table reaches into it.
            let entries = &bundle.table[blocks];
            bias.apply(scores, masks, shaping.scale, entries, attention.n_head, row);
            // A multiplication by one changes no bit.
            shaping.scale = 1.0;
        }
        sums.join = (self.set.softmax_span)(scores, masks, shaping, &mut sums.running);
    }

    /// Compute a span's weighted values, joined to those of the spans before.
    fn values<const TILES: usize, const Q: usize>(
        &self,
        work: &mut Work<TILES, Q>,
        bundle: &Bundle<'_, TILES>,
        view: &Span<'_, TILES>,
        soon: &Panels<'_>,
        tiles: Range<usize>,
        sums: &mut [Sums<'_>; TILES],
    ) {
        let nearest = view.seeing(0..TILES).next();
        let (set, layout) = (self.set, &self.attention.layout);
        let Work { scores, masks, floats, .. } = work;
        let open = open_values(set, layout);
        for piece in 0..open.map_or(1, |_| layout.d_v / PIECE) {
            if let Some(open) = open {
                open(&view.values, layout.d_v, piece, &mut floats.get_or_insert_with(none).0);
            }
            for t in view.seeing(tiles.clone()) {
                let Tile { height, n_rows, .. } = bundle.tiles[t];
                let (scores, masks) = (&scores.0[t][..height], &masks[t][..height]);
                let Sums { values: rows, join, .. } = &mut sums[t];
                let rows = &mut rows[..n_rows];
                match (open, &*floats) {
                    (Some(_), Some(floats)) => {
                        let mut pieces: [&mut [f32]; MAX_ROWS] = Default::default();
                        for (part, row) in pieces.iter_mut().zip(rows) {
                            *part = &mut row[piece * PIECE..][..PIECE];
                        }
                        let (values, rows) = (view.floats(t, &floats.0), &mut pieces[..n_rows]);
                        (set.values_f32)(scores, masks, &values, &NO_PANELS, join, rows);
                    }
                    _ => {
                        let kernel = match layout.v_type {
                            CellType::BF16 => set.values_bf16,
                            CellType::F16 => set.values_f16,
                            CellType::F32 | CellType::Q8_0 | CellType::Q4_0 => set.values_f32,
                        };
                        let soon = if nearest == Some(t) { soon } else { &NO_PANELS };
                        kernel(scores, masks, &view.of(t, &view.values), soon, join, rows);
                    }
                }
            }
        }
    }

    /// Lay out some dimensions of all tiles' queries as `[d, rows]` each; rows that are missing
    /// repeat the last.
    fn lay_out<const TILES: usize>(&self, q: &mut [f32], bundle: &Bundle<'_, TILES>, dims: &Range<usize>) {
        let (n_head, d_k, group) = (self.attention.n_head, self.attention.layout.d_k, self.attention.group());
        for (tile, q) in bundle.tiles().iter().zip(q.chunks_mut(bundle.q_dims * MAX_ROWS)) {
            for r in 0..tile.height {
                let row = bundle.base + tile.row(r);
                let row = row / group * n_head + bundle.head * group + row % group;
                let row = &self.q[row * d_k..][dims.clone()];
                place_row(row, r, tile.height, q);
            }
        }
    }
}

fn none() -> Aligned<Floats> {
    Aligned([[0.0; _]; SPAN_BLOCKS])
}
