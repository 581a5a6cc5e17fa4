//! The engine of a context: everything except its memory and its sequences.

use super::Context;
use crate::cancel::{Cancel, Stoppable};
use crate::error::Error;
use crate::graph::Head;
use crate::model::Model;
use crate::params::Params;
use crate::runner::outputs::Outputs;
use crate::runner::{Runner, Side};
use backstitch_core::pool::Pool;
use backstitch_kv::{Batch, Memory, Plan, Pos, Rewind, Savepoint, SeqId};

/// The computing parts of a context, borrowed apart from its memory, so that a plan or a savepoint
/// can stay open while they run.
///
/// [`Context::split`] makes it.
pub(super) struct Engine<'c> {
    pub model: &'c Model,
    pub params: &'c Params,
    pool: &'c dyn Pool,
    cancel: Option<&'c Cancel>,
    pub runner: &'c mut Runner,
    pub outputs: &'c mut Outputs,
    /// The kind of the outputs of a decoder.
    pub head: Head,
    /// True to yield embeddings beside logits.
    pub both: bool,
    /// Part of a batch that exceeds the logical batch size.
    piece: &'c mut Batch,
}

impl Context {
    /// Borrow the memory and the computing parts separately.
    pub(super) fn split(&mut self) -> (&mut Memory, Engine<'_>) {
        let engine = Engine {
            model: &self.model,
            params: &self.params,
            pool: &*self.pool,
            cancel: self.cancel.as_ref(),
            runner: &mut self.runner,
            outputs: &mut self.outputs,
            head: Head::Logits,
            both: false,
            piece: &mut self.piece,
        };
        (&mut self.memory, engine)
    }
}

impl Engine<'_> {
    /// Compute all ubatches of `plan` and commit it.
    pub fn run(&mut self, mut plan: Plan<'_>, side: Side) -> Result<(), Error> {
        let work = Stoppable::new(self.pool, self.cancel);
        while let Some(mut ubatch) = plan.next_ubatch() {
            self.runner.run(self.model, &work, side, &mut ubatch, self.outputs)?;
        }
        Ok(plan.commit()?)
    }

    /// Replay the journal rows of a rollback and commit it.
    pub fn replay(&mut self, mut rewind: Rewind<'_>) -> Result<(), Error> {
        let work = Stoppable::new(self.pool, self.cancel);
        while let Some(mut ubatch) = rewind.next_ubatch() {
            self.runner.replay(self.model, &work, &mut ubatch, self.outputs)?;
        }
        Ok(rewind.commit()?)
    }

    /// Compute a plan: a batch, or its piece from token `start` on if it exceeds the logical batch
    /// size. Outputs that begin with this plan are those of the batch `begins`; they are staged for
    /// publication.
    pub fn compute_plan(
        &mut self,
        plan: Plan<'_>,
        begins: Option<&Batch>,
        start: usize,
    ) -> Result<(), Error> {
        if let Some(batch) = begins {
            self.outputs.begin(batch, self.head)?;
            if self.both {
                self.outputs.begin_beside()?;
            }
        }
        self.outputs.start_at(start);
        self.run(plan, Side::Decoder)
    }

    /// Compute a batch of any length through a savepoint, piece by piece.
    pub fn compute(&mut self, savepoint: &mut Savepoint<'_>, batch: &Batch) -> Result<(), Error> {
        self.compute_from(savepoint, batch, 0)
    }

    /// Compute a batch from token `done` on; the pieces before are committed.
    fn compute_from(
        &mut self,
        savepoint: &mut Savepoint<'_>,
        batch: &Batch,
        done: usize,
    ) -> Result<(), Error> {
        let (n_batch, n_ubatch) = (self.params.n_batch as usize, self.params.n_ubatch as usize);
        if batch.len() <= n_batch {
            return self.compute_plan(savepoint.prepare(batch, n_ubatch)?, Some(batch), 0);
        }
        let mut piece = core::mem::take(self.piece);
        let result = (done..batch.len()).step_by(n_batch).try_for_each(|start| {
            piece.copy_from(batch, start..batch.len().min(start + n_batch))?;
            let plan = savepoint.prepare(&piece, n_ubatch).map_err(Error::from);
            let begins = (start == 0).then_some(batch);
            let computed = plan.and_then(|plan| self.compute_plan(plan, begins, start));
            computed.map_err(|error| in_batch(error, start))
        });
        *self.piece = piece;
        result
    }

    /// Roll `seq` back to `from`, which runs no model, and compute `batch` from there. If there is
    /// no space beside the former cells, those are dropped where that frees blocks.
    pub fn reevaluate(
        &mut self,
        savepoint: &mut Savepoint<'_>,
        seq: SeqId,
        from: Pos,
        batch: &Batch,
    ) -> Result<(), Error> {
        self.replay(savepoint.rewind(seq, from, self.params.n_ubatch as usize)?)?;
        match self.compute(savepoint, batch) {
            // The former cells held the same tokens that are computed here.
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) if savepoint.make_room() => {
                let end = savepoint.seq_pos_max(seq).map_or(Pos::ZERO, |last| last + 1);
                // The sequence may begin after `from`.
                let start = batch.positions().first().copied().unwrap_or(from);
                self.compute_from(savepoint, batch, end.0.saturating_sub(start.0).max(0) as usize)
            }
            result => result,
        }
    }
}

/// Convert an error of the piece from token `start` on, so that it counts tokens of the batch.
fn in_batch(mut error: Error, start: usize) -> Error {
    use backstitch_kv::Error::{Diverged, NotEncoded};
    if let Error::Memory(Diverged { index, .. } | NotEncoded { index, .. }) = &mut error {
        *index = index.saturating_add(start as u32);
    }
    error
}
