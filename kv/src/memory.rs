//! The memory of a model: sequences of tokens that it has seen.
//!
//! A [`Memory`] changes in two ways. Operations (`seq_rm`, `seq_cp`, ...) either succeed in all
//! layers or return an error and change nothing. A [`Plan`](plan::Plan) reserves cells and states
//! for a batch, hands out ubatches to compute, and is then committed or dropped without a trace.
//!
//! [`Caches`] holds cells, states and encoder output by group of layers; [`Checkpoints`] holds the
//! positions to which sequences can return. This module keeps the two in step. Its submodules add
//! plans, rollbacks, savepoints and queries to [`Memory`]; export and import of snapshots are in
//! [`crate::snapshot`].

mod external;
pub(crate) mod plan;
mod queries;
pub(crate) mod rewind;
mod rollback;
pub(crate) mod savepoint;
mod survey;
#[cfg(test)]
mod tests;

use crate::batch::Batch;
use crate::batch::split::SplitBatch;
use crate::cache::Caches;
use crate::cache::operation::{Move, Op, Pass};
use crate::error::Error;
use crate::external::Home;
use crate::ids::{Pos, SeqId};
use crate::kind::Kind;
use crate::layer::LayerSpec;
use crate::params::{Params, Sizes, check_layers};
use crate::reserve;
use crate::rollback::Checkpoints;
use crate::snapshot::reservation::Reservation;
use core::ops::Range;

/// The memory of a model: KV caches, recurrent states and encoder output of its sequences.
///
/// Layers that retain the same cells share one KV cache; there is at most one cache of recurrent
/// states, and at most one of encoder output. [`Memory::new`] allocates all of it.
///
/// Ranges are of positions; [`Pos::ZERO`] and [`Pos::MAX`] make an open start and end. A range
/// without tokens is valid and changes nothing. If no layer retains all tokens, one exception
/// remains: a range behind the first token counts as one with tokens even if those were removed
/// before, because a recurrent state or a window that moved on does not know. An operation takes
/// time in proportion to the blocks that it changes; a copy adds one block table entry per 32 cells
/// and copies no cell. Every operation is checked in all layers before any of them changes, so
/// after an error nothing has changed.
///
/// # Example
/// ```
/// use backstitch_core::cell::CellType;
/// use backstitch_kv::{
///     AttentionLayer, AttentionSpec, Batch, LayerSpec, Memory, Params, Pos, RollbackParams, SeqId,
///     Token,
/// };
///
/// let layer = AttentionLayer { n_head_kv: 2, d_k: 4, d_v: 4, ..AttentionLayer::default() };
/// let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
/// let (k_type, v_type) = (CellType::F16, CellType::F16);
/// let rollback = RollbackParams::default();
/// let params = Params::default().n_ctx(256).n_seq_max(2).n_batch(64);
/// let params = params.k_type(k_type).v_type(v_type).rollback(rollback);
/// let mut memory = Memory::new(&layers, &params)?;
///
/// let mut batch = Batch::new();
/// batch.push(Token(5), Pos(0), &[SeqId(0)], true);
/// let mut plan = memory.prepare(&batch, 64)?;
/// while let Some(mut ubatch) = plan.next_ubatch() {
///     if let Some(mut store) = ubatch.store(0) {
///         store.put(&[1.0; 8], &[2.0; 8])?;
///     }
/// }
/// plan.commit()?;
/// memory.seq_cp(SeqId(0), SeqId(1), Pos::ZERO..Pos::MAX)?;
/// assert_eq!(memory.seq_pos_max(SeqId(1)), Some(Pos(0)));
/// # Ok::<(), backstitch_kv::Error>(())
/// ```
pub struct Memory {
    pub(crate) params: Params,
    /// Owner of the bytes of cells and states: this memory or an engine.
    pub(crate) home: Home,
    pub(crate) caches: Caches,
    pub(crate) checkpoints: Checkpoints,
    split_batch: SplitBatch,
    /// Scratch of `check_order`: the last position of each sequence, once it is looked up.
    last: alloc::vec::Vec<Option<Option<Pos>>>,
    /// True while a plan, rollback or import has reserved what is neither committed nor undone.
    pub(crate) open: bool,
    /// Blocks, slots and checkpoints of an import that is not committed yet.
    pub(crate) reservation: Reservation,
}

