//! All keys and values of all tokens, in blocks that sequences share until they differ.
//!
//! A sequence is a table of blocks; the bytes of a block are in every layer's storage at the same index. Here are the
//! operations; `reserve` appends to sequences for a plan, `storage` holds the bytes.

mod admit;
mod recycle;
mod reserve;
mod storage;
mod survey;

#[cfg(any(test, feature = "oracle"))]
pub(crate) use storage::turn_cells;

use super::cells::CellPart;
use super::{Kind, Op, Operation, Part, Restore};
use crate::batch::Batch;
use crate::block::BlockPool;
use crate::error::Error;
use crate::extent::{SPAN, Table, bits};
use crate::ids::{Pos, SeqId};
use crate::layer::{AttentionLayer, Params, Sizes, Window};
use crate::plan::{Attention, Store};
use crate::room;
use crate::split::{Schedule, Split};
use crate::storage::{CellCopy, Change, Home, KeyShift};
use crate::survey::{Held, Layers};
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

use recycle::Recycle;
use reserve::Saved;
pub(super) use reserve::{Swap, copies};
pub(super) use storage::Layer;
use storage::{by_distance, copy_bytes};

/// Where a token's key and value are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Block of the layer's storage.
    pub block: u32,
    /// Cell of the block, below 32.
    pub cell: u32,
}

/// What a token sees: slots `lo..hi` of a sequence, its own included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visible {
    /// The sequence whose table holds the slots.
    pub seq: SeqId,
    /// The first slot.
    pub lo: u32,
    /// The slot after the last.
    pub hi: u32,
}

/// What tokens see through one kind of window.
pub(super) struct View {
    pub window: Option<Window>,
    /// For each token of the schedule.
    visible: Vec<Visible>,
}

/// The part of a memory that caches keys and values.
pub(super) struct Unified {
    pub(super) pool: BlockPool,
    pub(super) tables: Vec<Table>,
    pub(super) layers: Vec<Layer>,
    pub(super) views: Vec<View>,
    /// If cells go when they are too old to be seen.
    pub(super) recycle: Option<Recycle>,
    /// The most cells of one sequence.
    pub(super) n_ctx: u32,
    /// Entries that each table has room for.
    pub(super) table_room: usize,
    saved: Vec<Saved>,
    swaps: Vec<Swap>,
    /// The last token of each sequence in the plan, by index in the batch.
    last: Vec<Option<u32>>,
    /// For each token of the schedule.
    cells: Vec<Cell>,
    /// Blocks that the plan needs.
    need: u32,
    /// The first sequence of the plan that there was no block for.
    lacking: Option<SeqId>,
    /// What operations changed, for storage elsewhere.
    listed: Option<Vec<Change>>,
}

