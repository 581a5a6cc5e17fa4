//! A model that computes NaN or infinity says so, wherever its outputs are read, and names the
//! tensor at fault.

mod golden;

use backstitch_models::gguf::Gguf;
use backstitch_models::graph::{Head, WeightShape};
use backstitch_models::{Batch, Context, Error, Model, Params, Pos, Token, Wanted};
use backstitch_testing::assert_bits;
use golden::{fresh, model, tokens};

/// Models with all kinds of operations: attention, mixtures of experts, recurrences, encoders,
/// projections within limits (MPT's), scores and logits within limits (Gemma 2's).
const MODELS: [&str; 18] = [
    "llama",
    "gemma2",
    "gemma3",
    "gptoss",
    "qwen3moe",
    "deepseek2",
    "mamba",
    "falcon_h1",
    "rwkv7",
    "qwen35",
    "lfm2",
    "kimi_linear",
    "phi2",
    "mpt",
    "nemotron",
    "bert",
    "t5",
    "quant_q4_k",
];

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Evaluate a few tokens of whatever kind the model takes.
fn evaluate(model: &Model) -> Result<Context, Error> {
    let mut ctx = Context::new(model, Params::default().n_ctx(64))?;
    let seq = ctx.sequence()?;
    let n_vocab = model.vocab().n_vocab() as u32;
    let text: Vec<Token> = tokens(0..12).iter().map(|token| Token(token.0 % n_vocab)).collect();
    if model.graph().encoder().is_some() || model.graph().head() == Head::Embeddings {
        ctx.encode(seq, &text)?;
    }
    if model.graph().head() == Head::Logits {
        ctx.append(seq, &text)?;
    }
    Ok(ctx)
}

/// Return the names of the matrices that a model multiplies by, or looks rows up in.
fn matrices(model: &Model) -> Vec<String> {
    let graphs = [Some(model.graph()), model.graph().encoder()].into_iter().flatten();
    let all = graphs.flat_map(|graph| graph.weights().iter());
    let is_matrix =
        |shape: &WeightShape| matches!(shape, WeightShape::Matrix { .. } | WeightShape::Stack { .. });
    let mut names: Vec<String> =
        all.filter(|weight| is_matrix(&weight.shape)).map(|weight| weight.tensor.clone()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn nan_in_any_matrix_is_told_with_its_name() {
    for name in MODELS {
        let good = bytes_of(name);
        let model = Model::from_bytes(&good).unwrap();
        evaluate(&model).unwrap_or_else(|error| panic!("{name}: {error}"));
        for tensor in matrices(&model) {
            let mut bytes = good.clone();
            let range = Gguf::parse(&good).unwrap().tensor(&tensor).unwrap().range();
            // In every format of numbers and of blocks, all ones are NaN.
            bytes[range].fill(0xff);
            let error = Model::from_bytes(&bytes).and_then(|model| evaluate(&model).map(|_| ())).err();
            match error {
                // The encoder stores what the decoder reads later.
                Some(Error::NotFinite(error)) if tensor.contains(".cross_attn_") => {
                    assert_eq!(error.what, "logits", "{name}: {tensor}: {error}");
                }
                Some(Error::NotFinite(error)) => {
                    assert_eq!(error.tensor.as_deref(), Some(tensor.as_str()), "{name}: {error}");
                }
                other => panic!("{name}: {tensor}: {other:?}"),
            }
        }
    }
}

/// A row of a router decides about one expert alone.
#[test]
fn nan_in_a_row_of_a_router_is_told() {
    for name in ["gptoss", "qwen3moe", "deepseek2", "lfm2moe", "nemotron_h_moe"] {
        let good = bytes_of(name);
        let gguf = Gguf::parse(&good).unwrap();
        let routers = matrices(&Model::from_bytes(&good).unwrap());
        for tensor in routers.iter().filter(|tensor| tensor.ends_with("ffn_gate_inp.weight")) {
            let router = gguf.tensor(tensor).unwrap();
            let (range, n_expert) = (router.range(), router.shape()[0]);
            let n_bytes = range.len() / n_expert;
            for expert in [0, 1, n_expert - 1] {
                let mut bytes = good.clone();
                bytes[range.start + expert * n_bytes..][..n_bytes].fill(0xff);
                let error = evaluate(&Model::from_bytes(&bytes).unwrap()).err();
                let Some(Error::NotFinite(error)) = error else { panic!("{name}: {tensor}: {error:?}") };
                assert_eq!(error.tensor.as_deref(), Some(tensor.as_str()), "{name}: {error}");
            }
        }
    }
}

#[test]
fn numbers_that_overflow_are_told() {
    let good = bytes_of("llama");
    let tensor = "output_norm.weight";
    let range = Gguf::parse(&good).unwrap().tensor(tensor).unwrap().range();
    let mut bytes = good.clone();
    bytes[range].chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&f32::MAX.to_le_bytes()));
    let error = evaluate(&Model::from_bytes(&bytes).unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, Error::NotFinite(_)) && text.contains("logits") && text.contains(tensor),
        "{text}"
    );
}

#[test]
fn a_refused_batch_changes_nothing() {
    // A model that fails at one token, and at no other.
    let mut bytes = bytes_of("llama");
    let (range, n_embd) = {
        let gguf = Gguf::parse(&bytes).unwrap();
        let tensor = gguf.tensor("token_embd.weight").unwrap();
        (tensor.range(), *tensor.shape().last().unwrap())
    };
    let bad = Token(200);
    let row = range.start + 4 * n_embd * bad.0 as usize;
    bytes[row..row + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let bad_model = Model::from_bytes(&bytes).unwrap();
    let mut ctx = Context::new(&bad_model, Params::default().n_ctx(64)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &[Token(5), Token(6)]).unwrap();
    let before = ctx.logits(seq).unwrap().to_vec();
    let error = ctx.append(seq, &[Token(7), bad]).unwrap_err();
    let Error::NotFinite(error) = error else { panic!("{error}") };
    assert_eq!((error.layer, error.what), (None, "logits"));
    assert_eq!(ctx.pos(seq).unwrap(), Pos(2));
    assert_bits("as before", ctx.logits(seq).unwrap(), &before);
    let mut batch = Batch::new();
    batch.extend(seq, Pos(2), &[bad], Wanted::Last).unwrap();
    assert!(matches!(ctx.decode_embeddings(&batch), Err(Error::NotFinite(_))));
    ctx.append(seq, &[Token(7)]).unwrap();
    assert_bits(
        "goes on",
        ctx.logits(seq).unwrap(),
        &fresh(&model("llama"), &[Token(5), Token(6), Token(7)]),
    );
}
