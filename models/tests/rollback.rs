//! Contract 2: a rollback always works, and costs what was promised.

use backstitch_core::pool::{Inline, Panicked, Pool};
use backstitch_models::{
    Batch, Context, Error, Model, Params, Pos, RollbackCost, RollbackParams, SeqId, Token,
};
use backstitch_testing::{Random, assert_bits};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Models with a recurrent state, alone and beside attention.
const RECURRENT: [&str; 16] = [
    "mamba",
    "mamba2",
    "rwkv6",
    "rwkv7",
    "rwkv6qwen2",
    "arwkv7",
    "falcon_h1",
    "jamba",
    "nemotron_h",
    "nemotron_h_moe",
    "kimi_linear",
    "qwen35moe",
    "plamo2",
    "lfm2",
    "lfm2_swa",
    "qwen35",
];

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn tokens(model: &Model, seed: u64, n: usize) -> Vec<Token> {
    let mut random = Random::new(seed);
    (0..n).map(|_| Token(random.below(model.hparams().n_vocab) as u32)).collect()
}

/// Return the logits after `tokens` in a context of their own without checkpoints.
fn fresh(model: &Model, tokens: &[Token]) -> Vec<f32> {
    let params = Params::default().n_ctx(4096).rollback(RollbackParams::OFF);
    let mut ctx = Context::new(model, params).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, tokens).unwrap();
    ctx.logits(seq).unwrap().to_vec()
}

/// Append tokens to a prefix of `all`, and compare with a sequence that never went further.
fn assert_goes_on(what: &str, model: &Model, ctx: &mut Context, seq: SeqId, all: &[Token], pos: usize) {
    let next = [Token(3), Token(5)];
    ctx.append(seq, &next).unwrap();
    let expected = fresh(model, &[&all[..pos], &next].concat());
    assert_bits(what, ctx.logits(seq).unwrap(), &expected);
}

#[test]
fn removing_again_what_is_gone_forgets_nothing() {
    for name in ["mamba2", "falcon_h1", "lfm2_swa"] {
        let model = model(name);
        let all = tokens(&model, 9, 120);
        let changed = |n: usize| {
            let mut ctx = Context::new(&model, Params::default().n_ctx(256)).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &all[..20]).unwrap();
            ctx.seq_rm(seq, Pos(0)..Pos(4)).unwrap();
            ctx.append(seq, &all[20..n]).unwrap();
            (ctx, seq)
        };
        let (mut ctx, seq) = changed(120);
        ctx.seq_rm(seq, Pos(0)..Pos(2)).unwrap();
        let back = ctx.rollback(seq, Pos(40)).unwrap();
        assert_eq!((back.restored_from, back.reevaluated), (Pos(20), 20), "{name}");
        let (mut never_further, other) = changed(40);
        for (ctx, seq) in [(&mut ctx, seq), (&mut never_further, other)] {
            ctx.append(seq, &[Token(3), Token(5)]).unwrap();
        }
        assert_bits(name, ctx.logits(seq).unwrap(), never_further.logits(other).unwrap());
    }
}

/// The window has released what was removed; the layers that see everything know that it is gone.
#[test]
fn removing_again_what_a_window_released_forgets_no_token() {
    let model = model("gemma3");
    let all = tokens(&model, 11, 900);
    let changed = |n: usize| {
        let mut ctx = Context::new(&model, Params::default().n_ctx(1024)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &all[..300]).unwrap();
        ctx.seq_rm(seq, Pos(0)..Pos(4)).unwrap();
        ctx.append(seq, &all[300..n]).unwrap();
        (ctx, seq)
    };
    let ((mut ctx, seq), (mut never_further, other)) = (changed(900), changed(600));
    ctx.seq_rm(seq, Pos(0)..Pos(2)).unwrap();
    ctx.rollback(seq, Pos(600)).unwrap();
    assert_bits("gemma3", ctx.logits(seq).unwrap(), never_further.logits(other).unwrap());
}

