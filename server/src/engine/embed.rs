//! Embeddings of texts.

use super::worker::Worker;
use crate::error::Error;
use backstitch_models::graph::Head;
use backstitch_models::{SeqId, Token};

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
    /// Return the embeddings of `inputs`, one after the other.
    pub fn embed(&mut self, inputs: &[Vec<Token>]) -> Result<Vec<Embedding>, Error> {
        inputs.iter().map(|input| self.embed_one(input)).collect()
    }

    fn embed_one(&mut self, input: &[Token]) -> Result<Embedding, Error> {
        let n_ubatch = self.params.context.n_ubatch as usize;
        if self.model.graph().head() != Head::Embeddings {
            return Err(backstitch_models::Error::NoEncoder.into());
        }
        match input.len() {
            0 => return Err(Error::EmptyPrompt),
            n if n > n_ubatch => return Err(Error::InputTooLong { n_prompt_tokens: n, n_ubatch }),
            _ => {}
        }
        self.make_sequence_free(None)?;
        let seq = self.ctx.sequence()?;
        let result = self.encode_input(seq, input);
        self.ctx.release(seq)?;
        result
    }

    fn encode_input(&mut self, seq: SeqId, input: &[Token]) -> Result<Embedding, Error> {
        self.ctx.encode(seq, input)?;
        self.counters.n_prompt += input.len() as u64;
        let n_tokens = input.len();
        if let Some(row) = self.ctx.pooled(seq) {
            return Ok(Embedding { n_tokens, rows: vec![row.to_vec()], is_pooled: true });
        }
        let rows = (0..n_tokens).filter_map(|i| self.ctx.embedding(i)).map(<[f32]>::to_vec).collect();
        Ok(Embedding { n_tokens, rows, is_pooled: false })
    }
}
