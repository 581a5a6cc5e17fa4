//! All keys and values of all tokens, in blocks that sequences share until they differ.
//!
//! Appending goes to the block at a sequence's end. If others use that block too, the sequence moves to a copy first.
//! All of this is reserved for a whole batch before anything is computed, and logged, so that it can be undone: the
//! log holds where each table ended (`saved`) and which blocks were exchanged for copies (`swaps`). Reference counts
//! change while reserving; the tables themselves take a swap over when its ubatch begins, because until then the
//! original is where the tokens before it are being stored.

use super::{Kind, Op, Part};
use crate::batch::Batch;
use crate::block::{BlockPool, NO_BLOCK};
use crate::error::Error;
use crate::extent::{Mark, SPAN, Table, bits};
use crate::ids::{Pos, SeqId};
use crate::layer::{AttentionLayer, Params, Rotation};
use crate::plan::{Attention, Store};
use crate::room;
use crate::split::{Schedule, Split};
use alloc::vec::Vec;
use backstitch_core::KernelSet;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};
use bytemuck::{Pod, Zeroable};
use core::ops::Range;

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
pub struct Visible {
    /// The sequence whose table holds the slots.
    pub seq: SeqId,
    /// The first slot.
    pub lo: u32,
    /// The slot after the last.
    pub hi: u32,
}

/// Unit of storage: keeps blocks aligned for vector loads.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

struct Layer {
    layout: CellLayout,
    storage: Vec<Line>,
    rope: Option<Rotation>,
    /// Which of the part's windows it has.
    window: usize,
}

impl Layer {
    fn new(spec: &AttentionLayer, params: &Params, window: usize, n_blocks: u32) -> Result<Layer, Error> {
        let layout = spec.layout(params.k_type, params.v_type);
        let bytes = u64::from(n_blocks) * layout.block_bytes() as u64;
        let out_of_memory = Error::OutOfMemory { bytes };
        let lines = usize::try_from(bytes / size_of::<Line>() as u64).map_err(|_| out_of_memory)?;
        // Zeros that the system maps when they are first written.
        let storage = bytemuck::allocation::try_zeroed_vec(lines).map_err(|()| out_of_memory)?;
        Ok(Layer { layout, storage, rope: spec.rope.clone(), window })
    }

    fn storage_mut(&mut self) -> &mut [u8] {
        bytemuck::must_cast_slice_mut(&mut self.storage)
    }

    /// Turns the keys of cells that move: entries of a table, with blocks that nobody else uses.
    fn turn_keys(&mut self, pool: &BlockPool, moving: &[(usize, u32, u32)], op: &Op) {
        let layout = self.layout;
        let Some(rotation) = self.rope.take() else { return };
        let mut scratch = alloc::vec![0.0; rotation.rope.row_len() + layout.n_head_kv * layout.d_k];
        for &(_, block, live) in moving {
            let bytes = &mut self.storage_mut()[layout.block_range(block as usize)];
            by_distance(pool.pos(block), live, op, |cells, delta| {
                turn_cells(&rotation, &layout, bytes, cells, delta, &mut scratch);
            });
        }
        self.rope = Some(rotation);
    }
}

/// Calls `f` for the cells of each distance that `op` moves some of `live` by.
fn by_distance(pos: &[Pos; BLOCK_CELLS], live: u32, op: &Op, mut f: impl FnMut(u32, i32)) {
    // Positions are never negative, so that their differences fit.
    let distance = |cell: u32| (op.moved(pos[cell as usize]) - i64::from(pos[cell as usize].0)) as i32;
    let mut left = live;
    while left != 0 {
        let delta = distance(left.trailing_zeros());
        let same =
            bits(left).filter(|&cell| distance(cell) == delta).fold(0, |cells, cell| cells | 1 << cell);
        f(same, delta);
        left &= !same;
    }
}

/// Turns the keys of some cells of a block. All kernel sets give the same bits, so the one that is always there does.
pub(crate) fn turn_cells(
    rotation: &Rotation,
    layout: &CellLayout,
    block: &mut [u8],
    cells: u32,
    delta: i32,
    scratch: &mut [f32],
) {
    let Rotation { rope, frequencies } = rotation;
    let done = rope.shift_keys(KernelSet::scalar(), frequencies, layout, block, cells, delta, scratch);
    debug_assert!(done.is_ok(), "shapes were checked when the memory was made: {done:?}");
}

