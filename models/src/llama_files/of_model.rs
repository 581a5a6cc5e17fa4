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
use backstitch_core::cell::CellType;
use backstitch_kv::snapshot::{CellLayer, Group, Sees, Shape, StateLayer};
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

/// Return the layout of llama.cpp's files of `model`, with cells of types `k_type` and `v_type`.
///
/// # Errors
/// [`Error::LlamaState`] for models whose files are not known.
pub fn layout(model: &Model, k_type: CellType, v_type: CellType) -> Result<Layout, Error> {
    let architecture = &model.hparams().architecture;
    let unknown = || Error::LlamaState { architecture: architecture.as_str().into() };
    let known = KNOWN.iter().find(|known| known.0 == architecture);
    let &(_, axes) = known.ok_or_else(unknown)?;
    let layers = model.graph().layers();
    let groups = groups(layers, k_type, v_type).ok_or_else(unknown)?;
    let caches = caches(&groups).ok_or_else(unknown)?;
    let shape = Shape { groups, recurrent: states(layers) };
    let recurrent = match shape.recurrent.is_empty() {
        true => None,
        false => Some(Recurrent {
            n_layer: u32::try_from(model.hparams().n_layer).map_err(|_| unknown())?,
            pieces: pieces(model.graph(), &shape).ok_or_else(unknown)?,
        }),
    };
    Ok(Layout { architecture: architecture.clone(), shape, caches, recurrent, axes })
}

/// Group the layers with caches by what they see; `None` if a layer has a cache of another kind.
fn groups(layers: &[LayerSpec], k_type: CellType, v_type: CellType) -> Option<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, layer) in (0..).zip(layers) {
        let cached = match &layer.attention {
            AttentionSpec::Absent => continue,
            AttentionSpec::Cached(cached) => cached,
            AttentionSpec::BatchOnly { .. } | AttentionSpec::Cross(_) | AttentionSpec::SharedWith(_) => {
                return None;
            }
        };
        let size = |n: usize| u32::try_from(n).ok();
        let layer = CellLayer {
            layer: index,
            n_head_kv: size(cached.n_head_kv)?,
            d_k: size(cached.d_k)?,
            d_v: size(cached.d_v)?,
        };
        let sees = cached.window.map_or(Sees::All, Sees::Window);
        match groups.iter_mut().find(|group| group.sees == sees) {
            Some(group) => group.layers.push(layer),
            None => groups.push(Group { sees, k_type, v_type, layers: vec![layer] }),
        }
    }
    Some(groups)
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

fn states(layers: &[LayerSpec]) -> Vec<StateLayer> {
    let layers = (0..).zip(layers).filter(|(_, layer)| !layer.recurrent.is_empty());
    layers.map(|(index, layer)| StateLayer { layer: index, parts: layer.recurrent.clone() }).collect()
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
