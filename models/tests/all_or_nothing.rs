//! Contract 3: what fails leaves every sequence as it was, and the retry gives the bits of never having failed.

use backstitch_core::pool::{Inline, Panicked, Pool};
use backstitch_models::{Batch, Context, Error, Model, Params, Pos, SeqId, TimelineParams, Token};
use backstitch_testing::assert_bits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MODELS: [&str; 6] = ["llama", "qwen3", "falcon_h1", "mamba", "rwkv7", "qwen35"];

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn tokens(range: std::ops::Range<u32>) -> Vec<Token> {
    range.map(|i| Token((i * 37 + 11) % 288)).collect()
}

/// Logits after `tokens` in a context of their own.
fn fresh(model: &Model, tokens: &[Token]) -> Vec<f32> {
    let mut ctx = Context::new(model, Params { n_ctx: 1024, ..Params::default() }).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, tokens).unwrap();
    ctx.logits(seq).unwrap().to_vec()
}

/// A pool that fails one of its runs.
struct Faulty {
    runs: Arc<AtomicU64>,
    fails_at: Arc<AtomicU64>,
}

impl Pool for Faulty {
    fn n_threads(&self) -> usize {
        1
    }
    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        match self.runs.fetch_add(1, Relaxed) == self.fails_at.load(Relaxed) {
            true => Err(Panicked),
            false => Inline.run(n_jobs, job),
        }
    }
}

#[test]
fn a_fault_in_any_step_of_any_ubatch_changes_nothing() {
    for name in MODELS {
        let model = model(name);
        let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
        let pool = Box::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
        let params = Params { n_ctx: 128, n_ubatch: 8, n_seq_max: 2, ..Params::default() };
        let mut ctx = Context::with_pool(&model, params, pool).unwrap();
        let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
        ctx.append(a, &tokens(0..20)).unwrap();
        ctx.append(b, &tokens(50..61)).unwrap();
        let mut faults = 0;
        // Two ubatches of both sequences; fails at the first step, then at the second, ... until it comes through.
        let mut batch = Batch::new();
        for i in 0..7 {
            batch.push(tokens(0..40)[20 + i], Pos(20 + i as i32), &[a], i == 6);
            batch.push(tokens(50..80)[11 + i], Pos(11 + i as i32), &[b], i == 6);
        }
        loop {
            runs.store(0, Relaxed);
            fails_at.store(faults * 3, Relaxed);
            match ctx.decode(&batch) {
                Ok(()) => break,
                Err(Error::Core(backstitch_core::Error::Panicked)) => faults += 1,
                Err(error) => panic!("{error}"),
            }
            assert_eq!((ctx.pos(a), ctx.pos(b)), (Pos(20), Pos(11)), "{name}, fault {faults}");
            assert_eq!(ctx.tokens(a).unwrap(), tokens(0..20));
        }
        assert!(faults > 10, "{name}: only {faults} steps failed");
        assert_bits(name, ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..27)));
        assert_bits(name, ctx.logits(b).unwrap(), &fresh(&model, &tokens(50..68)));
    }
}

#[test]
fn a_rollback_that_finds_no_room_changes_nothing() {
    let model = model("falcon_h1");
    let timeline = TimelineParams::OFF;
    let params = Params { n_ctx: 256, n_seq_max: 2, timeline, ..Params::default() };
    let mut ctx = Context::new(&model, params).unwrap();
    let a = ctx.sequence().unwrap();
    ctx.append(a, &tokens(0..200)).unwrap();
    let b = ctx.fork(a).unwrap();
    let logits = ctx.logits(b).unwrap().to_vec();
    let refused = ctx.rollback(a, Pos(190));
    assert!(matches!(refused, Err(Error::Memory(backstitch_kv::Error::Full { .. }))), "{refused:?}");
    assert_eq!((ctx.pos(a), ctx.pos(b)), (Pos(200), Pos(200)));
    assert_eq!(ctx.tokens(a).unwrap(), tokens(0..200));
    assert_bits("the fork's logits", ctx.logits(b).unwrap(), &logits);
    for seq in [a, b] {
        ctx.append(seq, &tokens(200..203)).unwrap();
        assert_bits("after the refusal", ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..203)));
    }
    // Without the fork there is room: the old cells are given up for the new.
    ctx.release(b).unwrap();
    let mut alone = Context::new(&model, Params { n_ctx: 128, timeline, ..Params::default() }).unwrap();
    let seq = alone.sequence().unwrap();
    alone.append(seq, &tokens(0..120)).unwrap();
    assert_eq!(alone.rollback(seq, Pos(100)).unwrap().reevaluated, 100);
    alone.append(seq, &tokens(300..305)).unwrap();
    let expected = fresh(&model, &[tokens(0..100), tokens(300..305)].concat());
    assert_bits("a rollback in a full context", alone.logits(seq).unwrap(), &expected);
}

