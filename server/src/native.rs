//! llama-server's interface.

mod health;

use crate::http::Host;
use axum::Router;
use axum::routing::get;
use std::sync::Arc;

/// Return the routes of this interface.
pub fn routes() -> Router<Arc<Host>> {
    Router::new().route("/health", get(health::health)).route("/v1/health", get(health::health))
}
