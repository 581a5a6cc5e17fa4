//! Contract 3: an operation that fails leaves every sequence as it was. A retry gives the bits of
//! an operation that never failed.

mod golden;

use backstitch_core::pool::{Inline, Panicked, Pool};
use backstitch_models::{Batch, Context, Error, Params, Pos, RollbackParams, SeqId, Token};
use backstitch_testing::assert_bits;
use golden::{fresh, model, tokens};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MODELS: [&str; 6] = ["llama", "qwen3", "falcon_h1", "mamba", "rwkv7", "qwen35"];

/// A pool that fails in one of its calls.
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
        let pool = Arc::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
        let params = Params::default().n_ctx(128).n_ubatch(8).n_seq_max(2);
        let mut ctx = Context::with_pool(&model, params, pool).unwrap();
        let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
        ctx.append(a, &tokens(0..20)).unwrap();
        ctx.append(b, &tokens(50..61)).unwrap();
        let mut faults = 0;
        // Two ubatches of both sequences; fails at the first step, then at the second, ... until it
        // comes through.
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
            assert_eq!(
                (ctx.pos(a).unwrap(), ctx.pos(b).unwrap()),
                (Pos(20), Pos(11)),
                "{name}, fault {faults}"
            );
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
    let rollback = RollbackParams::OFF;
    let params = Params::default().n_ctx(256).n_seq_max(2).rollback(rollback);
    let mut ctx = Context::new(&model, params).unwrap();
    let a = ctx.sequence().unwrap();
    ctx.append(a, &tokens(0..200)).unwrap();
    let b = ctx.fork(a).unwrap();
    let logits = ctx.logits(b).unwrap().to_vec();
    let refused = ctx.rollback(a, Pos(190));
    assert!(matches!(refused, Err(Error::Memory(backstitch_kv::Error::Full { .. }))), "{refused:?}");
    assert_eq!((ctx.pos(a).unwrap(), ctx.pos(b).unwrap()), (Pos(200), Pos(200)));
    assert_eq!(ctx.tokens(a).unwrap(), tokens(0..200));
    assert_bits("the fork's logits", ctx.logits(b).unwrap(), &logits);
    for seq in [a, b] {
        ctx.append(seq, &tokens(200..203)).unwrap();
        assert_bits("after the refusal", ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..203)));
    }
    // Without the fork the cells suffice: the old ones are freed for the new.
    ctx.release(b).unwrap();
    assert_eq!(ctx.rollback(a, Pos(190)).unwrap().reevaluated, 190);
    ctx.append(a, &tokens(190..203)).unwrap();
    assert_bits("without the fork", ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..203)));
    let mut alone = Context::new(&model, Params::default().n_ctx(128).rollback(rollback)).unwrap();
    let seq = alone.sequence().unwrap();
    alone.append(seq, &tokens(0..120)).unwrap();
    assert_eq!(alone.rollback(seq, Pos(100)).unwrap().reevaluated, 100);
    alone.append(seq, &tokens(300..305)).unwrap();
    let expected = fresh(&model, &[tokens(0..100), tokens(300..305)].concat());
    assert_bits("a rollback in a full context", alone.logits(seq).unwrap(), &expected);
}

#[test]
fn a_fault_after_the_old_cells_were_given_up_leaves_the_checkpoint() {
    let model = model("falcon_h1");
    let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let pool = Arc::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
    let params = Params::default().n_ctx(128).rollback(RollbackParams::OFF);
    let mut ctx = Context::with_pool(&model, params, pool).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &tokens(0..120)).unwrap();
    fails_at.store(runs.load(Relaxed) + 20, Relaxed);
    assert!(matches!(ctx.rollback(seq, Pos(100)), Err(Error::Core(backstitch_core::Error::Panicked))));
    assert_eq!((ctx.pos(seq).unwrap(), ctx.tokens(seq).unwrap().len()), (Pos(0), 0));
    assert!(ctx.logits_at_hand(seq).is_none());
    ctx.append(seq, &tokens(0..120)).unwrap();
    assert_bits("told again", ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..120)));
}

