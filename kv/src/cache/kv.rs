//! KV cache: keys and values of attention layers, in blocks that sequences share until they differ.
//!
//! The submodules hold what the cache does: `operations` on sequences, `append` for plans, `window`
//! for cells behind a window, `admit` for questions before a plan, and `survey` for descriptions.

mod admit;
mod append;
mod operations;
mod survey;
mod window;

use super::layer::Layer;
use super::paged::PagedCells;
use super::table::BlockTable;
use super::view::{Attention, Cell, Store, Visible};
use crate::batch::Batch;
use crate::batch::split::{Split, SplitBatch};
use crate::error::Error;
use crate::external::Home;
use crate::ids::{Pos, SeqId};
use crate::kind::{Kind, Retention};
use crate::layer::{AttentionLayer, Window};
use crate::params::{Params, Sizes};
use crate::reserve;
use alloc::vec::Vec;
use core::ops::Range;

use append::Saved;
pub(super) use append::{Swap, copies};
use window::WindowCells;

/// Slots that the tokens of a plan see through one window. Layers of a cache may differ in their
/// windows.
pub(super) struct View {
    /// Window of the layers; `None` if they see the whole sequence.
    pub window: Option<Window>,
    /// Slots that each token of the split batch sees.
    visible: Vec<Visible>,
}

/// Keys and values of the layers that retain the same cells.
///
/// Positions of a sequence ascend with its cells. Cells that a plan reserves are in the block
/// tables at once; `undo` removes them, and after a commit they stay as long as the [`Retention`]
/// says. Layers whose retention is [`Retention::Batch`] use the same tables, which are empty
/// between plans.
pub(crate) struct KvCache {
    /// Block pool, block tables, and the storage of each layer.
    pub cells: PagedCells,
    /// Views of the layers, one for each window.
    pub(super) views: Vec<View>,
    /// Windowed retention: positions below which cells were released, and the cells of checkpoints.
    /// `None` unless the retention is [`Retention::Window`].
    pub(super) window: Option<WindowCells>,
    /// Retention of the cells.
    retention: Retention,
    /// True if a token sees only itself and the tokens before it; false if it sees its whole
    /// sequence.
    is_causal: bool,
    /// Ends of the tables of the plan's sequences, before the plan.
    saved: Vec<Saved>,
    /// Shared blocks that the plan exchanges for copies.
    swaps: Vec<Swap>,
    /// Last token of each sequence in the plan, by index in the batch.
    last: Vec<Option<u32>>,
    /// Cell of each token of the split batch.
    placed: Vec<Cell>,
    /// Blocks that the plan needs.
    need: u32,
    /// First sequence of the plan for which no block was free.
    lacking: Option<SeqId>,
}

impl KvCache {
    /// Make a cache that retains the cells of all tokens, at most `params.n_ctx` of a sequence.
    pub fn all(layers: &[AttentionLayer], params: &Params, home: Home) -> Result<KvCache, Error> {
        let n_ctx = params.n_ctx;
        KvCache::new(layers, params, (n_ctx, n_ctx), params.n_blocks(), home)
    }

    /// Make a cache that retains a window, a margin, and the cells that checkpoints need.
    pub fn windowed(
        layers: &[AttentionLayer],
        params: &Params,
        window: Window,
        sizes: &Sizes,
        home: Home,
    ) -> Result<KvCache, Error> {
        let n_blocks = params.n_blocks_windowed(window, sizes.n_checkpoints);
        // A sequence has at most these cells, however long it becomes.
        let table_cells = WindowCells::n_cells(window, params);
        let mut cache = KvCache::new(layers, params, (u32::MAX, table_cells), n_blocks, home)?;
        cache.retention = Retention::Window;
        cache.window = Some(WindowCells::new(window, params, sizes.n_checkpoints)?);
        Ok(cache)
    }