impl Unified {
    /// A cache for `layers` with `n_blocks` blocks, of which a sequence can fill `n_ctx` cells.
    pub fn new(
        layers: &[AttentionLayer],
        params: &Params,
        n_ctx: u32,
        n_blocks: u32,
        home: Home,
    ) -> Result<Unified, Error> {
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
            room::for_len(&mut view.visible, n_batch)?;
        }
        let mut tables: Vec<Table> = (0..n_seq_max).map(|_| Table::default()).collect();
        let table_room = (n_ctx as usize).div_ceil(BLOCK_CELLS) + SPAN;
        tables.iter_mut().try_for_each(|table| table.make_room(table_room))?;
        let mut cells = Vec::new();
        room::for_len(&mut cells, n_batch)?;
        Ok(Unified {
            pool: BlockPool::new(n_blocks)?,
            tables,
            layers: made,
            views,
            recycle: None,
            n_ctx,
            table_room,
            saved: Vec::with_capacity(n_seq_max),
            swaps: Vec::with_capacity(n_seq_max),
            last: room::filled(n_seq_max, None)?,
            cells,
            need: 0,
            lacking: None,
            listed: home.listed.then(Vec::new),
        })
    }

    /// A cache for layers with one window, which keeps no more than the window, a margin, and what checkpoints need.
    pub fn windowed(
        layers: &[AttentionLayer],
        params: &Params,
        window: Window,
        sizes: &Sizes,
        home: Home,
    ) -> Result<Unified, Error> {
        let n_blocks = params.n_blocks_windowed(window, sizes.n_checkpoints);
        let mut part = Unified::new(layers, params, Recycle::n_cells(window, params), n_blocks, home)?;
        part.recycle = Some(Recycle::new(window, params, sizes.n_checkpoints)?);
        // However long a sequence becomes, its cells are these at most.
        part.n_ctx = u32::MAX;
        Ok(part)
    }

    pub fn table(&self, seq: SeqId) -> &Table {
        &self.tables[seq.index()]
    }

    /// Lets every token of the plan see all of its sequence.
    pub fn see_all(&mut self) {
        for view in &mut self.views {
            for visible in &mut view.visible {
                visible.hi = self.tables[visible.seq.index()].n_slots();
            }
        }
    }

    fn remove(&mut self, seq: SeqId, range: &Range<Pos>) {
        let table = &mut self.tables[seq.index()];
        let slots = table.slots(&self.pool, range);
        if !slots.is_empty() {
            table.kill(&mut self.pool, slots.clone());
            table.close_gaps(slots);
        }
    }

    fn empty(&mut self, seq: SeqId) {
        self.tables[seq.index()].clear(&mut self.pool);
        self.forget_if_empty(seq);
    }

    /// An empty sequence lacks nothing.
    fn forget_if_empty(&mut self, seq: SeqId) {
        if let Some(recycle) = self.recycle.as_mut().filter(|_| self.tables[seq.index()].is_empty()) {
            recycle.clear(seq);
        }
    }

    /// The slots that `op` moves below zero, and those it keeps.
    fn moving(&self, seq: SeqId, range: &Range<Pos>, op: &Op) -> (Range<u32>, Range<u32>) {
        let table = self.table(seq);
        let slots = table.slots(&self.pool, range);
        let kept_from = match *op {
            Op::Add { delta, .. } if delta < 0 => Pos(delta.saturating_neg()).max(range.start),
            _ => range.start,
        };
        let kept = table.lower_bound(&self.pool, kept_from).clamp(slots.start, slots.end);
        (slots.start..kept, kept..slots.end)
    }

    /// Checks that a move keeps positions in order and that shared blocks can be copied.
    fn admit_move(&mut self, seq: SeqId, range: &Range<Pos>, op: &Op) -> Result<(), Error> {
        let table = self.table(seq);
        let (_, kept) = self.moving(seq, range, op);
        let Some(first) = table.pos_from(&self.pool, kept.start).filter(|_| !kept.is_empty()) else {
            return Ok(());
        };
        let last = table.pos_before(&self.pool, kept.end).unwrap_or(first);
        let before = table.pos_before(&self.pool, table.slots(&self.pool, range).start);
        let after = table.pos_from(&self.pool, kept.end);
        let (low, high) = (op.moved(first), op.moved(last));
        if before.is_some_and(|before| low < i64::from(before.0)) {
            return Err(Error::Overtakes { seq, pos: first, moved: low });
        }
        if high >= after.map_or(i64::from(Pos::MAX.0), |after| i64::from(after.0) + 1) {
            return Err(Error::Overtakes { seq, pos: last, moved: high });
        }
        let n_blocks = table.touched(kept.clone()).count();
        let shared = table.touched(kept).filter(|&(_, block, _)| self.pool.refs(block) > 1).count() as u64;
        let free = u64::from(self.pool.n_free());
        if shared > free {
            let cells = BLOCK_CELLS as u64;
            return Err(Error::Full { what: "cells", need: shared * cells, free: free * cells, seq });
        }
        match &mut self.listed {
            // A copy of each block, and at most one distance a cell.
            Some(listed) => room::for_more(listed, n_blocks.saturating_mul(1 + BLOCK_CELLS)),
            None => Ok(()),
        }
    }

    fn apply_move(&mut self, seq: SeqId, range: &Range<Pos>, op: &Op) {
        let (dead, kept) = self.moving(seq, range, op);
        let mut moving: Vec<_> = self.table(seq).touched(kept).collect();
        for (index, block, _) in &mut moving {
            *block = self.own(seq, *index, *block);
        }
        for layer in &mut self.layers {
            layer.turn_keys(&self.pool, &moving, op);
        }
        self.list_shifts(&moving, op);
        for &(_, block, live) in &moving {
            let old = *self.pool.pos(block);
            bits(live)
                .for_each(|cell| self.pool.set_pos(block, cell, Pos(op.moved(old[cell as usize]) as i32)));
        }
        let table = &mut self.tables[seq.index()];
        table.kill(&mut self.pool, dead.clone());
        table.close_gaps(dead);
    }

    /// Lists the keys that a move turns.
    fn list_shifts(&mut self, moving: &[(usize, u32, u32)], op: &Op) {
        let Some(listed) = self.listed.as_mut().filter(|_| self.layers.iter().any(Layer::turns)) else {
            return;
        };
        for &(_, block, live) in moving {
            by_distance(self.pool.pos(block), live, op, |cells, delta| {
                listed.push(Change::ShiftKeys(KeyShift { cache: 0, block, cells, delta }));
            });
        }
    }

    /// The block of an entry after making sure that nobody else uses it.
    fn own(&mut self, seq: SeqId, index: usize, block: u32) -> u32 {
        if self.pool.refs(block) < 2 {
            return block;
        }
        let Some(own) = self.pool.take(1) else { return block };
        copy_bytes(&mut self.layers, block, own);
        if let Some(listed) = &mut self.listed {
            let cells = self.tables[seq.index()].extents().get(index).map_or(0, |extent| extent.live);
            listed.push(Change::CopyCells(CellCopy { cache: 0, from: block, to: own, cells }));
        }
        self.pool.copy_pos(block, own);
        self.pool.release(block);
        self.tables[seq.index()].set_block(index, own);
        own
    }
}