#[test]
fn a_fault_during_a_rollback_leaves_the_sequence_where_it_was() {
    let model = model("falcon_h1");
    let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let pool = Arc::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
    let mut ctx =
        Context::with_pool(&model, Params::default().n_ctx(256).rollback(RollbackParams::OFF), pool).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &tokens(0..50)).unwrap();
    runs.store(0, Relaxed);
    fails_at.store(20, Relaxed);
    assert!(matches!(ctx.rollback(seq, Pos(30)), Err(Error::Core(backstitch_core::Error::Panicked))));
    assert_eq!(ctx.tokens(seq).unwrap(), tokens(0..50));
    ctx.append(seq, &tokens(50..52)).unwrap();
    assert_bits("went on", ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..52)));
}

/// A pool that panics in one of its calls.
struct Unwinding(Arc<AtomicU64>);

impl Pool for Unwinding {
    fn n_threads(&self) -> usize {
        1
    }
    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        match self.0.fetch_sub(1, Relaxed) {
            0 => std::panic::resume_unwind(Box::new("unwinding")),
            _ => Inline.run(n_jobs, job),
        }
    }
}

#[test]
fn a_pool_that_unwinds_leaves_every_sequence_where_it_was() {
    let model = model("falcon_h1");
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let rollback = RollbackParams::OFF;
    let params = Params::default().n_ctx(256).n_batch(16).n_ubatch(16).rollback(rollback);
    let mut ctx = Context::with_pool(&model, params, Arc::new(Unwinding(left.clone()))).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &tokens(0..50)).unwrap();
    let runs_of_a_piece = (u64::MAX - left.load(Relaxed)) / 4;
    let unwinds = |ctx: &mut Context, act: &dyn Fn(&mut Context)| {
        // In the second piece of a long batch.
        left.store(runs_of_a_piece * 3 / 2, Relaxed);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(ctx)));
        left.store(u64::MAX, Relaxed);
        assert!(caught.is_err());
        assert_eq!((ctx.pos(seq).unwrap(), ctx.tokens(seq).unwrap().len()), (Pos(50), 50));
    };
    unwinds(&mut ctx, &|ctx| drop(ctx.append(seq, &tokens(50..90))));
    assert!((0..40).all(|i| ctx.output(i).is_none()), "outputs that were never computed");
    unwinds(&mut ctx, &|ctx| drop(ctx.rollback(seq, Pos(40))));
    assert_eq!(ctx.rollback(seq, Pos(45)).unwrap().reevaluated, 45);
    ctx.append(seq, &tokens(45..90)).unwrap();
    assert_bits("went on", ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..90)));
}

#[test]
fn a_long_batch_that_cannot_be_is_refused_before_anything_is_computed() {
    for name in ["llama", "falcon_h1", "mamba2"] {
        let model = model(name);
        let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
        let pool = Arc::new(Faulty { runs: runs.clone(), fails_at });
        let params = Params::default().n_ctx(128).n_batch(32).n_seq_max(3);
        let mut ctx = Context::with_pool(&model, params, pool).unwrap();
        let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
        ctx.append(a, &tokens(0..20)).unwrap();
        let (before, logits) = (runs.load(Relaxed), ctx.logits(a).unwrap().to_vec());
        let refused = |ctx: &mut Context, batch: &Batch| {
            let error = ctx.decode(batch).unwrap_err();
            assert_eq!(runs.load(Relaxed), before, "{name}: computed before {error}");
            assert_eq!((ctx.pos(a).unwrap(), ctx.pos(b).unwrap()), (Pos(20), Pos(0)));
            assert_bits(name, ctx.logits(a).unwrap(), &logits);
            assert!(
                ctx.output(19).is_some() && ctx.output(0).is_none(),
                "{name}: outputs of the batch before"
            );
            error
        };
        let mut batch = Batch::new();
        for i in 20..120 {
            batch.push(Token(5), Pos(i + i / 119), &[a], true);
        }
        let error = refused(&mut ctx, &batch);
        let index = 99;
        assert!(matches!(error, Error::Memory(backstitch_kv::Error::Order { index: i, .. }) if i == index));
        if name == "mamba2" {
            continue;
        }
        // Too long for a sequence, and too long for all together.
        batch.clear();
        (20..129).for_each(|i| _ = batch.push(Token(5), Pos(i), &[a], true));
        let error = refused(&mut ctx, &batch);
        assert!(
            matches!(error, Error::Memory(backstitch_kv::Error::Full { need: 109, free: 108, .. })),
            "{error}"
        );
        batch.clear();
        (20..128).for_each(|i| _ = batch.push(Token(5), Pos(i), &[a], true));
        (0..128).for_each(|i| _ = batch.push(Token(5), Pos(i), &[b], true));
        let c = ctx.sequence().unwrap();
        (0..128).for_each(|i| _ = batch.push(Token(5), Pos(i), &[c], true));
        let error = refused(&mut ctx, &batch);
        assert!(
            matches!(error, Error::Memory(backstitch_kv::Error::Full { seq, .. }) if seq == c),
            "{error}"
        );
    }
}

