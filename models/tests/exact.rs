//! Contract 1: the logits of a token depend on the weights and the tokens before it, and on nothing
//! else. The tests compare bits, not tolerances.

mod converted;
mod long_rows;

use backstitch_core::{DType, KernelSet, cell::CellType};
use backstitch_models::{Batch, Context, Model, Params, Pos, SeqId, Token};
use backstitch_testing::{Random, assert_bits};
use converted::{model, tokens};

const ARCHITECTURES: [&str; 22] = [
    "llama",
    "qwen3",
    "falcon_h1",
    "gemma2",
    "gemma3",
    "phi3",
    "phi3_long",
    "mamba",
    "mamba2",
    "jamba",
    "lfm2",
    "lfm2_swa",
    "rwkv6",
    "rwkv7",
    "rwkv6qwen2",
    "arwkv7",
    "nemotron_h",
    "nemotron_h_moe",
    "kimi_linear",
    "qwen35moe",
    "plamo2",
    "qwen35",
];
/// Architectures whose memory is that of others, and whose operations differ. They are held to the
/// contract by the kernel set of the processor alone.
const TRANSFORMERS: [&str; 77] = [
    "afmoe",
    "arcee",
    "bailingmoe",
    "bailingmoe2",
    "bitnet",
    "bloom",
    "chatglm",
    "codeshell",
    "cohere2",
    "commandr",
    "dbrx",
    "deepseek",
    "deepseek2",
    "deepseek2_mha",
    "dots1",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone",
    "exaone4",
    "exaone_moe",
    "falcon",
    "gemma",
    "gemma4",
    "glm4",
    "glm4moe",
    "gpt2",
    "gptneox",
    "gptoss",
    "granite",
    "granite_swa",
    "granitehybrid",
    "granitemoe",
    "hunyuan_dense",
    "hunyuan_moe",
    "hy_v3",
    "internlm2",
    "jais",
    "jais2",
    "lfm2moe",
    "llama4",
    "llama_moe",
    "maincoder",
    "mellum",
    "mimo2",
    "minicpm",
    "minicpm3",
    "minimax_m2",
    "mistral3",
    "mpt",
    "nemotron",
    "olmo",
    "olmo2",
    "olmoe",
    "openelm",
    "orion",
    "pangu",
    "phi2",
    "phimoe",
    "plamo",
    "plamo3",
    "plm",
    "qwen",
    "qwen2",
    "qwen2moe",
    "qwen2vl",
    "qwen3moe",
    "qwen3next",
    "qwen3vl",
    "qwen3vlmoe",
    "refact",
    "seed_oss",
    "smallthinker",
    "smollm3",
    "stablelm",
    "starcoder",
    "starcoder2",
    "xverse",
];
const WEIGHTS: [DType; 4] = [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0];
const N_TOKENS: usize = 300;

fn params(kernels: &'static KernelSet, n_threads: u32) -> Params {
    Params::default().n_ctx(1024).n_seq_max(4).n_threads(n_threads).kernels(Some(kernels))
}

/// Return the logits of all tokens, evaluated in pieces of these lengths (the last piece takes the
/// rest).
fn logits(ctx: &mut Context, seq: SeqId, tokens: &[Token], pieces: &[usize]) -> Vec<f32> {
    let (mut all, mut rest, mut pieces) = (vec![], tokens, pieces.iter());
    while !rest.is_empty() {
        let n = pieces.next().copied().unwrap_or(rest.len()).min(rest.len());
        let mut batch = Batch::new();
        let start = ctx.pos(seq).unwrap().0;
        for (i, &token) in rest[..n].iter().enumerate() {
            batch.push(token, Pos(start + i as i32), &[seq], true);
        }
        ctx.decode(&batch).unwrap();
        (0..n).for_each(|i| all.extend_from_slice(ctx.output(i).unwrap()));
        rest = &rest[n..];
    }
    all
}

