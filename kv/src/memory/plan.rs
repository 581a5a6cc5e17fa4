//! Plans: batches with reserved cells and states, until they are committed or dropped.

use super::Memory;
use crate::batch::Batch;
use crate::batch::split::{Span, UbatchToken};
use crate::cache::operation::Pass;
use crate::cache::view::{Attention, StateSegment, States, Store};
use crate::error::Error;
use crate::external::{CellCopy, PlanCopy, PlannedCopy};

impl Memory {
    /// Reserve cells and states for all of `batch`, split it into ubatches of at most `n_ubatch`
    /// tokens, and return the plan. Nothing is visible until the plan is committed; dropping it
    /// undoes everything.
    ///
    /// A call allocates nothing once a batch of that size has been prepared.
    ///
    /// # Errors
    /// - [`Error::Full`] if the whole batch does not fit.
    /// - [`Error::Order`] if a token does not follow the last of its sequence.
    /// - [`Error::Diverged`] if a token has several sequences that do not hold the same tokens.
    /// - [`Error::NotEncoded`] if a decoder's sequence has no encoder output.
    /// - [`Error::TooMany`] if the batch is larger than `n_batch`.
    /// - [`Error::NoSequence`], [`Error::RepeatedSequence`] or [`Error::UnknownSequence`] if a
    ///   token names no sequence, one of them twice, or one that does not exist.
    /// - [`Error::Shape`] if `n_ubatch` is 0.
    /// - [`Error::Unfollowed`] if the caller has not taken the changes of earlier operations.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn prepare<'a>(&'a mut self, batch: &'a Batch, n_ubatch: usize) -> Result<Plan<'a>, Error> {
        self.prepare_pass(batch, n_ubatch, Pass::Decode)
    }

    /// Prepare a batch of whole sequences for an encoder, otherwise like [`Memory::prepare`].
    ///
    /// Only layers without a cache compute it. The keys and values that layers of
    /// [`AttentionSpec::Cross`](crate::AttentionSpec::Cross) store become the encoder output of
    /// each sequence when the plan is committed, in place of the former one.
    ///
    /// # Errors
    /// Those of [`Memory::prepare`].
    pub fn prepare_encoding<'a>(&'a mut self, batch: &'a Batch, n_ubatch: usize) -> Result<Plan<'a>, Error> {
        self.prepare_pass(batch, n_ubatch, Pass::Encode)
    }

    fn prepare_pass<'a>(
        &'a mut self,
        batch: &'a Batch,
        n_ubatch: usize,
        pass: Pass,
    ) -> Result<Plan<'a>, Error> {
        self.undo();
        self.check_followed()?;
        if n_ubatch == 0 {
            return Err(Error::Shape { what: "tokens of a ubatch", found: 0, wanted: 1 });
        }
        batch.check(self.params.n_batch, self.n_seq_max())?;
        self.check_order(batch, pass)?;
        let split = self.caches.split(pass);
        self.split_batch.fill(batch, split, n_ubatch)?;
        self.open = true;
        // Dropping the plan on an error undoes what it has reserved so far.
        let plan = Plan { memory: self, batch, started: 0 };
        if pass == Pass::Decode {
            plan.memory.checkpoints.stage(batch, &mut plan.memory.split_batch)?;
        }
        plan.memory.caches.reserve(batch, &plan.memory.split_batch, pass)?;
        Ok(plan)
    }
}

/// A batch with reserved cells and states: the ubatches to compute, then a commit.
///
/// [`Memory::prepare`] makes it. All reservations are made there, so computing ubatches needs no
/// further block and [`Plan::commit`] cannot run out of any. Dropping a plan leaves every sequence
/// as it was before `prepare`, whatever was computed.
///
/// # Example
/// ```
/// use backstitch_kv::{Batch, Error, Memory};
///
/// fn decode(memory: &mut Memory, batch: &Batch, n_ubatch: usize) -> Result<(), Error> {
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
    memory: &'a mut Memory,
    batch: &'a Batch,
    started: usize,
}

