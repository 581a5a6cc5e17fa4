//! Contract 5: once a context is made, decoding a token allocates nothing, even after a fork, a
//! rollback, a shift and a restore.

use backstitch_core::cell::CellType;
use backstitch_models::{
    Batch, Context, Model, Params, Pos, RestoreOptions, SaveOptions, Token,
    sampler::{Chain, DryParams, Generator, Kind, MirostatVersion, Settings},
    session::{GenerateOptions, Session},
    speculative::{DraftModel, Drafter, Lookup, Speculative},
};
use backstitch_testing::Counting;

#[allow(dead_code, reason = "other tests use the rest")]
mod adapted;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

/// All checks in one test, because allocations of another test would be counted too.
#[test]
fn decoding_a_token_allocates_nothing() {
    // The harness's own thread allocates once more after it has started this one.
    std::thread::sleep(std::time::Duration::from_millis(200));
    decoding_allocates_nothing();
    decoding_far_behind_allocates_nothing();
    decoding_with_adapters_allocates_nothing();
    speculation_allocates_nothing();
    a_session_allocates_nothing();
}

/// Generate with chunks that are lent, and with stop strings that never occur.
fn a_session_allocates_nothing() {
    let usual = Settings::default().repeat_penalty(1.1);
    let mirostat = |version| Settings::default().generator(Generator::Llama).mirostat(Some(version));
    let dry = DryParams { multiplier: 0.8, allowed_length: 1, last_n: 512, ..DryParams::default() };
    let order = [&Kind::USUAL[..], &[Kind::AdaptiveP]].concat();
    let all = Settings::default().generator(Generator::Llama).dry(dry).order(order).min_keep(3);
    let all = all.typical_p(0.9).top_n_sigma(2.0).xtc_probability(0.5).adaptive_target(0.2);
    let cases = [
        ("llama", usual.clone()),
        ("gemma3", usual.clone()),
        ("falcon_h1", usual.clone()),
        ("mamba2", usual),
        ("llama", mirostat(MirostatVersion::One)),
        ("llama", mirostat(MirostatVersion::Two)),
        ("llama", all),
    ];
    for (name, settings) in cases {
        let model = model(name);
        let ctx = Context::new(&model, Params::default().n_ctx(512)).unwrap();
        let mut session = Session::new(ctx, &settings).unwrap();
        session.feed(&(0..70).map(Token).collect::<Vec<_>>()).unwrap();
        let options = GenerateOptions::default().limit(250).ignore_eos().stop("no such text");
        let mut generation = session.generate(options);
        let mut tell =
            |n: usize| (0..n).map(|_| generation.next_chunk().unwrap().unwrap().tokens.len()).sum::<usize>();
        tell(50);
        let (n, tally) = ALLOCATOR.during(|| tell(150));
        assert_eq!(n, 150);
        assert_eq!(tally.allocations, 0, "{name}: {tally:?}");
    }
}

fn decoding_allocates_nothing() {
    for name in [
        "llama",
        "qwen3",
        "falcon_h1",
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
        "mamba",
        "mamba2",
        "jamba",
        "lfm2",
        "lfm2_swa",
        "gemma2",
        "gemma3",
        "phi3_long",
        "quant_q4_0",
        "quant_q8_0",
        "llama_moe",
        "gptoss",
        "gemma4",
        "deepseek2",
        "llama4",
        "afmoe",
        "bitnet",
        "deci",
        "hunyuan_dense",
        "jais",
        "mimo2",
        "mistral3",
        "olmo",
        "phimoe",
        "plm",
        "smallthinker",
        "t5",
    ] {
        let model = model(name);
        for n_threads in [1, 2] {
            let params = Params::default().n_ctx(512).n_seq_max(3).n_threads(n_threads);
            let mut ctx = Context::new(&model, params).unwrap();
            let a = ctx.sequence().unwrap();
            let n_vocab = model.hparams().n_vocab as u32;
            let prompt: Vec<Token> = (0..70).map(|i| Token(i % n_vocab)).collect();
            if model.graph().encoder().is_some() {
                ctx.encode(a, &prompt).unwrap();
            }
            ctx.append(a, &prompt).unwrap();
            let b = ctx.fork(a).unwrap();
            ctx.rollback(a, Pos(40)).unwrap();
            for seq in [a, b] {
                ctx.append(seq, &[Token(1)]).unwrap();
            }
            let (_, tally) = ALLOCATOR.during(|| {
                for i in 0..100 {
                    ctx.append(a, &[Token(i % n_vocab)]).unwrap();
                    ctx.append(b, &[Token((i + 100) % n_vocab)]).unwrap();
                }
            });
            assert_eq!(tally.allocations, 0, "{name}, {n_threads} threads: {tally:?}");
            ctx.seq_rm(b, Pos(10)..Pos(20)).unwrap();
            ctx.seq_add(b, Pos(20)..Pos::MAX, -10).unwrap();
            ctx.append(b, &[Token(1)]).unwrap();
            let (_, tally) = ALLOCATOR.during(|| {
                for i in 0..50 {
                    ctx.append(b, &[Token(i % n_vocab)]).unwrap();
                }
            });
            assert_eq!(tally.allocations, 0, "{name}, {n_threads} threads, after a shift: {tally:?}");
            let mut state = Vec::new();
            ctx.seq_state_write(a, &mut state, &SaveOptions::default()).unwrap();
            ctx.seq_state_read(b, &mut state.as_slice(), &RestoreOptions::default()).unwrap();
            ctx.append(b, &[Token(1)]).unwrap();
            let (_, tally) = ALLOCATOR.during(|| {
                for i in 0..100 {
                    ctx.append(b, &[Token(i % n_vocab)]).unwrap();
                }
            });
            assert_eq!(tally.allocations, 0, "{name}, {n_threads} threads, after a restore: {tally:?}");
        }
    }
}