/// Return the reference: the whole prompt at once, scalar kernels, one thread.
fn reference(model: &Model, tokens: &[Token], cells: CellType) -> Vec<f32> {
    let params = (params(KernelSet::scalar(), 1)).type_k(cells).type_v(cells);
    let mut ctx = Context::new(model, params).unwrap();
    let seq = ctx.sequence().unwrap();
    logits(&mut ctx, seq, tokens, &[])
}

/// Every architecture with one format of weights, a different one for each.
fn for_each_model(check: impl Fn(&str, &Model)) {
    for (name, dtype) in ARCHITECTURES.into_iter().zip(WEIGHTS.into_iter().cycle()) {
        check(&format!("{name} {dtype}"), &model(name, dtype));
    }
}

/// Every model of `names` with the formats of weights that [`for_each_model`] leaves out, and a
/// number for each that counts up along the formats of a model and along the models of a format.
fn for_each_other_format(names: &[&str], check: impl Fn(&str, &Model, usize)) {
    for (i, name) in names.iter().enumerate() {
        for step in 1..WEIGHTS.len() {
            let dtype = WEIGHTS[(i + step) % WEIGHTS.len()];
            check(&format!("{name} {dtype}"), &model(name, dtype), i / WEIGHTS.len() + step);
        }
    }
}

/// Test quantised caches, which need heads of a multiple of 32 dimensions.
const WIDE: [&str; 2] = ["quant_f16", "qwen35"];

/// Types of cells that every head fits.
const CELLS: [CellType; 3] = [CellType::F32, CellType::F16, CellType::BF16];

fn check_sets_and_threads(what: &str, model: &Model) {
    check_sets_and_threads_of(what, model, N_TOKENS, &CELLS);
}

fn check_sets_and_threads_of(what: &str, model: &Model, n_tokens: usize, cells: &[CellType]) {
    let tokens = tokens(model, 1, n_tokens);
    for &cells in cells {
        let expected = reference(model, &tokens, cells);
        for set in KernelSet::available() {
            // One thread of the scalar set is the reference.
            let fewest = if set.name() == KernelSet::scalar().name() { 2 } else { 1 };
            for n_threads in fewest..=4 {
                let params = (params(set, n_threads)).type_k(cells).type_v(cells);
                let mut ctx = Context::new(model, params).unwrap();
                let seq = ctx.sequence().unwrap();
                let got = logits(&mut ctx, seq, &tokens, &[]);
                assert_bits(format!("{what} {set:?} {n_threads} threads {cells:?}"), &got, &expected);
            }
        }
    }
}

#[test]
fn every_kernel_set_and_any_number_of_threads_give_the_same_bits() {
    for_each_model(check_sets_and_threads);
}

#[test]
#[ignore = "takes minutes"]
fn every_kernel_set_and_any_number_of_threads_give_the_same_bits_in_every_format() {
    // Products see the format of weights, attention the type of cells, and neither sees both: each
    // type in turn is as good as all types for each format.
    for_each_other_format(&ARCHITECTURES, |what, model, i| {
        check_sets_and_threads_of(what, model, N_TOKENS, &[CELLS[i % CELLS.len()]]);
    });
}

#[test]
fn quantised_caches_give_the_same_bits_with_every_kernel_set_threads_and_chunks() {
    for name in WIDE {
        let model = model(name, DType::Q8_0);
        check_sets_and_threads_of(name, &model, N_TOKENS, &[CellType::Q8_0, CellType::Q4_0]);
        for cells in [CellType::Q8_0, CellType::Q4_0] {
            check_chunkings_of(name, &model, N_TOKENS, cells);
        }
    }
}

#[test]
fn quantised_cells_are_refused_for_heads_that_are_no_multiple_of_32() {
    let params = Params::default().type_k(CellType::Q8_0);
    let error = Context::new(&model("llama", DType::F32), params).unwrap_err().to_string();
    assert!(error.contains("multiple of 32 dimensions"), "{error}");
}

fn check_chunkings(what: &str, model: &Model) {
    check_chunkings_of(what, model, N_TOKENS, CellType::F16);
}

