//! A model with rows long enough that the kernel set `amx` uses tiles for them, as for no golden
//! model.

use backstitch_core::DType;
use backstitch_models::{
    Model,
    gguf::{Gguf, Writer},
};
use backstitch_testing::Random;

/// The columns of the longest rows: 32 blocks, which is more than the 24 of the shortest rows that
/// use tiles and more than tiles take at once, and four super-blocks of 256.
const N_FF: usize = 1024;

/// Return the golden model `quant_f16` with another feed-forward network and random matrices, all
/// of the format `dtype`.
pub fn model(dtype: DType) -> Model {
    let path = format!("{}/../goldens/models/quant_f16.gguf", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut random = Random::new(1);
    let matrices: Vec<(&str, [usize; 2], Vec<u8>)> = gguf
        .tensors()
        .iter()
        .filter_map(|info| {
            let shape = matrix_shape(info.name(), info.shape())?;
            Some((info.name(), shape, matrix(&mut random, dtype, shape)))
        })
        .collect();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    writer.set("llama.feed_forward_length", N_FF as u32).unwrap();
    for (name, shape, data) in &matrices {
        writer.tensor(*name, shape, dtype, data).unwrap();
    }
    for info in gguf.tensors().iter().filter(|info| info.shape().len() == 1) {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    Model::from_bytes(&writer.to_bytes()).unwrap()
}

/// Return the shape of a matrix of the wider network; `None` for vectors.
fn matrix_shape(name: &str, shape: &[usize]) -> Option<[usize; 2]> {
    let &[n_rows, n_cols] = shape else { return None };
    Some(match name {
        "blk.0.ffn_gate.weight" | "blk.0.ffn_up.weight" => [N_FF, n_cols],
        "blk.0.ffn_down.weight" => [n_rows, N_FF],
        _ => [n_rows, n_cols],
    })
}

/// Return a random matrix that makes outputs about as large as inputs.
fn matrix(random: &mut Random, dtype: DType, [n_rows, n_cols]: [usize; 2]) -> Vec<u8> {
    let size = (3.0 / n_cols as f32).sqrt();
    let values: Vec<f32> = random.floats(n_rows * n_cols).iter().map(|x| x * size).collect();
    let mut out = vec![0; dtype.row_bytes(values.len()).unwrap()];
    dtype.encode(&values, &mut out).unwrap();
    out
}
