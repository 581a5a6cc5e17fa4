//! Embeddings of texts.

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