fn check_chunkings_of(what: &str, model: &Model, n_tokens: usize, cells: CellType) {
    let tokens = tokens(model, 2, n_tokens);
    let params = |set, n_threads| (params(set, n_threads)).type_k(cells).type_v(cells);
    let expected = reference(model, &tokens, cells);
    for set in KernelSet::available() {
        for pieces in [&[1, 7, 16][..], &[1; N_TOKENS], &[31, 1, 32, 1, 33], &[255, 1], &[2; N_TOKENS / 2]] {
            let mut ctx = Context::new(model, params(set, 2)).unwrap();
            let [_, seq] = [(); 2].map(|()| ctx.sequence().unwrap());
            let got = logits(&mut ctx, seq, &tokens, pieces);
            assert_bits(format!("{what} {set:?} {:?}…", &pieces[..1]), &got, &expected);
        }
        for n_ubatch in [1, 5, 64] {
            let mut ctx = Context::new(model, (params(set, 1)).n_ubatch(n_ubatch)).unwrap();
            let seq = ctx.sequence().unwrap();
            let got = logits(&mut ctx, seq, &tokens, &[]);
            assert_bits(format!("{what} {set:?} ubatch {n_ubatch}"), &got, &expected);
        }
    }
}

#[test]
fn any_chunking_gives_the_same_bits() {
    for_each_model(check_chunkings);
}

#[test]
#[ignore = "takes minutes"]
fn any_chunking_gives_the_same_bits_in_every_format() {
    for_each_other_format(&ARCHITECTURES, |what, model, _| check_chunkings(what, model));
}

fn check_batches(what: &str, model: &Model) {
    let prompts: Vec<Vec<Token>> = (0..4).map(|i| tokens(model, 10 + i, 40 + 37 * i as usize)).collect();
    let expected: Vec<Vec<f32>> = prompts.iter().map(|p| reference(model, p, CellType::F16)).collect();
    for set in KernelSet::available() {
        let mut ctx = Context::new(model, params(set, 2)).unwrap();
        let seqs = [(); 4].map(|()| ctx.sequence().unwrap());
        let mut got: Vec<Vec<f32>> = vec![vec![]; 4];
        let mut at = [0; 4];
        let mut random = Random::new(5);
        while at != [40, 77, 114, 151] {
            // A random number of tokens of each sequence, interleaved one by one.
            let mut batch = Batch::new();
            let mut owner = vec![];
            for _ in 0..random.below(60) + 1 {
                let i = random.below(4);
                if at[i] < prompts[i].len() {
                    batch.push(prompts[i][at[i]], Pos(at[i] as i32), &[seqs[i]], true);
                    at[i] += 1;
                    owner.push(i);
                }
            }
            ctx.decode(&batch).unwrap();
            for (index, &i) in owner.iter().enumerate() {
                got[i].extend_from_slice(ctx.output(index).unwrap());
            }
        }
        for i in 0..4 {
            assert_bits(format!("{what} {set:?} sequence {i}"), &got[i], &expected[i]);
        }
    }
}

#[test]
fn any_batch_around_a_sequence_gives_the_same_bits() {
    for_each_model(check_batches);
}

#[test]
#[ignore = "takes minutes"]
fn any_batch_around_a_sequence_gives_the_same_bits_in_every_format() {
    for_each_other_format(&ARCHITECTURES, |what, model, _| check_batches(what, model));
}

fn check_rollback_and_fork(what: &str, model: &Model) {
    let (first, second) = (tokens(model, 3, 120), tokens(model, 4, 50));
    let whole: Vec<Token> = first[..70].iter().chain(&second).copied().collect();
    let expected = reference(model, &whole, CellType::F16);
    let expected = &expected[70 * model.hparams().n_vocab..];
    let mut ctx = Context::new(model, params(KernelSet::detect().unwrap(), 2)).unwrap();
    let a = ctx.sequence().unwrap();
    ctx.append(a, &first).unwrap();
    let done = ctx.rollback(a, Pos(70)).unwrap();
    assert_eq!(done.restored_from.0 as u32 + done.replayed + done.reevaluated, 70);
    assert!(ctx.logits_at_hand(a).is_none());
    let b = ctx.fork(a).unwrap();
    assert_bits(format!("{what} after a rollback"), &logits(&mut ctx, a, &second, &[]), expected);
    assert_bits(format!("{what} in a fork"), &logits(&mut ctx, b, &second, &[3, 9]), expected);
}

