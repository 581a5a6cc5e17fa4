//! Cancellation: an operation that is cancelled at any check leaves every sequence bit for bit as
//! it was.

mod golden;

use backstitch_core::pool::ThreadPool;
use backstitch_core::{DType, KernelSet};
use backstitch_models::gguf::{Access, Gguf, Writer};
use backstitch_models::{
    Batch, Cancel, Context, Error, LoadParams, Model, Params, Pos, RestoreOptions, RollbackParams,
    SaveOptions, SeqId, Token, Wanted,
};
use backstitch_testing::assert_bits;
use golden::{fresh, model, tokens};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MODELS: [&str; 6] = ["llama", "gemma3", "falcon_h1", "mamba", "rwkv7", "qwen35"];

fn path(name: &str) -> String {
    format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))
}

/// A request that is made at one check, and not at later ones.
struct After {
    looks: Arc<AtomicI64>,
    cancel: Cancel,
}

impl After {
    fn new() -> Self {
        let looks = Arc::new(AtomicI64::new(i64::MAX));
        let seen = looks.clone();
        After { looks, cancel: Cancel::from_fn(move || seen.fetch_sub(1, Relaxed) == 0) }
    }

    /// Call `act` with the request made at the first check, then at later ones until it succeeds;
    /// `left` sees what each cancelled call left. Return the number of cancelled calls.
    fn each<T>(
        &self,
        ctx: &mut Context,
        act: impl Fn(&mut Context) -> Result<T, Error>,
        mut left: impl FnMut(&mut Context),
    ) -> usize {
        for n in 0.. {
            // The first ones all, then ever fewer.
            self.looks.store(n + n * n / 8, Relaxed);
            let result = act(ctx);
            self.looks.store(i64::MAX, Relaxed);
            match result {
                Ok(_) => return n as usize,
                Err(Error::Cancelled) => left(ctx),
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!()
    }
}

#[test]
fn steps_of_any_size_leave_the_logits_of_the_last_token() {
    for name in MODELS {
        let (model, tokens) = (model(name), tokens(0..150));
        let expected = fresh(&model, &tokens);
        for (n_batch, n_ubatch) in [(512, 512), (512, 32), (32, 512), (7, 32), (1, 1)] {
            let params = Params::default().n_ctx(256).n_batch(n_batch).n_ubatch(n_ubatch);
            let mut ctx = Context::new(&model, params).unwrap();
            let seq = ctx.sequence().unwrap();
            assert_eq!(ctx.append_partly(seq, &tokens, |_| ()).unwrap(), 150);
            let what = format!("{name}, {n_ubatch} of {n_batch} at a time");
            assert_bits(&what, ctx.logits_at_hand(seq).unwrap(), &expected);
            assert_bits(&what, ctx.output(149).unwrap(), &expected);
        }
    }
}

fn assert_goes_on(what: &str, ctx: &mut Context, seq: SeqId, held: &[Token], more: &[Token]) {
    assert_eq!(ctx.tokens(seq).unwrap(), held, "{what}");
    let fork = ctx.fork(seq).unwrap();
    ctx.append(fork, more).unwrap();
    let expected = fresh(&ctx.model().clone(), &[held, more].concat());
    assert_bits(what, ctx.logits(fork).unwrap(), &expected);
    ctx.release(fork).unwrap();
}

#[test]
fn a_cancelled_batch_leaves_every_sequence_as_it_was() {
    for name in MODELS {
        let model = model(name);
        // Batches of several pieces, pieces of several ubatches, on one thread and on two.
        for n_threads in [1, 2] {
            let after = After::new();
            let params =
                Params::default().n_ctx(128).n_ubatch(4).n_batch(8).n_seq_max(3).n_threads(n_threads);
            let mut ctx = Context::new(&model, params).unwrap();
            ctx.set_cancel(Some(after.cancel.clone()));
            let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
            ctx.append(a, &tokens(0..20)).unwrap();
            ctx.append(b, &tokens(50..61)).unwrap();
            let mut batch = Batch::new();
            for i in 0..7 {
                batch.push(tokens(20..40)[i], Pos(20 + i as i32), &[a], i == 6);
                batch.push(tokens(61..80)[i], Pos(11 + i as i32), &[b], i == 6);
            }
            let n = after.each(
                &mut ctx,
                |ctx| ctx.decode(&batch),
                |ctx| {
                    assert_goes_on(name, ctx, a, &tokens(0..20), &tokens(20..21));
                    assert_goes_on(name, ctx, b, &tokens(50..61), &tokens(61..62));
                },
            );
            assert!(n > 10, "{name}: cancelled {n} times only");
            assert_bits(name, ctx.logits(a).unwrap(), &fresh(&model, &tokens(0..27)));
            assert_bits(name, ctx.logits(b).unwrap(), &fresh(&model, &tokens(50..68)));
        }
    }
}

#[test]
fn a_cancelled_rollback_leaves_the_sequence_where_it_was() {
    let stepped = RollbackParams::default().checkpoint_bytes(1 << 20).spacing(8).journal(16).margin(8);
    for name in MODELS {
        let model = model(name);
        // Replayed from a journal, and re-evaluated.
        for rollback in [stepped, RollbackParams::OFF] {
            let after = After::new();
            let params = Params::default().n_ctx(256).n_ubatch(16).n_seq_max(2).rollback(rollback);
            let mut ctx = Context::new(&model, params).unwrap();
            ctx.set_cancel(Some(after.cancel.clone()));
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &tokens(0..60)).unwrap();
            after.each(
                &mut ctx,
                |ctx| ctx.rollback(seq, Pos(54)),
                |ctx| assert_goes_on(name, ctx, seq, &tokens(0..60), &tokens(60..62)),
            );
            assert_goes_on(name, &mut ctx, seq, &tokens(0..54), &tokens(70..72));
        }
    }
}

#[test]
fn a_cancelled_encoding_leaves_the_last_text() {
    let model = model("t5");
    let after = After::new();
    let params = Params::default().n_ctx(128).n_ubatch(32).n_seq_max(2);
    let mut ctx = Context::new(&model, params).unwrap();
    ctx.set_cancel(Some(after.cancel.clone()));
    let seq = ctx.sequence().unwrap();
    let answer = |ctx: &mut Context| {
        ctx.append(seq, &[Token(0), Token(7)]).unwrap();
        let logits = ctx.logits(seq).unwrap().to_vec();
        ctx.rollback(seq, Pos(0)).unwrap();
        logits
    };
    ctx.encode(seq, &tokens(0..9)).unwrap();
    let before = answer(&mut ctx);
    let other = tokens(40..60);
    let n = after.each(
        &mut ctx,
        |ctx| ctx.encode(seq, &other),
        |ctx| assert_bits("the last text", &answer(ctx), &before),
    );
    assert!(n > 10, "cancelled {n} times only");
    assert_ne!(answer(&mut ctx), before);
}

#[test]
fn a_cancelled_restore_leaves_what_there_was_and_saving_is_not_cancelled() {
    for name in MODELS {
        let model = model(name);
        let after = After::new();
        let params = Params::default().n_ctx(256).n_seq_max(3);
        let mut ctx = Context::new(&model, params).unwrap();
        ctx.set_cancel(Some(after.cancel.clone()));
        let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
        ctx.append(a, &tokens(0..100)).unwrap();
        ctx.append(b, &tokens(50..61)).unwrap();
        let mut state = Vec::new();
        after.cancel.cancel();
        ctx.seq_state_write(a, &mut state, &SaveOptions::default()).unwrap();
        assert!(matches!(
            ctx.seq_state_read_bytes(b, &state, &RestoreOptions::default()),
            Err(Error::Cancelled)
        ));
        after.cancel.reset();
        let n = after.each(
            &mut ctx,
            |ctx| ctx.seq_state_read_bytes(b, &state, &RestoreOptions::default()),
            |ctx| assert_goes_on(name, ctx, b, &tokens(50..61), &tokens(61..62)),
        );
        assert!(n > 0, "{name}");
        assert_goes_on(name, &mut ctx, b, &tokens(0..100), &tokens(100..102));
    }
}

#[test]
fn what_was_appended_before_the_request_is_kept() {
    let model = model("falcon_h1");
    let cancel = Cancel::new();
    let params = Params::default().n_ctx(128).n_ubatch(8).n_seq_max(2);
    let mut ctx = Context::new(&model, params).unwrap();
    ctx.set_cancel(Some(cancel.clone()));
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &tokens(0..5)).unwrap();
    let mut heard = Vec::new();
    let n = ctx.append_partly(seq, &tokens(5..50), |n| {
        heard.push(n);
        if n >= 24 {
            cancel.cancel();
        }
    });
    assert_eq!((n.unwrap(), heard), (24, vec![8, 16, 24]));
    assert_eq!(ctx.append_partly(seq, &tokens(29..50), |_| ()).unwrap(), 0);
    cancel.reset();
    assert_goes_on("kept", &mut ctx, seq, &tokens(0..29), &tokens(29..31));
    assert_eq!(ctx.append_partly(seq, &tokens(29..50), |_| ()).unwrap(), 21);
    assert_bits("went on", ctx.logits(seq).unwrap(), &fresh(&model, &tokens(0..50)));
    // Errors of other kinds keep nothing.
    let bad = [tokens(50..70), vec![Token(1 << 20)]].concat();
    assert!(matches!(ctx.append_partly(seq, &bad, |_| ()), Err(Error::Token { index: 20, .. })));
    assert!(matches!(ctx.append_partly(seq, &tokens(0..100), |_| ()), Err(Error::Memory(_))));
    assert_eq!(ctx.pos(seq).unwrap(), Pos(50));
}

