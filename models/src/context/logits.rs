//! Logits of sequences: available from the last batch, or recomputed by re-evaluating the last
//! token.

use super::{Context, fill};
use crate::error::Error;
use crate::graph::Head;
use crate::runner::outputs::{Logits, SharedLogits, copied};
use backstitch_kv::{Batch, SeqId, Wanted};

impl Context {
    /// Return the logits `[n_vocab]` of the last token of `seq`, from which the next one is
    /// sampled.
    ///
    /// They are available after a batch that requested them, and forks and restored sequences
    /// inherit them. After a rollback, a batch of other sequences, or one that did not request
    /// them, the last token is re-evaluated, with equal bits, and the sequence stays as it is. If a
    /// model has recurrent states or windows and the state before that token is gone, as many
    /// tokens are re-evaluated as a [`Context::rollback`] to before it would take. A sequence that
    /// was rolled back to a [pin](Context::pin) has the logits that it had there.
    ///
    /// # Errors
    /// The sequence is unchanged then, with the exception that [`Context::rollback`] documents.
    ///
    /// - [`Error::Sequence`] if `seq` does not exist.
    /// - [`Error::NoLogits`] if it is empty.
    /// - [`Error::EncoderOnly`] if the model only encodes.
    /// - [`Error::Edited`] if a token to re-evaluate is not known, because the sequence was changed
    ///   in its middle or consists of embeddings.
    /// - [`Error::Memory`] with [`backstitch_kv::Error::Full`] if the sequence shares its last
    ///   cells with a fork and no block is free.
    /// - [`Error::Cancelled`] or [`Error::OutOfMemory`] as in [`Context::decode`].
    ///
    /// # Example
    /// ```
    /// use backstitch_models::{Context, Model, Params, Pos, Token};
    ///
    /// let model = Model::from_bytes(&std::fs::read("../goldens/models/falcon_h1.gguf")?)?;
    /// let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
    /// let seq = ctx.sequence()?;
    /// ctx.append(seq, &[Token(5), Token(6)])?;
    /// let before = ctx.logits(seq)?.to_vec();
    /// ctx.append(seq, &[Token(7)])?;
    /// ctx.rollback(seq, Pos(2))?;
    /// assert!(ctx.logits_at_hand(seq).is_none());
    /// assert_eq!(ctx.logits(seq)?, before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn logits(&mut self, seq: SeqId) -> Result<&[f32], Error> {
        self.history(seq)?;
        if self.outputs.of_sequence(seq).is_none() {
            let logits = self.evaluate_last(seq)?;
            self.outputs.give(seq, Some(logits));
        }
        self.outputs.of_sequence(seq).ok_or(Error::NoLogits { seq: seq.0 })
    }

    /// Return the logits of the last token of `seq`, as [`Context::logits`] does, to be held as
    /// long as the caller likes, without a copy of them. Of a batch that asked for more than 64
    /// rows, the row is copied.
    ///
    /// # Errors
    /// Those of [`Context::logits`].
    pub fn shared_logits(&mut self, seq: SeqId) -> Result<SharedLogits, Error> {
        self.logits(seq)?;
        self.outputs.shared(seq)?.ok_or(Error::NoLogits { seq: seq.0 })
    }

    /// Return the logits of the last token of `seq` if no token has to be re-evaluated for them.
    pub fn logits_at_hand(&self, seq: SeqId) -> Option<&[f32]> {
        self.outputs.of_sequence(seq)
    }

    /// Re-evaluate the last token, and those before it back to a checkpoint if necessary.
    fn evaluate_last(&mut self, seq: SeqId) -> Result<Logits, Error> {
        if self.model.graph().head() == Head::Embeddings {
            return Err(Error::EncoderOnly);
        }
        let (Some(last), end) = (self.memory.seq_pos_max(seq), self.end(seq)) else {
            return Err(Error::NoLogits { seq: seq.0 });
        };
        let edited = Error::Edited { seq: seq.0 };
        let history = self.history(seq)?;
        if history.between(last, end).is_none_or(|(_, tokens)| tokens.len() != 1) {
            return Err(edited);
        }
        let route = self.memory.route(seq, last)?;
        let from = if route.reevaluated > 0 { route.restored_from } else { last };
        let (start, tokens) = self.history(seq)?.between(from, end).ok_or(edited)?;
        let mut batch = Batch::new();
        fill(&mut batch, seq, start, tokens, Wanted::Last)?;
        let (memory, mut engine) = self.split();
        let mut savepoint = memory.savepoint(&[])?;
        let result = engine.reevaluate(&mut savepoint, seq, from, &batch);
        // Restores the sequence, unless its cells were dropped for equal ones.
        drop(savepoint);
        self.cut_history_to_memory(seq, end);
        result.and_then(|()| self.last_staged(&batch))
    }

    /// Return the staged logits of the last token of a batch.
    pub(super) fn last_staged(&self, batch: &Batch) -> Result<Logits, Error> {
        let logits = batch.len().checked_sub(1).and_then(|last| self.outputs.staged(last));
        copied(logits.ok_or(Error::Arena)?)
    }
}