/// Other engines return success here and continue from the state of another position.
#[test]
fn going_back_over_single_tokens_or_a_whole_decode_restores_that_very_state() {
    for name in RECURRENT {
        let model = model(name);
        let all = tokens(&model, 1, 60);
        for back in 1..=12 {
            let mut ctx = Context::new(&model, Params::default().n_ctx(128)).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &all[..40]).unwrap();
            for token in &all[40..] {
                ctx.append(seq, &[*token]).unwrap();
            }
            ctx.seq_rm(seq, Pos(60 - back)..Pos::MAX).unwrap();
            assert_goes_on(name, &model, &mut ctx, seq, &all, 60 - back as usize);
        }
        // A whole decode of two tokens, and of many.
        for n in [2, 20] {
            let mut ctx = Context::new(&model, Params::default().n_ctx(128)).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &all[..60 - n]).unwrap();
            ctx.append(seq, &all[60 - n..]).unwrap();
            let done = ctx.rollback(seq, Pos(60 - n as i32)).unwrap();
            assert_eq!(done.reevaluated, 0);
            assert_goes_on(name, &model, &mut ctx, seq, &all, 60 - n);
        }
    }
}

/// A pool that cancels in the middle of a decode.
struct Stopping(Arc<AtomicI64>);

impl Pool for Stopping {
    fn n_threads(&self) -> usize {
        1
    }
    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        if self.0.fetch_sub(1, Relaxed) == 0 { Err(Panicked) } else { Inline.run(n_jobs, job) }
    }
}

/// Other engines then refuse both the rollback and the retry.
#[test]
fn after_a_decode_that_was_stopped_both_going_back_and_trying_again_work() {
    for name in RECURRENT.into_iter().chain(["llama", "gemma3"]) {
        let model = model(name);
        let all = tokens(&model, 2, 60);
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let params = Params::default().n_ctx(128).n_ubatch(8).n_seq_max(2);
        let mut ctx = Context::with_pool(&model, params, Arc::new(Stopping(left.clone()))).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &all[..30]).unwrap();
        for stop in [0, 1, 7, 20, 45] {
            left.store(stop, Relaxed);
            let stopped = ctx.append(seq, &all[30..60]);
            assert!(matches!(stopped, Err(Error::Core(_))), "{name}: {stopped:?}");
            left.store(i64::MAX, Relaxed);
            assert_eq!(ctx.pos(seq).unwrap(), Pos(30));
            let back = ctx.fork(seq).unwrap();
            ctx.rollback(back, Pos(25)).unwrap();
            assert_goes_on(name, &model, &mut ctx, back, &all, 25);
            ctx.release(back).unwrap();
        }
        ctx.append(seq, &all[30..60]).unwrap();
        assert_bits(name, ctx.logits(seq).unwrap(), &fresh(&model, &all));
    }
}

/// Other engines return success here although the cells are gone.
#[test]
fn going_back_behind_a_window_that_moved_on_is_exact() {
    let model = model("gemma3");
    let all = tokens(&model, 3, 700);
    for rollback in [RollbackParams::default(), RollbackParams::OFF] {
        let params = Params::default().n_ctx(2048).n_seq_max(2).rollback(rollback);
        let mut ctx = Context::new(&model, params).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &all).unwrap();
        assert!(ctx.seq_range(seq).unwrap().0 > Pos(500), "cells behind the window went back to the pool");
        for pos in [690, 650, 600, 511, 300, 1] {
            let fork = ctx.fork(seq).unwrap();
            ctx.seq_rm(fork, Pos(pos)..Pos::MAX).unwrap();
            assert_goes_on("a fork", &model, &mut ctx, fork, &all, pos as usize);
            ctx.release(fork).unwrap();
        }
        assert_goes_on("the original", &model, &mut ctx, seq, &all, 700);
    }
}

/// Append two tokens to both sequences, and compare their logits.
fn assert_same(what: &str, both: [(&mut Context, SeqId); 2]) {
    let logits = both.map(|(ctx, seq)| {
        ctx.append(seq, &[Token(3), Token(5)]).unwrap();
        ctx.logits(seq).unwrap().to_vec()
    });
    assert_bits(what, &logits[0], &logits[1]);
}

