//! From a file to the matrices of a LoRA adapter: everything is checked against the model's graph
//! before anything is loaded.

use super::error::AdapterError;
use super::low_rank::{Factor, LowRank};
use crate::error::Error;
use crate::gguf::{Gguf, TensorInfo};
use crate::graph::{Graph, Kind, RowOf, WeightId, WeightInfo, WeightShape};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, sync::Arc, vec};
use core::ops::Range;

/// Key of the tokens behind which an activated LoRA adapter begins to act.
const ACTIVATED: &str = "adapter.alora.invocation_tokens";

/// The use of a weight by the steps of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// None that an adapter could change.
    Other,
    /// A table of which all tokens get the same row, or positions get rows.
    Fixed,
    /// A table of which tokens get rows.
    Table,
    /// Products.
    Product,
}

/// Check that `gguf` is an adapter of the kind `kind` for models of `architecture`.
///
/// # Errors
/// [`AdapterError::Kind`], [`AdapterError::Architecture`], [`AdapterError::Activated`].
pub(super) fn check_kind(gguf: &Gguf<'_>, architecture: &str) -> Result<(), Error> {
    for (key, wanted) in [("general.type", "adapter"), ("adapter.type", "lora")] {
        let found = gguf.optional::<&str>(key)?.unwrap_or_default();
        if found != wanted {
            return Err(AdapterError::Kind { key, found: found.into(), wanted }.into());
        }
    }
    let found = gguf.optional::<&str>("general.architecture")?.unwrap_or_default();
    if found != architecture {
        return Err(AdapterError::Architecture { found: found.into(), wanted: architecture.into() }.into());
    }
    if gguf.entry(ACTIVATED).is_some() {
        return Err(AdapterError::Activated.into());
    }
    Ok(())
}

/// Return alpha, the numerator of the factor of all changes; 0 if the file does not say.
///
/// # Errors
/// [`AdapterError::NotFinite`] if it is no number.
pub(super) fn alpha(gguf: &Gguf<'_>) -> Result<f32, Error> {
    let key = "adapter.lora.alpha";
    let alpha = gguf.optional::<f32>(key)?.unwrap_or(0.0);
    match alpha.is_finite() {
        true => Ok(alpha),
        false => Err(AdapterError::NotFinite { name: key.into(), index: 0 }.into()),
    }
}

/// Return the use of each weight.
fn uses(graph: &Graph) -> Vec<Use> {
    let mut uses = vec![Use::Other; graph.weights().len()];
    let graphs = [Some(graph), graph.encoder()].into_iter().flatten();
    for step in graphs.flat_map(Graph::steps) {
        for id in &step.weights {
            let (Some(info), Some(known)) = (graph.weight(*id), uses.get_mut(id.0 as usize)) else {
                continue;
            };
            let is_matrix = matches!(info.shape, WeightShape::Matrix { .. } | WeightShape::Stack { .. });
            match step.kind {
                Kind::Embed { by: RowOf::Token | RowOf::TokenOrFirst, .. } => *known = Use::Table,
                Kind::Embed { .. } if *known == Use::Other => *known = Use::Fixed,
                Kind::Embed { .. } => {}
                // Embeddings that are the head's matrix too are changed as embeddings alone.
                Kind::MatMul { .. } | Kind::MatMulHeads { .. } | Kind::Experts(_) | Kind::Logits { .. }
                    if is_matrix && *known != Use::Table =>
                {
                    *known = Use::Product;
                }
                // Adapters of what no arm names are refused, because the runner would not add them.
                _ => {}
            }
        }
    }
    uses
}

/// Both tensors that change one of the model's.
#[derive(Clone, Copy)]
struct Pair<'a> {
    a: TensorInfo<'a>,
    b: TensorInfo<'a>,
}

/// Both halves of a pair, as far as they were found.
type Halves<'a> = [Option<TensorInfo<'a>>; 2];

