//! The memory footprint of a model, computed from its description: weights, and the caches of a
//! context. `inspect` shows it, and `bench` derives from it how many bytes a token reads.

use backstitch_core::DType;
use backstitch_core::packed::{PackedType, packed_bytes};
use backstitch_models::gguf::{Gguf, TensorInfo};
use backstitch_models::graph::{Graph, StackOf, WeightInfo, WeightShape};
use backstitch_models::{Budget, Hparams, Params};

/// Return the bytes of a weight in memory. Of a weight with a matrix for each expert, `n_experts`
/// matrices count, or all if there are fewer.
pub fn weight(info: &WeightInfo, n_experts: usize) -> u64 {
    let matrix = |kind, n_rows, n_cols| packed_bytes(kind, n_rows, n_cols).unwrap_or(0) as u64;
    match &info.shape {
        WeightShape::Matrix { rows, n_cols, kind } => matrix(*kind, rows.len(), *n_cols),
        WeightShape::Stack { of, n_matrices, rows, n_cols, kind, .. } => {
            let n = if *of == StackOf::Experts { n_experts.min(*n_matrices) } else { *n_matrices };
            matrix(*kind, rows.len(), *n_cols) * n as u64
        }
        WeightShape::Columns { n_rows, n_cols } => 4 * *n_rows as u64 * *n_cols as u64,
        WeightShape::Distances { n_bucket, n_head, .. } => 4 * *n_bucket as u64 * *n_head as u64,
        WeightShape::Vector { len } => 4 * *len as u64,
    }
}

/// Return the bytes of all weights in memory.
pub fn weights(graph: &Graph) -> u64 {
    graph.weights().iter().map(|info| weight(info, usize::MAX)).sum()
}

/// Return the bytes of KV caches, recurrent states and journals for one sequence of `n_ctx` tokens;
/// everything else is as `params` say.
pub fn cache(hparams: &Hparams, graph: &Graph, n_ctx: u32, params: &Params) -> u64 {
    let budget = Budget::new(hparams, graph, &(*params).n_ctx(n_ctx).n_seq_max(1));
    budget.caches + budget.states + budget.journal
}

/// Return the bytes that the adapter or the control vector in a file takes in memory; none if the
/// file holds another thing.
pub fn adapter(gguf: &Gguf<'_>) -> Option<u64> {
    let says = |key, wanted| gguf.optional::<&str>(key).is_ok_and(|found| found == Some(wanted));
    if says("general.architecture", "controlvector") {
        return Some(gguf.tensors().iter().map(|tensor| 4 * tensor.n_elements() as u64).sum());
    }
    // Norms in adapters are not used.
    let is_factor =
        |tensor: &&TensorInfo<'_>| tensor.name().ends_with(".lora_a") || tensor.name().ends_with(".lora_b");
    says("adapter.type", "lora").then(|| gguf.tensors().iter().filter(is_factor).map(factor).sum())
}

/// Return the bytes of a factor's matrices: blocks become F32.
fn factor(tensor: &TensorInfo<'_>) -> u64 {
    let (outer, [rows, columns]) = match *tensor.shape() {
        [ref outer @ .., rows, columns] => (outer, [rows, columns]),
        _ => (&[][..], [1, tensor.n_elements()]),
    };
    let stays = matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16);
    let kind = PackedType::of(if stays { tensor.dtype() } else { DType::F32 });
    let size = kind.and_then(|kind| packed_bytes(kind, rows, columns).ok()).unwrap_or(0) as u64;
    outer.iter().fold(size, |n, &dim| n.saturating_mul(dim as u64))
}