/// Sequences of one batch have adapters of their own.
fn decoding_with_adapters_allocates_nothing() {
    for name in
        ["llama", "gemma3", "falcon_h1", "rwkv7", "quant_q8_0", "qwen3moe", "deepseek2", "gemma4", "t5"]
    {
        let model = model(name);
        let mut ctx = Context::new(&model, Params::default().n_ctx(512).n_seq_max(4).n_threads(2)).unwrap();
        let prompt: Vec<Token> = (0..70).map(Token).collect();
        let seqs = adapted::sets(&model).map(|set| {
            let seq = ctx.sequence_with(&set).unwrap();
            if model.graph().encoder().is_some() {
                ctx.encode(seq, &prompt).unwrap();
            }
            ctx.append(seq, &prompt).unwrap();
            seq
        });
        let mut batch = Batch::new();
        let mut decode = |ctx: &mut Context, n: u32| {
            for i in 0..n {
                batch.clear();
                for seq in seqs {
                    batch.push(Token(i), ctx.pos(seq).unwrap(), &[seq], true);
                }
                ctx.decode(&batch).unwrap();
            }
        };
        decode(&mut ctx, 2);
        let ((), tally) = ALLOCATOR.during(|| decode(&mut ctx, 80));
        assert_eq!(tally.allocations, 0, "{name}: {tally:?}");
    }
}

/// Beyond one span of 256 tokens, attention is divided between threads.
fn decoding_far_behind_allocates_nothing() {
    for (name, cells) in [("llama", CellType::F16), ("quant_q8_0", CellType::Q8_0)] {
        let params = Params::default().n_ctx(512).n_threads(2).type_k(cells).type_v(cells);
        let mut ctx = Context::new(&model(name), params).unwrap();
        let seq = ctx.sequence().unwrap();
        let prompt: Vec<Token> = (0..320).map(|i| Token(i % 250)).collect();
        ctx.append(seq, &prompt).unwrap();
        let ((), tally) = ALLOCATOR.during(|| {
            for i in 0..100 {
                ctx.append(seq, &[Token(i)]).unwrap();
            }
        });
        assert_eq!(tally.allocations, 0, "{name}, {cells:?} cells: {tally:?}");
    }
}

/// Generate `n` tokens.
fn tell(ctx: &mut Context, chain: &mut Chain, speculative: &mut Speculative<Box<dyn Drafter>>, n: usize) {
    let mut told = 0;
    while told < n {
        told += speculative.step(ctx, chain, n - told, |_| false).unwrap().tokens.len();
    }
}

fn speculation_allocates_nothing() {
    for name in ["llama", "gemma3", "falcon_h1", "mamba2", "lfm2", "rwkv7", "qwen35"] {
        let model = model(name);
        let params = Params::default().n_ctx(512);
        let draft_model = DraftModel::new(&model, &model, params).unwrap();
        let lookup = Lookup { n_min: 1, ..Lookup::default() };
        let drafters: [Box<dyn Drafter>; 2] = [Box::new(draft_model), Box::new(lookup)];
        for (i, drafter) in drafters.into_iter().enumerate() {
            let mut ctx = Context::new(&model, params).unwrap();
            let seq = ctx.sequence().unwrap();
            let prompt: Vec<Token> = (0..40).map(|i| Token(30 + i % 4)).collect();
            ctx.append(seq, &prompt).unwrap();
            let mut speculative = Speculative::new(drafter, seq, 4);
            let chain = |temp| {
                let settings = Settings::default().temp(temp).repeat_penalty(1.1);
                Chain::new(model.hparams().n_vocab, &settings)
            };
            // Both right and wrong guesses come up before anything is counted.
            let (mut greedy, mut sampled) = (chain(0.0), chain(0.7));
            tell(&mut ctx, &mut greedy, &mut speculative, 50);
            tell(&mut ctx, &mut sampled, &mut speculative, 50);
            let before = speculative.stats();
            let ((), tally) = ALLOCATOR.during(|| tell(&mut ctx, &mut sampled, &mut speculative, 150));
            let after = speculative.stats();
            let n_drafted = after.n_drafted - before.n_drafted;
            let n_accepted = after.n_accepted - before.n_accepted;
            // Random weights seldom generate repetitions, so lookup seldom drafts right tokens.
            assert!(n_drafted > n_accepted && (n_accepted > 0 || i == 1), "{name}, drafter {i}: {after:?}");
            assert_eq!(tally.allocations, 0, "{name}, drafter {i}: {tally:?}, {after:?}");
        }
    }
}
