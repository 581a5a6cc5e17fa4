//! Contract 3 when the allocator refuses: an error, and everything as it was.

use backstitch_models::{Batch, Context, Error, Model, Params, Pos, SeqId, TimelineParams, Token};
use backstitch_testing::{Counting, assert_bits};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn tokens(n: u32) -> Vec<Token> {
    (0..n).map(|i| Token((i * 37 + 11) % 250)).collect()
}

/// Refuses the first allocation of `act`, then the second, ... until it does without; returns how often it failed.
fn refuse_each(mut act: impl FnMut() -> Result<(), Error>, mut check: impl FnMut()) -> u32 {
    for granted in 0.. {
        match ALLOCATOR.refusing_after(granted, &mut act) {
            Ok(()) => return granted as u32,
            Err(Error::OutOfMemory { .. } | Error::Memory(backstitch_kv::Error::OutOfMemory { .. })) => {
                check()
            }
            Err(error) => panic!("{error}"),
        }
    }
    0
}

#[test]
fn without_memory_for_outputs_forks_and_ways_back_nothing_changes() {
    for name in ["llama", "gemma3", "mamba2", "falcon_h1"] {
        let model = model(name);
        let all = tokens(90);
        let fresh = {
            let mut ctx = Context::new(&model, Params { n_ctx: 128, ..Params::default() }).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &all).unwrap();
            ctx.logits(seq).unwrap().to_vec()
        };
        let params = Params { n_ctx: 256, n_seq_max: 4, ..Params::default() };
        let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
        let a = ctx.borrow_mut().sequence().unwrap();
        ctx.borrow_mut().append(a, &all[..60]).unwrap();
        // More rows of logits than ever before.
        let mut batch = Batch::new();
        for (i, &token) in (60..).zip(&all[60..]) {
            batch.push(token, Pos(i), &[a], true);
        }
        let still = |end: i32| {
            assert_eq!(ctx.borrow().pos(a), Pos(end), "{name}");
            assert_eq!(ctx.borrow().tokens(a).unwrap().len(), end as usize);
        };
        let failed = refuse_each(|| ctx.borrow_mut().decode(&batch), || still(60));
        assert!(failed > 0, "{name}: outputs took no memory");
        assert_bits(name, ctx.borrow().logits(a).unwrap(), &fresh);
        let mut fork = None;
        let failed = refuse_each(|| ctx.borrow_mut().fork(a).map(|made| fork = Some(made)), || still(90));
        assert!(failed > 0, "{name}: a fork took no memory");
        let fork: SeqId = fork.unwrap();
        ctx.borrow_mut().rollback(fork, Pos(60)).unwrap();
        ctx.borrow_mut().append(fork, &all[60..]).unwrap();
        assert_bits(name, ctx.borrow().logits(fork).unwrap(), &fresh);
    }
}

#[test]
fn evaluating_again_without_memory_leaves_the_sequence_where_it_was() {
    let model = model("falcon_h1");
    let all = tokens(90);
    let params = Params { n_ctx: 256, timeline: TimelineParams::OFF, ..Params::default() };
    let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
    let seq = ctx.borrow_mut().sequence().unwrap();
    ctx.borrow_mut().append(seq, &all).unwrap();
    refuse_each(
        || ctx.borrow_mut().rollback(seq, Pos(50)).map(drop),
        || assert_eq!(ctx.borrow().pos(seq), Pos(90)),
    );
    assert_eq!(ctx.borrow().pos(seq), Pos(50));
}

#[test]
fn a_sequence_longer_than_the_context_grows_or_stays() {
    let model = model("mamba2");
    let all = tokens(90);
    let params = Params { n_ctx: 32, n_seq_max: 2, ..Params::default() };
    let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
    let seq = ctx.borrow_mut().sequence().unwrap();
    ctx.borrow_mut().append(seq, &all[..1]).unwrap();
    let mut n_refused = 0;
    for i in 1..90 {
        let failed = refuse_each(
            || ctx.borrow_mut().append(seq, &all[i..=i]),
            || {
                assert_eq!(ctx.borrow().pos(seq), Pos(i as i32));
                assert_eq!(ctx.borrow().tokens(seq).unwrap(), &all[..i]);
            },
        );
        assert!(i >= 32 || failed == 0, "a token within the context took memory");
        n_refused += failed;
    }
    // At 32 and 64 tokens: the list doubles.
    assert_eq!(n_refused, 2);
    let fork = ctx.borrow_mut().fork(seq).unwrap();
    assert_eq!(ctx.borrow().tokens(fork).unwrap(), all);
    let mut wide = Context::new(&model, Params { n_ctx: 128, ..Params::default() }).unwrap();
    let other = wide.sequence().unwrap();
    wide.append(other, &all).unwrap();
    assert_bits("beyond the context", ctx.borrow().logits(fork).unwrap(), wide.logits(other).unwrap());
}

#[test]
fn a_copy_of_a_beginning_without_memory_leaves_its_target_as_it_was() {
    let model = model("mamba2");
    let all = tokens(90);
    let params = Params { n_ctx: 4096, n_seq_max: 8, ..Params::default() };
    let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
    let [a, b] = [(); 2].map(|()| ctx.borrow_mut().sequence().unwrap());
    // More ways back than a new sequence has room for.
    for token in &all {
        ctx.borrow_mut().append(a, &[*token]).unwrap();
        ctx.borrow_mut().pin(a).unwrap();
    }
    let failed = refuse_each(
        || ctx.borrow_mut().seq_cp(a, b, Pos::ZERO..Pos(50)),
        || assert_eq!(ctx.borrow().tokens(b).unwrap(), [], "the target still exists and is empty"),
    );
    assert!(failed > 1, "only the list of tokens took memory");
    assert_eq!(ctx.borrow().tokens(b).unwrap(), &all[..50]);
}