/// Return the pairs by the names of the model's tensors, and the names of tensors that are left
/// out: norms, which llama.cpp leaves out too.
///
/// # Errors
/// [`AdapterError::Name`], [`AdapterError::Half`], [`AdapterError::Empty`].
fn pairs<'a>(gguf: &Gguf<'a>) -> Result<(BTreeMap<&'a str, Pair<'a>>, Vec<String>), Error> {
    let mut halves: BTreeMap<&str, Halves<'a>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for info in gguf.tensors() {
        let name = info.name();
        let half = [".lora_a", ".lora_b"].iter().position(|suffix| name.ends_with(suffix));
        match half {
            Some(half) => {
                let base = &name[..name.len() - ".lora_a".len()];
                halves.entry(base).or_default()[half] = Some(*info);
            }
            None if name.ends_with("_norm.weight") => left_out.push(name.into()),
            None => {
                let wanted = "`NAME.lora_a` or `NAME.lora_b`";
                return Err(AdapterError::Name { tensor: name.into(), wanted }.into());
            }
        }
    }
    if halves.is_empty() {
        return Err(AdapterError::Empty.into());
    }
    let whole = |(base, halves): (&'a str, Halves<'a>)| match halves {
        [Some(a), Some(b)] => Ok((base, Pair { a, b })),
        [a, _] => {
            let suffix = if a.is_none() { "lora_a" } else { "lora_b" };
            Err(AdapterError::Half { tensor: format!("{base}.{suffix}").into() }.into())
        }
    };
    Ok((halves.into_iter().map(whole).collect::<Result<_, Error>>()?, left_out))
}

/// Check the shapes of a pair that changes a weight of `info`.
///
/// # Errors
/// [`AdapterError::Shape`], [`AdapterError::Rank`].
fn check_shapes(name: &str, pair: &Pair<'_>, info: &WeightInfo, of: Use) -> Result<usize, Error> {
    let (matrices, [n_rows, n_cols]): (&[usize], _) = match *info.dims {
        [n_cols] => (&[], [1, n_cols]),
        [n_rows, n_cols] => (&[], [n_rows, n_cols]),
        [_, n_rows, n_cols] => (&info.dims[..1], [n_rows, n_cols]),
        _ => return Err(AdapterError::Use { tensor: name.into() }.into()),
    };
    let [a, b] = match of {
        Use::Table => [[n_rows, 0], [n_cols, 0]],
        _ => [[0, n_cols], [n_rows, 0]],
    };
    for (tensor, last) in [(&pair.a, a), (&pair.b, b)] {
        let (found, wanted) = (tensor.shape(), [matrices, &last[..]].concat());
        let fits = found.len() == wanted.len()
            && found.iter().zip(&wanted).all(|(found, wanted)| *wanted == 0 || found == wanted);
        if !fits {
            let (tensor, found) = (tensor.name().into(), found.into());
            return Err(AdapterError::Shape { tensor, found, wanted: wanted.into() }.into());
        }
    }
    let rank_of = |tensor: &TensorInfo<'_>, dims: [usize; 2]| match (tensor.rows_and_cols(), dims) {
        ((rank, _), [0, _]) | ((_, rank), _) => rank,
    };
    let (a, b) = (rank_of(&pair.a, a), rank_of(&pair.b, b));
    match a == b {
        true => Ok(a),
        false => Err(AdapterError::Rank { tensor: name.into(), a, b }.into()),
    }
}

/// Return the rows of each matrix of the tensor that a weight is, and which matrix it is, if it is
/// one of a stack.
fn rows_of(info: &WeightInfo) -> (Range<usize>, usize) {
    match (&info.shape, &*info.dims) {
        (WeightShape::Matrix { rows, .. }, [_, n_rows, _]) => (0..*n_rows, rows.start / n_rows.max(&1)),
        (WeightShape::Matrix { rows, .. } | WeightShape::Stack { rows, .. }, _) => (rows.clone(), 0),
        _ => (0..0, 0),
    }
}

/// The matrices of an adapter, by the weights of the graph.
pub(super) struct Matrices {
    pub by_weight: Vec<Option<LowRank>>,
    pub n_bytes: usize,
    pub left_out: Vec<String>,
}

/// The weights of a graph that a pair changes.
struct Change<'a> {
    pair: Pair<'a>,
    weights: Vec<WeightId>,
    of: Use,
    rank: usize,
}

