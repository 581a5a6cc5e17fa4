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
