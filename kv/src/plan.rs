//! A prepared batch: what compute needs, until it is committed or dropped.

use crate::batch::Batch;
use crate::block::BlockPool;
use crate::error::Error;
use crate::ids::Pos;
use crate::memory::{Cell, Hybrid, StateRun, Visible};
use crate::split::{Span, UbatchToken};
use crate::storage::{CellCopy, PlannedCopy};
use backstitch_core::cell::{BLOCK_CELLS, CellLayout, Extent};

/// Room reserved for a batch. Compute its ubatches in order, then commit.
///
/// Dropping a plan leaves every sequence as it was before `prepare`, whatever was computed.
///
/// # Example
/// ```
/// use backstitch_kv::{Batch, Error, Memory};
///
/// fn decode(memory: &mut dyn Memory, batch: &Batch, n_ubatch: usize) -> Result<(), Error> {
///     let mut plan = memory.prepare(batch, n_ubatch)?;
///     while let Some(ubatch) = plan.next_ubatch() {
///         // Compute `ubatch.tokens()`; an early return here would undo everything.
///         let _ = ubatch.n_tokens();
///     }
///     plan.commit()
/// }
/// ```
#[must_use = "dropping a plan undoes it"]
pub struct Plan<'a> {
    memory: &'a mut Hybrid,
    batch: &'a Batch,
    started: usize,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(memory: &'a mut Hybrid, batch: &'a Batch) -> Plan<'a> {
        Plan { memory, batch, started: 0 }
    }

    /// Number of ubatches.
    pub fn n_ubatch(&self) -> usize {
        self.memory.schedule().ubatches().len()
    }

    /// The copies that this plan makes of cells and states, in the order in which they are made, each with
    /// the ubatch before which that is: a sequence that appends to a block which others use too moves to a
    /// copy of it, and a recurrent state is stepped in a slot of its own. A memory with its own storage
    /// copies cells by itself; a memory [without](Hybrid::without_storage) leaves it to the caller, one
    /// ubatch after the other ([`Ubatch::copies`]) or, if ubatches are queued ahead, from this list.
    pub fn copies(&self) -> impl Iterator<Item = PlannedCopy> + '_ {
        self.memory.planned()
    }

    /// The next ubatch to compute; `None` after the last.
    pub fn next_ubatch(&mut self) -> Option<Ubatch<'_>> {
        let span = self.memory.schedule().ubatches().get(self.started)?.clone();
        let number = self.started as u32;
        self.memory.begin(number);
        self.started += 1;
        Some(Ubatch { memory: self.memory, batch: Some(self.batch), span, number })
    }

    /// Makes the batch part of its sequences.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if not all ubatches were handed out; then the plan is undone.
    pub fn commit(self) -> Result<(), Error> {
        let n_ubatch = self.n_ubatch();
        if self.started < n_ubatch {
            return Err(Error::Unfinished { started: self.started as u32, n_ubatch: n_ubatch as u32 });
        }
        self.memory.commit();
        Ok(())
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        self.memory.undo();
    }
}

/// What is computed at once: tokens, and where their layers read and write.
pub struct Ubatch<'p> {
    pub(crate) memory: &'p mut Hybrid,
    /// `None` while a way back is replayed.
    pub(crate) batch: Option<&'p Batch>,
    pub(crate) span: Span,
    /// Counted from the first of the plan.
    pub(crate) number: u32,
}

impl Ubatch<'_> {
    /// Number of tokens.
    pub fn n_tokens(&self) -> usize {
        self.span.tokens.len()
    }

    /// The tokens, in the order they are computed; empty while a way back is replayed.
    pub fn tokens(&self) -> &[UbatchToken] {
        let tokens = self.memory.schedule().tokens().get(self.span.tokens.clone());
        tokens.filter(|_| self.batch.is_some()).unwrap_or(&[])
    }

    /// The embedding `[n_embd]` of token `i`, if the batch is one of embeddings.
    pub fn embedding(&self, i: usize) -> Option<&[f32]> {
        self.batch?.embedding(self.tokens().get(i)?.index as usize)
    }

    /// The copies of cells to make in storage elsewhere before this ubatch is computed, in their order.
    /// Allocates nothing.
    pub fn copies(&self) -> impl Iterator<Item = CellCopy> + '_ {
        self.memory.cell_copies(self.number)
    }

    /// The runs of tokens that step recurrent states, the same in every recurrent layer; see
    /// [`States::runs`].
    pub fn state_runs(&self) -> impl Iterator<Item = StateRun> + '_ {
        let (runs, first) = (self.span.runs.clone(), self.span.tokens.start as u32);
        self.memory.runs(runs).iter().map(move |run| run.counted_from(first))
    }

    /// The keys and values that `layer` attends to; `None` if it does not attend.
    pub fn attention(&self, layer: usize) -> Option<Attention<'_>> {
        self.memory.attention(layer, self.span.tokens.clone())
    }

    /// Where `layer` stores its keys and values; `None` if it stores none.
    pub fn store(&mut self, layer: usize) -> Option<Store<'_>> {
        self.memory.store(layer, self.span.tokens.clone())
    }

    /// Piece `part` of the recurrent states of `layer`; `None` if there is no such piece.
    pub fn states(&mut self, layer: usize, part: usize) -> Option<States<'_>> {
        self.memory.states(layer, part, self.span.runs.clone())
    }
}

