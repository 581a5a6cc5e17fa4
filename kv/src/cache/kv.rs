//! KV cache: keys and values of attention layers, in blocks that sequences share until they differ.
//!
//! The submodules hold what the cache does: `operations` on sequences, `append` for plans, `window`
//! for cells behind a window, `swap` for copies of shared blocks, `admit` for questions before a
//! plan, and `survey` for descriptions.

mod admit;
mod append;
mod operations;
mod survey;
mod swap;
mod window;

use super::paged::PagedCells;
use super::slots::Demand;
use super::table::{BlockTable, Gone, Mark};
use super::view::{Attention, Visible};
use crate::batch::Batch;
use crate::batch::split::{Split, SplitBatch};
use crate::error::Error;
use crate::external::Home;
use crate::ids::{Pos, SeqId};
use crate::layer::{AttentionLayer, Retained, Window};
use crate::params::{Params, Sizes};
use crate::reserve;
use alloc::vec::Vec;
use core::ops::Range;

pub(super) use swap::{Swap, copies};

/// Slots that the tokens of a plan see through one window. Layers of a cache may differ in their
/// windows.
struct View {
    /// Window of the layers; `None` if they see the whole sequence.
    window: Option<Window>,
    /// Slots that each token of the split batch sees.
    visible: Vec<Visible>,
}

/// Keys and values of the layers that retain the same cells.
///
/// Positions of a sequence ascend with its cells. Cells that a plan reserves are in the block
/// tables at once; `undo` removes them, and after a commit they stay as long as [`Retained`] says.
/// Layers that retain [`Retained::Batch`] use the same tables, which are empty between plans.
pub(crate) struct KvCache {
    /// Block pool, block tables, and the bytes of blocks.
    pub cells: PagedCells,
    /// Views of the layers, one for each window.
    views: Vec<View>,
    /// End of the table of each sequence in the plan, before the plan.
    marks: Vec<Option<Mark>>,
    /// Shared blocks that the plan exchanges for copies.
    pub(super) swaps: Vec<Swap>,
    /// Blocks that the plan needs.
    demand: Demand,
}

impl KvCache {
    /// Make a cache for layers that retain these cells.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(
        retained: Retained,
        layers: &[AttentionLayer],
        params: &Params,
        sizes: &Sizes,
        home: Home,
    ) -> Result<KvCache, Error> {
        let (n_batch, n_seq_max) = (params.n_batch as usize, params.n_seq_max as usize);
        let mut views: Vec<View> = Vec::new();
        for &AttentionLayer { window, .. } in layers {
            if views.iter().all(|view| view.window != window) {
                views.push(View { window, visible: reserve::with_room(n_batch)? });
            }
        }
        Ok(KvCache {
            cells: PagedCells::new(retained, layers, params, sizes, home)?,
            views,
            marks: reserve::filled(n_seq_max, None)?,
            swaps: Vec::with_capacity(n_seq_max),
            demand: Demand::default(),
        })
    }

    /// Return true if cells outlive the batch that stored them.
    pub fn keeps(&self) -> bool {
        self.cells.retained.keeps()
    }

    /// Return true if no cell is released while its sequence has it, so that blocks can run out.
    pub fn keeps_all(&self) -> bool {
        self.cells.retained == Retained::All
    }

    /// Return the way in which a batch must be split for this cache.
    pub fn split(&self) -> Split {
        if self.cells.retained.is_causal() { Split::Simple } else { Split::Sequence }
    }

    /// Return the block table of `seq`.
    pub fn table(&self, seq: SeqId) -> &BlockTable {
        self.cells.table(seq)
    }

    /// Return the first position of `seq` that has a cell.
    pub fn pos_min(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).pos_from(&self.cells.pool, 0)
    }

    /// Return the last position of `seq` that has a cell.
    pub fn pos_max(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).last_pos(&self.cells.pool)
    }

    /// Return true if `seq` has seen a token in `range`, retained or not.
    pub fn touches(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        let table = self.table(seq);
        let Gone { whole_from, start } = table.gone;
        let may_be_gone = range.start < whole_from && range.end > start && !range.is_empty();
        may_be_gone || !table.slots(&self.cells.pool, range).is_empty()
    }

    /// Reserve cells for a whole batch; the caller undoes it on error.
    ///
    /// # Errors
    /// - [`Error::Full`] if too few blocks are free, or a sequence would exceed its cells.
    /// - [`Error::Diverged`] if the sequences of a token hold different cells.
    /// - [`Error::TooMany`] if a cache without causality gets a sequence that exceeds a ubatch.
    pub fn reserve(&mut self, batch: &Batch, split_batch: &SplitBatch) -> Result<(), Error> {
        self.reserve_all(batch, split_batch)?;
        self.postpone_swaps();
        if self.cells.retained.is_causal() {
            return Ok(());
        }
        self.see_ahead(split_batch);
        self.check_whole_sequences(split_batch)
    }

    /// Return the keys and values of `layer` as tokens `range` of the split batch see them.
    pub fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        let window = self.cells.layers.get(layer)?.window;
        let view = self.views.iter().find(|view| view.window == window)?;
        self.cells.attention(layer, view.visible.get(tokens)?)
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
        let blocks = self.cells.bytes.of(layer);
        if blocks.is_empty() {
            return Vec::new();
        }
        let backstitch_core::cell::CellLayout { n_head_kv, d_k, d_v, .. } = layer.layout;
        let read = |block: u32, cell: u32| {
            let bytes = blocks.get(block).expect("tables name blocks of the cache");
            let (mut k, mut v) = (alloc::vec![0.0; n_head_kv * d_k], alloc::vec![0.0; n_head_kv * d_v]);
            layer.layout.load_k(bytes, cell as usize, &mut k);
            layer.layout.load_v(bytes, cell as usize, &mut v);
            (k, v)
        };
        self.cell_places(seq).into_iter().map(|(pos, at)| (pos, read(at.block, at.cell))).collect()
    }

    /// Return position and cell of every token of `seq`.
    pub fn cell_places(&self, seq: SeqId) -> Vec<(Pos, super::view::Cell)> {
        let places = |(_, block, live)| {
            crate::cache::table::bits(live).map(move |cell| super::view::Cell { block, cell })
        };
        let places = self.table(seq).touched(0..u32::MAX).flat_map(places);
        places.map(|at| (self.cells.pool.pos(at.block)[at.cell as usize], at)).collect()
    }

    /// Check that tables, blocks and plan add up.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        self.cells.audit()?;
        let left = self.swaps.len() + self.marks.iter().flatten().count();
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}