impl Part for Unified {
    fn kind(&self) -> Kind {
        if self.recycle.is_some() { Kind::Windowed } else { Kind::Unified }
    }

    fn split(&self) -> Split {
        Split::Simple
    }

    fn admit(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Copy { src, dst, range } => {
                if !self.table(*dst).is_empty() {
                    return Err(Error::Occupied { seq: *dst });
                }
                self.check_whole(Operation::Copy, *src, range.end)?;
                let n = self.table(*src).extents().len();
                self.tables[dst.index()].make_room(n)
            }
            Op::Add { seq, range, .. } | Op::Divide { seq, range, .. } => {
                self.check_whole_after(*seq, range, op)?;
                self.admit_move(*seq, range, op)
            }
            Op::Remove { seq, range } if self.table(*seq).last_pos(&self.pool) < Some(range.end) => {
                self.check_whole(Operation::Remove, *seq, range.start)
            }
            Op::Remove { .. } | Op::Keep { .. } | Op::Clear => Ok(()),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Remove { seq, range } => {
                self.remove(*seq, range);
                self.forget_if_empty(*seq);
            }
            Op::Copy { src, dst, range } => {
                let slots = self.table(*src).slots(&self.pool, range);
                if slots.is_empty() {
                    return;
                }
                let mut copy = core::mem::take(&mut self.tables[dst.index()]);
                copy.share(&mut self.pool, &self.tables[src.index()], slots);
                self.tables[dst.index()] = copy;
                if let Some(recycle) = &mut self.recycle {
                    recycle.copy(*src, *dst);
                }
            }
            Op::Keep { seq } => {
                for other in (0..self.tables.len() as u32).map(SeqId).filter(|other| other != seq) {
                    self.empty(other);
                }
            }
            Op::Clear => (0..self.tables.len() as u32).for_each(|seq| self.empty(SeqId(seq))),
            Op::Add { seq, range, .. } | Op::Divide { seq, range, .. } => {
                self.apply_move(*seq, range, op);
                if let Some(recycle) = &mut self.recycle {
                    recycle.move_by(*seq, range, op);
                }
                self.forget_if_empty(*seq);
            }
        }
    }

    fn pos_min(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).first_pos(&self.pool)
    }

    fn pos_max(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).last_pos(&self.pool)
    }

    fn reserve(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        self.reserve_batch(batch, schedule)
    }

    fn admits(&self, batch: &Batch) -> Result<(), Error> {
        if self.keeps_all() { self.check_cells(batch) } else { Ok(()) }
    }

    fn limit(&self) -> Option<u32> {
        self.keeps_all().then_some(self.n_ctx)
    }

    fn shares_cells(&self, seq: SeqId, pos: Pos) -> bool {
        self.keeps_all() && self.shares_blocks(seq, pos)
    }

    fn begin(&mut self, ubatch: u32) {
        self.begin_ubatch(ubatch);
    }

    fn commit(&mut self) {
        self.commit_plan();
    }

    fn settle(&mut self) {
        self.settle_plan();
    }

    fn can_cut(&self, seq: SeqId, pos: Pos) -> bool {
        self.is_whole(seq, pos)
    }

    fn cut_from(&self, seq: SeqId) -> Pos {
        self.whole_after(seq)
    }

    fn touches(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        !self.table(seq).slots(&self.pool, range).is_empty() || self.may_have_gone(seq, range)
    }

    fn hold(&mut self, id: u32, seq: SeqId, pos: Pos) {
        self.hold_window(id, seq, pos, false);
    }

    fn hold_all(&mut self, id: u32, seq: SeqId) {
        self.hold_window(id, seq, Pos::MAX, true);
    }

    fn let_go(&mut self, id: u32) {
        self.let_window_go(id);
    }

    fn rewind(&mut self, seq: SeqId, from: &Restore) {
        self.restore(seq, from);
        self.forget_if_empty(seq);
    }

    fn undo(&mut self) {
        self.undo_plan();
    }

    fn swaps(&self) -> &[Swap] {
        &self.swaps
    }

    fn n_blocks(&self) -> u32 {
        self.pool.len() as u32
    }

    fn listed(&mut self) -> Option<&mut Vec<Change>> {
        self.listed.as_mut()
    }

    fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        let layer = self.layers.get(layer)?;
        let visible = self.views[layer.view].visible.get(tokens)?;
        let storage = layer.storage();
        Some(Attention { layout: layer.layout, storage, tables: &self.tables, visible, pool: &self.pool })
    }

    fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let layer = self.layers.get_mut(layer)?;
        let cells = self.cells.get(tokens)?;
        let layout = layer.layout;
        let storage = layer.storage_mut();
        Some(Store { layout, storage, cells })
    }

    fn survey(&self, seq: SeqId, checkpoints: &[u32]) -> (Layers, Vec<Held>) {
        self.survey_blocks(seq, checkpoints)
    }

    fn as_cells(&self) -> Option<&dyn CellPart> {
        Some(self)
    }

    fn as_cells_mut(&mut self) -> Option<&mut dyn CellPart> {
        Some(self)
    }

    #[cfg(any(test, feature = "oracle"))]
    fn cells(&self, layer: usize, seq: SeqId) -> Vec<(Pos, crate::oracle::Rows)> {
        let layer = &self.layers[layer];
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
            (self.pool.pos(block)[cell as usize], (k, v))
        };
        self.cell_places(seq).into_iter().map(|(_, Cell { block, cell })| read(block, cell)).collect()
    }

    #[cfg(any(test, feature = "oracle"))]
    fn cell_places(&self, seq: SeqId) -> Vec<(Pos, Cell)> {
        let places = |(_, block, live)| bits(live).map(move |cell| Cell { block, cell });
        let places = self.table(seq).touched(0..u32::MAX).flat_map(places);
        places.map(|at| (self.pool.pos(at.block)[at.cell as usize], at)).collect()
    }

    #[cfg(any(test, feature = "oracle"))]
    fn n_free_blocks(&self) -> u32 {
        self.pool.n_free()
    }

    #[cfg(any(test, feature = "oracle"))]
    fn audit(&self) -> Result<(), alloc::string::String> {
        self.tables.iter().try_for_each(|table| table.audit(&self.pool))?;
        let held = self.recycle.iter().flat_map(Recycle::held);
        held.clone().try_for_each(|table| table.audit(&self.pool))?;
        let used = self.tables.iter().chain(held).flat_map(|table| table.touched(0..u32::MAX).map(|t| t.1));
        self.pool.audit(used)?;
        let left =
            self.saved.len() + self.swaps.len() + self.cells.len() + self.last.iter().flatten().count();
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}
