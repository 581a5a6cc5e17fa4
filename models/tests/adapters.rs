//! Adapters: scale 0 is the base, every sequence gets the bits of its own set, whatever happens
//! beside it, and nothing that is kept crosses from one set to another.

use backstitch_core::{DType, KernelSet};
use backstitch_models::adapter::{Adapter, AdapterError, AdapterSet, ControlVector};
use backstitch_models::gguf::{Gguf, Writer};
use backstitch_models::prompt_cache::{Access, PromptCache};
use backstitch_models::{
    Batch, Context, Error, Model, Params, Pos, RestoreOptions, SaveOptions, SeqId, Token,
};
use backstitch_testing::assert_bits;
use converted::{model, tokens};
use std::ops::RangeInclusive;

#[allow(dead_code, reason = "the table of architectures uses the rest")]
mod adapted;
mod converted;

const N_TOKENS: usize = 70;

/// Models of every kind of memory and every kind of product, with a type of weights each.
const MODELS: [(&str, DType); 16] = [
    ("llama", DType::F32),
    ("gemma3", DType::F16),
    ("quant_q8_0", DType::Q8_0),
    ("quant_q4_k", DType::Q4_K),
    ("falcon_h1", DType::Q8_0),
    ("lfm2", DType::F32),
    ("mamba", DType::Q4_0),
    ("mamba2", DType::F32),
    ("rwkv6", DType::Q8_0),
    ("rwkv7", DType::F32),
    ("qwen3moe", DType::F32),
    ("gemma4", DType::Q8_0),
    ("llama4", DType::F16),
    ("gptoss", DType::Q8_0),
    ("deepseek2", DType::Q8_0),
    ("t5", DType::F32),
];

fn for_each_model(check: impl Fn(&str, &Model)) {
    for (name, dtype) in MODELS {
        check(&format!("{name} {dtype}"), &model(name, dtype));
    }
}

fn params() -> Params {
    Params::default().n_ctx(512).n_seq_max(6).n_threads(1)
}

fn context(model: &Model) -> Context {
    Context::new(model, params()).unwrap()
}

/// Return a sequence with a set; an encoder-decoder reads a text first.
fn begin(ctx: &mut Context, set: &AdapterSet) -> SeqId {
    let seq = ctx.sequence_with(set).unwrap();
    if ctx.model().graph().encoder().is_some() {
        let text = tokens(&ctx.model().clone(), 5, 12);
        ctx.encode(seq, &text).unwrap();
    }
    seq
}

/// Evaluate tokens at the end of `seq` in pieces of `n`, and return all logits.
fn evaluate(ctx: &mut Context, seq: SeqId, tokens: &[Token], n: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for piece in tokens.chunks(n) {
        let mut batch = Batch::new();
        let start = ctx.pos(seq).unwrap().0;
        for (&token, i) in piece.iter().zip(start..) {
            batch.push(token, Pos(i), &[seq], true);
        }
        ctx.decode(&batch).unwrap();
        (0..piece.len()).for_each(|i| all.extend_from_slice(ctx.output(i).unwrap()));
    }
    all
}

/// Return the logits of a text that is evaluated alone, at once.
fn alone(model: &Model, set: &AdapterSet, text: &[Token]) -> Vec<f32> {
    let mut ctx = context(model);
    let seq = begin(&mut ctx, set);
    evaluate(&mut ctx, seq, text, text.len())
}

fn differ(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).any(|(a, b)| a.to_bits() != b.to_bits())
}

#[test]
fn scale_zero_is_the_base_and_other_scales_are_not() {
    for_each_model(|name, model| {
        let text = tokens(model, 1, 20);
        let base = alone(model, &AdapterSet::default(), &text);
        let lora = adapted::lora(model, 1, 4);
        let at = |scale| {
            let set = AdapterSet::default().with(&lora, scale).unwrap();
            adapted::steered(model, set, 2, scale)
        };
        assert!(at(0.0).is_empty() && at(-0.0) == AdapterSet::default());
        assert_bits(format!("{name}, scale 0"), &alone(model, &at(0.0), &text), &base);
        let changed = alone(model, &at(1.0), &text);
        assert!(changed.iter().all(|x| x.is_finite()), "{name}");
        assert!(differ(&changed, &base) && differ(&changed, &alone(model, &at(0.5), &text)), "{name}");
        let steered = adapted::steered(model, AdapterSet::default(), 2, 1.0);
        assert!(
            steered.is_empty() || differ(&alone(model, &steered, &text), &base),
            "{name}, control vector"
        );
    });
}

