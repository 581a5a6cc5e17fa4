//! Contract 3 when the allocator refuses: an error, and nothing has changed.

use backstitch_models::vocab::{Vocab, VocabError, VocabSource};
use backstitch_models::{Batch, Context, Error, Model, Params, Pos, RollbackParams, SeqId, Token};
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

/// Refuse the first allocation of `act`, then the second, and so on until it succeeds. Return the
/// number of failures.
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
            let mut ctx = Context::new(&model, Params::default().n_ctx(128)).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &all).unwrap();
            ctx.logits(seq).unwrap().to_vec()
        };
        let params = Params::default().n_ctx(256).n_seq_max(4);
        let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
        let a = ctx.borrow_mut().sequence().unwrap();
        ctx.borrow_mut().append(a, &all[..60]).unwrap();
        // More rows of logits than ever before.
        let mut batch = Batch::new();
        for (i, &token) in (60..).zip(&all[60..]) {
            batch.push(token, Pos(i), &[a], true);
        }
        let still = |end: i32| {
            assert_eq!(ctx.borrow().pos(a).unwrap(), Pos(end), "{name}");
            assert_eq!(ctx.borrow().tokens(a).unwrap().len(), end as usize);
        };
        let failed = refuse_each(|| ctx.borrow_mut().decode(&batch), || still(60));
        assert!(failed > 0, "{name}: outputs took no memory");
        assert_bits(name, ctx.borrow_mut().logits(a).unwrap(), &fresh);
        let mut fork = None;
        let failed = refuse_each(|| ctx.borrow_mut().fork(a).map(|made| fork = Some(made)), || still(90));
        assert!(failed > 0, "{name}: a fork took no memory");
        let fork: SeqId = fork.unwrap();
        ctx.borrow_mut().rollback(fork, Pos(60)).unwrap();
        ctx.borrow_mut().append(fork, &all[60..]).unwrap();
        assert_bits(name, ctx.borrow_mut().logits(fork).unwrap(), &fresh);
    }
}

#[test]
fn evaluating_again_without_memory_leaves_the_sequence_where_it_was() {
    let model = model("falcon_h1");
    let all = tokens(90);
    let params = Params::default().n_ctx(256).rollback(RollbackParams::OFF);
    let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
    let seq = ctx.borrow_mut().sequence().unwrap();
    ctx.borrow_mut().append(seq, &all).unwrap();
    refuse_each(
        || ctx.borrow_mut().rollback(seq, Pos(50)).map(drop),
        || assert_eq!(ctx.borrow().pos(seq).unwrap(), Pos(90)),
    );
    assert_eq!(ctx.borrow().pos(seq).unwrap(), Pos(50));
}

#[test]
fn a_sequence_longer_than_the_context_grows_or_stays() {
    let model = model("mamba2");
    let all = tokens(90);
    let params = Params::default().n_ctx(32).n_seq_max(2);
    let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
    let seq = ctx.borrow_mut().sequence().unwrap();
    ctx.borrow_mut().append(seq, &all[..1]).unwrap();
    let mut n_refused = 0;
    for i in 1..90 {
        let failed = refuse_each(
            || ctx.borrow_mut().append(seq, &all[i..=i]),
            || {
                assert_eq!(ctx.borrow().pos(seq).unwrap(), Pos(i as i32));
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
    let mut wide = Context::new(&model, Params::default().n_ctx(128)).unwrap();
    let other = wide.sequence().unwrap();
    wide.append(other, &all).unwrap();
    assert_bits("beyond the context", ctx.borrow_mut().logits(fork).unwrap(), wide.logits(other).unwrap());
}

#[test]
fn a_copy_of_a_beginning_without_memory_leaves_its_target_as_it_was() {
    let model = model("mamba2");
    let all = tokens(90);
    let params = Params::default().n_ctx(4096).n_seq_max(8);
    let ctx = std::cell::RefCell::new(Context::new(&model, params).unwrap());
    let [a, b] = [(); 2].map(|()| ctx.borrow_mut().sequence().unwrap());
    // More checkpoints than a new sequence has space for.
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

#[test]
fn a_vocabulary_without_memory_for_its_tables_is_an_error() {
    // Every byte, so that there is a token for all of them, then words of four letters.
    let mut tokens: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let letters = |n: usize| [n, n / 26, n / 676, n / 17576].map(|n| char::from(b'a' + (n % 26) as u8));
    tokens.extend((0..30_000).map(|n| letters(n).into_iter().collect::<String>()));
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let merges: Vec<String> = (0..676).map(letters).map(|[a, b, ..]| format!("{a} {b}")).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    for model in ["gpt2", "llama", "t5", "bert", "rwkv"] {
        let scores = (0..tokens.len()).map(|n| -(n as f32)).collect();
        let source =
            VocabSource { model, tokens: &tokens, merges: &merges, scores, ..VocabSource::default() };
        let mut n_refused = 0;
        for limit in (10..26).map(|bits| 1 << bits) {
            match ALLOCATOR.refusing_above(limit, || Vocab::new(&source)) {
                Ok(_) => assert!(limit > 100_000, "{model}: everything fits {limit} bytes"),
                Err(VocabError::OutOfMemory { .. }) => n_refused += 1,
                Err(error) => panic!("{model}: {error}"),
            }
        }
        assert!(n_refused > 5 && n_refused < 16, "{model}: refused {n_refused} of 16 times");
    }
}