/// Tokens that see the same far back.
struct Window {
    size: Option<u32>,
    /// For each token of the schedule.
    visible: Vec<Visible>,
}

/// A sequence that a plan appends to.
struct Saved {
    seq: SeqId,
    mark: Mark,
}

/// A shared block that a plan exchanged for a copy.
struct Swap {
    ubatch: u32,
    seq: SeqId,
    index: usize,
    from: u32,
    to: u32,
    /// The cells of `from` that undoing gives back to the sequence.
    live: u32,
    /// Nobody else uses `from`: it goes back to the pool on commit, and no earlier.
    held: bool,
    /// Whether the table has the copy.
    done: bool,
}

/// The part of a memory that caches keys and values.
pub(super) struct Unified {
    pool: BlockPool,
    tables: Vec<Table>,
    layers: Vec<Layer>,
    windows: Vec<Window>,
    /// The most cells of one sequence.
    n_ctx: u32,
    saved: Vec<Saved>,
    swaps: Vec<Swap>,
    /// The last token of each sequence in the plan, by index in the batch.
    last: Vec<Option<u32>>,
    /// For each token of the schedule.
    cells: Vec<Cell>,
    /// Blocks that the plan needs.
    need: u32,
}

impl Unified {
    /// A cache for `layers` with `n_blocks` blocks, of which a sequence can fill `n_ctx` cells.
    pub fn new(
        layers: &[AttentionLayer],
        params: &Params,
        n_ctx: u32,
        n_blocks: u32,
    ) -> Result<Unified, Error> {
        let (n_batch, n_seq_max) = (params.n_batch as usize, params.n_seq_max as usize);
        let mut windows: Vec<Window> = Vec::new();
        let mut made = Vec::with_capacity(layers.len());
        for spec in layers {
            let window = windows.iter().position(|w| w.size == spec.window).unwrap_or_else(|| {
                windows.push(Window { size: spec.window, visible: Vec::new() });
                windows.len() - 1
            });
            made.push(Layer::new(spec, params, window, n_blocks)?);
        }
        for window in &mut windows {
            room::for_len(&mut window.visible, n_batch)?;
        }
        let mut tables: Vec<Table> = (0..n_seq_max).map(|_| Table::default()).collect();
        for table in &mut tables {
            table.make_room((n_ctx as usize).div_ceil(BLOCK_CELLS) + SPAN)?;
        }
        let mut cells = Vec::new();
        room::for_len(&mut cells, n_batch)?;
        Ok(Unified {
            pool: BlockPool::new(n_blocks)?,
            tables,
            layers: made,
            windows,
            n_ctx,
            saved: Vec::with_capacity(n_seq_max),
            swaps: Vec::with_capacity(n_seq_max),
            last: room::filled(n_seq_max, None)?,
            cells,
            need: 0,
        })
    }

    pub fn table(&self, seq: SeqId) -> &Table {
        &self.tables[seq.index()]
    }

    /// Lets every token of the plan see all of its sequence.
    pub fn see_all(&mut self) {
        for window in &mut self.windows {
            for visible in &mut window.visible {
                visible.hi = self.tables[visible.seq.index()].n_slots();
            }
        }
    }

    /// Reserves cells for all tokens, counting blocks that are not there.
    fn reserve_all(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        let free = self.pool.n_free();
        for (ubatch, span) in schedule.ubatches().iter().enumerate() {
            for run in &schedule.runs()[span.runs.clone()] {
                let tokens = &schedule.tokens()[run.tokens.clone()];
                let Some(first) = tokens.first() else { continue };
                let seqs = batch.seqs(first.index as usize);
                self.enter(batch, seqs, first.index)?;
                for token in tokens {
                    self.append(seqs, token.pos, ubatch as u32)?;
                }
                let last = tokens.last().map(|token| token.index);
                for seq in seqs {
                    self.last[seq.index()] = last;
                }
            }
        }
        self.check_room(free)
    }

