//! Recurrent layers at the edges of their shapes: convolutions without a state, norms without
//! weights, hundreds of sequences at once, and files with absurd state sizes.

use backstitch_core::DType;
use backstitch_models::{
    Batch, Context, Model, Params, Pos, SeqId, Token,
    gguf::{Gguf, Value, Writer},
};
use backstitch_testing::{Random, assert_bits};

fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Return the file `bytes` with other numbers under some keys, and with `tensors` in place of those
/// of the same names.
fn changed(bytes: &[u8], keys: &[(&str, Value<'_>)], tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let gguf = Gguf::parse(bytes).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata().iter().filter(|entry| !keys.iter().any(|(key, _)| *key == entry.key)) {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for (key, value) in keys {
        writer.set(*key, value.clone()).unwrap();
    }
    for info in gguf.tensors().iter().filter(|info| !tensors.iter().any(|(name, ..)| name == info.name())) {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    for (name, shape, x) in tensors {
        writer.tensor(name, shape, DType::F32, bytemuck::cast_slice(x)).unwrap();
    }
    writer.to_bytes()
}

fn context(model: &Model, n_seq_max: u32) -> Context {
    Context::new(model, Params::default().n_ctx(1024).n_seq_max(n_seq_max).n_threads(2)).unwrap()
}

fn tokens(seed: u64, n: usize) -> Vec<Token> {
    let mut random = Random::new(seed);
    (0..n).map(|_| Token(random.below(288) as u32)).collect()
}

/// Return the logits of the last token, with the text evaluated in pieces of `piece` tokens.
fn logits(model: &Model, text: &[Token], piece: usize) -> Vec<f32> {
    let mut ctx = context(model, 1);
    let seq = ctx.sequence().unwrap();
    text.chunks(piece).for_each(|tokens| ctx.append(seq, tokens).unwrap());
    ctx.logits(seq).unwrap().to_vec()
}

#[test]
fn many_sequences_that_step_together_have_the_bits_of_each_alone() {
    const N_SEQ: u32 = 256;
    for name in [
        "mamba2",
        "mamba",
        "lfm2",
        "rwkv6",
        "rwkv7",
        "rwkv6qwen2",
        "nemotron_h",
        "kimi_linear",
        "plamo2",
        "qwen35",
    ] {
        let model = Model::from_bytes(&file(name)).unwrap();
        let mut ctx = context(&model, N_SEQ);
        let seqs: Vec<SeqId> = (0..N_SEQ).map(|_| ctx.sequence().unwrap()).collect();
        let texts: Vec<Vec<Token>> = (0..N_SEQ).map(|i| tokens(100 + u64::from(i), 3)).collect();
        for pos in 0..3 {
            let mut batch = Batch::new();
            for (&seq, text) in seqs.iter().zip(&texts) {
                batch.push(text[pos], Pos(pos as i32), &[seq], true);
            }
            ctx.decode(&batch).unwrap();
        }
        for (&seq, text) in seqs.iter().zip(&texts) {
            let alone = logits(&model, text, 3);
            assert_bits(format!("{name}, sequence {}", seq.0), ctx.logits(seq).unwrap(), &alone);
        }
    }
}

#[test]
fn a_convolution_of_one_tap_keeps_no_state() {
    let bytes = file("lfm2");
    let gguf = Gguf::parse(&bytes).unwrap();
    let last_tap = |name: &str| {
        let info = gguf.tensor(name).unwrap();
        let mut x = vec![0.0; info.n_elements()];
        info.dtype().decode(gguf.tensor_data(&info), &mut x).unwrap();
        (name.to_string(), vec![info.shape()[0], 1], x.chunks(3).map(|taps| taps[2]).collect())
    };
    let names = gguf.tensors().iter().map(|info| info.name()).filter(|name| name.ends_with("conv.weight"));
    let taps: Vec<_> = names.map(last_tap).collect();
    assert!(!taps.is_empty());
    let model = changed(&bytes, &[("lfm2.shortconv.l_cache", Value::U32(1))], &taps);
    let model = Model::from_bytes(&model).unwrap();
    let (first, second) = (tokens(1, 60), tokens(2, 20));
    let text = [&first[..30], &second[..]].concat();
    let expected = logits(&model, &text, 80);
    assert_bits("token by token", &logits(&model, &text, 1), &expected);
    let mut ctx = context(&model, 2);
    let a = ctx.sequence().unwrap();
    ctx.append(a, &first).unwrap();
    ctx.rollback(a, Pos(30)).unwrap();
    let b = ctx.fork(a).unwrap();
    ctx.append(a, &second).unwrap();
    assert_bits("after a rollback", ctx.logits(a).unwrap(), &expected);
    ctx.append(b, &second).unwrap();
    assert_bits("in a fork", ctx.logits(b).unwrap(), &expected);
}

#[test]
fn norms_without_weights_are_norms_by_ones() {
    let bytes = file("mamba");
    let ones = |il: usize| {
        [("dt", 4), ("b", 16), ("c", 16)]
            .map(|(of, n)| (format!("blk.{il}.ssm_{of}_norm.weight"), vec![n], vec![1.0; n]))
    };
    let explicit =
        Model::from_bytes(&changed(&bytes, &[], &(0..4).flat_map(ones).collect::<Vec<_>>())).unwrap();
    let flagged = changed(&bytes, &[("mamba.ssm.dt_b_c_rms", Value::Bool(true))], &[]);
    let flagged = Model::from_bytes(&flagged).unwrap();
    let (text, plain) = (tokens(3, 40), Model::from_bytes(&bytes).unwrap());
    let expected = logits(&explicit, &text, 40);
    assert_bits("mamba", &logits(&flagged, &text, 40), &expected);
    assert_ne!(logits(&plain, &text, 40), expected);
}

/// Return the Mamba-2 model as Granite 4 would write it, with networks of zeros.
fn as_granite(scales: [f32; 3]) -> Model {
    let bytes = file("mamba2");
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        let key = entry.key.replace("mamba2.", "granitehybrid.");
        match entry.key {
            "general.architecture" => writer.set(key, "granitehybrid"),
            "mamba2.feed_forward_length" => writer.set(key, 8u32),
            _ => writer.set(key, entry.value.clone()),
        }
        .unwrap();
    }
    for (name, scale) in ["embedding_scale", "residual_scale", "logit_scale"].into_iter().zip(scales) {
        writer.set(format!("granitehybrid.{name}"), scale).unwrap();
    }
    let ones = bytemuck::cast_slice(&[1f32; 64]);
    let zeros = vec![0; 4 * 8 * 64];
    let networks: Vec<(String, Vec<usize>, &[u8])> = (0..4)
        .flat_map(|il| {
            let name = |of: &str| format!("blk.{il}.ffn_{of}.weight");
            [
                (name("norm"), vec![64], ones),
                (name("gate"), vec![8, 64], &zeros[..]),
                (name("up"), vec![8, 64], &zeros),
                (name("down"), vec![64, 8], &zeros),
            ]
        })
        .collect();
    for (name, shape, data) in &networks {
        writer.tensor(name, shape, DType::F32, data).unwrap();
    }
    for info in gguf.tensors() {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    Model::from_bytes(&writer.to_bytes()).unwrap()
}

fn farthest(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn granite_scales_embeddings_branches_and_logits() {
    let text = tokens(5, 30);
    let plain = logits(&Model::from_bytes(&file("mamba2")).unwrap(), &text, 30);
    let unscaled = logits(&as_granite([1.0; 3]), &text, 30);
    assert!(farthest(&unscaled, &plain) < 1e-4);
    let halves: Vec<f32> = unscaled.iter().map(|x| x / 2.0).collect();
    assert!(farthest(&logits(&as_granite([1.0, 1.0, 2.0]), &text, 30), &halves) < 1e-6);
    // Norms forget a factor that the whole stream has, but for what is added to the mean square.
    let far = farthest(&logits(&as_granite([3.0, 3.0, 1.0]), &text, 30), &plain);
    assert!(far < 0.01, "{far}");
    assert!(farthest(&logits(&as_granite([1.0, 3.0, 1.0]), &text, 30), &plain) > 0.1);
}

#[test]
fn sizes_beyond_reason_are_refused_or_harmless() {
    let others = ["rwkv6qwen2", "arwkv7", "nemotron_h", "nemotron_h_moe", "kimi_linear", "plamo2"];
    for name in ["mamba", "mamba2", "jamba", "lfm2", "rwkv6", "rwkv7", "qwen35"].into_iter().chain(others) {
        let bytes = file(name);
        let gguf = Gguf::parse(&bytes).unwrap();
        let architecture = gguf.architecture().unwrap();
        let keys = gguf.metadata().iter().map(|entry| entry.key).filter(|key| key.starts_with(architecture));
        let mut n_refused = 0;
        for key in keys {
            for n in [0, 1, 3, 1 << 20, u32::MAX] {
                let hostile = changed(&bytes, &[(key, Value::U32(n))], &[]);
                match Model::from_bytes(&hostile) {
                    Ok(model) => {
                        // A size that no tensor shows: it has to run.
                        let _ = logits(&model, &tokens(4, 5), 2);
                    }
                    Err(error) => {
                        n_refused += 1;
                        assert!(!error.to_string().is_empty());
                    }
                }
            }
        }
        assert!(n_refused > 20, "{name}: {n_refused}");
    }
}

#[test]
fn numbers_that_contradict_each_other_are_refused_by_their_keys() {
    let cases = [
        // One token shift a layer: nothing follows that reads a second.
        ("rwkv6qwen2.token_shift_count", 2, "rwkv6qwen2.token_shift_count"),
        // Three heads cannot share two of keys.
        ("rwkv6qwen2.wkv.head_size", 16, "rwkv6qwen2.attention.head_count_kv"),
        ("arwkv7.token_shift_count", 2, "arwkv7.token_shift_count"),
        ("rwkv7.token_shift_count", 1, "rwkv7.token_shift_count"),
        ("plamo2.ssm.time_step_rank", 7, "plamo2.ssm.time_step_rank"),
        ("nemotron_h.ssm.group_count", 3, "nemotron_h.ssm.time_step_rank"),
    ];
    for (key, n, refused) in cases {
        let name = key.split('.').next().unwrap();
        let error = Model::from_bytes(&changed(&file(name), &[(key, Value::U32(n))], &[])).unwrap_err();
        assert!(error.to_string().contains(&format!("key \"{refused}\" is ")), "{error}");
    }
}