#[test]
fn rollback_and_fork_give_the_same_bits_as_never_having_gone_another_way() {
    for_each_model(check_rollback_and_fork);
}

#[test]
#[ignore = "takes minutes"]
fn rollback_and_fork_give_the_same_bits_as_never_having_gone_another_way_in_every_format() {
    for_each_other_format(&ARCHITECTURES, |what, model, _| check_rollback_and_fork(what, model));
}

/// Check chunks of the prompt, threads, other sequences, a rollback and a fork with fewer tokens
/// and one kernel set.
fn check_in_short(what: &str, model: &Model) {
    let set = KernelSet::detect().unwrap();
    // Learned positions end somewhere.
    let tokens = tokens(model, 6, 100);
    let expected = reference(model, &tokens, CellType::F16);
    for (pieces, n_threads) in [(&[][..], 2), (&[1; 100][..], 1), (&[31, 1, 32, 1, 33][..], 3)] {
        let mut ctx = Context::new(model, params(set, n_threads)).unwrap();
        let [_, seq] = [(); 2].map(|()| ctx.sequence().unwrap());
        let got = logits(&mut ctx, seq, &tokens, pieces);
        assert_bits(format!("{what} {:?}… {n_threads} threads", pieces.first()), &got, &expected);
    }
    let n_vocab = model.hparams().n_vocab;
    let mut ctx = Context::new(model, params(set, 2)).unwrap();
    let [a, b] = [(); 2].map(|()| ctx.sequence().unwrap());
    let mut got = [vec![], vec![]];
    for i in 0..50 {
        let mut batch = Batch::new();
        batch.push(tokens[i], Pos(i as i32), &[a], true);
        batch.push(tokens[99 - i], Pos(i as i32), &[b], true);
        ctx.decode(&batch).unwrap();
        (0..2).for_each(|i| got[i].extend_from_slice(ctx.output(i).unwrap()));
    }
    let back: Vec<Token> = tokens.iter().rev().copied().collect();
    assert_bits(format!("{what} beside another"), &got[0], &expected[..50 * n_vocab]);
    let of_back = reference(model, &back[..50], CellType::F16);
    assert_bits(format!("{what} beside the first"), &got[1], &of_back);
    ctx.rollback(a, Pos(20)).unwrap();
    let c = ctx.fork(a).unwrap();
    assert_bits(
        format!("{what} after a rollback"),
        &logits(&mut ctx, a, &tokens[20..], &[7]),
        &expected[20 * n_vocab..],
    );
    let other = [&tokens[..20], &back[..30]].concat();
    let of_other = reference(model, &other, CellType::F16);
    let got = logits(&mut ctx, c, &back[..30], &[]);
    assert_bits(format!("{what} in a fork"), &got, &of_other[20 * n_vocab..]);
}

#[test]
fn other_transformers_give_the_same_bits_whatever_happens() {
    for (name, dtype) in TRANSFORMERS.into_iter().zip(WEIGHTS.into_iter().cycle()) {
        check_in_short(&format!("{name} {dtype}"), &model(name, dtype));
    }
}

#[test]
#[ignore = "takes minutes"]
fn other_transformers_give_the_same_bits_whatever_happens_in_every_format() {
    for_each_other_format(&TRANSFORMERS, |what, model, _| check_in_short(what, model));
}

#[test]
fn rows_long_enough_for_tiles_give_the_same_bits() {
    // Three whole tiles of tokens, and some that are too few for one.
    let n_tokens = 61;
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q4_K] {
        let (what, model) = (format!("long rows of {dtype}"), long_rows::model(dtype));
        check_sets_and_threads_of(&what, &model, n_tokens, &[CellType::F16]);
        check_chunkings_of(&what, &model, n_tokens, CellType::F16);
        check_rollback_and_fork(&what, &model);
    }
}