    /// Make a cache that retains the cells of one batch.
    pub fn batch(
        layers: &[AttentionLayer],
        params: &Params,
        is_causal: bool,
        home: Home,
    ) -> Result<KvCache, Error> {
        let (n_batch, n_blocks) = (params.n_batch, params.n_blocks_uncached());
        let mut cache = KvCache::new(layers, params, (n_batch, n_batch), n_blocks, home)?;
        cache.retention = Retention::Batch;
        cache.is_causal = is_causal;
        Ok(cache)
    }

    /// Make a cache of all cells, with `n_cells.0` cells a sequence at most and tables of
    /// `n_cells.1` cells.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    fn new(
        layers: &[AttentionLayer],
        params: &Params,
        n_cells: (u32, u32),
        n_blocks: u32,
        home: Home,
    ) -> Result<KvCache, Error> {
        let (n_batch, n_seq_max) = (params.n_batch as usize, params.n_seq_max as usize);
        let mut views: Vec<View> = Vec::new();
        let mut made = Vec::with_capacity(layers.len());
        for spec in layers {
            let view = views.iter().position(|view| view.window == spec.window).unwrap_or_else(|| {
                views.push(View { window: spec.window, visible: Vec::new() });
                views.len() - 1
            });
            made.push(Layer::new(spec, params, view, n_blocks, home)?);
        }
        for view in &mut views {
            reserve::for_len(&mut view.visible, n_batch)?;
        }
        let mut placed = Vec::new();
        reserve::for_len(&mut placed, n_batch)?;
        Ok(KvCache {
            cells: PagedCells::new(made, n_blocks, params.n_seq_max, n_cells, home)?,
            views,
            window: None,
            retention: Retention::All,
            is_causal: true,
            saved: Vec::with_capacity(n_seq_max),
            swaps: Vec::with_capacity(n_seq_max),
            last: reserve::filled(n_seq_max, None)?,
            placed,
            need: 0,
            lacking: None,
        })
    }

    /// Return the kind of the cache.
    pub fn kind(&self) -> Kind {
        Kind::Kv(self.retention)
    }

    /// Return true if cells outlive the batch that stored them.
    pub fn keeps(&self) -> bool {
        self.retention != Retention::Batch
    }

    /// Return true if no cell is released while its sequence has it, so that blocks can run out.
    pub fn keeps_all(&self) -> bool {
        self.retention == Retention::All
    }

    /// Return the way in which a batch must be split for this cache.
    pub fn split(&self) -> Split {
        if self.is_causal { Split::Simple } else { Split::Sequence }
    }

    /// Return the block table of `seq`.
    pub fn table(&self, seq: SeqId) -> &BlockTable {
        self.cells.table(seq)
    }

    /// Return the first position of `seq` that has a cell.
    pub fn pos_min(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).first_pos(&self.cells.pool)
    }

    /// Return the last position of `seq` that has a cell.
    pub fn pos_max(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).last_pos(&self.cells.pool)
    }

    /// Return true if `seq` has seen a token in `range`, retained or not.
    pub fn touches(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        !self.table(seq).slots(&self.cells.pool, range).is_empty() || self.may_have_gone(seq, range)
    }

    /// Reserve cells for a whole batch, or change nothing.
    ///
    /// # Errors
    /// - [`Error::Full`] if too few blocks are free, or a sequence would exceed its cells.
    /// - [`Error::Diverged`] if the sequences of a token hold different cells.
    /// - [`Error::TooMany`] if a cache without causality gets a sequence that exceeds a ubatch.
    pub fn reserve(&mut self, batch: &Batch, split_batch: &SplitBatch) -> Result<(), Error> {
        self.reserve_batch(batch, split_batch)?;
        if self.is_causal {
            return Ok(());
        }
        self.see_ahead(split_batch);
        self.check_whole_sequences(split_batch).inspect_err(|_| self.undo())
    }

    /// Make what was reserved part of the sequences; a cache of one batch releases it instead.
    pub fn commit(&mut self) {
        if self.keeps() { self.commit_plan() } else { self.undo() }
    }

    /// Return the swaps of the open plan.
    pub fn swaps(&self) -> &[Swap] {
        &self.swaps
    }

    /// Return the keys and values of `layer` as tokens `range` of the split batch see them.
    pub fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        let layer = self.cells.layers.get(layer)?;
        let visible = self.views[layer.view].visible.get(tokens)?;
        let (layout, storage) = (layer.layout, layer.storage());
        Some(Attention { layout, storage, tables: &self.cells.tables, visible, pool: &self.cells.pool })
    }

    /// Return the cells in which tokens `range` of the split batch store their keys and values.
    pub fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let layer = self.cells.layers.get_mut(layer)?;
        let cells = self.placed.get(tokens)?;
        Some(Store { layout: layer.layout, storage: layer.storage_mut(), cells })
    }

    /// Let every token of the plan see the tokens behind it, as far as its windows reach.
    fn see_ahead(&mut self, split_batch: &SplitBatch) {
        let PagedCells { tables, pool, .. } = &self.cells;
        for view in &mut self.views {
            for (visible, token) in view.visible.iter_mut().zip(split_batch.tokens()) {
                let table = &tables[visible.seq.index()];
                let last = view.window.and_then(|window| window.last(token.pos));
                visible.hi = match last {
                    Some(last) => table.slots(pool, &(Pos::ZERO..last.next())).end,
                    None => table.n_slots(),
                };
            }
        }
    }

    /// Check that the tokens of each sequence are in one ubatch, because they see each other.
    fn check_whole_sequences(&self, split_batch: &SplitBatch) -> Result<(), Error> {
        for segment in split_batch.segments() {
            let seq = split_batch.tokens()[segment.tokens.start].seq;
            let (value, limit) = (u64::from(self.table(seq).n_cells()), segment.tokens.len() as u64);
            if value != limit {
                return Err(Error::TooMany { what: "tokens of one sequence in a ubatch", value, limit });
            }
        }
        Ok(())
    }
}