#[test]
fn a_fault_during_a_rollback_leaves_the_sequence_where_it_was() {
    let model = model("falcon_h1");
    let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let pool = Box::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
    let mut ctx = Context::with_pool(
        &model,
        Params { n_ctx: 256, timeline: TimelineParams::OFF, ..Params::default() },
        pool,
    )
    .unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &tokens(0..50)).unwrap();
    runs.store(0, Relaxed);
    fails_at.store(20, Relaxed);
    assert!(matches!(ctx.rollback(seq, Pos(30)), Err(Error::Core(backstitch_core::Error::Panicked))));
    assert_eq!(ctx.tokens(seq).unwrap(), tokens(0..50));
    ctx.append(seq, &tokens(50..52)).unwrap();
    assert_bits("went on", ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..52)));
}

#[test]
fn logits_belong_to_the_last_token_or_to_nobody() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params { n_ctx: 64, ..Params::default() }).unwrap();
    let mut batch = Batch::new();
    batch.push(Token(1), Pos(0), &[SeqId(0)], true).push(Token(2), Pos(1), &[SeqId(0)], false);
    ctx.decode(&batch).unwrap();
    assert!(ctx.output(0).is_some() && ctx.output(1).is_none());
    assert!(ctx.logits(SeqId(0)).is_none());
}

#[test]
fn tokens_that_are_not_known_are_not_made_up() {
    let model = model("falcon_h1");
    let params = Params { n_ctx: 64, n_seq_max: 2, timeline: TimelineParams::OFF, ..Params::default() };
    let mut ctx = Context::new(&model, params).unwrap();
    let n_embd = model.hparams().n_embd;
    let mut batch = Batch::of_embeddings(n_embd);
    for i in 0..10 {
        batch.push_embedding(&vec![0.1 * i as f32; n_embd], Pos(i), &[SeqId(0)], false);
    }
    ctx.decode(&batch).unwrap();
    assert!(ctx.tokens(SeqId(0)).unwrap().is_empty());
    assert!(matches!(ctx.rollback(SeqId(0), Pos(5)), Err(Error::Edited { .. })));
    assert_eq!(ctx.pos(SeqId(0)), Pos(10));
}

#[test]
fn bad_calls_name_the_value_and_change_nothing() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params { n_ctx: 64, n_seq_max: 2, ..Params::default() }).unwrap();
    let a = ctx.sequence().unwrap();
    ctx.append(a, &tokens(0..9)).unwrap();
    let error = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert!(error(ctx.append(a, &[Token(288)])).contains("288"));
    assert!(error(ctx.append(SeqId(7), &[Token(1)])).contains('7'));
    assert!(error(ctx.rollback(a, Pos(10)).map(|_| ())).contains("10"));
    assert!(ctx.rollback(a, Pos(-1)).is_err());
    assert!(error(ctx.append(a, &tokens(0..60))).contains("full"));
    let mut batch = Batch::new();
    batch.push(Token(1), Pos(12), &[a], true);
    assert!(ctx.decode(&batch).is_err());
    batch.clear();
    batch.push(Token(1), Pos(0), &[SeqId(1)], true).push(Token(1), Pos(0), &[SeqId(1)], true);
    assert!(ctx.decode(&batch).is_err());
    assert!(ctx.tokens(SeqId(1)).is_err(), "a refused batch makes no sequence");
    assert_eq!(ctx.pos(a), Pos(9));
    ctx.append(a, &tokens(9..11)).unwrap();
    assert_bits("went on", ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..11)));
}
