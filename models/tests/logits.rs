//! Logits are there when asked for, with the bits of a fresh evaluation, and no failure removes
//! them.

mod golden;

use backstitch_core::pool::{Inline, Panicked, Pool};
use backstitch_models::{
    Batch, Cancel, Context, Error, Params, Pos, RestoreOptions, RollbackParams, SaveOptions, SeqId, Token,
    Wanted,
};
use backstitch_testing::assert_bits;
use golden::{fresh, model, tokens};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MODELS: [&str; 8] =
    ["llama", "gemma3", "falcon_h1", "mamba2", "rwkv7", "qwen35", "lfm2_swa", "llama_moe"];

/// A pool that counts its calls.
#[derive(Default)]
struct Counting(AtomicU64);

impl Pool for Counting {
    fn n_threads(&self) -> usize {
        1
    }
    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        self.0.fetch_add(1, Relaxed);
        Inline.run(n_jobs, job)
    }
}

#[test]
fn after_whatever_happened_to_them_sequences_have_their_logits() {
    for name in MODELS {
        let model = model(name);
        let params = Params::default().n_ctx(256).n_ubatch(16).n_seq_max(4);
        let pool = Arc::new(Counting::default());
        let mut ctx = Context::with_pool(&model, params, pool.clone()).unwrap();
        let a = ctx.sequence().unwrap();
        ctx.append(a, &tokens(0..60)).unwrap();
        let before = pool.0.load(Relaxed);
        ctx.append(a, &tokens(60..61)).unwrap();
        let of_one_token = pool.0.load(Relaxed) - before;
        let expect = |ctx: &mut Context, seq: SeqId, held: &[Token], what: &str| {
            let before = pool.0.load(Relaxed);
            assert_bits(format!("{name}, {what}"), ctx.logits(seq).unwrap(), &fresh(&model, held));
            // A replay runs fewer steps than a token.
            let n_runs = pool.0.load(Relaxed) - before;
            assert!(n_runs <= 2 * of_one_token, "{name}, {what}: {n_runs} runs, {of_one_token} for a token");
            assert_eq!(ctx.tokens(seq).unwrap(), held, "{name}, {what}");
            // From now on they are at hand.
            assert_bits(format!("{name}, {what}"), ctx.logits_at_hand(seq).unwrap(), &fresh(&model, held));
        };
        let b = ctx.fork(a).unwrap();
        expect(&mut ctx, b, &tokens(0..61), "a fork");
        ctx.append(b, &tokens(70..75)).unwrap();
        expect(&mut ctx, a, &tokens(0..61), "another sequence was decoded");
        ctx.rollback(a, Pos(57)).unwrap();
        assert!(ctx.logits_at_hand(a).is_none());
        expect(&mut ctx, a, &tokens(0..57), "a rollback");
        ctx.rollback(a, Pos(57)).unwrap();
        expect(&mut ctx, a, &tokens(0..57), "a rollback to the end");
        ctx.pin(a).unwrap();
        ctx.append(a, &tokens(80..170)).unwrap();
        ctx.rollback(a, Pos(57)).unwrap();
        expect(&mut ctx, a, &tokens(0..57), "a rollback to a pin");
        let mut batch = Batch::new();
        batch.push(tokens(57..58)[0], Pos(57), &[a], false);
        ctx.decode(&batch).unwrap();
        expect(&mut ctx, a, &tokens(0..58), "a batch that did not ask");
        ctx.append(b, &tokens(75..76)).unwrap();
        ctx.rollback(a, Pos(56)).unwrap();
        let mut state = Vec::new();
        ctx.seq_state_write(a, &mut state, &SaveOptions::default()).unwrap();
        let c = ctx.sequence().unwrap();
        ctx.seq_state_read(c, &mut state.as_slice(), &RestoreOptions::default()).unwrap();
        expect(&mut ctx, c, &tokens(0..56), "a restored sequence");
        // Nothing of all that changed what the sequences go on with, or the rollback cost.
        assert!(ctx.unpin(a, Pos(57)).is_ok());
        ctx.append(a, &tokens(56..60)).unwrap();
        expect(&mut ctx, a, &tokens(0..60), "going on");
    }
}

