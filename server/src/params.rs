//! Settings: those of the server, and those of a request that all interfaces share.
//!
//! [`ServerParams`] is what the command line says. [`Fields`] reads typed values from a JSON
//! object, with errors that name the field. [`Sampling`] has the samplers of a request, and
//! [`read_generate`] makes a [`Generate`](crate::engine::Generate) of it and of all else that
//! llama-server's, OpenAI's and Anthropic's interfaces have in common.

mod constraint;
mod fields;
mod format;
mod generate;
mod prompt;
mod sampling;
mod server;

pub use constraint::Constraint;
pub use fields::Fields;
pub(crate) use format::Formatted;
pub(crate) use generate::N_ANSWERS;
pub use generate::{Reading, default_settings, read_generate};
pub(crate) use prompt::token;
pub use prompt::{read_prompts, tokenize};
pub use sampling::Sampling;
pub use server::ServerParams;
