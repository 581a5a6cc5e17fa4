//! Adapters for any model, of random numbers.

use backstitch_core::DType;
use backstitch_models::Model;
use backstitch_models::adapter::{Adapter, AdapterSet, ControlVector};
use backstitch_models::gguf::Writer;
use backstitch_models::graph::{Graph, Kind, RowOf, WeightInfo, WeightShape};
use backstitch_testing::Random;
use std::collections::BTreeMap;

/// Return the tensors that an adapter can change, and true for tables of embeddings.
pub fn targets(model: &Model) -> BTreeMap<String, (WeightInfo, bool)> {
    let graph = model.graph();
    let mut found: BTreeMap<String, (WeightInfo, bool)> = BTreeMap::new();
    let graphs = [Some(graph), graph.encoder()];
    for step in graphs.into_iter().flatten().flat_map(Graph::steps) {
        for id in &step.weights {
            let info = graph.weight(*id).unwrap().clone();
            let is_matrix = matches!(info.shape, WeightShape::Matrix { .. } | WeightShape::Stack { .. });
            let is_table = match step.kind {
                Kind::Embed { by, .. } => matches!(by, RowOf::Token | RowOf::TokenOrFirst),
                _ => false,
            };
            if is_table || is_matrix && !matches!(step.kind, Kind::Embed { .. }) {
                found.entry(info.tensor.clone()).or_insert((info, false)).1 |= is_table;
            }
        }
    }
    found
}

/// Return the file of a LoRA adapter of the tensors that `changes` picks.
pub fn file(model: &Model, seed: u64, rank: usize, changes: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, (info, is_table)) in targets(model).into_iter().filter(|(name, _)| changes(name)) {
        let (matrices, rows, cols) = match *info.dims {
            [cols] => (None, 1, cols),
            [rows, cols] => (None, rows, cols),
            [n, rows, cols] => (Some(n), rows, cols),
            _ => panic!("{name}: {:?}", info.dims),
        };
        let halves = match is_table {
            true => [("lora_a", [rows, rank]), ("lora_b", [cols, rank])],
            false => [("lora_a", [rank, cols]), ("lora_b", [rows, rank])],
        };
        for (half, dims) in halves {
            let shape: Vec<usize> = matrices.into_iter().chain(dims).collect();
            let scale = 0.3 / (shape.last().copied().unwrap() as f32).sqrt();
            let numbers = random.floats(shape.iter().product()).into_iter();
            let data = numbers.flat_map(|x| (scale * x).to_le_bytes()).collect();
            tensors.push((format!("{name}.{half}"), shape, data));
        }
    }
    let name = format!("random {seed}");
    let mut writer = Writer::new();
    writer.set("general.type", "adapter").unwrap();
    writer.set("general.architecture", model.hparams().architecture.as_str()).unwrap();
    writer.set("general.name", name.as_str()).unwrap();
    writer.set("adapter.type", "lora").unwrap();
    writer.set("adapter.lora.alpha", 2.0 * rank as f32).unwrap();
    for (name, shape, data) in &tensors {
        writer.tensor(name, shape, DType::F32, data).unwrap();
    }
    writer.to_bytes()
}

/// Return an adapter of all tensors that one can change.
pub fn lora(model: &Model, seed: u64, rank: usize) -> Adapter {
    Adapter::from_bytes(&file(model, seed, rank, |_| true), model).unwrap()
}

/// Return the file of a control vector for all layers that can be steered.
pub fn control_file(model: &Model, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let n_embd = model.hparams().n_embd;
    let n_layer = model.graph().layer_ends().iter().map(|end| end.layer + 1).max().unwrap();
    let directions: Vec<(String, Vec<u8>)> = (1..n_layer)
        .map(|layer| {
            let numbers = random.floats(n_embd).into_iter();
            (format!("direction.{layer}"), numbers.flat_map(|x| (0.1 * x).to_le_bytes()).collect())
        })
        .collect();
    let mut writer = Writer::new();
    writer.set("general.architecture", "controlvector").unwrap();
    for (name, direction) in &directions {
        writer.tensor(name, &[n_embd], DType::F32, direction).unwrap();
    }
    writer.to_bytes()
}

/// Return the set with a control vector for all layers that can be steered; the set as it is for
/// models of a single layer, which have none.
pub fn steered(model: &Model, set: AdapterSet, seed: u64, scale: f32) -> AdapterSet {
    let has_second = model.graph().layer_ends().iter().any(|end| end.layer > 0);
    if !has_second {
        return set;
    }
    let vector = ControlVector::from_bytes(&control_file(model, seed), model).unwrap();
    set.with_control(&vector, scale, None).unwrap()
}

/// Return sets that differ: none, one adapter, two with a control vector, the first at another
/// scale.
pub fn sets(model: &Model) -> [AdapterSet; 4] {
    let (a, b) = (lora(model, 1, 3), lora(model, 2, 8));
    let one = AdapterSet::default().with(&a, 1.0).unwrap();
    let both = steered(model, one.clone().with(&b, 0.5).unwrap(), 3, 1.0);
    let other_scale = AdapterSet::default().with(&a, -0.25).unwrap();
    [AdapterSet::default(), one, both, other_scale]
}
