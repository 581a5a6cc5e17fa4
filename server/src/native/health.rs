//! Whether the server answers.

use axum::Json;
use serde_json::{Value, json};

/// Answer that the server is there. It never listens before the model is loaded.
pub(super) async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}
