//! HTTP server of Backstitch.
//!
//! An [`Engine`](engine::Engine) owns a model and a context in a thread of its own. It evaluates
//! the requests of all clients together (continuous batching), and keeps every conversation as a
//! sequence, so that a later prompt with the same beginning re-evaluates only what differs.
//!
//! | module | content |
//! |---|---|
//! | [`engine`] | requests of many clients over one context |
//! | [`params`] | settings of the server, and fields of requests that all interfaces share |
//! | [`http`] | the server: connections, keys, limits, errors, streams |
//! | [`native`] | llama-server's interface |
//! | [`openai`], [`anthropic`] | the interfaces of these services |
//! | [`conversation`] | messages of any interface, and what the model writes |
//! | [`page`] | the page for browsers |
pub mod anthropic;
pub mod conversation;
pub mod engine;
mod error;
pub mod http;
pub mod native;
pub mod openai;
pub mod page;
pub mod params;

pub use error::Error;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