#[test]
fn every_single_tensor_that_can_be_changed_matters() {
    for (name, dtype) in MODELS {
        let model = model(name, dtype);
        let text = tokens(&model, 1, 6);
        let base = alone(&model, &AdapterSet::default(), &text);
        for tensor in adapted::targets(&model).keys() {
            let file = adapted::file(&model, 7, 2, |other| other == tensor);
            let adapter = Adapter::from_bytes(&file, &model).unwrap();
            let set = AdapterSet::default().with(&adapter, 4.0).unwrap();
            assert!(differ(&alone(&model, &set, &text), &base), "{name} {tensor}");
        }
    }
}

#[test]
fn a_batch_of_mixed_sets_gives_each_sequence_the_bits_that_it_has_alone() {
    for_each_model(|name, model| {
        let sets = adapted::sets(model);
        let texts = [1, 2, 3, 4].map(|seed| tokens(model, seed, N_TOKENS));
        let mut ctx = context(model);
        let seqs = sets.each_ref().map(|set| begin(&mut ctx, set));
        let mut got = vec![Vec::new(); 4];
        // Sequences take turns of different lengths, so that neighbours in a batch differ.
        for (first, n) in [(0, 1), (1, 2), (3, 30), (33, 1), (34, 36)] {
            let mut batch = Batch::new();
            for pos in first..first + n {
                for (seq, text) in seqs.iter().zip(&texts) {
                    batch.push(text[pos], Pos(pos as i32), &[*seq], true);
                }
            }
            ctx.decode(&batch).unwrap();
            (0..batch.len()).for_each(|i| got[i % 4].extend_from_slice(ctx.output(i).unwrap()));
        }
        for (i, (set, text)) in sets.iter().zip(&texts).enumerate() {
            assert_bits(format!("{name}, set {i}"), &got[i], &alone(model, set, text));
        }
    });
}

#[test]
fn chunks_threads_and_kernel_sets_do_not_matter() {
    for_each_model(|name, model| {
        let [_, _, set, _] = adapted::sets(model);
        let text = tokens(model, 1, 100);
        let scalar = params().kernels(Some(KernelSet::scalar()));
        let run = |params: Params, n: usize| {
            let mut ctx = Context::new(model, params).unwrap();
            let seq = begin(&mut ctx, &set);
            evaluate(&mut ctx, seq, &text, n)
        };
        let expected = run(scalar, 100);
        for kernels in KernelSet::available() {
            for (n_threads, n) in [(1, 1), (2, 7), (3, 100)] {
                let params = params().kernels(Some(kernels)).n_threads(n_threads);
                assert_bits(format!("{name} {kernels:?} {n_threads} {n}"), &run(params, n), &expected);
            }
        }
    });
}

#[test]
fn rollback_fork_and_restore_keep_the_set() {
    for_each_model(|name, model| {
        let [_, _, set, _] = adapted::sets(model);
        let (text, other) = (tokens(model, 1, N_TOKENS), tokens(model, 2, 30));
        let expected = alone(model, &set, &text);
        let n_vocab = model.hparams().n_vocab;
        for keep in [3, 40, 61] {
            let mut ctx = context(model);
            let seq = begin(&mut ctx, &set);
            evaluate(&mut ctx, seq, &text[..keep], 16);
            let fork = ctx.fork(seq).unwrap();
            assert_eq!(ctx.adapters(fork).unwrap(), &set);
            evaluate(&mut ctx, seq, &other, 16);
            ctx.rollback(seq, Pos(keep as i32)).unwrap();
            let mut state = Vec::new();
            ctx.seq_state_write(seq, &mut state, &SaveOptions::default()).unwrap();
            let what = |kind: &str| format!("{name}, {keep}, {kind}");
            for (kind, seq) in [("rollback", seq), ("fork", fork)] {
                assert_bits(
                    what(kind),
                    &evaluate(&mut ctx, seq, &text[keep..], 16),
                    &expected[keep * n_vocab..],
                );
            }
            let mut ctx = context(model);
            let seq = ctx.sequence().unwrap();
            let options = RestoreOptions::default().adapters(std::slice::from_ref(&set));
            ctx.seq_state_read(seq, &mut state.as_slice(), &options).unwrap();
            assert_eq!(ctx.adapters(seq).unwrap(), &set);
            assert_bits(
                what("restore"),
                &evaluate(&mut ctx, seq, &text[keep..], 16),
                &expected[keep * n_vocab..],
            );
        }
    });
}