/// A key and a value.
#[cfg(any(test, feature = "testing"))]
type Row = (Vec<f32>, Vec<f32>);

/// Access for tests that compare a memory with a simple model of it.
#[cfg(any(test, feature = "testing"))]
impl KvCache {
    /// Return position, key and value of every token of `seq`.
    pub fn rows(&self, layer: usize, seq: SeqId) -> Vec<(Pos, Row)> {
        let layer = &self.cells.layers[layer];
        let storage: &[u8] = layer.storage();
        if storage.is_empty() {
            return Vec::new();
        }
        let backstitch_core::cell::CellLayout { n_head_kv, d_k, d_v, .. } = layer.layout;
        let read = |block: u32, cell: u32| {
            let bytes = &storage[layer.layout.block_range(block as usize)];
            let (mut k, mut v) = (alloc::vec![0.0; n_head_kv * d_k], alloc::vec![0.0; n_head_kv * d_v]);
            layer.layout.load_k(bytes, cell as usize, &mut k);
            layer.layout.load_v(bytes, cell as usize, &mut v);
            (self.cells.pool.pos(block)[cell as usize], (k, v))
        };
        self.cell_places(seq).into_iter().map(|(_, Cell { block, cell })| read(block, cell)).collect()
    }

    /// Return position and cell of every token of `seq`.
    pub fn cell_places(&self, seq: SeqId) -> Vec<(Pos, Cell)> {
        let places = |(_, block, live)| crate::cache::table::bits(live).map(move |cell| Cell { block, cell });
        let places = self.table(seq).touched(0..u32::MAX).flat_map(places);
        places.map(|at| (self.cells.pool.pos(at.block)[at.cell as usize], at)).collect()
    }

    /// Check that tables, blocks and plan add up.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        self.cells.tables.iter().try_for_each(|table| table.audit(&self.cells.pool))?;
        let held = self.window.iter().flat_map(WindowCells::held);
        held.clone().try_for_each(|table| table.audit(&self.cells.pool))?;
        let used =
            self.cells.tables.iter().chain(held).flat_map(|table| table.touched(0..u32::MAX).map(|t| t.1));
        self.cells.pool.audit(used)?;
        let left =
            self.saved.len() + self.swaps.len() + self.placed.len() + self.last.iter().flatten().count();
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}
