//! Golden models in other formats, and tokens for them.

use backstitch_core::DType;
use backstitch_models::{
    Model, Token,
    gguf::{Gguf, Writer},
};
use backstitch_testing::Random;

/// Return the golden model `name` with its matrices in another format, where their rows are whole
/// blocks of it.
pub fn model(name: &str, dtype: DType) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let converted: Vec<(DType, Vec<u8>)> = gguf
        .tensors()
        .iter()
        .map(|info| {
            let is_matrix = (2..=3).contains(&info.shape().len())
                && info.name().ends_with("weight")
                && !info.name().contains("conv1d");
            let n_cols = *info.shape().last().unwrap();
            let data = gguf.tensor_data(info);
            if !is_matrix || info.name().contains("norm") || n_cols % dtype.block_len() != 0 {
                return (info.dtype(), data.to_vec());
            }
            let mut values = vec![0.0; info.n_elements()];
            info.dtype().decode(data, &mut values).unwrap();
            let mut out = vec![0; dtype.row_bytes(values.len()).unwrap()];
            dtype.encode(&values, &mut out).unwrap();
            (dtype, out)
        })
        .collect();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for (info, (dtype, data)) in gguf.tensors().iter().zip(&converted) {
        writer.tensor(info.name(), info.shape(), *dtype, data).unwrap();
    }
    Model::from_bytes(&writer.to_bytes()).unwrap()
}

/// Return `n` arbitrary tokens.
pub fn tokens(model: &Model, seed: u64, n: usize) -> Vec<Token> {
    let mut random = Random::new(seed);
    (0..n).map(|_| Token(random.below(model.hparams().n_vocab) as u32)).collect()
}