/// Return the sets that an error says something was evaluated with, and was to be used with.
fn other_set(error: &Error) -> (&str, &str) {
    let Error::Adapter(error) = error else { panic!("{error}") };
    let AdapterError::OtherSet { found, wanted } = &**error else { panic!("{error}") };
    (found, wanted)
}

#[test]
fn a_state_is_restored_with_its_own_set_alone() {
    let model = model("falcon_h1", DType::F32);
    let [none, one, both, _] = adapted::sets(&model);
    let text = tokens(&model, 1, 20);
    let state_of = |set: &AdapterSet| {
        let mut ctx = context(&model);
        let seq = ctx.sequence_with(set).unwrap();
        ctx.append(seq, &text).unwrap();
        let mut state = Vec::new();
        ctx.seq_state_write(seq, &mut state, &SaveOptions::default()).unwrap();
        state
    };
    let read = |state: &[u8], of_seq: &AdapterSet, given: &[AdapterSet]| {
        let mut ctx = context(&model);
        let seq = ctx.sequence_with(of_seq).unwrap();
        let options = RestoreOptions::default().adapters(given);
        let result = ctx.seq_state_read(seq, &mut &*state, &options).map(drop);
        assert_eq!(ctx.pos(seq).unwrap(), if result.is_ok() { Pos(20) } else { Pos::ZERO });
        result
    };
    let (plain, with_one) = (state_of(&none), state_of(&one));
    assert!(plain.len() < with_one.len());
    read(&plain, &none, &[]).unwrap();
    read(&plain, &none, &[one.clone(), both.clone()]).unwrap();
    read(&with_one, &one, &[]).unwrap();
    read(&with_one, &none, &[both.clone(), one.clone()]).unwrap();
    let error = read(&with_one, &none, &[]).unwrap_err();
    let (found, wanted) = other_set(&error);
    assert!(found.starts_with("random 1 x 1 (") && wanted == "no adapters", "{error}");
    let error = read(&with_one, &both, &[]).unwrap_err();
    let (found, wanted) = other_set(&error);
    assert!(found.starts_with("random 1 x 1 (") && wanted.starts_with("random 1 x 1, random 2"), "{error}");
    let error = read(&plain, &one, &[]).unwrap_err();
    assert_eq!(other_set(&error), ("no adapters", "random 1 x 1"));
}

#[test]
fn whole_contexts_keep_the_set_of_each_sequence() {
    let model = model("lfm2", DType::F32);
    let sets = adapted::sets(&model);
    let text = tokens(&model, 1, 40);
    let mut ctx = context(&model);
    for set in &sets {
        let seq = ctx.sequence_with(set).unwrap();
        ctx.append(seq, &text[..20]).unwrap();
    }
    let mut state = Vec::new();
    ctx.state_write(&mut state, &SaveOptions::default()).unwrap();
    let mut other = context(&model);
    let options = RestoreOptions::default().adapters(&sets);
    other.state_read(&mut state.as_slice(), &options).unwrap();
    for (seq, set) in (0..).map(SeqId).zip(&sets) {
        assert_eq!(other.adapters(seq).unwrap(), set);
        let got = evaluate(&mut other, seq, &text[20..], 20);
        let expected = alone(&model, set, &text);
        assert_bits(format!("{set}"), &got, &expected[20 * model.hparams().n_vocab..]);
    }
    let error = context(&model).state_read(&mut state.as_slice(), &RestoreOptions::default()).unwrap_err();
    assert!(matches!(other_set(&error), (_, "no adapters")), "{error}");
}

