//! Anthropic's interface: messages and their token counts.
//!
//! | submodule | content |
//! |---|---|
//! | `messages` | `/v1/messages`, `/v1/messages/count_tokens` |
//! | `blocks` | the blocks of an answer, and the events that tell how they grow |

mod blocks;
mod messages;

use crate::http::Host;
use axum::Router;
use axum::routing::post;
use std::sync::Arc;

/// Return the routes of this interface.
pub fn routes() -> Router<Arc<Host>> {
    Router::new()
        .route("/v1/messages", post(messages::answer))
        .route("/v1/messages/count_tokens", post(messages::count))
}
