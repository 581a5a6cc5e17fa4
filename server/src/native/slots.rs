//! `/slots` and `/backstitch/cache`: what is evaluated and held.

mod name;

use crate::engine::{Counters, HeldSequence, SlotReport, Tenant};
use crate::error::Error;
use crate::http::{ApiError, App, Body, Client, ErrorKind, Host, ModelSummary, Ready, millis};
use crate::params::Fields;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use backstitch_models::RollbackCost;
use backstitch_models::backstitch_kv::storage::disk::{Disk, RealDisk};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Return what the slots do. Prompts are not told, as they may be those of other clients.
pub(super) async fn list(
    State(host): State<Arc<Host>>,
    query: Result<Query<HashMap<String, String>>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    if !host.params().slots {
        return Err(ApiError::not_supported(
            "This server does not support slots endpoint. Start it with `--slots`",
        ));
    }
    let summary = host.summary();
    // A look at the slots does not wake the model.
    let slots = match host.peek() {
        Some(app) => app.engine().slots().await?,
        None => Vec::new(),
    };
    let Query(query) = query?;
    let is_busy = slots.len() == summary.n_slots && slots.iter().all(|slot| slot.is_processing);
    if is_busy && query.get("fail_on_no_slot").is_some_and(|value| value != "0") {
        return Err(ApiError::new(ErrorKind::Unavailable, "no slot available"));
    }
    let idle = (slots.len()..summary.n_slots).map(|id| slot_json(id, None, &summary));
    let known = slots.iter().map(|slot| slot_json(slot.id, Some(slot), &summary));
    Ok(Json(known.chain(idle).collect()))
}

fn slot_json(id: usize, report: Option<&SlotReport>, summary: &ModelSummary) -> Value {
    let mut slot = json!({
        "id": id,
        "n_ctx": summary.n_ctx,
        "speculative": summary.has_drafts,
        "is_processing": report.is_some_and(|report| report.is_processing),
    });
    let Some((report, task)) = report.and_then(|report| Some((report, report.task?))) else { return slot };
    slot["id_task"] = task.into();
    slot["n_prompt_tokens"] = report.n_prompt.into();
    slot["n_prompt_tokens_processed"] = report.n_prompt_evaluated.into();
    slot["n_prompt_tokens_cache"] = report.n_prompt_cached.into();
    let n_remain = report.n_left.filter(|_| report.is_processing).map_or(json!(-1), |n| json!(n));
    let n_decoded = if report.is_processing { report.n_generated } else { 0 };
    slot["next_token"] = json!([{
        "has_next_token": report.is_processing,
        "has_new_line": false,
        "n_remain": n_remain,
        "n_decoded": n_decoded,
    }]);
    slot
}

/// Save, restore or erase the sequence of a slot, once it is idle.
pub(super) async fn act(
    Ready(app): Ready,
    client: Client,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<HashMap<String, String>>, QueryRejection>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let (Path(id), Query(query)) = (id?, query?);
    let Ok(slot) = id.parse::<usize>() else { return Err(ApiError::invalid("Invalid slot ID")) };
    let action = query.get("action").map_or("", String::as_str);
    if !matches!(action, "save" | "restore" | "erase") {
        return Err(ApiError::invalid("Invalid action"));
    }
    let done =
        tokio::time::timeout(app.params().timeout, perform(&app, client, slot, action, Fields::new(&body)));
    done.await.map_err(|_| ApiError::new(ErrorKind::Timeout, "the slot was busy for too long"))?
}

/// Do what `action` says with a slot.
async fn perform(
    app: &App,
    client: Client,
    slot: usize,
    action: &str,
    fields: Fields<'_>,
) -> Result<Json<Value>, ApiError> {
    let Some(folder) = &app.params().slot_save_path else {
        let text = "This server does not support slots action. Start it with `--slot-save-path`";
        return Err(ApiError::not_supported(text));
    };
    let tenant = client.tenant(fields.str("cache_salt")?);
    if action == "erase" {
        let n_erased = app.engine().erase_slot(slot, tenant).await?;
        return Ok(Json(json!({"id_slot": slot, "n_erased": n_erased})));
    }
    let name = fields.str("filename")?.ok_or_else(|| ApiError::missing("filename"))?;
    if !name::is_safe(name) {
        return Err(ApiError::invalid("Invalid filename"));
    }
    // Clients with keys of their own have folders of their own.
    let folder = tenant.folder().map_or_else(|| folder.clone(), |tenant| folder.join(tenant));
    match action {
        "save" => save(app, (slot, tenant), folder, name).await,
        _ => {
            let path = folder.join(name);
            let lora = app.adapters().read(fields.array("lora")?.unwrap_or_default(), "lora")?;
            let sets = vec![app.adapters().set(&lora)?];
            let restored = app.engine().restore_slot(slot, path, tenant, sets).await;
            let file = restored.map_err(|error| {
                let reason = without_folder(&error, &folder);
                let text = format!("Unable to restore slot, invalid slot save file: {reason}");
                ApiError::from(error).with_message(text, ErrorKind::Invalid)
            })?;
            Ok(Json(json!({
                "id_slot": slot,
                "filename": name,
                "n_restored": file.n_tokens,
                "n_read": file.n_bytes,
                "timings": { "restore_ms": millis(file.elapsed) },
            })))
        }
    }
}