#[test]
fn nothing_in_a_prompt_cache_crosses_from_one_set_to_another() {
    for name in ["llama", "gemma3", "falcon_h1", "mamba2"] {
        let model = model(name, DType::F32);
        let folder = tempfile::tempdir().unwrap();
        let cache = PromptCache::open(folder.path(), Access::ReadWrite { budget: 1 << 30 }).unwrap();
        let sets = adapted::sets(&model);
        let text = tokens(&model, 1, 100);
        for (i, set) in sets.iter().enumerate() {
            let mut ctx = context(&model);
            let seq = ctx.sequence_with(set).unwrap();
            let recalled = ctx.recall(seq, &cache, &text).unwrap();
            assert_eq!(recalled.n_tokens, 0, "{name}, set {i}: nobody has evaluated this with the set");
            ctx.append(seq, &text).unwrap();
            let prefix = ctx.remember(seq, &cache).unwrap().unwrap();
            cache.put(&prefix).unwrap();
        }
        for (i, set) in sets.iter().enumerate() {
            let mut ctx = context(&model);
            let seq = ctx.sequence_with(set).unwrap();
            let n = ctx.recall(seq, &cache, &text).unwrap().n_tokens;
            assert_eq!(n, 96, "{name}, set {i}");
            let got = evaluate(&mut ctx, seq, &text[n..], 4);
            let expected = alone(&model, set, &text);
            assert_bits(format!("{name}, set {i}"), &got, &expected[n * model.hparams().n_vocab..]);
        }
    }
}

#[test]
fn a_set_is_changed_only_while_its_sequence_is_empty() {
    let model = model("llama", DType::F32);
    let [none, one, both, _] = adapted::sets(&model);
    let mut ctx = context(&model);
    let seq = ctx.sequence().unwrap();
    ctx.set_adapters(seq, &one).unwrap();
    let text = tokens(&model, 1, 20);
    let got = evaluate(&mut ctx, seq, &text, 20);
    assert_bits("set later", &got, &alone(&model, &one, &text));
    ctx.set_adapters(seq, &one).unwrap();
    let error = ctx.set_adapters(seq, &both).unwrap_err();
    let Error::Adapter(error) = error else { panic!("{error}") };
    assert_eq!(*error, AdapterError::HoldsTokens { seq: 0, end: 20 });
    ctx.seq_rm(seq, Pos::ZERO..Pos::MAX).unwrap();
    assert_eq!(ctx.adapters(seq).unwrap(), &one);
    ctx.set_adapters(seq, &both).unwrap();
    ctx.release(seq).unwrap();
    let again = ctx.sequence().unwrap();
    assert_eq!((again, ctx.adapters(again).unwrap()), (seq, &none));
}

#[test]
fn tokens_and_cells_are_shared_by_sequences_of_one_set_only() {
    let model = model("llama", DType::F32);
    let [none, one, ..] = adapted::sets(&model);
    let mut ctx = context(&model);
    let (base, adapted) = (ctx.sequence().unwrap(), ctx.sequence_with(&one).unwrap());
    let mut batch = Batch::new();
    batch.push(Token(1), Pos(0), &[base, adapted], true);
    other_set(&ctx.decode(&batch).unwrap_err());
    ctx.append(base, &[Token(1)]).unwrap();
    other_set(&ctx.seq_cp(base, adapted, Pos::ZERO..Pos::MAX).unwrap_err());
    assert_eq!(ctx.pos(adapted).unwrap(), Pos::ZERO);
    let alike = ctx.sequence_with(&none).unwrap();
    ctx.seq_cp(base, alike, Pos::ZERO..Pos::MAX).unwrap();
}

#[test]
fn files_of_llama_cpp_have_no_place_for_adapters() {
    let model = model("llama", DType::F32);
    let [_, one, ..] = adapted::sets(&model);
    let mut ctx = context(&model);
    let seq = ctx.sequence_with(&one).unwrap();
    ctx.append(seq, &[Token(1)]).unwrap();
    let Error::Adapter(error) = ctx.llama_state_write(&Default::default()).unwrap_err() else { panic!() };
    assert_eq!(*error, AdapterError::NoPlace { seq: 0 });
}

