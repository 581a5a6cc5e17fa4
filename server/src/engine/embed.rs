//! Embeddings of texts.

use super::worker::{Worker, is_full};
use crate::error::Error;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::graph::Head;
use backstitch_models::{Pos, SeqId, Token, Wanted};
use std::time::Instant;

/// The embeddings of one input, not normalised.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Embedding {
    /// The number of tokens of the input.
    pub n_tokens: usize,
    /// The pooled embedding `[n_embd]`, or the embedding of every token if the model's pooling is
    /// none: `[n_tokens][n_embd]`. For a re-ranking model one row: the score.
    pub rows: Vec<Vec<f32>>,
    /// The rows are one for all tokens together.
    pub is_pooled: bool,
}

impl Worker {
    /// Return the embeddings of the first of `inputs`, as many as fit in one batch: at least one,
    /// or none as long as requests under way hold all cells.
    pub fn embed(&mut self, inputs: &[Vec<Token>], set: &AdapterSet) -> Result<Vec<Embedding>, Error> {
        let n_most = self.check_input(inputs.first().map_or(0, Vec::len))?;
        let n_seqs =
            if self.is_encoder() { self.params.context.n_seq_max as usize } else { self.params.n_slots };
        let mut n_tokens = 0;
        let fitting = inputs.iter().take(n_seqs).take_while(|input| {
            n_tokens += input.len();
            n_tokens <= n_most && !input.is_empty()
        });
        let n = fitting.count().max(1);
        let inputs = inputs.get(..n).unwrap_or(inputs);
        let mut seqs = Vec::new();
        let result = self.embed_together(inputs, set, &mut seqs);
        for seq in seqs {
            self.ctx.release(seq)?;
        }
        match result {
            Err(Error::Engine(error)) if is_full(&error) && !self.running.is_empty() => Ok(Vec::new()),
            result => result,
        }
    }

    /// Return true if the model is an encoder.
    fn is_encoder(&self) -> bool {
        self.model.graph().head() == Head::Embeddings
    }

    /// Check the length of an input. Return the most tokens of a batch.
    fn check_input(&self, n: usize) -> Result<usize, Error> {
        let (n_ubatch, n_ctx) = (self.params.context.n_ubatch as usize, self.params.n_ctx as usize);
        if self.model.graph().encoder().is_some() {
            return Err(backstitch_models::Error::NoEncoder.into());
        }
        let n_prompt_tokens = n;
        match self.is_encoder() {
            _ if n == 0 => Err(Error::EmptyPrompt),
            // The context bounds a batch, too, and is what has to grow then.
            true if n > n_ubatch && n_ubatch < n_ctx => {
                Err(Error::InputTooLong { n_prompt_tokens, n_ubatch })
            }
            true if n > n_ctx => Err(Error::InputBeyondContext { n_prompt_tokens, n_ctx }),
            false if n > n_ctx => Err(Error::PromptTooLong { n_prompt_tokens, n_ctx }),
            _ => Ok(n.max(n_ubatch)),
        }
    }

    /// Evaluate inputs in one batch, each in a sequence of its own, which are added to `seqs`.
    fn embed_together(
        &mut self,
        inputs: &[Vec<Token>],
        set: &AdapterSet,
        seqs: &mut Vec<SeqId>,
    ) -> Result<Vec<Embedding>, Error> {
        self.batch.clear();
        for input in inputs {
            self.make_sequences_free(seqs.len() + 1, None)?;
            let seq = self.ctx.sequence_with(set)?;
            seqs.push(seq);
            let added = self.batch.extend(seq, Pos(0), input, Wanted::All);
            added.map_err(backstitch_models::Error::from)?;
        }
        let began = Instant::now();
        self.evaluate_embeddings()?;
        self.counters.prompt += began.elapsed();
        self.counters.n_prompt += self.batch.len() as u64;
        self.counters.n_batches += 1;
        self.counters.n_slots_in_batches += inputs.len() as u64;
        let mut first = 0;
        Ok(inputs
            .iter()
            .zip(seqs)
            .map(|(input, &mut seq)| {
                let range = first..first + input.len();
                first = range.end;
                self.embedding(seq, range)
            })
            .collect())
    }

    /// Evaluate the batch. Idle sequences make place for the cells that a decoder needs.
    fn evaluate_embeddings(&mut self) -> Result<(), Error> {
        if self.is_encoder() {
            return Ok(self.ctx.encode_batch(&self.batch)?);
        }
        while let Err(error) = self.ctx.decode_embeddings(&self.batch) {
            if !self.make_place(&error, None)? {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Return the embedding of the input whose tokens are `range` of the batch.
    fn embedding(&self, seq: SeqId, range: core::ops::Range<usize>) -> Embedding {
        let n_tokens = range.len();
        if let Some(row) = self.ctx.pooled(seq) {
            return Embedding { n_tokens, rows: vec![row.to_vec()], is_pooled: true };
        }
        let rows = range.filter_map(|i| self.ctx.embedding(i)).map(<[f32]>::to_vec).collect();
        Embedding { n_tokens, rows, is_pooled: false }
    }
}
