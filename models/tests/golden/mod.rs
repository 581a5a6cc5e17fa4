//! Models of the goldens, and their logits in a fresh context.

use backstitch_models::{Context, Model, Params, Token};

pub fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

pub fn tokens(range: std::ops::Range<u32>) -> Vec<Token> {
    range.map(|i| Token((i * 37 + 11) % 288)).collect()
}

/// Return the logits after `tokens` in a fresh context.
pub fn fresh(model: &Model, tokens: &[Token]) -> Vec<f32> {
    let mut ctx = Context::new(model, Params::default().n_ctx(1024)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, tokens).unwrap();
    ctx.logits(seq).unwrap().to_vec()
}