#[test]
fn encoders_have_adapters_too() {
    for name in ["bert", "nomic_bert", "modern_bert"] {
        let model = model(name, DType::Q8_0);
        let sets = adapted::sets(&model);
        let text = tokens(&model, 1, 30);
        let embed = |sets: &[&AdapterSet]| {
            let mut ctx = context(&model);
            let mut batch = Batch::new();
            for set in sets {
                let seq = ctx.sequence_with(set).unwrap();
                (0..).zip(&text).for_each(|(i, &token)| _ = batch.push(token, Pos(i), &[seq], true));
            }
            ctx.encode_batch(&batch).unwrap();
            (0..batch.len()).flat_map(|i| ctx.embedding(i).unwrap().to_vec()).collect::<Vec<f32>>()
        };
        let mixed = embed(&sets.each_ref());
        let n = mixed.len() / 4;
        for (i, set) in sets.iter().enumerate() {
            assert_bits(format!("{name}, set {i}"), &mixed[i * n..(i + 1) * n], &embed(&[set]));
        }
        assert!(differ(&mixed[..n], &mixed[n..2 * n]) && differ(&mixed[n..2 * n], &mixed[2 * n..3 * n]));
    }
}

#[test]
fn identities_tell_contents_scales_order_and_layers_apart() {
    let model = model("llama", DType::F32);
    let (a, b) = (adapted::lora(&model, 1, 3), adapted::lora(&model, 2, 3));
    let empty = AdapterSet::default();
    let c = ControlVector::from_bytes(&adapted::control_file(&model, 3), &model).unwrap();
    let with = |set: &AdapterSet, adapter, scale| set.clone().with(adapter, scale).unwrap();
    let steered = |scale, layers| empty.clone().with_control(&c, scale, layers).unwrap();
    let one = with(&empty, &a, 1.0);
    let all = [
        empty.clone(),
        one.clone(),
        with(&empty, &a, 0.5),
        with(&empty, &b, 1.0),
        with(&one, &b, 1.0),
        with(&with(&empty, &b, 1.0), &a, 1.0),
        with(&one, &a, 1.0),
        steered(1.0, None),
        steered(0.5, None),
        steered(1.0, Some(1..=1)),
        one.clone().with_control(&c, 1.0, None).unwrap(),
    ];
    for (i, set) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|other| other != set), "{i}: {set}");
    }
    // The same file read again is the same adapter; order in a file does not matter.
    let file = adapted::file(&model, 1, 3, |_| true);
    let gguf = Gguf::parse(&file).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for info in gguf.tensors().iter().rev() {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    let again = Adapter::from_bytes(&writer.to_bytes(), &model).unwrap();
    assert_eq!(with(&empty, &again, 1.0), one);
}

#[test]
fn types_of_adapters_are_computed_as_the_numbers_that_they_hold() {
    let model = model("quant_q8_0", DType::Q8_0);
    let text = tokens(&model, 1, 10);
    let file = adapted::file(&model, 1, 32, |name| name.contains("attn") || name.contains("ffn"));
    let gguf = Gguf::parse(&file).unwrap();
    for dtype in [DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0] {
        // Once as it is, once as the F32 numbers that it decodes to.
        let sets = [dtype, DType::F32].map(|stored| {
            let mut writer = Writer::new();
            for entry in gguf.metadata() {
                writer.set(entry.key, entry.value.clone()).unwrap();
            }
            let tensors: Vec<Vec<u8>> = gguf
                .tensors()
                .iter()
                .map(|info| {
                    let mut x = vec![0.0; info.n_elements()];
                    info.dtype().decode(gguf.tensor_data(info), &mut x).unwrap();
                    let mut bytes = vec![0; dtype.row_bytes(x.len()).unwrap()];
                    dtype.encode(&x, &mut bytes).unwrap();
                    if stored == dtype {
                        return bytes;
                    }
                    dtype.decode(&bytes, &mut x).unwrap();
                    x.iter().flat_map(|x| x.to_le_bytes()).collect()
                })
                .collect();
            for (info, data) in gguf.tensors().iter().zip(&tensors) {
                writer.tensor(info.name(), info.shape(), stored, data).unwrap();
            }
            let adapter = Adapter::from_bytes(&writer.to_bytes(), &model).unwrap();
            AdapterSet::default().with(&adapter, 1.0).unwrap()
        });
        let [stored, decoded] = sets.each_ref().map(|set| alone(&model, set, &text));
        assert_bits(format!("{dtype}"), &stored, &decoded);
    }
}