    fn check_room(&self, free: u32) -> Result<(), Error> {
        if self.need > free {
            let cells = |blocks: u32| u64::from(blocks) * BLOCK_CELLS as u64;
            return Err(Error::Full { what: "cells", need: cells(self.need), free: cells(free) });
        }
        for saved in &self.saved {
            let (before, after) = (saved.mark.n_cells(), self.table(saved.seq).n_cells());
            if after > self.n_ctx {
                let free = self.n_ctx.saturating_sub(before).into();
                return Err(Error::Full { what: "cells", need: u64::from(after - before), free });
            }
        }
        Ok(())
    }

    /// Notes where sequences ended before the plan, and checks that those of one token hold the same cells.
    fn enter(&mut self, batch: &Batch, seqs: &[SeqId], index: u32) -> Result<(), Error> {
        for &seq in seqs {
            if self.last[seq.index()].is_none() {
                room::for_one(&mut self.saved)?;
                self.saved.push(Saved { seq, mark: self.tables[seq.index()].mark() });
                // So that a sequence is noted once; the run's end replaces it.
                self.last[seq.index()] = Some(u32::MAX);
            }
        }
        let [first, rest @ ..] = seqs else { return Ok(()) };
        let together = |seq: &SeqId| self.last[seq.index()].is_some_and(|i| batch.seqs(i as usize) == seqs);
        if seqs.iter().all(together) {
            return Ok(());
        }
        match rest.iter().find(|seq| self.table(**seq).extents() != self.table(*first).extents()) {
            Some(&other) => Err(Error::Diverged { index, seq: *first, other }),
            None => Ok(()),
        }
    }

    /// Appends one cell to sequences that hold the same cells.
    fn append(&mut self, seqs: &[SeqId], pos: Pos, ubatch: u32) -> Result<(), Error> {
        let [first, ..] = seqs else { return Ok(()) };
        let block = match self.table(*first).open_tail() {
            Some((index, block)) if self.is_taken(*first, block, seqs.len() as u32) => {
                self.swap(seqs, index, block, ubatch)?
            }
            Some((_, block)) => block,
            None => self.open(seqs)?,
        };
        let mut slot = 0;
        for seq in seqs {
            slot = self.tables[seq.index()].push_cell();
        }
        let cell = slot % BLOCK_CELLS as u32;
        self.pool.set_pos(block, cell, pos);
        self.cells.push(Cell { block, cell });
        for window in &mut self.windows {
            // The first position that a window of `size` still holds is `pos - size + 1`.
            let oldest = window.size.map_or(0, |size| i64::from(pos.0) - i64::from(size) + 1).max(0);
            let lo = match oldest {
                0 => 0,
                oldest => self.tables[first.index()].lower_bound(&self.pool, Pos(oldest as i32)),
            };
            window.visible.push(Visible { seq: *first, lo, hi: slot + 1 });
        }
        Ok(())
    }

    /// Whether the next cell of `seq` in `block` may belong to others than the `n` that it is appended for: to those
    /// who use the block, or to those who left it in this plan and come back if it is undone.
    fn is_taken(&self, seq: SeqId, block: u32, n: u32) -> bool {
        let cell = self.table(seq).n_slots() % BLOCK_CELLS as u32;
        let left = |swap: &Swap| swap.from == block && swap.live >> cell != 0;
        self.pool.refs(block) > n || self.swaps.iter().any(left)
    }

    /// A new block at the end of sequences.
    fn open(&mut self, seqs: &[SeqId]) -> Result<u32, Error> {
        for seq in seqs {
            self.tables[seq.index()].make_room_for_one()?;
        }
        self.need += 1;
        let block = self.pool.take(seqs.len() as u32).unwrap_or(NO_BLOCK);
        for seq in seqs {
            self.tables[seq.index()].open(block);
        }
        Ok(block)
    }

