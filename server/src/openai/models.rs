//! `/v1/models`: the model of this server. It answers also while the model sleeps.

use crate::http::{ApiError, ErrorKind, Host};
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};
use std::sync::Arc;

/// Return the model as the only one of a list.
pub(super) async fn list(State(host): State<Arc<Host>>) -> Json<Value> {
    let name = host.params().alias();
    let details = json!({
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": host.params().tags,
        "capabilities": capabilities(&host),
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "",
            "families": [""],
            "parameter_size": "",
            "quantization_level": "",
        },
    });
    Json(json!({"models": [details], "object": "list", "data": [model_json(&host)]}))
}

/// Return the model if it has this name.
pub(super) async fn retrieve(
    State(host): State<Arc<Host>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id?;
    let params = host.params();
    if id == params.alias() || params.aliases.contains(&id) {
        return Ok(Json(model_json(&host)));
    }
    Err(ApiError::new(ErrorKind::NotFound, format!("there is no model '{}'", id.escape_debug())))
}

/// Return what the server was started for.
fn capabilities(host: &Host) -> Value {
    match host.params().embedding || host.params().reranking {
        true => json!(["embedding"]),
        false => json!(["completion"]),
    }
}

/// Return the model in OpenAI's shape.
fn model_json(host: &Host) -> Value {
    let (params, summary) = (host.params(), host.summary());
    json!({
        "id": params.alias(),
        "aliases": params.aliases,
        "tags": params.tags,
        "object": "model",
        "created": host.started(),
        "owned_by": "backstitch",
        "meta": {
            "n_vocab": summary.n_vocab,
            "n_ctx_train": summary.n_ctx_train,
            "n_ctx": summary.n_ctx,
            "n_embd": summary.n_embd,
            "n_params": summary.n_params,
            "size": summary.n_bytes,
        },
    })
}
