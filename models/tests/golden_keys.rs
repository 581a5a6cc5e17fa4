//! Golden models with keys changed or taken away: what a file need not state, and what each of a
//! few keys does. The tests compare bits, not tolerances, but where llama.cpp's logits are at hand.

mod golden;

use backstitch_core::cell::CellType;
use backstitch_core::rope::{Rope, Yarn};
use backstitch_models::arch;
use backstitch_models::gguf::{Gguf, Value, Writer};
use backstitch_models::{Batch, Context, Error, Model, Params, Pos, Token, Wanted};
use backstitch_testing::assert_bits;

/// Return the file of the golden model `name` with these keys of its architecture, or without them.
fn file(name: &str, changes: &[(&str, Option<f32>)]) -> Vec<u8> {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let architecture = gguf.architecture().unwrap();
    let changes: Vec<(String, Option<f32>)> =
        changes.iter().map(|(key, value)| (format!("{architecture}.{key}"), *value)).collect();
    let mut writer = Writer::new();
    for entry in gguf.metadata().iter().filter(|entry| changes.iter().all(|(key, _)| key != entry.key)) {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for (key, value) in &changes {
        if let Some(value) = *value {
            writer.set(key.as_str(), Value::F32(value)).unwrap();
        }
    }
    for info in gguf.tensors() {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    writer.to_bytes()
}

fn changed(name: &str, changes: &[(&str, Option<f32>)]) -> Result<Model, Error> {
    Model::from_bytes(&file(name, changes))
}

/// Return arbitrary tokens of the model's vocabulary.
fn text(model: &Model) -> Vec<Token> {
    let n_vocab = model.hparams().n_vocab as u32;
    golden::tokens(0..40).into_iter().map(|token| Token(token.0 % n_vocab)).collect()
}

fn logits(model: &Model) -> Vec<f32> {
    golden::fresh(model, &text(model))
}

/// Return the rotation of the first layer of a changed golden model.
fn rotation(name: &str, changes: &[(&str, Option<f32>)]) -> Rope {
    let bytes = file(name, changes);
    let (_, graph) = Model::describe(&Gguf::parse(&bytes).unwrap(), arch::ALL).unwrap();
    graph.rotations()[0].usual.rope
}

/// Return the tokens of a golden model's first case, and the logits that llama.cpp computed.
fn whole(name: &str) -> (Vec<Token>, Vec<f32>) {
    let path = format!("{}/../goldens/goldens/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(format!("{path}.txt")).unwrap();
    let numbers = |start: &str| -> Vec<u32> {
        let line = text.lines().find_map(|line| line.strip_prefix(start)).unwrap();
        line.split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    let [first, n_rows, width] = numbers("array whole ")[..] else { panic!("{name}") };
    let bytes = std::fs::read(format!("{path}.bin")).unwrap();
    let floats = bytes[first as usize..].chunks_exact(4).take((n_rows * width) as usize);
    let expected = floats.map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
    (numbers("tokens ").into_iter().map(Token).collect(), expected)
}

/// llama.cpp's converter writes the divisors, their factor and the length, but no type.
#[test]
fn divisors_for_long_contexts_are_used_though_the_file_names_no_scaling() {
    for name in ["phi3", "phi3_long", "phimoe"] {
        let (tokens, expected) = whole(name);
        let logits = |model: &Model| -> Vec<f32> {
            let mut params = Params::default().n_ctx(256);
            (params.type_k, params.type_v) = (CellType::F32, CellType::F32);
            let mut ctx = Context::new(model, params).unwrap();
            let seq = ctx.sequence().unwrap();
            let mut batch = Batch::new();
            batch.extend(seq, Pos(0), &tokens, Wanted::All).unwrap();
            ctx.decode(&batch).unwrap();
            (0..batch.len()).flat_map(|i| ctx.output(i).unwrap().to_vec()).collect()
        };
        let unstated = logits(&changed(name, &[("rope.scaling.type", None)]).unwrap());
        assert_bits(name, &unstated, &logits(&golden::model(name)));
        assert_eq!(unstated.len(), expected.len(), "{name}");
        let differences = unstated.iter().zip(&expected).map(|(x, y)| (x - y).abs());
        let largest = differences.fold(0.0, f32::max);
        assert!(largest < 1e-3, "{name}: {largest}");
    }
}

#[test]
fn the_factor_of_sines_and_cosines_needs_no_type_of_scaling() {
    let changes = [("rope.scaling.type", None), ("rope.scaling.attn_factor", Some(1.5))];
    for name in ["llama", "qwen3", "minicpm3"] {
        assert_eq!(rotation(name, &[]).attn_factor, 1.0, "{name}");
        assert_eq!(rotation(name, &changes).attn_factor, 1.5, "{name}");
    }
}

#[test]
fn yarn_has_the_ends_of_its_ramp_from_the_file() {
    let ends = |rope: Rope| {
        let Yarn { beta_fast, beta_slow, .. } = rope.yarn.unwrap();
        (beta_fast, beta_slow)
    };
    let (fast, slow) = ("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow");
    for name in ["llama_yarn", "mistral3", "mistral4"] {
        assert_eq!(ends(rotation(name, &[])), (32.0, 1.0), "{name}");
        assert_eq!(ends(rotation(name, &[(fast, Some(8.0)), (slow, Some(2.0))])), (8.0, 2.0), "{name}");
    }
    let usual = logits(&golden::model("llama_yarn"));
    let stated = changed("llama_yarn", &[(fast, Some(32.0)), (slow, Some(1.0))]).unwrap();
    assert_bits("the usual ends", &logits(&stated), &usual);
    let other = changed("llama_yarn", &[(fast, Some(0.2)), (slow, Some(0.1))]).unwrap();
    assert!(logits(&other) != usual);
    assert!(matches!(changed("llama_yarn", &[(slow, Some(f32::NAN))]), Err(Error::Hparam { .. })));
}

/// MPT without ALiBi states 0; families that always have it do not look at the key.
#[test]
fn a_bias_of_0_by_the_distance_is_none() {
    const BIAS: &str = "attention.max_alibi_bias";
    for name in ["mpt", "bloom", "refact"] {
        let none = logits(&changed(name, &[(BIAS, None)]).unwrap());
        assert_bits(name, &logits(&changed(name, &[(BIAS, Some(0.0))]).unwrap()), &none);
        assert!(matches!(changed(name, &[(BIAS, Some(-1.0))]), Err(Error::Hparam { .. })), "{name}");
    }
    let with = logits(&changed("mpt", &[(BIAS, Some(8.0))]).unwrap());
    assert!(with != logits(&changed("mpt", &[(BIAS, Some(0.0))]).unwrap()));
}

/// The scale of the logits is none of the hidden rows, which llama.cpp returns as embeddings.
#[test]
fn embeddings_are_not_scaled_as_logits_are() {
    let rows = |model: &Model| -> Vec<f32> {
        let mut ctx = Context::new(model, Params::default().n_ctx(256)).unwrap();
        let seq = ctx.sequence().unwrap();
        let mut batch = Batch::new();
        batch.extend(seq, Pos(0), &text(model), Wanted::All).unwrap();
        ctx.decode_embeddings(&batch).unwrap();
        (0..batch.len()).flat_map(|i| ctx.embedding(i).unwrap().to_vec()).collect()
    };
    for name in ["commandr", "cohere2", "granite", "granitemoe", "granitehybrid", "minicpm"] {
        let (scaled, plain) = (golden::model(name), changed(name, &[("logit_scale", None)]).unwrap());
        assert_bits(name, &rows(&scaled), &rows(&plain));
        assert!(logits(&scaled) != logits(&plain), "{name}");
    }
}