#[test]
fn a_pin_that_goes_leaves_those_of_other_sequences_their_logits() {
    for name in ["mamba2", "gemma3", "qwen35"] {
        let model = model(name);
        let mut ctx = Context::new(&model, Params::default().n_ctx(256).n_seq_max(3)).unwrap();
        let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
        for (seq, first) in [(a, 0), (b, 100)] {
            ctx.append(seq, &tokens(first..first + 57)).unwrap();
            ctx.pin(seq).unwrap();
        }
        let fork = ctx.fork(a).unwrap();
        assert!(ctx.unpin(a, Pos(57)).unwrap(), "{name}");
        assert!(!ctx.unpin(a, Pos(57)).unwrap(), "{name}");
        for (seq, is_pinned) in [(b, true), (fork, false)] {
            ctx.append(seq, &tokens(60..65)).unwrap();
            ctx.rollback(seq, Pos(57)).unwrap();
            assert_eq!(ctx.logits_at_hand(seq).is_some(), is_pinned, "{name}");
        }
        assert_bits(name, ctx.logits(b).unwrap(), &fresh(&model, &tokens(100..157)));
    }
}

#[test]
fn without_checkpoints_all_tokens_are_evaluated_again() {
    for name in ["mamba2", "gemma3", "qwen35"] {
        let model = model(name);
        let params = Params::default().n_ctx(128).rollback(RollbackParams::OFF).n_seq_max(2);
        let mut ctx = Context::new(&model, params).unwrap();
        let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
        ctx.append(a, &tokens(0..40)).unwrap();
        ctx.append(b, &tokens(50..52)).unwrap();
        assert_bits(name, ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..40)));
        ctx.rollback(a, Pos(30)).unwrap();
        assert_bits(name, ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..30)));
    }
}

#[test]
fn in_a_full_cache_tokens_are_evaluated_in_their_own_cells() {
    let model = model("falcon_h1");
    let rollback = RollbackParams::OFF;
    let mut ctx = Context::new(&model, Params::default().n_ctx(128).n_seq_max(2).rollback(rollback)).unwrap();
    let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
    ctx.append(a, &tokens(0..120)).unwrap();
    ctx.append(b, &tokens(0..60)).unwrap();
    // All of `a` is re-evaluated, and there are not enough cells for a second copy.
    assert_bits("full", ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..120)));
    assert_eq!(ctx.tokens(a).unwrap(), tokens(0..120));
    assert_bits("the other", ctx.logits(b).unwrap(), &fresh(&model, &tokens(0..60)));
    ctx.append(a, &tokens(120..123)).unwrap();
    assert_bits("went on", ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..123)));
    // Cells that a fork has too cannot be given up.
    ctx.release(b).unwrap();
    let fork = ctx.fork(a).unwrap();
    ctx.append(fork, &tokens(200..201)).unwrap();
    let result = ctx.logits(a);
    assert!(matches!(result, Err(Error::Memory(backstitch_kv::Error::Full { .. }))), "{result:?}");
    assert_eq!(ctx.tokens(a).unwrap(), tokens(0..123));
}

