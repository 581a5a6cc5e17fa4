//! The places in llama.cpp's state files of the memory that a model's layers keep.
//!
//! Attention is the same in all architectures: one cache holds the layers that see all tokens, and
//! one the layers with a window. A recurrent layer has two rows, R and S, which hold the states of
//! its operations: convolutions channel by channel where ours go tap by tap, and matrices of keys
//! and values in the order that suits each kernel. An operation's state has the same order in all
//! architectures that use it. The architectures that were compared with llama.cpp are still listed,
//! because nothing in a file tells that one differs.

use super::{Layout, Piece, Recurrent};
use crate::{
    error::Error,
    graph::{Graph, Step},
    model::Model,
};
use alloc::{vec, vec::Vec};
use backstitch_kv::snapshot::{Group, Sees, Shape};
use backstitch_kv::{AttentionSpec, LayerSpec};

/// Architectures whose files were exchanged with llama.cpp; true if their positions have axes
/// there.
const KNOWN: &[(&str, bool)] = &[
    ("arwkv7", false),
    ("falcon-h1", false),
    ("gemma2", false),
    ("gemma3", false),
    ("granitehybrid", false),
    ("jamba", false),
    ("lfm2", false),
    ("llama", false),
    ("mamba", false),
    ("mamba2", false),
    ("nemotron_h", false),
    ("nemotron_h_moe", false),
    ("plamo2", false),
    ("qwen2", false),
    ("qwen3", false),
    ("qwen35", true),
    ("qwen3next", false),
    ("rwkv6", false),
    ("rwkv6qwen2", false),
    ("rwkv7", false),
];

/// Return the layout of llama.cpp's files of `model`, whose memory is of this shape.
///
/// # Errors
/// [`Error::LlamaState`] for models whose files are not known.
pub fn layout(model: &Model, shape: Shape) -> Result<Layout, Error> {
    let architecture = &model.hparams().architecture;
    let unknown = || Error::LlamaState { architecture: architecture.as_str().into() };
    let known = KNOWN.iter().find(|known| known.0 == architecture);
    let &(_, axes) = known.ok_or_else(unknown)?;
    // Layers that keep no cells of their own were not compared.
    let is_own =
        |layer: &LayerSpec| matches!(layer.attention, AttentionSpec::Absent | AttentionSpec::Cached(_));
    if !model.graph().layers().iter().all(is_own) {
        return Err(unknown());
    }
    let caches = caches(&shape.groups).ok_or_else(unknown)?;
    let recurrent = match shape.recurrent.is_empty() {
        true => None,
        false => Some(Recurrent {
            n_layer: u32::try_from(model.hparams().n_layer).map_err(|_| unknown())?,
            pieces: pieces(model.graph(), &shape).ok_or_else(unknown)?,
        }),
    };
    Ok(Layout { architecture: architecture.clone(), shape, caches, recurrent, axes })
}

/// Return the groups in llama.cpp's order. A windowed cache always follows that of the other
/// layers, which is there even if no layer uses it.
fn caches(groups: &[Group]) -> Option<Vec<Option<usize>>> {
    let all = groups.iter().position(|group| group.sees == Sees::All);
    let windowed = groups.iter().position(|group| group.sees != Sees::All);
    match (windowed, groups.len()) {
        (_, 0) => Some(Vec::new()),
        (None, 1) => Some(vec![all]),
        (Some(_), 1) => Some(vec![None, windowed]),
        (Some(_), 2) if all.is_some() => Some(vec![all, windowed]),
        _ => None,
    }
}

/// Return the places of the pieces of each recurrent layer; `None` if an operation's is not known.
fn pieces(graph: &Graph, shape: &Shape) -> Option<Vec<Vec<Piece>>> {
    let mut found: Vec<Vec<Option<Piece>>> =
        shape.recurrent.iter().map(|layer| vec![None; layer.parts.len()]).collect();
    for state in graph.steps().iter().filter_map(Step::state) {
        let layer = shape.recurrent.iter().position(|layer| layer.layer as usize == state.layer)?;
        *found.get_mut(layer)?.get_mut(state.number)? = Some(state.in_llama);
    }
    found.into_iter().map(|pieces| pieces.into_iter().collect()).collect()
}