/// All tokens behind the edit are known, however short the rollback before them was.
#[test]
fn an_edited_sequence_that_was_cut_goes_back_to_what_follows() {
    let model = model("gemma3");
    let all = tokens(&model, 12, 1000);
    let changed = |end: usize| {
        let mut ctx = Context::new(&model, Params::default().n_ctx(2048).n_seq_max(2)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &all[..600]).unwrap();
        ctx.seq_rm(seq, Pos(100)..Pos(200)).unwrap();
        ctx.seq_add(seq, Pos(200)..Pos(600), -100).unwrap();
        ctx.rollback(seq, Pos(490)).unwrap();
        ctx.append(seq, &all[600..600 + end - 490]).unwrap();
        (ctx, seq)
    };
    let ((mut ctx, seq), (mut never_further, other)) = (changed(690), changed(505));
    // So does the copy of its end.
    let copy = ctx.sequence().unwrap();
    ctx.seq_cp(seq, copy, Pos(400)..Pos::MAX).unwrap();
    ctx.append(copy, &all[800..1000]).unwrap();
    assert_eq!(ctx.rollback(copy, Pos(700)).unwrap().restored_from, Pos(690));
    assert_eq!(ctx.rollback(seq, Pos(505)).unwrap().restored_from, Pos(490));
    assert_same("gemma3", [(&mut ctx, seq), (&mut never_further, other)]);
}

#[test]
fn tokens_behind_embeddings_are_evaluated_again_from_there() {
    for name in ["gemma3", "mamba2", "falcon_h1"] {
        let model = model(name);
        let (all, n_embd) = (tokens(&model, 13, 400), model.hparams().n_embd);
        let appended = |n: usize| {
            let mut ctx = Context::new(&model, Params::default().n_ctx(1024)).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &all[..100]).unwrap();
            ctx.pin(seq).unwrap();
            let mut batch = Batch::of_embeddings(n_embd);
            let mut random = Random::new(14);
            for pos in 100..300 {
                let row: Vec<f32> = (0..n_embd).map(|_| random.below(200) as f32 / 100.0 - 1.0).collect();
                batch.push_embedding(&row, Pos(pos), &[seq], false);
            }
            ctx.decode(&batch).unwrap();
            all[100..100 + n].chunks(100).for_each(|piece| ctx.append(seq, piece).unwrap());
            (ctx, seq)
        };
        let ((mut ctx, seq), (mut never_further, other)) = (appended(300), appended(20));
        let back = ctx.rollback(seq, Pos(320)).unwrap();
        assert_eq!((back.restored_from, back.reevaluated), (Pos(300), 20), "{name}");
        assert_same(name, [(&mut ctx, seq), (&mut never_further, other)]);
        // Positions before the embeddings that are kept stay in reach.
        assert_eq!(ctx.rollback(seq, Pos(100)).unwrap().reevaluated, 0, "{name}");
        assert_goes_on(name, &model, &mut ctx, seq, &all, 100);
    }
}

#[test]
fn inside_the_journal_nothing_is_evaluated() {
    for name in RECURRENT {
        let model = model(name);
        let all = tokens(&model, 4, 300);
        // However the tokens came.
        for piece in [1, 7, 300] {
            let params = Params::default().n_ctx(512).n_seq_max(2).n_ubatch(64);
            let mut ctx = Context::new(&model, params).unwrap();
            let seq = ctx.sequence().unwrap();
            all.chunks(piece).for_each(|piece| ctx.append(seq, piece).unwrap());
            for back in 0..=32 {
                let fork = ctx.fork(seq).unwrap();
                let done = ctx.rollback(fork, Pos(300 - back)).unwrap();
                assert_eq!(done.reevaluated, 0, "{name}, {back} tokens back, in pieces of {piece}");
                assert_eq!(done.restored_from.0 + done.replayed as i32, 300 - back);
                if back % 8 == 5 {
                    assert_goes_on(name, &model, &mut ctx, fork, &all, 300 - back as usize);
                }
                ctx.release(fork).unwrap();
            }
        }
    }
}

/// Return the cost of going `back` tokens, as the context states it.
fn promised(ctx: &Context, seq: SeqId, back: i32) -> u32 {
    let pos = Pos(ctx.pos(seq).unwrap().0 - back);
    let ranges = ctx.positions(seq).unwrap();
    let range = ranges.iter().find(|range| range.positions.contains(&pos)).unwrap();
    match range.cost {
        RollbackCost::Reevaluated => (pos.0 - range.restored_from.0) as u32,
        _ => 0,
    }
}

