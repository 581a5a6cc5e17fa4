//! `/health`, `/props` and `/lora-adapters`: what the server is.

use crate::http::{ApiError, Body, ErrorKind, Host, bytes};
use crate::params::default_settings;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// The longest list of adapters, in bytes.
const MAX_ADAPTERS_BYTES: usize = 1 << 16;

/// Answer that the server is there. It never listens before the model is loaded. If the engine
/// broke down it is not well, until the model is loaded again, which begins at once.
pub(super) async fn health(State(host): State<Arc<Host>>) -> Result<Json<Value>, ApiError> {
    if host.is_broken() {
        tokio::spawn(async move { host.wake().await.map(drop) });
        let text = "the engine broke down; the model is loaded again";
        return Err(ApiError::new(ErrorKind::Unavailable, text));
    }
    Ok(Json(json!({"status": "ok"})))
}

/// Return the settings of the server and the model.
pub(super) async fn props(State(host): State<Arc<Host>>) -> Json<Value> {
    let (params, summary) = (host.params(), host.summary());
    let path = params.model_path.as_ref().map(|path| path.to_string_lossy()).unwrap_or_default();
    Json(json!({
        "default_generation_settings": { "params": default_settings(params), "n_ctx": summary.n_ctx },
        "total_slots": summary.n_slots,
        "model_alias": params.alias(),
        "model_path": path,
        "modalities": { "vision": false, "video": false, "audio": false },
        "media_marker": "",
        "endpoint_slots": params.slots,
        "endpoint_props": params.props,
        "endpoint_metrics": params.metrics,
        "ui": params.ui,
        "ui_settings": {},
        "cors_proxy_enabled": false,
        "chat_template": summary.template,
        "chat_template_caps": summary.capabilities.to_json(),
        "bos_token": summary.bos,
        "eos_token": summary.eos,
        "build_info": build_info(),
        "is_sleeping": host.is_sleeping(),
    }))
}

/// Return the version, in the form of llama-server's builds.
pub(crate) fn build_info() -> String {
    format!("b{}-backstitch", env!("CARGO_PKG_VERSION"))
}

/// Settings cannot be changed while the server runs; with `--props` a request to do so is answered
/// as llama-server answers it.
pub(super) async fn set_props(State(host): State<Arc<Host>>, _: Body) -> Result<Json<Value>, ApiError> {
    match host.params().props {
        true => Ok(Json(json!({"success": true}))),
        false => Err(ApiError::not_supported(
            "This server does not support changing global properties. Start it with `--props`",
        )),
    }
}

/// Return the adapters and their scales. That does not wake a model that sleeps.
pub(super) async fn adapters(State(host): State<Arc<Host>>) -> Json<Value> {
    Json(host.adapters().to_json())
}

/// Scale the adapters of requests that name none.
pub(super) async fn set_adapters(
    State(host): State<Arc<Host>>,
    request: axum::extract::Request,
) -> Result<Json<Value>, ApiError> {
    let (body, _charge) = bytes(request, &host, MAX_ADAPTERS_BYTES).await?;
    let Ok(Value::Array(list)) = serde_json::from_slice(&body) else {
        return Err(ApiError::invalid("Request body must be an array"));
    };
    let scales = host.adapters().read(&list, "lora-adapters")?;
    host.adapters().scale(&scales);
    Ok(Json(json!({"success": true})))
}