async fn save(
    app: &App,
    (slot, tenant): (usize, Tenant),
    folder: PathBuf,
    name: &str,
) -> Result<Json<Value>, ApiError> {
    RealDisk.make_folder(&folder).map_err(|error| {
        ApiError::new(ErrorKind::Server, format!("Unable to save slot: {name}: {}", error.kind()))
    })?;
    let layout = app.params().slot_layout;
    let saved = app.engine().save_slot(slot, tenant, folder.join(name), layout).await;
    let file = saved.map_err(|error| {
        let reason = without_folder(&error, &folder);
        let error = ApiError::from(error);
        let kind = error.kind();
        error.with_message(format!("Unable to save slot: {reason}"), kind)
    })?;
    Ok(Json(json!({
        "id_slot": slot,
        "filename": name,
        "n_saved": file.n_tokens,
        "n_written": file.n_bytes,
        "timings": { "save_ms": millis(file.elapsed) },
    })))
}

/// Return the text of an error without the folder of saved slots, which clients do not learn.
fn without_folder(error: &Error, folder: &std::path::Path) -> String {
    let folder = format!("{}{}", folder.display(), std::path::MAIN_SEPARATOR);
    error.to_string().replace(&folder, "")
}

/// Return what is held for the client, with the cost of going back to each position. With
/// `cache_salt` it is what the client's requests with that salt left, without what those without
/// one did.
///
/// The page draws it, and asks again and again: that does not wake a model that sleeps.
pub(super) async fn cache(
    State(host): State<Arc<Host>>,
    client: Client,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let summary = host.summary();
    let tenant = client.tenant(query.get("cache_salt").map(String::as_str));
    let sequences = match host.peek() {
        Some(app) => app.engine().held(tenant).await?.iter().map(|held| held_json(&app, held)).collect(),
        None => Vec::new(),
    };
    let mut told = json!({
        "sequences": sequences,
        "n_ctx": summary.n_ctx,
        "n_slots": summary.n_slots,
        "budget": { "bytes": summary.held_bytes, "sequences": summary.n_held },
    });
    // They are those of all clients, of which a key learns nothing.
    if host.params().api_keys.len() <= 1 {
        told["counters"] = counters_json(&host.counters().await?);
    }
    Ok(Json(told))
}

fn counters_json(counters: &Counters) -> Value {
    json!({
        "n_prompt": counters.n_prompt,
        "n_cached": counters.n_cached,
        "n_generated": counters.n_generated,
        "n_held": counters.n_held,
        "n_evicted": counters.n_evicted,
        "n_unstored": counters.n_unstored,
        "n_damaged": counters.n_damaged,
    })
}

/// The characters of a sequence's text that are told.
const TEXT_CHARS: usize = 80;

fn held_json(app: &App, held: &HeldSequence) -> Value {
    let positions = held.positions.iter().map(|range| {
        let cost = match range.cost {
            RollbackCost::Held => "held",
            RollbackCost::Replayed => "replayed",
            _ => "reevaluated",
        };
        json!({
            "from": range.positions.start.0,
            "to": range.positions.end.0,
            "restored_from": range.restored_from.0,
            "cost": cost,
        })
    });
    let first = held.tokens.get(..held.tokens.len().min(TEXT_CHARS)).unwrap_or_default();
    let text = app.vocab().detokenize(first, backstitch_models::vocab::WriteSpecial::Yes);
    let text: String = String::from_utf8_lossy(&text).chars().take(TEXT_CHARS).collect();
    json!({
        "seq": held.seq,
        "slot": held.slot,
        "is_busy": held.is_busy,
        "n_tokens": held.tokens.len(),
        "idle_ms": millis(held.idle),
        "n_bytes": held.n_bytes,
        "text_begin": text,
        "positions": positions.collect::<Vec<_>>(),
    })
}
