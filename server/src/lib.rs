//! HTTP server of Backstitch.
//!
//! An [`Engine`](engine::Engine) owns a model and a context in a thread of its own. It evaluates
//! the requests of all clients together (continuous batching), and keeps every conversation as a
//! sequence, so that a later prompt with the same beginning re-evaluates only what differs.
pub mod conversation;
pub mod engine;
mod error;

pub use error::Error;