/// A key and its value.
type Entry<'a> = (&'a str, &'a str);
/// A tensor and its shape.
type Dims<'a> = (&'a str, &'a [usize]);

/// Return the error of reading a file with these values and tensors of zeros.
fn refused(model: &Model, values: &[Entry<'_>], tensors: &[Dims<'_>]) -> String {
    let zeros = vec![0; 1 << 20];
    let mut writer = Writer::new();
    let usual = [("general.type", "adapter"), ("general.architecture", "llama"), ("adapter.type", "lora")];
    for (key, value) in usual.iter().chain(values) {
        writer.set(*key, *value).unwrap();
    }
    for (name, shape) in tensors {
        let n = 4 * shape.iter().product::<usize>();
        writer.tensor(*name, shape, DType::F32, &zeros[..n]).unwrap();
    }
    Adapter::from_bytes(&writer.to_bytes(), model).unwrap_err().to_string()
}

#[test]
fn adapters_of_other_models_are_refused_with_what_was_found_and_wanted() {
    let model = model("llama", DType::F32);
    let n = model.hparams().n_embd;
    let weights = model.graph().weights();
    let n_q = weights.iter().find(|info| info.tensor == "blk.0.attn_q.weight").unwrap().dims[0];
    let (a, b) = ("blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b");
    let cases: [(&[Entry<'_>], &[Dims<'_>], &str); 9] = [
        (&[("general.type", "model")], &[], "key \"general.type\" is \"model\", not \"adapter\""),
        (
            &[("general.architecture", "gemma3")],
            &[],
            "the adapter is for models of architecture \"gemma3\", this one is \"llama\"",
        ),
        (&[], &[], "the adapter has no tensor that changes a model"),
        (
            &[],
            &[("blk.0.attn_q.weight", &[4])],
            "tensor \"blk.0.attn_q.weight\" is not named as `NAME.lora_a` or `NAME.lora_b`",
        ),
        (&[], &[(a, &[4, n])], "tensor \"blk.0.attn_q.weight.lora_b\" is missing"),
        (
            &[],
            &[("blk.99.attn_q.weight.lora_a", &[4, n]), ("blk.99.attn_q.weight.lora_b", &[n, 4])],
            "the adapter changes tensor \"blk.99.attn_q.weight\", which the model lacks",
        ),
        (
            &[],
            &[(a, &[4, 2 * n]), (b, &[n_q, 4])],
            &format!("tensor \"{a}\" has shape [4, {}], not [rank, {n}]", 2 * n),
        ),
        (
            &[],
            &[("blk.0.attn_norm.weight.lora_a", &[4, n]), ("blk.0.attn_norm.weight.lora_b", &[n, 4])],
            "the adapter changes tensor \"blk.0.attn_norm.weight\", which the model does not multiply by",
        ),
        (
            &[],
            &[(a, &[4, n]), (b, &[n_q, 5])],
            "the matrices for tensor \"blk.0.attn_q.weight\" have ranks 4 and 5, not the same",
        ),
    ];
    for (values, tensors, wanted) in cases {
        let text = refused(&model, values, tensors);
        assert!(text.starts_with(wanted), "{text}");
    }
}

#[test]
fn numbers_of_adapters_are_finite() {
    let model = model("llama", DType::F32);
    let file = adapted::file(&model, 1, 4, |name| name == "blk.0.attn_q.weight");
    let gguf = Gguf::parse(&file).unwrap();
    let info = gguf.tensor("blk.0.attn_q.weight.lora_b").unwrap();
    let mut damaged = file.clone();
    damaged[info.range()][8..12].copy_from_slice(&f32::NAN.to_le_bytes());
    let text = Adapter::from_bytes(&damaged, &model).unwrap_err().to_string();
    assert_eq!(text, "number 2 of \"blk.0.attn_q.weight.lora_b\" is infinite or not a number");
}

