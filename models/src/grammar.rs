//! Grammars: output that matches a JSON schema, a regular expression, or a grammar in GBNF or Lark.
//!
//! A [`Compiler`] holds the index of a model's vocabulary, and turns texts into [`Grammar`]s. A
//! grammar is immutable and shared. Each sequence has a [`Matcher`], which knows the tokens that
//! are allowed next. A [`GrammarSampler`] puts a matcher into a [`Chain`](crate::sampler::Chain):
//! it bans all other tokens, and goes back with the sequence.
//!
//! The automata and the parser are those of llguidance, which computes masks lazily and keeps what
//! it computed. What is this crate's own: GBNF (`gbnf.rs`), the meaning of schemas where llama.cpp
//! differs (`schema.rs`), limits, errors with places, rollback across errors, and samplers that
//! begin behind a prompt or at a trigger.
//!
//! Grammars are untrusted. Their size is limited before they are compiled (`limits.rs`), and so are
//! the chains over which the library recurses (`chains.rs`) and what it copies (`references.rs`).
//! Compiling has a stack and limits of its own, and a panic of the library is an error of the
//! grammar. A grammar that gets too complex while it is followed allows no token any more
//! ([`GrammarError::Stuck`]).
//!
//! ```
//! use backstitch_models::grammar::{Compiler, GrammarSampler};
//! use backstitch_models::sampler::{Chain, Greedy};
//! use backstitch_models::vocab::{AddSpecial, ParseSpecial};
//! use backstitch_models::{Context, Model, Params};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let grammar = Compiler::new(model.vocab())?.gbnf(r#"root ::= " " ("cat" | "dog") "s"? "." "#)?;
//!
//! let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
//! let mut tokens = Vec::new();
//! model.vocab().tokenize("Lily liked", AddSpecial::Start, ParseSpecial::No, &mut tokens);
//! let seq = ctx.sequence()?;
//! ctx.append(seq, &tokens)?;
//!
//! let sampler = GrammarSampler::new(&grammar, 0); // the chain does not see the prompt
//! let mut chain = Chain::builder(model.vocab().n_vocab()).with(sampler).with(Greedy).build();
//! let mut text = Vec::new();
//! while let Some(token) = chain.sample(ctx.logits(seq)?) {
//!     if model.vocab().is_eog(token) {
//!         break;
//!     }
//!     chain.accept(token);
//!     ctx.append(seq, &[token])?;
//!     text.extend_from_slice(model.vocab().piece(token));
//! }
//! assert!([" cat.", " cats.", " dog.", " dogs."].contains(&str::from_utf8(&text)?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chains;
mod compile;
mod error;
mod gbnf;
mod lark;
mod limits;
mod matcher;
mod probe;
mod references;
mod sampler;
mod schema;
mod steps;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trigger;
#[cfg(feature = "chat")]
mod whole;

pub use compile::{Compiler, Grammar};
pub use error::{GrammarError, Language, Place};
pub use matcher::{Matcher, TokenSet};
pub use sampler::{GrammarSampler, GrammarState};
pub use schema::{Relaxation, explicit_schema, reference_target, relaxed_schema, relaxed_schema_with};
pub use trigger::{Trigger, Triggers};

#[cfg(feature = "chat")]
pub(crate) use whole::whole_pattern;