    /// Exchanges a block at the end of sequences, which others use too, for a copy.
    fn swap(&mut self, seqs: &[SeqId], index: usize, from: u32, ubatch: u32) -> Result<u32, Error> {
        let n_swaps = self.swaps.len() + seqs.len();
        room::for_len(&mut self.swaps, n_swaps)?;
        self.need += 1;
        let to = self.pool.take(seqs.len() as u32).unwrap_or(NO_BLOCK);
        self.pool.copy_pos(from, to);
        for &seq in seqs {
            let table = &mut self.tables[seq.index()];
            let live = table.extents().get(index).map_or(0, |extent| extent.live);
            table.set_block(index, to);
            let held = self.pool.refs(from) == 1;
            if !held {
                self.pool.release(from);
            }
            self.swaps.push(Swap { ubatch, seq, index, from, to, live, held, done: true });
        }
        Ok(to)
    }

    /// Gives the tables their original blocks until the ubatch of each swap begins.
    fn postpone_swaps(&mut self) {
        for swap in self.swaps.iter_mut().rev() {
            self.tables[swap.seq.index()].set_block(swap.index, swap.from);
            swap.done = false;
        }
    }

    fn forget_plan(&mut self) {
        for saved in self.saved.drain(..) {
            self.last[saved.seq.index()] = None;
        }
        self.swaps.clear();
        self.cells.clear();
        self.windows.iter_mut().for_each(|window| window.visible.clear());
        self.need = 0;
    }

    fn remove(&mut self, seq: SeqId, range: &Range<Pos>) {
        let table = &mut self.tables[seq.index()];
        let slots = table.slots(&self.pool, range);
        if !slots.is_empty() {
            table.kill(&mut self.pool, slots.clone());
            table.close_gaps(slots);
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
    fn admit_move(&self, seq: SeqId, range: &Range<Pos>, op: &Op) -> Result<(), Error> {
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
        let shared = table.touched(kept).filter(|&(_, block, _)| self.pool.refs(block) > 1).count() as u64;
        let free = u64::from(self.pool.n_free());
        if shared > free {
            let cells = BLOCK_CELLS as u64;
            return Err(Error::Full { what: "cells", need: shared * cells, free: free * cells });
        }
        Ok(())
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
        for &(_, block, live) in &moving {
            let old = *self.pool.pos(block);
            bits(live)
                .for_each(|cell| self.pool.set_pos(block, cell, Pos(op.moved(old[cell as usize]) as i32)));
        }
        let table = &mut self.tables[seq.index()];
        table.kill(&mut self.pool, dead.clone());
        table.close_gaps(dead);
    }

    /// The block of an entry after making sure that nobody else uses it.
    fn own(&mut self, seq: SeqId, index: usize, block: u32) -> u32 {
        if self.pool.refs(block) < 2 {
            return block;
        }
        let Some(own) = self.pool.take(1) else { return block };
        copy_bytes(&mut self.layers, block, own);
        self.pool.copy_pos(block, own);
        self.pool.release(block);
        self.tables[seq.index()].set_block(index, own);
        own
    }
}

impl Part for Unified {
    fn kind(&self) -> Kind {
        Kind::Unified
    }

    fn split(&self) -> Split {
        Split::Simple
    }

    fn admit(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Copy { src, dst, .. } => {
                if !self.table(*dst).is_empty() {
                    return Err(Error::Occupied { seq: *dst });
                }
                let n = self.table(*src).extents().len();
                self.tables[dst.index()].make_room(n)
            }
            Op::Add { seq, range, .. } | Op::Divide { seq, range, .. } => self.admit_move(*seq, range, op),
            Op::Remove { .. } | Op::Keep { .. } | Op::Clear => Ok(()),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Remove { seq, range } => self.remove(*seq, range),
            Op::Copy { src, dst, range } => {
                let slots = self.table(*src).slots(&self.pool, range);
                if slots.is_empty() {
                    return;
                }
                let mut copy = core::mem::take(&mut self.tables[dst.index()]);
                copy.share(&mut self.pool, &self.tables[src.index()], slots);
                self.tables[dst.index()] = copy;
            }
            Op::Keep { seq } => {
                let others = self.tables.iter_mut().enumerate().filter(|(i, _)| *i != seq.index());
                others.for_each(|(_, table)| table.clear(&mut self.pool));
            }
            Op::Clear => self.tables.iter_mut().for_each(|table| table.clear(&mut self.pool)),
            Op::Add { seq, range, .. } | Op::Divide { seq, range, .. } => self.apply_move(*seq, range, op),
        }
    }

    fn pos_min(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).first_pos(&self.pool)
    }