/// Read the matrices that change the weights of `graph`. Pairs for tables of types and positions
/// are left out, as llama.cpp does.
///
/// # Errors
/// Those of [`AdapterError`] that name a tensor, before memory is taken; then
/// [`AdapterError::NotFinite`] and [`Error::OutOfMemory`].
pub(super) fn read(gguf: &Gguf<'_>, graph: &Graph, alpha: f32) -> Result<Matrices, Error> {
    let (uses, (pairs, mut left_out)) = (uses(graph), pairs(gguf)?);
    let mut ids: BTreeMap<&str, Vec<WeightId>> = BTreeMap::new();
    for (id, info) in (0..).map(WeightId).zip(graph.weights()) {
        ids.entry(&info.tensor).or_default().push(id);
    }
    let use_of = |id: &WeightId| uses.get(id.0 as usize).copied().unwrap_or(Use::Other);
    let mut changes = Vec::new();
    for (name, pair) in pairs {
        let known = ids.get(name).ok_or_else(|| AdapterError::NoTensor { tensor: name.into() })?;
        if known.iter().all(|id| use_of(id) == Use::Fixed) {
            left_out.extend([pair.a, pair.b].map(|half| half.name().into()));
            continue;
        }
        check_scale(name, graph, &ids)?;
        let mut weights: Vec<WeightId> =
            known.iter().copied().filter(|id| matches!(use_of(id), Use::Table | Use::Product)).collect();
        let is_table = weights.iter().any(|id| use_of(id) == Use::Table);
        let of = if is_table { Use::Table } else { Use::Product };
        weights.retain(|id| use_of(id) == of);
        let first = weights.first().and_then(|id| graph.weight(*id));
        let first = first.ok_or_else(|| AdapterError::Use { tensor: name.into() })?;
        let rank = check_shapes(name, &pair, first, of)?;
        changes.push(Change { pair, weights, of, rank });
    }
    let mut all = Matrices { by_weight: vec![None; graph.weights().len()], n_bytes: 0, left_out };
    for change in &changes {
        load(gguf, graph, change, alpha, &mut all)?;
    }
    Ok(all)
}

/// Check that the model has no scale for products with the tensor `name`: it would be a factor of
/// what the adapter adds, too.
///
/// # Errors
/// [`AdapterError::Scaled`].
fn check_scale(name: &str, graph: &Graph, ids: &BTreeMap<&str, Vec<WeightId>>) -> Result<(), Error> {
    let scale = name.strip_suffix(".weight").map(|name| format!("{name}.scale"));
    let scales = scale.and_then(|scale| ids.get(scale.as_str()));
    let is_number = |id: &WeightId| {
        graph.weight(*id).is_some_and(|info| matches!(info.shape, WeightShape::Vector { len: 1 }))
    };
    match scales.is_some_and(|ids| ids.iter().any(is_number)) {
        true => Err(AdapterError::Scaled { tensor: name.into() }.into()),
        false => Ok(()),
    }
}

/// Load the matrices of a pair, those that several weights share once.
fn load(
    gguf: &Gguf<'_>,
    graph: &Graph,
    change: &Change<'_>,
    alpha: f32,
    all: &mut Matrices,
) -> Result<(), Error> {
    let Change { pair, weights, of, rank } = change;
    let factor = |info: &TensorInfo<'_>, rows| Factor::load(info, gguf.tensor_data(info), rows).map(Arc::new);
    let whole = |info: &TensorInfo<'_>| 0..info.rows_and_cols().0;
    let a = factor(&pair.a, whole(&pair.a))?;
    all.n_bytes += a.n_bytes();
    let mut parts: Vec<(Range<usize>, Arc<Factor>)> = Vec::new();
    for id in weights {
        let Some(info) = graph.weight(*id) else { continue };
        let is_table = *of == Use::Table;
        let (rows, first) = if is_table { (whole(&pair.b), 0) } else { rows_of(info) };
        let b = match parts.iter().find(|(known, _)| *known == rows) {
            Some((_, b)) => b.clone(),
            None => {
                let b = factor(&pair.b, rows.clone())?;
                all.n_bytes += b.n_bytes();
                parts.push((rows, b.clone()));
                b
            }
        };
        if let Some(slot) = all.by_weight.get_mut(id.0 as usize) {
            *slot = Some(LowRank { a: a.clone(), b, first, is_table, rank: *rank, alpha });
        }
    }
    Ok(())
}
