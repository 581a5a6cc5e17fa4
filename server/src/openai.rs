//! OpenAI's interface, with the fields that llama-server adds to it.
//!
//! | submodule | paths |
//! |---|---|
//! | `chat` | `/v1/chat/completions`, `/v1/chat/completions/input_tokens`, `/apply-template` |
//! | `completions` | `/v1/completions` |
//! | `responses` | `/v1/responses`, `/v1/responses/input_tokens` |
//! | `embeddings` | `/v1/embeddings` |
//! | `models` | `/v1/models`, `/v1/models/{id}` |
//!
//! `chunks` writes chat completions, `items` writes responses, for which `repeated` tells what they
//! were asked with, and `scores` the log-probabilities
//! of completions. Most paths answer without `/v1` too.

mod chat;
mod chunks;
mod completions;
mod embeddings;
mod items;
mod models;
mod repeated;
mod responses;
mod scores;

use crate::conversation::Ending;
use crate::http::Host;
use axum::Router;
use axum::routing::{get, post};
use backstitch_models::session::Finish;
use std::sync::Arc;

/// The name and version of this program in answers. llama-server's begin with the same letter.
pub(crate) const FINGERPRINT: &str = concat!("backstitch-", env!("CARGO_PKG_VERSION"));

/// Return the routes of this interface.
pub fn routes() -> Router<Arc<Host>> {
    Router::new()
        .route("/v1/chat/completions", post(chat::complete_named))
        .route("/chat/completions", post(chat::complete))
        .route("/v1/chat/completions/input_tokens", post(chat::count))
        .route("/chat/completions/input_tokens", post(chat::count))
        .route("/apply-template", post(chat::apply_template))
        .route("/v1/completions", post(completions::complete))
        .route("/v1/responses", post(responses::respond))
        .route("/responses", post(responses::respond))
        .route("/v1/responses/input_tokens", post(responses::count))
        .route("/responses/input_tokens", post(responses::count))
        .route("/v1/embeddings", post(embeddings::embed))
        .route("/v1/models", get(models::list))
        .route("/models", get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve))
        .route("/models/{*id}", get(models::retrieve))
}

/// Return OpenAI's word for the end of a message.
fn finish_reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Calls => "tool_calls",
        Ending::Complete | Ending::Stop(_) => "stop",
        Ending::Cut => "length",
    }
}

/// Return OpenAI's word for the end of a text.
fn text_finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::End(_) | Finish::Stop { .. } => "stop",
        _ => "length",
    }
}
