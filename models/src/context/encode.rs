//! Encoding: batches for an encoder, and the embeddings that it returns.
//!
//! Encoder-only models return embeddings. In encoder-decoder models the cross-attention KV of a
//! sequence comes from here as well. Decoders return embeddings instead of logits if asked.

use super::{Context, fill, seqs};
use crate::{error::Error, graph::Head, runner::Side};
use backstitch_kv::{Batch, Pos, SeqId, Token, Wanted};

impl Context {
    /// Encode `tokens`; [`Context::embedding`] and [`Context::pooled`] then return the embeddings.
    ///
    /// The decoder of an encoder-decoder model attends to this encoder output until another
    /// replaces it or the sequence is released. Forks share it, and a rollback keeps it, even to
    /// position 0.
    ///
    /// # Errors
    /// Those of [`Context::encode_batch`], and [`Error::Sequence`] if `seq` does not exist.
    ///
    /// # Example
    /// ```no_run
    /// use backstitch_models::{Context, Model, Params, Token};
    ///
    /// let model = Model::open("t5-small.gguf")?;
    /// let mut ctx = Context::new(&model, Params::default())?;
    /// let seq = ctx.sequence()?;
    /// ctx.encode(seq, &[Token(5), Token(6), Token(1)])?;
    /// let start = model.hparams().decoder_start.unwrap_or(0);
    /// ctx.append(seq, &[Token(start)])?; // the answer begins
    /// assert_eq!(ctx.logits(seq)?.len(), model.hparams().n_vocab);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), Error> {
        self.history(seq)?;
        let mut batch = core::mem::take(&mut self.batch);
        let filled = fill(&mut batch, seq, Pos::ZERO, tokens, Wanted::All);
        let result = filled.and_then(|()| self.encode_batch(&batch));
        self.batch = batch;
        result
    }

    /// Encode a batch of whole inputs, each in a sequence of its own with positions from 0 on. All
    /// tokens of an input see each other, so they have to fit in one ubatch.
    ///
    /// # Errors
    /// Nothing has changed then.
    ///
    /// - [`Error::NoEncoder`] if the model has none.
    /// - [`Error::HoldsTokens`] if a sequence already holds decoded tokens.
    /// - [`Error::Token`] if a token is not in the vocabulary.
    /// - [`Error::Sequence`] if a sequence does not exist; [`Context::sequence`] creates one.
    /// - [`Error::BeyondPositions`] if the model has no embedding for a position.
    /// - [`Error::Memory`] if an input exceeds `n_ubatch`, or the batch is malformed; see
    ///   [`Memory::prepare_encoding`](backstitch_kv::Memory::prepare_encoding).
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    /// - [`Error::Cancelled`] after a request; see [`Context::set_cancel`].
    pub fn encode_batch(&mut self, batch: &Batch) -> Result<(), Error> {
        let has_decoder = self.model.graph().encoder().is_some();
        if !has_decoder && self.model.graph().head() != Head::Embeddings {
            return Err(Error::NoEncoder);
        }
        self.check_batch(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let holds_tokens = |seq: &SeqId| self.memory.seq_pos_max(*seq).is_some();
        if let Some(seq) = seqs(batch).find(holds_tokens) {
            return Err(Error::HoldsTokens { seq: seq.0 });
        }
        let (memory, mut engine) = self.split();
        let plan = memory.prepare_encoding(batch, engine.params.n_ubatch as usize)?;
        engine.outputs.begin(batch, Head::Embeddings)?;
        engine.outputs.start_at(0);
        engine.run(plan, Side::Encoder)?;
        self.outputs.pool(batch);
        self.outputs.publish();
        Ok(())
    }

    /// Evaluate a batch as [`Context::decode`] does, for embeddings in place of logits: the last
    /// hidden states, which [`Context::embedding`] and [`Context::pooled`] return. Pooled are the
    /// tokens of this batch alone.
    ///
    /// # Errors
    /// Those of [`Context::decode`]. Nothing has changed then.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::{Batch, Context, Model, Params, Pooling, Pos, Token, Wanted};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let params = Params::default().n_ctx(64).pooling(Some(Pooling::Mean));
    /// let mut ctx = Context::new(&model, params)?;
    /// let (seq, mut batch) = (ctx.sequence()?, Batch::new());
    /// batch.extend(seq, Pos(0), &[Token(5), Token(6), Token(7)], Wanted::All)?;
    /// ctx.decode_embeddings(&batch)?;
    /// assert_eq!(ctx.pooled(seq).map(<[f32]>::len), Some(model.hparams().n_embd));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode_embeddings(&mut self, batch: &Batch) -> Result<(), Error> {
        self.evaluate(batch, Head::Embeddings, false)
    }

    /// Evaluate a batch as [`Context::decode`] does, and yield the embeddings of the tokens with
    /// outputs beside their logits. Nothing is pooled.
    ///
    /// # Errors
    /// Those of [`Context::decode`]. Nothing has changed then.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::{Batch, Context, Model, Params, Pos, Token, Wanted};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
    /// let (seq, mut batch) = (ctx.sequence()?, Batch::new());
    /// batch.extend(seq, Pos(0), &[Token(5), Token(6)], Wanted::All)?;
    /// ctx.decode_with_embeddings(&batch)?;
    /// assert_eq!(ctx.output(0).map(<[f32]>::len), Some(model.hparams().n_vocab));
    /// assert_eq!(ctx.embedding(0).map(<[f32]>::len), Some(model.hparams().n_embd));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode_with_embeddings(&mut self, batch: &Batch) -> Result<(), Error> {
        self.evaluate(batch, Head::Logits, true)
    }

    /// Return the embedding `[n_embd]` of token `index` of the last batch, if that yielded
    /// embeddings and this one was requested or pooled. It is not normalised;
    /// [`normalize`](crate::normalize) does that.
    pub fn embedding(&self, index: usize) -> Option<&[f32]> {
        self.outputs.row(Head::Embeddings, index)
    }

    /// Return the pooled embedding `[n_embd]` of `seq` in the last batch, if that was encoded and
    /// [`Params::pooling`](crate::Params::pooling) or the model enables pooling. It is not
    /// normalised; [`normalize`](crate::normalize) does that.
    pub fn pooled(&self, seq: SeqId) -> Option<&[f32]> {
        self.outputs.pooled(seq)
    }
}
