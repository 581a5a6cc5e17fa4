//! Chunks: what one step of a generation yields.

use super::text::{self, OutputText};
use crate::sampler::{Chain, Logprob, Logprobs};
use alloc::{string::String, vec::Vec};
use backstitch_kv::Token;

/// A token, its log-probability under the model, and the likeliest tokens at its position. These
/// are the model's own probabilities, before any sampler.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::session::GenerateOptions;
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let mut session = Session::new(ctx, &Settings::default().temp(0.0))?;
/// session.feed(&[Token(5)])?;
/// for chunk in session.generate(GenerateOptions::default().limit(2).logprobs(1)) {
///     let logprobs = &chunk?.logprobs[0];
///     assert_eq!(logprobs.top[0].token, logprobs.token); // greedy takes the likeliest
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenLogprobs {
    /// The token.
    pub token: Token,
    /// The log-probability of the token; `None` for the first token of a text, which nothing
    /// predicts.
    pub logprob: Option<f64>,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<Logprob>,
}

impl TokenLogprobs {
    /// Return the log-probability of `token` and those of the `n` likeliest tokens. `logits`:
    /// `[n_vocab]`. `best` is a buffer that calls reuse.
    pub fn of(logits: &[f32], token: Token, n: usize, best: &mut Vec<Logprob>) -> Self {
        let all = Logprobs::of(logits);
        if n > 0 {
            all.top(n, best);
        } else {
            best.clear();
        }
        TokenLogprobs { token, logprob: all.get(token), top: best.clone() }
    }

    /// Return the log-probability of a token that `chain` has just drawn, and those of the `n`
    /// likeliest tokens, after all samplers.
    pub fn after_samplers(chain: &Chain, token: Token, n: usize) -> Self {
        let of = |(token, p): (Token, f32)| Logprob { token, logprob: libm::log(f64::from(p)) };
        let mut top: Vec<Logprob> = chain.probabilities().map(of).collect();
        let logprob = top.iter().find(|entry| entry.token == token).map(|entry| entry.logprob);
        // Equal probabilities stay in the order of the candidates.
        top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
        top.truncate(n);
        TokenLogprobs { token, logprob, top }
    }

    /// Return the entry of a first token, which nothing predicts.
    pub fn unpredicted(token: Token) -> Self {
        TokenLogprobs { token, logprob: None, top: Vec::new() }
    }
}

/// The output of one step of a generation, as a streaming API sends it.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::session::GenerateOptions;
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let mut session = Session::new(ctx, &Settings::default())?;
/// session.feed(&[Token(5)])?;
/// let chunk = session.generate(GenerateOptions::default().limit(1)).next().unwrap()?;
/// assert_eq!(chunk.tokens, session.tokens()[1..]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Chunk {
    /// The text that can no longer change: whole characters, and no beginning of a stop string. May
    /// be empty.
    pub text: String,
    /// The tokens of the step: one, or several if drafted tokens were accepted. Empty if only
    /// withheld text is left.
    pub tokens: Vec<Token>,
    /// The log-probabilities of the tokens, if
    /// [`GenerateOptions::logprobs`](super::GenerateOptions::logprobs) asks for them.
    pub logprobs: Vec<TokenLogprobs>,
}

/// Buffers that generations reuse from step to step, and from one generation to the next.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub text: OutputText,
    pub chunk: Chunk,
    pub best: Vec<Logprob>,
}

impl Buffers {
    /// Start a generation behind `n_tokens` tokens.
    pub fn begin(&mut self, n_tokens: usize) {
        self.text.begin(n_tokens);
        self.chunk.text.reserve(text::CAPACITY);
        self.chunk.tokens.reserve(16);
    }
}