#[test]
fn adapters_are_used_with_the_model_that_they_were_read_for() {
    let [mine, other] = [DType::F32, DType::F16].map(|dtype| model("llama", dtype));
    let set = AdapterSet::default().with(&adapted::lora(&mine, 1, 2), 1.0).unwrap();
    let Error::Adapter(error) = context(&other).sequence_with(&set).unwrap_err() else { panic!() };
    assert_eq!(*error, AdapterError::Model { found: mine.fingerprint(), wanted: other.fingerprint() });
    let Error::Adapter(error) = set.clone().with(&adapted::lora(&other, 1, 2), 1.0).unwrap_err() else {
        panic!()
    };
    assert!(matches!(*error, AdapterError::Model { .. }));
    let Error::Adapter(error) = set.with(&adapted::lora(&mine, 1, 2), f32::NAN).unwrap_err() else {
        panic!()
    };
    assert!(matches!(*error, AdapterError::Scale { .. }));
}

#[test]
fn control_vectors_are_checked() {
    let model = model("llama", DType::F32);
    let n_embd = model.hparams().n_embd;
    let refused = |architecture: &str, name: &str, n: usize| {
        let zeros = vec![0; 4 * n];
        let mut writer = Writer::new();
        writer.set("general.architecture", architecture).unwrap();
        writer.tensor(name, &[n], DType::F32, &zeros).unwrap();
        ControlVector::from_bytes(&writer.to_bytes(), &model).unwrap_err().to_string()
    };
    assert!(refused("llama", "direction.1", n_embd).ends_with("is \"llama\", not \"controlvector\""));
    for name in ["direction.0", "direction.99"] {
        let text = refused("controlvector", name, n_embd);
        assert!(text.contains(name) && text.contains("no layer that can be steered"), "{text}");
    }
    let text = refused("controlvector", "direction.1", n_embd + 1);
    assert!(text.contains(&format!("has shape [{}], not [{n_embd}]", n_embd + 1)), "{text}");
    assert!(refused("controlvector", "vector.1", n_embd).contains("`direction.N`"));
}

#[test]
fn a_control_vector_acts_in_its_range_of_layers_alone() {
    let model = model("llama", DType::F32);
    let text = tokens(&model, 1, 5);
    let n_layer = model.hparams().n_layer;
    let control = ControlVector::from_bytes(&adapted::control_file(&model, 1), &model).unwrap();
    let with = |layers| {
        let set = AdapterSet::default().with_control(&control, 1.0, Some(layers)).unwrap();
        alone(&model, &set, &text)
    };
    assert_bits("all", &with(1..=n_layer - 1), &with(1..=1_000_000));
    if n_layer > 2 {
        assert!(differ(&with(1..=1), &with(1..=n_layer - 1)));
    }
    let empty = AdapterSet::default();
    for range in [0..=3, RangeInclusive::new(4, 2)] {
        let Error::Adapter(error) = empty.clone().with_control(&control, 1.0, Some(range)).unwrap_err()
        else {
            panic!()
        };
        assert!(matches!(*error, AdapterError::Layers { .. }));
    }
}

/// The largest difference from llama.cpp's logits.
#[cfg(feature = "conformance")]
const TOLERANCE: f32 = 2e-4;

#[cfg(feature = "conformance")]
#[test]
fn logits_are_those_of_llama_cpp() {
    use backstitch_models::conformance::{Options, Verdict, find, verify};

    let folder = format!("{}/../goldens/lora", env!("CARGO_MANIFEST_DIR"));
    let options = Options { tolerance: TOLERANCE, ..Options::default() };
    let mut n_cases = 0;
    for file in find(folder.as_ref()).unwrap() {
        verify(&file, &options, &mut |row| {
            assert_eq!(row.verdict, Verdict::Passed, "{} {row:?}", file.display());
            assert!(row.max_diff.is_some_and(|diff| diff > 0.0), "nothing was compared: {row:?}");
            n_cases += 1;
        });
    }
    assert_eq!(n_cases, 30);
}
