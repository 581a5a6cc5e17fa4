//! llama-server's interface.
//!
//! | submodule | paths |
//! |---|---|
//! | `completion` | `/completion`, `/completions` |
//! | `infill` | `/infill` |
//! | `tokens` | `/tokenize`, `/detokenize`, `/tokenizer_info` |
//! | `embedding` | `/embedding`, `/embeddings` |
//! | `rerank` | `/rerank`, `/reranking`, and both below `/v1` |
//! | `slots` | `/slots`, `/slots/{id}`, `/backstitch/cache` |
//! | `health` | `/health`, `/props`, `/lora-adapters` |
//! | `metrics` | `/metrics` |

mod completion;
mod embedding;
mod health;
mod infill;
mod metrics;
mod rerank;
mod slots;
mod tokens;

pub use embedding::{embed, n_numbers};
pub(crate) use infill::Gap;

use crate::http::Host;
use axum::Router;
use axum::routing::{get, post};
use std::sync::Arc;

/// Return the routes of this interface.
pub fn routes() -> Router<Arc<Host>> {
    Router::new()
        .route("/health", get(health::health))
        .route("/v1/health", get(health::health))
        .route("/props", get(health::props).post(health::set_props))
        .route("/lora-adapters", get(health::adapters).post(health::set_adapters))
        .route("/metrics", get(metrics::metrics))
        .route("/slots", get(slots::list))
        .route("/slots/{id}", post(slots::act))
        .route("/backstitch/cache", get(slots::cache))
        .route("/completion", post(completion::complete))
        .route("/completions", post(completion::complete))
        .route("/infill", post(infill::infill))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::info))
        .route("/embedding", post(embedding::embeddings))
        .route("/embeddings", post(embedding::embeddings))
        .route("/rerank", post(rerank::rerank))
        .route("/reranking", post(rerank::rerank))
        .route("/v1/rerank", post(rerank::rerank))
        .route("/v1/reranking", post(rerank::rerank))
}