#[test]
fn a_fault_in_a_later_piece_leaves_the_outputs_of_the_batch_before() {
    let model = model("llama");
    let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let pool = Arc::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
    let params = Params::default().n_ctx(128).n_batch(32);
    let mut ctx = Context::with_pool(&model, params, pool).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut batch = Batch::new();
    (0..100).for_each(|i| _ = batch.push(Token(5), Pos(i), &[seq], true));
    ctx.decode(&batch).unwrap();
    fails_at.store(runs.load(Relaxed) + runs.load(Relaxed) / 2, Relaxed);
    ctx.rollback(seq, Pos(0)).unwrap();
    let before: Vec<_> = (0..100).map(|i| ctx.output(i).unwrap().to_vec()).collect();
    let mut other = Batch::new();
    (0..100).for_each(|i| _ = other.push(Token(6), Pos(i), &[seq], true));
    assert!(ctx.decode(&other).is_err());
    (0..100).zip(&before).for_each(|(i, before)| assert_bits("kept", ctx.output(i).unwrap(), before));
    ctx.decode(&other).unwrap();
    assert_ne!(ctx.output(0).unwrap(), before[0]);
}

#[test]
fn a_later_piece_that_is_refused_leaves_no_outputs_of_the_batch() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params::default().n_ctx(128).n_batch(32).n_seq_max(2)).unwrap();
    let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
    let mut batch = Batch::new();
    for i in 0..20 {
        batch.push(Token(5), Pos(i), &[a], true).push(Token(5), Pos(i), &[b], true);
    }
    // In the second piece: each has cells of its own.
    batch.push(Token(5), Pos(20), &[a, b], true);
    let refused = ctx.decode(&batch);
    assert!(
        matches!(refused, Err(Error::Memory(backstitch_kv::Error::Diverged { index: 40, .. }))),
        "{refused:?}"
    );
    assert!((0..41).all(|i| ctx.output(i).is_none()));
    assert!([a, b].iter().all(|seq| ctx.tokens(*seq).unwrap().is_empty() && ctx.seq_range(*seq).is_none()));
}

#[test]
fn a_fault_in_one_sequences_rollback_leaves_the_others_their_logits() {
    let model = model("falcon_h1");
    let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let pool = Arc::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
    let rollback = RollbackParams::OFF;
    let params = Params::default().n_ctx(256).n_seq_max(2).rollback(rollback);
    let mut ctx = Context::with_pool(&model, params, pool).unwrap();
    let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
    ctx.append(a, &tokens(0..50)).unwrap();
    ctx.append(b, &tokens(10..40)).unwrap();
    fails_at.store(runs.load(Relaxed) + 20, Relaxed);
    assert!(ctx.rollback(a, Pos(30)).is_err());
    assert_bits("b's logits", ctx.logits(b).unwrap(), &fresh(&model, &tokens(10..40)));
    assert_bits("b's output", ctx.output(29).unwrap(), &fresh(&model, &tokens(10..40)));
}

#[test]
fn operations_on_no_tokens_forget_nothing() {
    for name in ["llama", "falcon_h1", "mamba2", "gemma3"] {
        let model = model(name);
        let mut ctx = Context::new(&model, Params::default().n_ctx(128)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &tokens(0..100)).unwrap();
        ctx.seq_add(seq, Pos::ZERO..Pos::MAX, 0).unwrap();
        ctx.seq_div(seq, Pos::ZERO..Pos::MAX, 1).unwrap();
        ctx.seq_add(seq, Pos(5000)..Pos(6000), 1).unwrap();
        ctx.seq_div(seq, Pos(5000)..Pos(6000), 2).unwrap();
        ctx.seq_add(seq, Pos(7)..Pos(7), 1).unwrap();
        ctx.seq_rm(seq, Pos(5000)..Pos(6000)).unwrap();
        ctx.seq_rm(seq, Pos(50)..Pos(50)).unwrap();
        assert_bits(name, ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..100)));
        assert_eq!(ctx.tokens(seq).unwrap(), tokens(0..100), "{name}");
        ctx.rollback(seq, Pos(10)).unwrap();
        ctx.append(seq, &tokens(10..30)).unwrap();
        assert_bits(name, ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..30)));
    }
}