#[test]
fn going_back_d_tokens_evaluates_no_more_than_d_or_the_spacing() {
    for (name, piece) in [("falcon_h1", 2_100), ("mamba2", 100), ("gemma3", 2_100)] {
        let model = model(name);
        let all = tokens(&model, 5, 2_100);
        let params = Params::default().n_ctx(2_304).n_seq_max(2);
        let mut ctx = Context::new(&model, params).unwrap();
        let seq = ctx.sequence().unwrap();
        all.chunks(piece).for_each(|piece| ctx.append(seq, piece).unwrap());
        let spacing = params.rollback.spacing;
        let costs: Vec<u32> = (1..=2_000).map(|back| promised(&ctx, seq, back)).collect();
        for (back, &cost) in (1..).zip(&costs) {
            assert!(cost <= spacing.max(back), "{name}: {cost} tokens to go {back} back");
        }
        draw(name, &costs);
        // The stated cost is the real one.
        for back in [1, 40, 255, 256, 257, 700, 1_400, 2_000] {
            let fork = ctx.fork(seq).unwrap();
            let done = ctx.rollback(fork, Pos(2_100 - back)).unwrap();
            assert_eq!(done.reevaluated, costs[back as usize - 1], "{name}: {back} tokens back");
            if back == 257 || back == 1_400 {
                assert_goes_on(name, &model, &mut ctx, fork, &all, 2_100 - back as usize);
            }
            ctx.release(fork).unwrap();
        }
    }
}

/// Return the tokens re-evaluated, and the tokens gone back.
fn draw(name: &str, costs: &[u32]) {
    println!("{name}: tokens re-evaluated (up) when going back so many (right)");
    for height in (0..=8).rev() {
        let at_least = height * 128;
        let row = costs
            .chunks(25)
            .map(|some| if *some.iter().max().unwrap() >= at_least.max(1) { '#' } else { ' ' });
        println!("{at_least:>5} |{}", row.collect::<String>());
    }
    println!("      +{}", "-".repeat(costs.len().div_ceil(25)));
    println!("       0{:>79}", costs.len());
}

#[test]
fn a_pin_is_reached_at_once_however_far_it_lies_back() {
    let model = model("falcon_h1");
    let all = tokens(&model, 6, 900);
    let rollback = RollbackParams::default().checkpoint_bytes(1 << 20);
    let mut ctx = Context::new(&model, Params::default().n_ctx(1024).rollback(rollback)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &all[..101]).unwrap();
    ctx.pin(seq).unwrap();
    ctx.append(seq, &all[101..]).unwrap();
    assert_eq!(promised(&ctx, seq, 900 - 101), 0);
    let done = ctx.rollback(seq, Pos(101)).unwrap();
    assert_eq!((done.restored_from, done.replayed, done.reevaluated), (Pos(101), 0, 0));
    assert_goes_on("the pin", &model, &mut ctx, seq, &all, 101);
    assert!(ctx.unpin(seq, Pos(101)).unwrap());
    assert!(!ctx.unpin(seq, Pos(101)).unwrap());
}

/// A rollback that is always at once leaves one token to evaluate for the logits.
#[test]
fn a_pin_keeps_logits_where_they_could_take_many_tokens() {
    // The window is as wide as the shorter context.
    for (name, n_ctx, are_kept) in
        [("llama", 64, false), ("gemma3", 8, false), ("gemma3", 64, true), ("mamba2", 8, true)]
    {
        let model = model(name);
        let all = tokens(&model, 15, 8);
        let mut ctx = Context::new(&model, Params::default().n_ctx(n_ctx)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &all[..3]).unwrap();
        ctx.pin(seq).unwrap();
        ctx.append(seq, &all[3..]).unwrap();
        assert_eq!(ctx.rollback(seq, Pos(3)).unwrap().reevaluated, 0);
        assert_eq!(ctx.logits_at_hand(seq).is_some(), are_kept, "{name}, {n_ctx}");
        assert_bits(name, ctx.logits(seq).unwrap(), &fresh(&model, &all[..3]));
    }
}