#[test]
fn loading_stops_between_pieces_of_weights() {
    let n_looks = Arc::new(AtomicI64::new(0));
    let stop_at = Arc::new(AtomicI64::new(i64::MAX));
    let (seen, at) = (n_looks.clone(), stop_at.clone());
    let cancel = Cancel::from_fn(move || seen.fetch_add(1, Relaxed) >= at.load(Relaxed));
    let load = |n_threads| {
        n_looks.store(0, Relaxed);
        let params =
            LoadParams::default().access(Access::Map).n_threads(n_threads).cancel(Some(cancel.clone()));
        Model::open_with(path("llama"), params, |_, _| ())
    };
    load(1).unwrap();
    let n = n_looks.load(Relaxed);
    assert!(n > 20, "{n} looks only");
    for stop in [0, 1, n / 2, n - 1] {
        stop_at.store(stop, Relaxed);
        for n_threads in [1, 2] {
            assert!(matches!(load(n_threads), Err(Error::Cancelled)), "at {stop} on {n_threads} threads");
        }
    }
}

#[test]
fn contexts_share_a_pool() {
    let model = model("qwen35");
    let pool = Arc::new(ThreadPool::new(3).unwrap());
    let expected = fresh(&model, &tokens(0..40));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let params = Params::default().n_ctx(64).n_ubatch(8);
                let mut ctx = Context::with_pool(&model, params, pool.clone()).unwrap();
                let seq = ctx.sequence().unwrap();
                tokens(0..40).chunks(3).for_each(|piece| ctx.append(seq, piece).unwrap());
                assert_bits("shared", ctx.logits(seq).unwrap(), &expected);
            });
        }
    });
}