#[test]
fn a_sequence_that_begins_later_loses_nothing_with_what_lies_before_it() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut batch = Batch::new();
    (20..30).for_each(|i| _ = batch.push(Token(5), Pos(i), &[seq], i == 29));
    ctx.decode(&batch).unwrap();
    ctx.seq_rm(seq, Pos(0)..Pos(20)).unwrap();
    ctx.seq_add(seq, Pos(0)..Pos(20), 3).unwrap();
    assert_eq!(ctx.tokens(seq).unwrap().len(), 10);
    assert!(ctx.logits_at_hand(seq).is_some());
}

#[test]
fn logits_belong_to_the_last_token_or_to_nobody() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut batch = Batch::new();
    batch.push(Token(1), Pos(0), &[seq], true).push(Token(2), Pos(1), &[seq], false);
    ctx.decode(&batch).unwrap();
    assert!(ctx.output(0).is_some() && ctx.output(1).is_none());
    assert!(ctx.logits_at_hand(seq).is_none());
}

#[test]
fn tokens_that_are_not_known_are_not_made_up() {
    let model = model("falcon_h1");
    let params = Params::default().n_ctx(64).n_seq_max(2).rollback(RollbackParams::OFF);
    let mut ctx = Context::new(&model, params).unwrap();
    let seq = ctx.sequence().unwrap();
    let n_embd = model.hparams().n_embd;
    let mut batch = Batch::of_embeddings(n_embd);
    for i in 0..10 {
        batch.push_embedding(&vec![0.1 * i as f32; n_embd], Pos(i), &[seq], false);
    }
    ctx.decode(&batch).unwrap();
    assert!(ctx.tokens(seq).unwrap().is_empty());
    assert!(matches!(ctx.rollback(seq, Pos(5)), Err(Error::Edited { .. })));
    assert_eq!(ctx.pos(seq).unwrap(), Pos(10));
}

#[test]
fn bad_calls_name_the_value_and_change_nothing() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(2)).unwrap();
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
    let b = ctx.sequence().unwrap();
    batch.clear();
    batch.push(Token(1), Pos(0), &[b], true).push(Token(1), Pos(0), &[b], true);
    assert!(ctx.decode(&batch).is_err());
    assert_eq!((ctx.pos(a).unwrap(), ctx.pos(b).unwrap()), (Pos(9), Pos(0)));
    ctx.append(a, &tokens(9..11)).unwrap();
    assert_bits("went on", ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..11)));
}

#[test]
fn a_sequence_that_was_not_created_is_refused_and_stays_so() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(3)).unwrap();
    let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
    ctx.append(a, &tokens(0..9)).unwrap();
    let logits = ctx.logits(a).unwrap().to_vec();
    ctx.release(b).unwrap();
    for stranger in [b, SeqId(2), SeqId(3)] {
        let mut batch = Batch::new();
        batch.push(Token(1), Pos(9), &[a], true).push(Token(1), Pos(0), &[stranger], true);
        let results = [
            ctx.decode(&batch),
            ctx.append(stranger, &[Token(1)]),
            ctx.seq_cp(a, stranger, Pos(0)..Pos::MAX),
            ctx.seq_cp(stranger, a, Pos(0)..Pos::MAX),
            ctx.seq_rm(stranger, Pos(0)..Pos::MAX),
            ctx.seq_add(stranger, Pos(0)..Pos::MAX, 1),
            ctx.seq_div(stranger, Pos(0)..Pos::MAX, 2),
            ctx.seq_keep(stranger),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Sequence { seq } if SeqId(seq) == stranger), "{error}");
            assert!(error.to_string().contains("Context::sequence"), "{error}");
        }
        assert!(ctx.tokens(stranger).is_err() && ctx.seq_range(stranger).is_none());
        assert_eq!(ctx.tokens(a).unwrap(), tokens(0..9));
        assert_bits("the other's logits", ctx.logits_at_hand(a).unwrap(), &logits);
    }
    assert_eq!(ctx.sequence().unwrap(), b, "its id is free");
}