impl Plan<'_> {
    /// Return the number of ubatches.
    pub fn n_ubatch(&self) -> usize {
        self.memory.split_batch.ubatches().len()
    }

    /// Return the copies of cells and states that this plan makes, in order, each with the ubatch
    /// before which it is due.
    ///
    /// A sequence that appends to a shared block moves to a copy of it, and a recurrent state is
    /// stepped in a slot of its own. A memory with storage makes the copies itself. For a memory
    /// [without storage](Memory::without_storage) the caller makes them, ubatch by ubatch
    /// ([`Ubatch::copies`]) or, if it queues ubatches ahead, from this list.
    pub fn copies(&self) -> impl Iterator<Item = PlannedCopy> + '_ {
        let Memory { split_batch, caches, .. } = &*self.memory;
        split_batch.ubatches().iter().zip(0..).flat_map(|(span, ubatch)| {
            let states = caches.segments(span).filter_map(|segment| segment.copy()).map(PlanCopy::State);
            let copies = caches.cell_copies(ubatch).map(PlanCopy::Cells).chain(states);
            copies.map(move |copy| PlannedCopy { ubatch, copy })
        })
    }

    /// Return the next ubatch to compute; `None` after the last.
    pub fn next_ubatch(&mut self) -> Option<Ubatch<'_>> {
        let span = self.memory.split_batch.ubatches().get(self.started)?.clone();
        let number = self.started as u32;
        self.memory.caches.begin(number);
        self.started += 1;
        Some(Ubatch { memory: self.memory, batch: Some(self.batch), span, number })
    }

    /// Append the batch to its sequences.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if not all ubatches were handed out; the plan is then undone.
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

/// A physical batch: tokens to compute in one pass, and the cells and states that their layers read
/// and write.
///
/// [`Plan::next_ubatch`] and [`Rewind::next_ubatch`](super::rewind::Rewind::next_ubatch) make it. A
/// ubatch of a rollback has journal rows to replay instead of tokens.
pub struct Ubatch<'p> {
    pub(crate) memory: &'p mut Memory,
    /// The batch that the tokens are of; `None` while journal rows are replayed.
    pub(crate) batch: Option<&'p Batch>,
    pub(crate) span: Span,
    /// Number of the ubatch in its plan, from 0.
    pub(crate) number: u32,
}

impl Ubatch<'_> {
    /// Return the number of tokens, or of journal rows to replay.
    pub fn n_tokens(&self) -> usize {
        self.span.tokens.len()
    }

    /// Return the tokens in the order of computation; none while journal rows are replayed.
    pub fn tokens(&self) -> &[UbatchToken] {
        let tokens = self.memory.split_batch.tokens().get(self.span.tokens.clone());
        tokens.filter(|_| self.batch.is_some()).unwrap_or(&[])
    }

    /// Return the embedding `[n_embd]` of token `i` if the batch consists of embeddings.
    pub fn embedding(&self, i: usize) -> Option<&[f32]> {
        self.batch?.embedding(self.tokens().get(i)?.index as usize)
    }

    /// Return the copies of cells that the engine has to make before it computes this ubatch, in
    /// order. Allocates nothing.
    pub fn copies(&self) -> impl Iterator<Item = CellCopy> + '_ {
        self.memory.caches.cell_copies(self.number)
    }

    /// Return the segments of tokens that step recurrent states, identical for all recurrent
    /// layers; see [`States::segments`].
    pub fn state_segments(&self) -> impl Iterator<Item = StateSegment> + '_ {
        self.memory.caches.segments(&self.span)
    }

    /// Return the keys and values that `layer` attends to; `None` if it has no attention.
    pub fn attention(&self, layer: usize) -> Option<Attention<'_>> {
        self.memory.caches.attention(layer, self.span.tokens.clone())
    }

    /// Return the cells in which `layer` stores keys and values; `None` if it stores none.
    pub fn store(&mut self, layer: usize) -> Option<Store<'_>> {
        self.memory.caches.store(layer, self.span.tokens.clone())
    }

    /// Return tensor `tensor` of the recurrent states of `layer`; `None` if there is none.
    pub fn states(&mut self, layer: usize, tensor: usize) -> Option<States<'_>> {
        self.memory.caches.states_at(layer, tensor, self.span.segments.clone())
    }
}
