//! Judging a model by the probabilities that it gives to a text: perplexity, divergence from a base
//! model, and multiple choice.
//!
//! All three compute what llama.cpp's `llama-perplexity` computes, so that figures can be compared.
//!
//! - [`Windows`] divides the tokens of a text into windows, [`score`] evaluates one of them, and
//!   [`Estimate`] gathers the results: [`Estimate::perplexity`] is the perplexity.
//! - [`Divergence`] compares a model with the probabilities of another one, which [`BaseWriter`]
//!   stored and [`BaseReader`] reads.
//! - [`answer`] chooses the most probable of several endings, and [`Accuracy`] counts.
//!
//! # Example
//! ```
//! use backstitch_models::judge::{Estimate, Windows, score};
//! use backstitch_models::vocab::{AddSpecial, ParseSpecial};
//! use backstitch_models::{Context, Model, Params};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let mut ctx = Context::new(&model, Params::default().n_ctx(32))?;
//! let text = "Once upon a time there was a little girl who had a red ball. ".repeat(8);
//! let mut tokens = Vec::new();
//! model.vocab().tokenize(&text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
//! let mut surprise = Estimate::default();
//! for window in Windows::new(&tokens, 32, None).unwrap() {
//!     score(&mut ctx, &window, &mut |row| surprise.add(row.surprise()))?;
//! }
//! assert!(surprise.perplexity() < 30.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base;
mod choice;
mod divergence;
mod estimate;
mod score;
mod windows;

pub use base::{BaseError, BaseReader, BaseWriter};
pub use choice::{Accuracy, Answer, answer};
pub use divergence::{Divergence, Quantiles};
pub use estimate::Estimate;
pub use score::{Row, score};
pub use windows::{Window, Windows};