#[test]
fn a_pin_past_the_budget_is_refused_and_changes_nothing() {
    let model = model("mamba2");
    let rollback = RollbackParams::default().checkpoint_bytes(300_000);
    let mut ctx = Context::new(&model, Params::default().n_ctx(1024).rollback(rollback)).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut pinned = vec![];
    let refused = (0..200).find_map(|i| {
        ctx.append(seq, &[Token(i)]).unwrap();
        ctx.pin(seq).map(|()| pinned.push(ctx.pos(seq).unwrap())).err()
    });
    let Some(Error::Memory(backstitch_kv::Error::Pinned { limit, checkpoint_bytes })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((limit as usize, checkpoint_bytes), (pinned.len(), 300_000));
    assert!(limit > 0);
    let expected = fresh(&model, ctx.tokens(seq).unwrap());
    assert_bits("went on", ctx.logits(seq).unwrap(), &expected);
    let first = pinned[0];
    assert_eq!(ctx.rollback(seq, first).unwrap().reevaluated, 0);
}

#[test]
fn sixty_four_forks_that_decode_together_stay_exact() {
    for name in ["falcon_h1", "mamba2", "gemma3"] {
        let model = model(name);
        let all = tokens(&model, 7, 200);
        let params = Params::default().n_ctx(4096).n_seq_max(65);
        let mut ctx = Context::new(&model, params).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &all).unwrap();
        let forks: Vec<SeqId> = (0..64).map(|_| ctx.fork(seq).unwrap()).collect();
        for step in 0..5 {
            let mut batch = Batch::new();
            for &fork in &forks {
                batch.push(Token((fork.0 * 7 + step) % 250), Pos(200 + step as i32), &[fork], true);
            }
            ctx.decode(&batch).unwrap();
        }
        for &fork in &forks {
            let own: Vec<Token> = (0..5).map(|step| Token((fork.0 * 7 + step) % 250)).collect();
            let expected = fresh(&model, &[&all[..], &own].concat());
            assert_bits(format!("{name}, fork {fork}"), ctx.logits(fork).unwrap(), &expected);
        }
        // Each can still go back, to where it left the others and before.
        for &fork in &forks[..4] {
            assert_eq!(ctx.rollback(fork, Pos(198)).unwrap().reevaluated, 0);
            assert_goes_on(name, &model, &mut ctx, fork, &all, 198);
        }
    }
}

#[test]
fn a_batch_longer_than_what_is_planned_at_once_happens_whole_or_not_at_all() {
    for name in ["falcon_h1", "gemma3", "llama", "mamba2"] {
        let model = model(name);
        let all = tokens(&model, 8, 500);
        for rollback in [RollbackParams::default(), RollbackParams::OFF] {
            let left = Arc::new(AtomicI64::new(i64::MAX));
            let params = Params::default().n_ctx(600).n_ubatch(32).n_batch(64).rollback(rollback);
            let mut ctx = Context::with_pool(&model, params, Arc::new(Stopping(left.clone()))).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &all[..77]).unwrap();
            let mut runs = 40;
            loop {
                left.store(runs, Relaxed);
                match ctx.append(seq, &all[77..]) {
                    Ok(()) => break,
                    Err(Error::Core(_)) => assert_eq!(ctx.pos(seq).unwrap(), Pos(77)),
                    Err(error) => panic!("{error}"),
                }
                runs *= 3;
            }
            assert!(runs > 300, "{name} was stopped in later pieces too");
            left.store(i64::MAX, Relaxed);
            assert_bits(name, ctx.logits(seq).unwrap(), &fresh(&model, &all));
            assert_eq!(ctx.tokens(seq).unwrap(), all);
        }
    }
}

/// A batch to re-evaluate begins with the first token, wherever that is.
#[test]
fn without_room_a_sequence_that_begins_late_goes_back_too() {
    let model = model("falcon_h1");
    let all = tokens(&model, 10, 135);
    let until = |n: usize, asked: bool| {
        let params = Params::default().n_ctx(160).n_seq_max(1).n_batch(24).rollback(RollbackParams::OFF);
        let mut ctx = Context::new(&model, params).unwrap();
        let seq = ctx.sequence().unwrap();
        let mut batch = Batch::new();
        for (token, pos) in all[..n].iter().zip(45..) {
            batch.push(*token, Pos(pos), &[seq], asked);
        }
        ctx.decode(&batch).unwrap();
        (ctx, seq)
    };
    let (mut ctx, seq) = until(135, true);
    let (mut never_further, other) = until(125, true);
    assert_eq!(ctx.rollback(seq, Pos(170)).unwrap().reevaluated, 125);
    assert_eq!(ctx.pos(seq).unwrap(), Pos(170));
    let wanted = never_further.logits(other).unwrap();
    assert_bits("after a rollback", ctx.logits(seq).unwrap(), wanted);
    let ((mut ctx, seq), (mut asked, other)) = (until(135, false), until(135, true));
    assert!(ctx.logits_at_hand(seq).is_none());
    assert_bits("logits alone", ctx.logits(seq).unwrap(), asked.logits(other).unwrap());
    assert_eq!(ctx.pos(seq).unwrap(), Pos(180));
}
