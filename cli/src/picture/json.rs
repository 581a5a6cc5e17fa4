//! The numbers of a picture as JSON, for programs: nothing is rounded to columns, and costs are
//! ranges of positions. Names of fields are an interface: they stay.

use super::{Picture, Role};
use backstitch_kv::Window;
use backstitch_kv::survey::{Checkpoint, Extent, Layers, Survey};
use backstitch_models::{CostRange, Pos, Rollback, RollbackCost};
use serde_json::{Value, json};

/// Return all numbers of the picture: the fields of its sequence, and beside them the rollback
/// costs, forks and rollbacks.
pub fn value(picture: &Picture) -> Value {
    let mut value = sequence(&picture.survey);
    let more = json!({
        "model": picture.model,
        "positions": picture.costs.iter().map(cost_range).collect::<Vec<_>>(),
        "forks": picture.forks.iter().map(sequence).collect::<Vec<_>>(),
        "rollbacks": picture.rollbacks.iter().map(rollback).collect::<Vec<_>>(),
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

/// Return the memory of a sequence, also of a fork.
fn sequence(survey: &Survey) -> Value {
    let bytes = survey.bytes();
    let params = survey.budget.params;
    json!({
        "sequence": survey.seq.0,
        "memory": survey.kind.to_string(),
        "n_tokens": survey.end.0,
        "layers": survey.layers.iter().map(layers).collect::<Vec<_>>(),
        "checkpoints": survey.checkpoints.iter().map(checkpoint).collect::<Vec<_>>(),
        "bytes": {
            "cells": bytes.cells,
            "cells_shared": bytes.cells_shared,
            "states": bytes.states,
            "checkpoints": bytes.checkpoints,
            "journal": bytes.journal,
        },
        "budget": {
            "checkpoint_bytes": params.checkpoint_bytes,
            "spacing": params.spacing,
            "journal": params.journal,
            "margin": params.margin,
            "n_paid": survey.budget.n_paid,
            "n_checkpoints": survey.budget.n_checkpoints,
        },
    })
}

/// Return a group of layers: its window, its blocks, and its recurrent state.
fn layers(layers: &Layers) -> Value {
    let (sliding, chunked) = match layers.window {
        Some(Window::Sliding(size) | Window::Symmetric(size)) => (Some(size), None),
        Some(Window::Chunked(size)) => (None, Some(size)),
        None => (None, None),
    };
    json!({
        "kind": layers.kind.to_string(),
        "n_layer": layers.n_layer,
        "window": sliding,
        "chunk": chunked,
        "margin": layers.margin,
        "block_bytes": layers.block_bytes,
        "blocks": layers.extents.iter().map(extent).collect::<Vec<_>>(),
        "state_bytes": layers.state_bytes,
        "state_users": layers.state_users,
        "row_bytes": layers.row_bytes,
        "held_bytes": layers.held_bytes,
    })
}

/// Return a block. Its users are sequences and checkpoints.
fn extent(extent: &Extent) -> Value {
    json!({
        "block": extent.block,
        "n_cells": extent.n_cells,
        "first": extent.first.0,
        "last": extent.last.0,
        "users": extent.users,
        "sequences": extent.sequences,
    })
}

/// Return a checkpoint. "alone" counts what would be freed without it.
fn checkpoint(checkpoint: &Checkpoint) -> Value {
    json!({
        "pos": checkpoint.pos.0,
        "role": match Role::of(checkpoint) {
            Role::Pinned => "pinned",
            Role::Scheduled => "scheduled",
            Role::Journal => "journal",
        },
        "pinned": checkpoint.is_pinned,
        "n_rows": checkpoint.n_rows,
        "sequences": checkpoint.sequences,
        "state_bytes": checkpoint.state_bytes,
        "n_blocks": checkpoint.n_blocks,
        "n_blocks_alone": checkpoint.n_blocks_alone,
        "bytes_alone": checkpoint.bytes_alone,
    })
}

/// Return a range of positions with one kind of rollback cost. Both ends belong to it.
fn cost_range(range: &CostRange) -> Value {
    json!({
        "from": range.positions.start.0,
        "to": range.positions.end.0 - 1,
        "cost": match range.cost {
            RollbackCost::Held => "held",
            RollbackCost::Replayed => "replayed",
            _ => "reevaluated",
        },
        "restored_from": if range.cost == RollbackCost::Held { Value::Null } else { range.restored_from.0.into() },
    })
}

/// Return a rollback that was carried out.
fn rollback((pos, cost): &(Pos, Rollback)) -> Value {
    json!({
        "to": pos.0,
        "restored_from": cost.restored_from.0,
        "replayed": cost.replayed,
        "reevaluated": cost.reevaluated,
    })
}