/// A model with one wide layer, all of whose matrices are zeros.
fn wide() -> Model {
    const N_EMBD: usize = 2048;
    const N_FF: usize = 8192;
    let bytes = std::fs::read(path("quant_f16")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let old = Model::from_bytes(&bytes).unwrap().hparams().n_embd;
    let shape = |name: &str, shape: &[usize]| -> Vec<usize> {
        match (name, shape) {
            ("blk.0.ffn_gate.weight" | "blk.0.ffn_up.weight", _) => vec![N_FF, N_EMBD],
            ("blk.0.ffn_down.weight", _) => vec![N_EMBD, N_FF],
            ("token_embd.weight" | "output.weight", [n_vocab, _]) => vec![*n_vocab, N_EMBD],
            _ => shape.iter().map(|n| n * N_EMBD / old).collect(),
        }
    };
    let tensors: Vec<_> =
        gguf.tensors().iter().map(|info| (info.name(), shape(info.name(), info.shape()))).collect();
    let data: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, shape)| {
            let n = shape.iter().product();
            if shape.len() == 1 {
                1.0f32.to_le_bytes().repeat(n)
            } else {
                vec![0; DType::Q8_0.row_bytes(n).unwrap()]
            }
        })
        .collect();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    let head = (N_EMBD / gguf.required::<u32>("llama.attention.head_count").unwrap() as usize) as u32;
    for (key, value) in [
        ("llama.embedding_length", N_EMBD as u32),
        ("llama.feed_forward_length", N_FF as u32),
        ("llama.rope.dimension_count", head),
        ("llama.attention.key_length", head),
        ("llama.attention.value_length", head),
    ] {
        writer.set(key, value).unwrap();
    }
    for ((name, shape), data) in tensors.iter().zip(&data) {
        let dtype = if shape.len() == 1 { DType::F32 } else { DType::Q8_0 };
        writer.tensor(*name, shape, dtype, data).unwrap();
    }
    Model::from_bytes(&writer.to_bytes()).unwrap()
}

/// The width. One thread takes most of a second for a product of 512 tokens with such matrices, and
/// far longer on a slow machine.
#[test]
fn one_thread_looks_at_the_request_inside_large_products() {
    let model = wide();
    let looks = Arc::new(Mutex::new((Instant::now(), Duration::ZERO, 0)));
    let seen = looks.clone();
    let cancel = Cancel::from_fn(move || {
        let mut looks = seen.lock().unwrap();
        let now = Instant::now();
        *looks = (now, looks.1.max(now - looks.0), looks.2 + 1);
        false
    });
    let kernels = KernelSet::available().find(|set| set.name() == "avx2");
    let params = Params::default().n_ctx(512).n_threads(1).kernels(kernels);
    let mut ctx = Context::new(&model, params).unwrap();
    ctx.set_cancel(Some(cancel));
    let seq = ctx.sequence().unwrap();
    *looks.lock().unwrap() = (Instant::now(), Duration::ZERO, 0);
    // All outputs: else the last layer computes one token.
    let mut batch = Batch::new();
    batch.extend(seq, Pos(0), &tokens(0..512), Wanted::All).unwrap();
    ctx.decode(&batch).unwrap();
    let (_, longest, n) = *looks.lock().unwrap();
    // The products of the layer are cut into more than a hundred jobs.
    assert!(n > 100, "{n} looks only");
    assert!(longest < Duration::from_millis(300), "{longest:?} between two looks");
}
