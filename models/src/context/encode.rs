//! Encoding: texts that go through an encoder, and the embeddings that come out.

use super::{Context, fill, run};
use crate::{cancel::Stoppable, error::Error, graph::Head, runner::Side};
use backstitch_kv::{Batch, Memory, Pos, SeqId, Token, Wanted};

impl Context {
    /// Runs the encoder on `tokens`; [`Context::embedding`] and [`Context::pooled`] then have what came out.
    ///
    /// The decoder of an encoder-decoder attends to this text from now on, until another takes its place or the sequence is
    /// released. Forks share it; going back, even to 0, keeps it.
    ///
    /// # Errors
    /// As [`Context::encode_batch`], and [`Error::Sequence`] if `seq` does not exist.
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

    /// Runs the encoder on a batch of whole texts, each a sequence of its own with positions from 0 on. All tokens of a
    /// text see each other, so they have to fit one ubatch.
    ///
    /// For an encoder-decoder, naming a sequence makes it exist, as with [`Context::decode`].
    ///
    /// # Errors
    /// [`Error::NoEncoder`] if the model has none; [`Error::HoldsTokens`] if a sequence was decoded from another text; if the batch is
    /// malformed, or a text is longer than `n_ubatch` or than the model knows positions. Nothing has changed then.
    pub fn encode_batch(&mut self, batch: &Batch) -> Result<(), Error> {
        let has_decoder = self.model.graph().encoder().is_some();
        if !has_decoder && self.model.graph().head() != Head::Embeddings {
            return Err(Error::NoEncoder);
        }
        self.check_batch(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        if has_decoder {
            return self.encode_for_decoder(batch);
        }
        self.compute_texts(batch)
    }

    fn encode_for_decoder(&mut self, batch: &Batch) -> Result<(), Error> {
        let seqs = || (0..batch.len()).flat_map(|i| batch.seqs(i));
        if let Some(seq) = seqs().find(|seq| self.memory.seq_pos_max(**seq).is_some()) {
            return Err(Error::HoldsTokens { seq: seq.0 });
        }
        let result = self.make_histories(batch).and_then(|()| self.compute_texts(batch));
        match result {
            Ok(()) => seqs().for_each(|seq| {
                if let Some(Some(history)) = self.sequences.get_mut(seq.index()) {
                    history.claim();
                }
            }),
            Err(_) => self.drop_unclaimed(),
        }
        result
    }

    fn compute_texts(&mut self, batch: &Batch) -> Result<(), Error> {
        let plan = self.memory.prepare_encoding(batch, self.params.n_ubatch as usize)?;
        self.outputs.begin(batch, Head::Embeddings)?;
        self.outputs.start_at(0);
        let work = Stoppable::new(&*self.pool, self.cancel.as_ref());
        run(plan, &mut self.runner, &self.model, &work, Side::Encoder, &mut self.outputs)?;
        self.outputs.pool(batch);
        self.outputs.publish();
        Ok(())
    }

    /// The embedding `[n_embd]` of token `index` of the last batch, if that was encoded, and its output asked for or
    /// used to pool. Not normalised; [`normalize`](crate::normalize) does that.
    pub fn embedding(&self, index: usize) -> Option<&[f32]> {
        self.outputs.row(Head::Embeddings, index)
    }

    /// The one embedding `[n_embd]` of all tokens of `seq` in the last batch, if that was encoded and
    /// [`Params::pooling`](crate::Params::pooling) or the model asks for one. Not normalised; [`normalize`](crate::normalize) does that.
    pub fn pooled(&self, seq: SeqId) -> Option<&[f32]> {
        self.outputs.pooled(seq)
    }
}
