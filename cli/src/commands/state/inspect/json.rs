//! The content of a state file as JSON, for programs. Names of fields are an interface: they stay.

use super::codec;
use backstitch_kv::rollback_cost::Kept;
use backstitch_kv::snapshot::{Checkpoint, Group, Sees, StateLayer};
use backstitch_kv::storage::{Scope, Section};
use backstitch_kv::{CostRange, RollbackCost, Window};
use backstitch_models::{SavedContext, SavedSequence};
use serde_json::{Value, json};
use std::path::Path;

/// Return everything that the descriptions say, without cells and states.
pub fn value(path: &Path, saved: &SavedContext<'_>) -> Value {
    let (container, snapshot) = (saved.container, saved.snapshot());
    let groups = snapshot.shape.groups.iter().zip(&snapshot.blocks);
    let sampler = saved.sampler();
    json!({
        "path": path.display().to_string(),
        "bytes": container.file_len(),
        "format": container.version(),
        "scope": match container.scope() {
            Scope::Context => "context",
            Scope::Sequence => "sequence",
            Scope::Entry => "entry",
        },
        "fingerprint": container.fingerprint().to_string(),
        "stream": container.is_stream(),
        "generation": container.generation(),
        "committed_bytes": container.committed_len(),
        "uncommitted_bytes": container.uncommitted(),
        "waste_bytes": container.waste(),
        "groups": groups.map(|(group, blocks)| as_group(group, blocks.len())).collect::<Vec<_>>(),
        "recurrent": snapshot.shape.recurrent.iter().map(as_recurrent).collect::<Vec<_>>(),
        "n_states": snapshot.n_states,
        "journals": snapshot.journals,
        "checkpoints": snapshot.checkpoints.iter().map(as_checkpoint).collect::<Vec<_>>(),
        "sequences": saved.sequences.iter().enumerate().map(|(i, own)| as_sequence(saved, i, own)).collect::<Vec<_>>(),
        "sampler": sampler.map(|sampler| json!({ "seed": sampler.seed, "n_tokens": sampler.tokens.len() })),
        "metadata_bytes": saved.metadata.len(),
        "sections": container.sections().map(as_section).collect::<Vec<_>>(),
    })
}

/// Return a group of layers with attention, and the number of its blocks.
fn as_group(group: &Group, n_blocks: usize) -> Value {
    let (sees, window) = match group.sees {
        Sees::All => ("all", None),
        Sees::Window(Window::Sliding(n)) => ("window", Some(n)),
        Sees::Window(Window::Chunked(n)) => ("chunk", Some(n)),
        Sees::Window(Window::Symmetric(n)) => ("around", Some(n)),
        Sees::EncoderOutput => ("text", None),
    };
    let layers = group.layers.iter().map(|layer| {
        json!({ "layer": layer.layer, "n_head_kv": layer.n_head_kv, "d_k": layer.d_k, "d_v": layer.d_v })
    });
    json!({
        "sees": sees,
        "window": window,
        "k_type": group.k_type.name(),
        "v_type": group.v_type.name(),
        "n_blocks": n_blocks,
        "layers": layers.collect::<Vec<_>>(),
    })
}

/// Return a layer with a recurrent state: the lengths of its state tensors and of their inputs.
fn as_recurrent(layer: &StateLayer) -> Value {
    let parts = layer.parts.iter().map(|part| json!({ "state": part.len, "input": part.input }));
    json!({ "layer": layer.layer, "parts": parts.collect::<Vec<_>>() })
}

/// Return a checkpoint. Journal and state are indices into those of the file.
fn as_checkpoint(checkpoint: &Checkpoint) -> Value {
    json!({
        "pinned": checkpoint.pinned,
        "floor": checkpoint.floor,
        "journal": checkpoint.journal,
        "state": checkpoint.state.and_then(|state| state.state),
    })
}

/// Return a sequence: its tokens, its cells in each group, its checkpoints and rollback costs.
fn as_sequence(saved: &SavedContext<'_>, i: usize, own: &SavedSequence) -> Value {
    let held = saved.snapshot().sequences.get(i);
    let cells = held
        .into_iter()
        .flat_map(|held| &held.cells)
        .map(|cells| json!({ "n": cells.len(), "whole_from": cells.whole_from.0 }));
    let checkpoints = held.into_iter().flat_map(|held| &held.checkpoints).map(
        |held| json!({ "position": held.pos.0, "checkpoint": held.checkpoint, "journaled": held.n_rows }),
    );
    let positions = Kept::of(saved.snapshot(), i).map(|kept| kept.costs());
    json!({
        "id": own.id,
        "end": own.end.0,
        "edited": own.edited,
        "foreign": own.foreign,
        "start": own.start.0,
        "tokens": own.tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
        "has_logits": own.logits.is_some(),
        "cells": cells.collect::<Vec<_>>(),
        "line": checkpoints.collect::<Vec<_>>(),
        "positions": positions.map(|ranges| ranges.iter().map(as_cost_range).collect::<Vec<_>>()),
    })
}

/// Return a range of positions with one kind of rollback cost. Both ends belong to it.
fn as_cost_range(range: &CostRange) -> Value {
    let cost = match range.cost {
        RollbackCost::Held => "at once",
        RollbackCost::Replayed => "replayed",
        _ => "reevaluated",
    };
    json!({
        "first": range.positions.start.0,
        "last": range.positions.end.0 - 1,
        "restored_from": range.restored_from.0,
        "cost": cost,
    })
}

/// Return a section with its place in the file.
fn as_section(section: &Section) -> Value {
    json!({
        "tag": section.tag.to_string(),
        "index": section.index,
        "version": section.version,
        "required": section.is_required(),
        "codec": codec(section.codec),
        "offset": section.offset,
        "stored_bytes": section.stored_len,
        "raw_bytes": section.raw_len,
        "checksum": format!("{:016x}", section.checksum),
    })
}