impl Memory {
    /// Return an empty memory for a model with these layers, with everything allocated.
    ///
    /// # Errors
    /// - [`Error::Layer`] if the sizes of a layer are impossible.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(layers: &[LayerSpec], params: &Params) -> Result<Memory, Error> {
        Memory::with_home(layers, params, Home::Here)
    }

    fn with_home(layers: &[LayerSpec], params: &Params, home: Home) -> Result<Memory, Error> {
        check_layers(layers, params)?;
        let params = &params.settled();
        let sizes = Sizes::new(layers, params);
        Ok(Memory {
            params: *params,
            home,
            caches: Caches::new(layers, params, &sizes, home)?,
            checkpoints: Checkpoints::new(params.rollback, sizes, params.n_seq_max)?,
            split_batch: SplitBatch::new(params.n_batch, params.n_seq_max)?,
            last: reserve::filled(params.n_seq_max as usize, None)?,
            open: false,
            reservation: Reservation::default(),
        })
    }

    /// Return the kind of the only cache, or [`Kind::Hybrid`] if there are several.
    pub fn kind(&self) -> Kind {
        self.caches.kind()
    }

    /// Return the number of sequences that the memory has.
    pub fn n_seq_max(&self) -> u32 {
        // The last one is the spare sequence of savepoints.
        self.params.n_seq_max - 1
    }

    /// Return the first position that every layer of `seq` still holds; `None` if `seq` is empty or
    /// unknown.
    ///
    /// A recurrent layer holds its last position only.
    pub fn seq_pos_min(&self, seq: SeqId) -> Option<Pos> {
        self.check_seq(seq).ok()?;
        self.caches.pos_min(seq)
    }

    /// Return the last position of `seq`; `None` if `seq` is empty or unknown.
    pub fn seq_pos_max(&self, seq: SeqId) -> Option<Pos> {
        self.check_seq(seq).ok()?;
        self.caches.pos_max(seq)
    }

    /// Remove the tokens of `range` from `seq`.
    ///
    /// A recurrent state cannot forget single tokens. If the range ends before the last token, the
    /// state stays as it is, with the removed tokens in it, as in llama.cpp: attention layers of a
    /// hybrid model forget them and recurrent layers do not.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the range takes the last token but not all of them, and a
    ///   recurrent layer would need an older state, or a window cells that it released.
    /// - [`Error::UnknownSequence`] if there is no such sequence.
    /// - [`Error::Range`] if the range is negative or ends before it starts.
    pub fn seq_rm(&mut self, seq: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.check_range(seq, &range)?;
        self.run(Op::Remove { seq, range })
    }

    /// Share the tokens of `range` of `src` with the empty sequence `dst`, and its encoder output,
    /// which every part of a sequence has. Blocks and states are shared until one of the two
    /// sequences changes; nothing is copied.
    ///
    /// # Errors
    /// - [`Error::SameSequence`] if `src` is `dst`.
    /// - [`Error::Occupied`] if `dst` holds tokens.
    /// - [`Error::Unsupported`] if a recurrent layer has tokens in `range`, but `range` is not the
    ///   whole sequence, or if `range` ends where a window needs cells that it released.
    /// - [`Error::UnknownSequence`] if there is no such sequence.
    /// - [`Error::Range`] if the range is negative or ends before it starts.
    pub fn seq_cp(&mut self, src: SeqId, dst: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.check_range(src, &range)?;
        self.check_seq(dst)?;
        if src == dst {
            return Err(Error::SameSequence { seq: src });
        }
        self.run(Op::Copy { src, dst, range })
    }

    /// Remove every sequence but `seq`.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn seq_keep(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_seq(seq)?;
        (0..self.params.n_seq_max).map(SeqId).filter(|other| *other != seq).for_each(|seq| self.empty(seq));
        Ok(())
    }

    /// Move the tokens of `range` by `delta` positions (K-shift).
    ///
    /// Stored keys are rotated to their new position and rounded again, which costs quantised cells
    /// the most precision. Blocks that other sequences share are copied first. Tokens that would
    /// move below zero are removed.
    ///
    /// # Errors
    /// - [`Error::Overtakes`] if tokens would pass others or leave the valid positions.
    /// - [`Error::Full`] if no block is free for a copy.
    /// - [`Error::Unsupported`] if tokens would be removed that [`Memory::seq_rm`] cannot remove,
    ///   or a window would need cells again that it released.
    /// - [`Error::UnknownSequence`] if there is no such sequence.
    /// - [`Error::Range`] if the range is negative or ends before it starts.
    pub fn seq_add(&mut self, seq: SeqId, range: Range<Pos>, delta: i32) -> Result<(), Error> {
        self.check_range(seq, &range)?;
        if delta == 0 {
            return Ok(());
        }
        self.run(Op::Move { seq, range, by: Move::Add(delta) })
    }

    /// Divide the positions of `range` by `divisor`, rounding down; otherwise like
    /// [`Memory::seq_add`].
    ///
    /// # Errors
    /// - [`Error::Divisor`] if `divisor` is below 1.
    /// - Those of [`Memory::seq_add`].
    pub fn seq_div(&mut self, seq: SeqId, range: Range<Pos>, divisor: i32) -> Result<(), Error> {
        self.check_range(seq, &range)?;
        match divisor {
            ..=0 => Err(Error::Divisor { divisor }),
            1 => Ok(()),
            _ => self.run(Op::Move { seq, range, by: Move::Divide(divisor) }),
        }
    }

    /// Remove all sequences.
    pub fn clear(&mut self) {
        (0..self.params.n_seq_max).map(SeqId).for_each(|seq| self.empty(seq));
    }

    /// Remove the tokens and the encoder output of `seq`.
    fn empty(&mut self, seq: SeqId) {
        self.run_surely(Op::Remove { seq, range: Pos::ZERO..Pos::MAX });
        self.caches.drop_encoder_output(seq);
    }

    /// Drop the encoder output of `seq`, if it has one.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn forget(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_seq(seq)?;
        self.undo();
        self.caches.drop_encoder_output(seq);
        Ok(())
    }

    /// Run an operation in all caches, or in none if one of them refuses it.
    fn run(&mut self, op: Op) -> Result<(), Error> {
        // Undo a plan that was leaked instead of dropped.
        self.undo();
        self.caches.admit(&op)?;
        if let Op::Copy { src, dst, .. } = op {
            self.checkpoints.make_room(src, dst)?;
        }
        let (Op::Remove { seq, range } | Op::Copy { src: seq, range, .. } | Op::Move { seq, range, .. }) =
            &op;
        let end = self.end(*seq);
        // Every part of a sequence has its encoder output, also before the first token.
        // One without it takes away what the target had.
        let has_output = |seq| self.caches.has_encoder_output(seq);
        let copies_output = matches!(op, Op::Copy { src, dst, .. } if has_output(src) || has_output(dst))
            && !range.is_empty();
        let touches = copies_output || self.caches.touches(*seq, range);
        if touches || self.caches.may_touch(*seq, range) {
            self.caches.apply(&op);
        }
        if touches {
            self.apply_on_checkpoints(&op, end);
        }
        Ok(())
    }

    /// Run an operation that cannot be refused: it takes no room, or its room is reserved.
    fn run_surely(&mut self, op: Op) {
        let done = self.run(op);
        debug_assert!(done.is_ok(), "{done:?}");
    }

    pub(crate) fn check_seq(&self, seq: SeqId) -> Result<(), Error> {
        let n_seq_max = self.n_seq_max();
        if seq.0 < n_seq_max { Ok(()) } else { Err(Error::UnknownSequence { seq, n_seq_max }) }
    }

    fn check_range(&self, seq: SeqId, range: &Range<Pos>) -> Result<(), Error> {
        self.check_seq(seq)?;
        if range.start < Pos::ZERO || range.end < range.start {
            return Err(Error::Range { start: range.start, end: range.end });
        }
        Ok(())
    }

    /// Check that each token follows the last of its sequence. Encoder input follows nothing.
    pub(super) fn check_order(&mut self, batch: &Batch, pass: Pass) -> Result<(), Error> {
        self.last.fill(None);
        for (index, &pos) in batch.positions().iter().enumerate() {
            for &seq in batch.seqs(index) {
                let last = match self.last[seq.index()] {
                    Some(last) => last,
                    None => self.seq_pos_max(seq).filter(|_| pass == Pass::Decode),
                };
                let wanted = last.map_or(pos, |last| Pos(last.0.saturating_add(1)));
                if pos != wanted {
                    return Err(Error::Order { index: index as u32, seq, pos, wanted });
                }
                self.last[seq.index()] = Some(Some(pos));
            }
        }
        Ok(())
    }

    /// Make visible what the plan or rollback in progress has reserved.
    fn commit(&mut self) {
        if core::mem::take(&mut self.open) {
            self.caches.commit();
            self.checkpoints.commit(&mut self.caches);
            self.caches.release_unseen();
        }
    }

    /// Drop every reservation that is not committed, of an import as of a plan.
    pub(crate) fn undo(&mut self) {
        if core::mem::take(&mut self.open) {
            core::mem::take(&mut self.reservation).give_back(&mut self.caches, &mut self.checkpoints);
            self.caches.undo();
            self.checkpoints.undo();
        }
    }
}

/// Access for the oracle and for tests.
#[cfg(any(test, feature = "testing"))]
impl Memory {
    /// Drop the checkpoints that exceed the budget now; after a rollback that otherwise waits for
    /// the next token.
    pub(crate) fn keep_to_budget(&mut self) {
        self.checkpoints.keep_to_budget(&mut self.caches);
    }
}
