//! Graphs of architectures that are described from outside of the crate: mistakes are refused,
//! layers may differ, and the length of a context may choose between two rotations.

use backstitch_core::{DType, pool::Inline, rope::Pairs};
use backstitch_models::arch::{self, Arch};
use backstitch_models::gguf::{Gguf, Value as Meta, Writer};
use backstitch_models::graph::{
    Builder, Carried, Cells, EmbedTable, Linear, Norm, Qkv, RopeFactors, RopeSpec, RowOf, Scores, Value,
};
use backstitch_models::{Context, Error, Hparams, LayerHparams, Model, Params, RestoreOptions, Token};
use backstitch_testing::{Random, assert_bits};

const N_EMBD: usize = 32;
/// Tokens of the golden llama, whose vocabulary the files have.
const N_VOCAB: usize = 288;

/// A file of the architecture `name` with these numbers and arrays, and tensors of random weights.
fn file(name: &str, metadata: &[(&str, Meta<'static>)], tensors: &[(String, Vec<usize>)]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.set("general.architecture", name).unwrap();
    for (key, value) in metadata {
        writer.set(format!("{name}.{key}"), value.clone()).unwrap();
    }
    let llama = std::fs::read("../goldens/models/llama.gguf").unwrap();
    let llama = Gguf::parse(&llama).unwrap();
    for entry in llama.metadata().iter().filter(|entry| entry.key.starts_with("tokenizer.")) {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    let mut random = Random::new(7);
    let bytes = |n: usize, random: &mut Random| -> Vec<u8> {
        random.floats(n).iter().flat_map(|x| (0.3 * x).to_le_bytes()).collect()
    };
    let data: Vec<Vec<u8>> =
        tensors.iter().map(|(_, shape)| bytes(shape.iter().product(), &mut random)).collect();
    for ((name, shape), data) in tensors.iter().zip(&data) {
        writer.tensor(name.clone(), shape, DType::F32, data).unwrap();
    }
    writer.to_bytes()
}

fn load(bytes: &[u8], arch: &Arch) -> Result<Model, Error> {
    Model::from_gguf(&Gguf::parse(bytes)?, &[arch], &Inline, |_, _| {})
}

fn logits(model: &Model, n_ctx: u32, pieces: &[usize]) -> Vec<f32> {
    let mut ctx = Context::new(model, Params::default().n_ctx(n_ctx).n_threads(1)).unwrap();
    let seq = ctx.sequence().unwrap();
    let n_vocab = model.hparams().n_vocab as u32;
    let mut next = 0;
    for &n in pieces {
        let tokens: Vec<Token> = (next..next + n as u32).map(|i| Token((i * 29 + 5) % n_vocab)).collect();
        ctx.append(seq, &tokens).unwrap();
        next += n as u32;
    }
    ctx.logits(seq).unwrap().to_vec()
}

fn numbers() -> Vec<(&'static str, Meta<'static>)> {
    vec![
        ("context_length", Meta::U32(64)),
        ("embedding_length", Meta::U32(N_EMBD as u32)),
        ("block_count", Meta::U32(2)),
        ("feed_forward_length", Meta::U32(24)),
        ("attention.head_count", Meta::U32(4)),
    ]
}

fn tensor(name: &str, shape: &[usize]) -> (String, Vec<usize>) {
    (name.to_owned(), shape.to_vec())
}

fn embed(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<Value, Error> {
    let name = "token_embd.weight";
    b.embed(EmbedTable { name, n_rows: h.n_vocab, width: h.n_embd, by: RowOf::Token, scale: 1.0 })
}

fn cells(layer: &LayerHparams) -> Cells {
    Cells { n_head_kv: layer.n_head_kv, d_k: layer.d_k, d_v: layer.d_v, window: None, rope: None }
}

/// The error of an architecture whose description is `build`.
fn refused(build: fn(&mut Builder<'_, '_>, &Hparams) -> Result<(), Error>) -> Error {
    let bytes = file("odd", &numbers(), &[tensor("token_embd.weight", &[N_VOCAB, N_EMBD])]);
    load(&bytes, &Arch { name: "odd", build }).unwrap_err()
}

#[test]
fn an_operation_that_needs_a_layer_is_refused_outside_of_layers() {
    let error = refused(|b, h| {
        let x = embed(b, h)?;
        let y = b.attend(Qkv { q: x, k: x, v: x }, Scores::scaled(1.0));
        b.logits(y, h.n_vocab, None)
    });
    assert!(matches!(error, Error::OutsideLayer { operation: "attend" }), "{error}");
    let error = refused(|b, h| {
        let x = embed(b, h)?;
        b.shift(x);
        b.logits(x, h.n_vocab, None)
    });
    assert!(matches!(error, Error::OutsideLayer { operation: "shift" }), "{error}");
    assert!(error.to_string().contains("shift outside of its layers"), "{error}");
}

#[test]
fn attention_is_refused_in_a_layer_that_keeps_no_cells() {
    let error = refused(|b, h| {
        let x = embed(b, h)?;
        b.layer(None);
        let y = b.attend(Qkv { q: x, k: x, v: x }, Scores::scaled(1.0));
        b.head();
        b.logits(y, h.n_vocab, None)
    });
    assert!(matches!(error, Error::NoLayer { layer: 0 }), "{error}");
}

#[test]
fn a_value_of_the_encoder_is_refused_in_the_decoder() {
    let error = refused(|b, h| {
        let x = embed(b, h)?;
        let x = b.outputs(x);
        let x = b.outputs(x);
        b.embeddings(x);
        b.end_encoder();
        let y = embed(b, h)?;
        b.add(x, y);
        b.logits(y, h.n_vocab, None)
    });
    assert!(matches!(error, Error::Unwritten { operation: "add" }), "{error}");
}

/// A recurrence names the values that enter it; those that an earlier one of the layer makes again
/// are not journaled.
#[test]
fn values_are_journaled_unless_a_replay_makes_them_again() {
    let bytes = std::fs::read("../goldens/models/mamba2.gguf").unwrap();
    let (_, graph) = Model::describe(&Gguf::parse(&bytes).unwrap(), arch::ALL).unwrap();
    let names = |name: &str| -> Vec<&str> {
        let step = graph.steps().iter().find(|step| step.name == name).unwrap();
        let Some(Carried::State(state)) = &step.carries else { panic!("{name} carries no state") };
        let name_of = |info: usize| graph.values()[info].name;
        let all = graph.values().len();
        (0..all)
            .filter(|&i| format!("{:?}", state.journaled).contains(&format!("Value({i})")))
            .map(name_of)
            .collect()
    };
    assert_eq!(names("conv"), ["xbc"]);
    assert_eq!(names("ssd"), ["dt"]);
}

/// Layers of a transformer with sizes of their own, without rotation.
fn varied(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = embed(b, h)?;
    for layer in h.layers() {
        b.layer(Some(cells(&layer)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let linears = [
            Linear::new("attn_q", layer.n_q()),
            Linear::new("attn_k", layer.n_k()),
            Linear::new("attn_v", layer.n_v()),
        ];
        let [q, k, v] = b.linears(normed, linears)?;
        let y = b.attend(Qkv { q, k, v }, Scores::scaled(h.attention_scale(&layer)));
        let [y, residual] = b.last_outputs(layer.is_last, [y, x]);
        x = residual;
        b.add_linear(x, y, "attn_output")?;
        let up = b.linear(x, Linear::new("ffn_up", layer.n_ff))?;
        b.add_linear(x, up, "ffn_down")?;
    }
    b.head();
    b.logits(x, h.n_vocab, None)
}

#[test]
fn layers_may_differ_in_heads_their_widths_and_networks() {
    let mut metadata = numbers();
    metadata.retain(|(key, _)| !["attention.head_count", "feed_forward_length"].contains(key));
    let array = |values: [u32; 2]| Meta::from(values.to_vec());
    metadata.extend([
        ("attention.head_count", array([4, 6])),
        ("attention.head_count_kv", array([2, 3])),
        ("attention.key_length", array([8, 4])),
        ("attention.value_length", array([4, 16])),
        ("feed_forward_length", array([24, 40])),
    ]);
    let mut tensors = vec![tensor("token_embd.weight", &[N_VOCAB, N_EMBD])];
    for (il, [n_head, n_kv, d_k, d_v, n_ff]) in [[4, 2, 8, 4, 24], [6, 3, 4, 16, 40]].into_iter().enumerate()
    {
        for (name, shape) in [
            ("attn_norm", vec![N_EMBD]),
            ("attn_q", vec![n_head * d_k, N_EMBD]),
            ("attn_k", vec![n_kv * d_k, N_EMBD]),
            ("attn_v", vec![n_kv * d_v, N_EMBD]),
            ("attn_output", vec![N_EMBD, n_head * d_v]),
            ("ffn_up", vec![n_ff, N_EMBD]),
            ("ffn_down", vec![N_EMBD, n_ff]),
        ] {
            tensors.push(tensor(&format!("blk.{il}.{name}.weight"), &shape));
        }
    }
    let model = load(&file("varied", &metadata, &tensors), &Arch { name: "varied", build: varied }).unwrap();
    let whole = logits(&model, 64, &[40]);
    assert!(whole.iter().all(|x| x.is_finite()));
    assert_bits("in pieces", &logits(&model, 64, &[1, 7, 30, 2]), &whole);
}

/// Two layers, the second of which attends to the first one's keys and values: by a cache of its
/// own, or, if `SHARES`, by the first one's cells.
fn sharing<const SHARES: bool>(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = embed(b, h)?;
    let mut first = None;
    for layer in h.layers() {
        match SHARES && layer.shares_kv {
            true => b.sharing_layer(0),
            false => b.layer(Some(cells(&layer))),
        }
        let scores = Scores::scaled(h.attention_scale(&layer));
        let q = b.linear(x, Linear::new("attn_q", layer.n_q()))?;
        let y = match first {
            Some(_) if SHARES => b.attend_over(layer.il, q, scores, None),
            Some(Qkv { k, v, .. }) => b.attend(Qkv { q, k, v }, scores),
            None => {
                let linears = [Linear::new("attn_k", layer.n_k()), Linear::new("attn_v", layer.n_v())];
                let [k, v] = b.linears(x, linears)?;
                b.attend(*first.insert(Qkv { q, k, v }), scores)
            }
        };
        let [y, residual] = b.last_outputs(layer.is_last, [y, x]);
        x = residual;
        b.add(x, y);
    }
    b.head();
    b.logits(x, h.n_vocab, None)
}

#[test]
fn a_layer_may_attend_to_the_cells_of_another() {
    let mut metadata = numbers();
    metadata.push(("attention.shared_kv_layers", Meta::U32(1)));
    let names = ["token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.1.attn_q"];
    let rows = |name| if name == "token_embd" { N_VOCAB } else { N_EMBD };
    let tensors = names.map(|name| tensor(&format!("{name}.weight"), &[rows(name), N_EMBD]));
    let bytes = file("sharing", &metadata, &tensors);
    let model = |build| load(&bytes, &Arch { name: "sharing", build }).unwrap();
    let (shared, own) = (model(sharing::<true>), model(sharing::<false>));
    assert_bits("shared", &logits(&shared, 64, &[5, 20]), &logits(&own, 64, &[25]));
    let bytes_of = |model: &Model| {
        let ctx = Context::new(model, Params::default().n_ctx(64)).unwrap();
        ctx.budget().caches
    };
    // Books of a few bytes a block come on top.
    assert!(5 * bytes_of(&shared) < 3 * bytes_of(&own));
}

/// The golden `phi3_long` with the divisors of long contexts replaced by `factors`, if there are
/// any.
fn phi3(factors: Option<&str>) -> Model {
    let bytes = std::fs::read("../goldens/models/phi3_long.gguf").unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for info in gguf.tensors() {
        let is_long = info.name() == "rope_factors_long.weight";
        let source = factors.filter(|_| is_long).map_or(*info, |name| gguf.tensor(name).unwrap());
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(&source)).unwrap();
    }
    Model::from_bytes(&writer.to_bytes()).unwrap()
}

/// The longest context with the usual rotation.
const USUAL: u32 = 128;

#[test]
fn the_length_of_the_context_chooses_the_rotation_whatever_the_length_of_the_text() {
    let (model, alike) = (phi3(None), phi3(Some("rope_factors_short.weight")));
    let usual = logits(&model, USUAL, &[60]);
    assert_bits("a shorter one", &logits(&model, 70, &[60]), &usual);
    assert_bits("the same divisors", &logits(&alike, 2 * USUAL, &[60]), &usual);
    let long = logits(&model, USUAL + 1, &[60]);
    assert_bits("a longer one", &logits(&model, 4 * USUAL, &[9, 51]), &long);
    assert_ne!(usual, long);
}

/// Sequences that share cells are no longer than those that have them alone.
#[test]
fn the_length_of_a_sequence_chooses_the_rotation_where_several_share_the_cells() {
    let model = phi3(None);
    let params = Params::default().n_ctx(4 * USUAL).n_ctx_seq(USUAL).n_seq_max(4);
    let mut ctx = Context::new(&model, params).unwrap();
    let seq = ctx.sequence().unwrap();
    let n_vocab = model.hparams().n_vocab as u32;
    let tokens: Vec<Token> = (0..60).map(|i| Token((i * 29 + 5) % n_vocab)).collect();
    ctx.append(seq, &tokens).unwrap();
    assert_bits("shared cells", ctx.logits(seq).unwrap(), &logits(&model, USUAL, &[60]));
    assert!(ctx.fingerprint() == model.fingerprint_in(USUAL));
    assert!(ctx.fingerprint() != model.fingerprint_in(4 * USUAL));
}

#[test]
fn a_shift_in_a_long_context_moves_keys_by_its_own_rotation() {
    let model = phi3(None);
    for n_ctx in [USUAL, 2 * USUAL] {
        let layers = model.graph().layers_in(n_ctx);
        let used = model.graph().rotations()[0].of_context(n_ctx);
        for layer in layers.iter() {
            let backstitch_kv::AttentionSpec::Cached(cells) = &layer.attention else { panic!() };
            assert_eq!(cells.rope.as_ref().unwrap().frequencies, used.frequencies, "{n_ctx}");
        }
    }
    let of = |n_ctx| model.graph().rotations()[0].of_context(n_ctx).frequencies.clone();
    assert_ne!(of(USUAL), of(USUAL + 1));
}

#[test]
fn a_state_of_a_long_context_is_refused_by_a_shorter_one() {
    let model = phi3(None);
    let context = |n_ctx| Context::new(&model, Params::default().n_ctx(n_ctx)).unwrap();
    let state = |ctx: &mut Context| {
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &[Token(1), Token(2), Token(3)]).unwrap();
        let mut bytes = Vec::new();
        ctx.seq_state_write(seq, &mut bytes, &Default::default()).unwrap();
        bytes
    };
    let (usual, long) = (state(&mut context(64)), state(&mut context(256)));
    for (n_ctx, own, other) in [(USUAL, &usual, &long), (USUAL + 1, &long, &usual)] {
        let mut ctx = context(n_ctx);
        let seq = ctx.sequence().unwrap();
        assert!(ctx.seq_state_read_bytes(seq, other, &RestoreOptions::default()).is_err(), "{n_ctx}");
        ctx.seq_state_read_bytes(seq, own, &RestoreOptions::default()).unwrap();
    }
}

#[test]
fn equal_rotations_of_layers_are_one() {
    let bytes = std::fs::read("../goldens/models/gemma3.gguf").unwrap();
    let (_, graph) = Model::describe(&Gguf::parse(&bytes).unwrap(), arch::ALL).unwrap();
    assert_eq!(graph.rotations().len(), 2);
    let error = refused(|b, h| {
        let rope = backstitch_core::rope::Rope {
            n_rot: 8,
            pairs: Pairs::Split,
            freq_base: 1e4,
            freq_scale: 1.0,
            attn_factor: 1.0,
            yarn: None,
        };
        let factors = RopeFactors::ByLength { short: "short", long: "long", n_ctx_orig: 8 };
        let x = embed(b, h)?;
        b.rope(RopeSpec { rope, factors, is_fixed: &|_| false })?;
        b.logits(x, h.n_vocab, None)
    });
    assert!(matches!(&error, Error::MissingTensor { tensor } if &**tensor == "short"), "{error}");
}