/// One layer's keys and values as the tokens of a ubatch see them.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Attention<'u> {
    /// How the bytes lie.
    pub layout: CellLayout,
    /// The layer's blocks, 64-byte aligned; empty if they are elsewhere.
    pub storage: &'u [u8],
    pub(crate) tables: Tables<'u>,
    pub(crate) visible: &'u [Visible],
    pub(crate) pool: &'u BlockPool,
}

/// Gives the table of each sequence.
pub(crate) type Tables<'u> = &'u [crate::extent::Table];

impl<'u> Attention<'u> {
    /// The slots that each token of the ubatch sees, in the ubatch's order.
    pub fn visible(&self) -> &'u [Visible] {
        self.visible
    }

    /// The table of the sequence that `visible` belongs to, indexed by `slot / 32`.
    pub fn table(&self, visible: &Visible) -> &'u [Extent] {
        self.tables.get(visible.seq.index()).map_or(&[], |table| table.extents())
    }

    /// The positions of the cells of a block; those of cells that no sequence holds mean nothing.
    pub fn positions(&self, block: u32) -> &'u [Pos; BLOCK_CELLS] {
        self.pool.pos(block)
    }
}

/// Where the tokens of a ubatch store one layer's keys and values.
#[non_exhaustive]
pub struct Store<'u> {
    /// How the bytes lie.
    pub layout: CellLayout,
    /// The layer's blocks, 64-byte aligned; empty if they are elsewhere.
    pub storage: &'u mut [u8],
    /// The cell of each token, in the ubatch's order. No two are the same.
    pub cells: &'u [Cell],
}

impl Store<'_> {
    /// Stores keys `[n_tokens, n_head_kv * d_k]` and values `[n_tokens, n_head_kv * d_v]` of the whole
    /// ubatch, rounded to nearest even.
    ///
    /// # Errors
    /// [`Error::Shape`] for slices of another length; [`Error::NoStorage`] if the blocks are elsewhere.
    pub fn put(&mut self, k: &[f32], v: &[f32]) -> Result<(), Error> {
        let layout = self.layout;
        let (k_width, v_width) = (layout.n_head_kv * layout.d_k, layout.n_head_kv * layout.d_v);
        check_rows("keys of a ubatch", k, self.cells.len(), k_width)?;
        check_rows("values of a ubatch", v, self.cells.len(), v_width)?;
        for (i, cell) in self.cells.iter().enumerate() {
            let range = layout.block_range(cell.block as usize);
            let block = self.storage.get_mut(range).ok_or(Error::NoStorage)?;
            layout.store_k(block, cell.cell as usize, &k[i * k_width..(i + 1) * k_width]);
            layout.store_v(block, cell.cell as usize, &v[i * v_width..(i + 1) * v_width]);
        }
        Ok(())
    }
}

fn check_rows(what: &'static str, rows: &[f32], n_rows: usize, width: usize) -> Result<(), Error> {
    let wanted = n_rows * width;
    if rows.len() == wanted {
        return Ok(());
    }
    Err(Error::Shape { what, found: rows.len() as u64, wanted: wanted as u64 })
}

/// One piece of a layer's recurrent states, and the runs of tokens that step them.
pub struct States<'u> {
    /// Numbers of a state.
    pub len: usize,
    /// `[n_slots, len]`; empty if the states are elsewhere.
    pub states: &'u mut [f32],
    /// Numbers that enter a state with a token.
    pub(crate) input: usize,
    /// `[n_rows, input]`.
    pub(crate) journal: &'u mut [f32],
    /// The runs of the ubatch, tokens counted through the plan.
    pub(crate) runs: &'u [StateRun],
    /// The first token of the ubatch in that count.
    pub(crate) first: u32,
}

impl<'u> States<'u> {
    /// The state that `run` steps, brought to where it is written; empty if the states are elsewhere.
    pub fn carry(&mut self, run: &StateRun) -> &mut [f32] {
        if self.states.is_empty() {
            return self.states;
        }
        let at = |slot: u32| slot as usize * self.len..(slot as usize + 1) * self.len;
        match run.read {
            Some(slot) if slot != run.write => self.states.copy_within(at(slot), at(run.write).start),
            Some(_) => {}
            None => self.states[at(run.write)].fill(0.0),
        }
        &mut self.states[at(run.write)]
    }

    /// What enters the state with the tokens of `run`, `[n_tokens, input]`, in the journal: to be written
    /// while a batch is computed, and read while a way back is replayed. `None` if these tokens are not
    /// journaled.
    pub fn inputs(&mut self, run: &StateRun) -> Option<&mut [f32]> {
        let (row, n_tokens) = (run.row? as usize, (run.end - run.start) as usize);
        self.journal.get_mut(row * self.input..(row + n_tokens) * self.input)
    }

    /// The runs of the ubatch, in order; they tile it. A run may read what an earlier one wrote. Tokens are
    /// counted from the start of the ubatch.
    pub fn runs(&self) -> impl Iterator<Item = StateRun> + 'u {
        let (runs, first) = (self.runs, self.first);
        runs.iter().map(move |run| run.counted_from(first))
    }
}
