//! Logits of sequences: at hand, or made again by evaluating the last token again.

use super::outputs::{Logits, copied};
use super::{Context, fill};
use crate::error::Error;
use crate::graph::Head;
use backstitch_kv::{Batch, Memory, Pos, SeqId, Wanted};

/// A copy of a sequence to compute with, which goes when this is dropped.
struct Copy<'a> {
    ctx: &'a mut Context,
    seq: SeqId,
}

impl<'a> Copy<'a> {
    fn of(ctx: &'a mut Context, seq: SeqId) -> Result<Self, Error> {
        let copy = ctx.aside();
        ctx.memory.seq_cp(seq, copy, Pos::ZERO..Pos::MAX)?;
        Ok(Copy { ctx, seq: copy })
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        let emptied = self.ctx.memory.seq_rm(self.seq, Pos::ZERO..Pos::MAX);
        debug_assert!(emptied.is_ok(), "{emptied:?}");
    }
}

impl Context {
    /// The logits `[n_vocab]` of the last token of `seq`: what the next one is drawn from.
    ///
    /// They are at hand after a batch that asked for them, and with a fork or a restored sequence if they were before. After
    /// a rollback, a batch of other sequences, or one that did not ask for them, they are made again, with the same bits: the last
    /// token is evaluated again beside the sequence, which stays as it is. Where a model has recurrent states or windows and the state before that token is
    /// no longer held, as many tokens are evaluated as [`Context::rollback`] to before it would take; a sequence
    /// that went back to a [pin](Context::pin) has the logits that it had there.
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist; [`Error::NoLogits`] if it is empty; [`Error::EncoderOnly`] if the model only
    /// encodes. Where a token has to be evaluated again: [`Error::Edited`] if it is not known, because the sequence was changed in
    /// its middle since, or came as embeddings; [`backstitch_kv::Error::Full`] if the sequence shares its last cells with a fork and there is no room for
    /// others; [`Error::Cancelled`] and whatever else [`Context::decode`] names.
    ///
    /// The sequence is as before then, with the exception that [`Context::rollback`] names.
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

    /// The logits of the last token of `seq`, if nothing has to be evaluated for them.
    pub fn logits_at_hand(&self, seq: SeqId) -> Option<&[f32]> {
        self.outputs.of_sequence(seq)
    }

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
        fill(&mut batch, self.aside(), start, tokens, Wanted::Last)?;
        match self.evaluate_beside(seq, from, &batch) {
            Err(Error::Memory(backstitch_kv::Error::Full { .. }))
                if !self.memory.shares_cells(seq, from)? =>
            {
                let (_, tokens) =
                    self.history(seq)?.between(from, end).ok_or(Error::Edited { seq: seq.0 })?;
                fill(&mut batch, seq, start, tokens, Wanted::Last)?;
                self.evaluate_in_place(seq, from, &batch)
            }
            result => result,
        }
    }

    /// Evaluates the last tokens again in a copy of the sequence.
    fn evaluate_beside(&mut self, seq: SeqId, from: Pos, batch: &Batch) -> Result<Logits, Error> {
        let copy = Copy::of(self, seq)?;
        copy.ctx.rewind(copy.seq, from)?;
        copy.ctx.compute(batch)?;
        copy.ctx.last_staged(batch)
    }

    /// Evaluates the last tokens of a sequence again, in the cells that they have: there are no others.
    fn evaluate_in_place(&mut self, seq: SeqId, from: Pos, batch: &Batch) -> Result<Logits, Error> {
        let end = self.end(seq);
        self.rewind(seq, from)?;
        let result = self.compute(batch);
        if self.end(seq) < end {
            self.cut_history(seq, self.end(seq));
        }
        result.and_then(|()| self.last_staged(batch))
    }

    /// The logits of the last token of a batch that was computed.
    pub(super) fn last_staged(&self, batch: &Batch) -> Result<Logits, Error> {
        let logits = batch.len().checked_sub(1).and_then(|last| self.outputs.staged(last));
        copied(logits.ok_or(Error::Arena)?)
    }
}