#[test]
fn where_there_are_none_the_error_says_why() {
    let llama = model("llama");
    let mut ctx = Context::new(&llama, Params::default().n_ctx(64)).unwrap();
    let seq = ctx.sequence().unwrap();
    assert!(matches!(ctx.logits(seq), Err(Error::NoLogits { seq: 0 })));
    assert!(matches!(ctx.logits(SeqId(7)), Err(Error::Sequence { seq: 7 })));
    ctx.append(seq, &tokens(0..20)).unwrap();
    ctx.seq_rm(seq, Pos(5)..Pos(8)).unwrap();
    assert!(matches!(ctx.logits(seq), Err(Error::Edited { seq: 0 })));
    ctx.append(seq, &tokens(30..31)).unwrap();
    ctx.logits(seq).unwrap();
    ctx.release(seq).unwrap();
    assert!(matches!(ctx.logits(seq), Err(Error::Sequence { seq: 0 })));
    assert!(matches!(ctx.pos(seq), Err(Error::Sequence { seq: 0 })));

    let bert = model("bert");
    let mut ctx = Context::new(&bert, Params::default()).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.encode(seq, &tokens(0..5)).unwrap();
    assert!(matches!(ctx.logits(seq), Err(Error::EncoderOnly)));

    let t5 = model("t5");
    let mut ctx = Context::new(&t5, Params::default().n_ctx(64).n_seq_max(2)).unwrap();
    let (seq, other) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
    ctx.encode(seq, &tokens(0..9)).unwrap();
    assert!(matches!(ctx.logits(seq), Err(Error::NoLogits { .. })));
    ctx.append(seq, &tokens(0..4)).unwrap();
    let expected = ctx.logits(seq).unwrap().to_vec();
    ctx.encode(other, &tokens(3..7)).unwrap();
    assert!(ctx.logits_at_hand(seq).is_none());
    assert_bits("t5", ctx.logits(seq).unwrap(), &expected);
}

/// After any refusal or cancellation, the logits of all sequences and the outputs of the last
/// successful batch stay.
#[test]
fn a_decode_that_fails_takes_no_logits_away() {
    let model = model("falcon_h1");
    let cancel = Cancel::new();
    let params = Params::default().n_ctx(64).n_ubatch(8).n_batch(16).n_seq_max(3);
    let mut ctx = Context::new(&model, params).unwrap();
    ctx.set_cancel(Some(cancel.clone()));
    let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
    let mut batch = Batch::new();
    for i in 0..6 {
        batch.push(tokens(0..6)[i], Pos(i as i32), &[a], true);
        batch.push(tokens(20..26)[i], Pos(i as i32), &[b], i == 5);
    }
    ctx.decode(&batch).unwrap();
    let seen = |ctx: &Context| {
        let rows = (0..13).map(|i| ctx.output(i)).chain([a, b].map(|seq| ctx.logits_at_hand(seq)));
        rows.map(|row| row.map(|row| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>())).collect::<Vec<_>>()
    };
    let before = seen(&ctx);
    assert_eq!(before.iter().flatten().count(), 9);

    let mut wrong_width = Batch::of_embeddings(5);
    wrong_width.push_embedding(&[0.0; 5], Pos(6), &[a], true);
    assert!(ctx.decode(&wrong_width).is_err());
    assert_eq!(seen(&ctx), before, "a wrong width");

    assert!(ctx.append(a, &tokens(6..80)).is_err());
    assert_eq!(seen(&ctx), before, "too long");

    cancel.cancel();
    assert!(matches!(ctx.append(a, &tokens(6..40)), Err(Error::Cancelled)));
    assert_eq!(seen(&ctx), before, "cancelled");
    cancel.reset();
    ctx.append(a, &tokens(6..7)).unwrap();
    assert_bits("went on", ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..7)));
}