    fn pos_max(&self, seq: SeqId) -> Option<Pos> {
        self.table(seq).last_pos(&self.pool)
    }

    fn reserve(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        match self.reserve_all(batch, schedule) {
            Ok(()) => self.postpone_swaps(),
            Err(error) => {
                self.undo();
                return Err(error);
            }
        }
        Ok(())
    }

    fn begin(&mut self, ubatch: u32) {
        let mut copied = None;
        for swap in self.swaps.iter_mut().filter(|swap| swap.ubatch == ubatch) {
            if copied != Some(swap.to) {
                copy_bytes(&mut self.layers, swap.from, swap.to);
                copied = Some(swap.to);
            }
            self.tables[swap.seq.index()].set_block(swap.index, swap.to);
            swap.done = true;
        }
    }

    fn commit(&mut self) {
        for swap in self.swaps.iter().filter(|swap| swap.held) {
            self.pool.release(swap.from);
        }
        self.forget_plan();
    }

    fn undo(&mut self) {
        for swap in self.swaps.iter().rev() {
            if swap.done {
                self.tables[swap.seq.index()].set_block(swap.index, swap.from);
            }
            if !swap.held {
                self.pool.retain(swap.from);
            }
            self.pool.release(swap.to);
        }
        for saved in &self.saved {
            self.tables[saved.seq.index()].back_to(&mut self.pool, saved.mark);
        }
        self.forget_plan();
    }

    fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        let layer = self.layers.get(layer)?;
        let visible = self.windows[layer.window].visible.get(tokens)?;
        let storage = bytemuck::must_cast_slice(&layer.storage);
        Some(Attention { layout: layer.layout, storage, tables: &self.tables, visible })
    }

    fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let layer = self.layers.get_mut(layer)?;
        let cells = self.cells.get(tokens)?;
        let storage = bytemuck::must_cast_slice_mut(&mut layer.storage);
        Some(Store { layout: layer.layout, storage, cells })
    }

    #[cfg(any(test, feature = "oracle"))]
    fn cells(&self, layer: usize, seq: SeqId) -> Vec<(Pos, crate::oracle::Rows)> {
        let layer = &self.layers[layer];
        let storage: &[u8] = bytemuck::must_cast_slice(&layer.storage);
        let CellLayout { n_head_kv, d_k, d_v, .. } = layer.layout;
        let read = |block: u32, cell: u32| {
            let bytes = &storage[layer.layout.block_range(block as usize)];
            let (mut k, mut v) = (alloc::vec![0.0; n_head_kv * d_k], alloc::vec![0.0; n_head_kv * d_v]);
            layer.layout.load_k(bytes, cell as usize, &mut k);
            layer.layout.load_v(bytes, cell as usize, &mut v);
            (self.pool.pos(block)[cell as usize], (k, v))
        };
        let touched = self.table(seq).touched(0..u32::MAX);
        touched.flat_map(|(_, block, live)| bits(live).map(move |cell| read(block, cell))).collect()
    }

    #[cfg(any(test, feature = "oracle"))]
    fn n_free_blocks(&self) -> u32 {
        self.pool.n_free()
    }

    #[cfg(any(test, feature = "oracle"))]
    fn audit(&self) -> Result<(), alloc::string::String> {
        self.tables.iter().try_for_each(|table| table.audit(&self.pool))?;
        let used = self.tables.iter().flat_map(|table| table.touched(0..u32::MAX).map(|t| t.1));
        self.pool.audit(used)?;
        let left =
            self.saved.len() + self.swaps.len() + self.cells.len() + self.last.iter().flatten().count();
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}

/// Copies the bytes of a block in all layers.
fn copy_bytes(layers: &mut [Layer], from: u32, to: u32) {
    for layer in layers {
        let source = layer.layout.block_range(from as usize);
        let target = layer.layout.block_range(to as usize).start;
        layer.storage_mut().copy_within(source, target);
    }
}