/// A piece of a long batch is refused after the pieces before it were computed.
#[test]
fn a_later_piece_that_does_not_fit_takes_no_logits_away() {
    let model = model("llama");
    let params = Params::default().n_ctx(128).n_ubatch(8).n_batch(16).n_seq_max(6);
    let pool = Arc::new(Counting::default());
    let mut ctx = Context::with_pool(&model, params, pool.clone()).unwrap();
    // All blocks of 32 cells are in use. The last sequence and its fork share one, so either needs
    // another to continue.
    for n in [128, 128, 128, 80] {
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &tokens(0..n)).unwrap();
    }
    let last = ctx.sequence().unwrap();
    ctx.append(last, &tokens(0..10)).unwrap();
    let fork = ctx.fork(last).unwrap();
    let expected = ctx.logits(last).unwrap().to_vec();
    let mut batch = Batch::new();
    for (seq, range) in [(SeqId(3), 80..96), (fork, 10..14)] {
        for i in range {
            batch.push(tokens(i..i + 1)[0], Pos(i as i32), &[seq], true);
        }
    }
    let before = pool.0.load(Relaxed);
    let result = ctx.decode(&batch);
    assert!(matches!(result, Err(Error::Memory(backstitch_kv::Error::Full { .. }))), "{result:?}");
    assert!(pool.0.load(Relaxed) > before, "refused before anything was computed");
    for seq in [last, fork] {
        assert_bits("of the sequence", ctx.logits_at_hand(seq).unwrap(), &expected);
    }
    assert_bits("of the batch", ctx.output(9).unwrap(), &expected);
    assert_eq!((ctx.pos(SeqId(3)).unwrap(), ctx.pos(fork).unwrap()), (Pos(80), Pos(10)));
}

#[test]
fn shared_logits_stay_as_they_are_whatever_the_context_computes() {
    for name in MODELS {
        let model = model(name);
        let params = Params::default().n_ctx(256).n_ubatch(16).n_seq_max(3);
        let mut ctx = Context::new(&model, params).unwrap();
        let a = ctx.sequence().unwrap();
        let mut held = Vec::new();
        for n in 1..12 {
            ctx.append(a, &tokens(n - 1..n)).unwrap();
            held.push((ctx.shared_logits(a).unwrap(), n));
        }
        let b = ctx.fork(a).unwrap();
        assert_eq!(ctx.shared_logits(b).unwrap().as_ptr(), ctx.logits(a).unwrap().as_ptr(), "{name}");
        ctx.rollback(a, Pos(5)).unwrap();
        held.push((ctx.shared_logits(a).unwrap(), 5)); // recomputed
        ctx.release(b).unwrap();
        drop(ctx);
        for (logits, n) in &held {
            assert_bits(format!("{name}, {n} tokens"), logits, &fresh(&model, &tokens(0..*n)));
        }
    }
}

#[test]
fn shared_logits_are_the_memory_of_a_batch_and_a_copy_of_a_row_among_many() {
    let model = model("llama");
    let mut ctx = Context::new(&model, Params::default().n_ctx(256).n_seq_max(2)).unwrap();
    let a = ctx.sequence().unwrap();
    ctx.append(a, &tokens(0..9)).unwrap();
    let shared = ctx.shared_logits(a).unwrap();
    assert_eq!(shared.as_ptr(), ctx.logits(a).unwrap().as_ptr());
    ctx.append(a, &tokens(9..10)).unwrap();
    assert_ne!(shared.as_ptr(), ctx.logits(a).unwrap().as_ptr());

    let mut batch = Batch::new();
    batch.extend(a, Pos(10), &tokens(10..110), Wanted::All).unwrap();
    ctx.decode(&batch).unwrap();
    let copied = ctx.shared_logits(a).unwrap();
    assert_ne!(copied.as_ptr(), ctx.logits(a).unwrap().as_ptr());
    assert_bits("a row among many", &copied, ctx.logits(a).unwrap());
    assert_eq!(format!("{copied:?}"), format!("SharedLogits {{ n_vocab: {}, .. }}", copied.len()));
    // The space of the large batch serves no small one: holding its logits would keep all of it.
    for n in 110..113 {
        ctx.append(a, &tokens(n..n + 1)).unwrap();
        let shared = ctx.shared_logits(a).unwrap();
        assert_eq!(shared.as_ptr(), ctx.logits(a).unwrap().as_ptr(), "token {n}");
    }
}
