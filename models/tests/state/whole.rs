//! Whole contexts.

use crate::seen::{KINDS, context, go_on, golden, params, saved, saved_all, seen, tell};
use backstitch_core::cell::CellType;
use backstitch_models::{Context, Error, RestoreOptions, SaveOptions, SeqId, Token};

#[test]
fn a_whole_context_comes_back_and_shares_what_it_shared() {
    for name in KINDS {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F16);
        let a = tell(&mut ctx, 1);
        let b = ctx.fork(a).unwrap();
        ctx.append(b, &[Token(3), Token(4)]).unwrap();
        let c = ctx.fork(b).unwrap();
        let d = tell(&mut ctx, 2);
        ctx.release(a).unwrap();
        let all = [b, c, d];
        let bytes = saved_all(&ctx);
        assert_eq!(ctx.state_size(&SaveOptions::default()).unwrap(), bytes.len() as u64);
        assert!(
            (bytes.len() as f64) < 0.75 * all.map(|seq| saved(&ctx, seq).len() as f64).iter().sum::<f64>(),
            "{name}"
        );
        let mut other = Context::new(&model, params(CellType::F16).n_ctx(900).n_threads(2)).unwrap();
        // Something that has to go.
        let old = tell(&mut other, 7);
        let restored = other.state_read(&mut bytes.as_slice(), &RestoreOptions::default()).unwrap();
        assert_eq!(restored.sequences.iter().map(|sequence| sequence.seq).collect::<Vec<_>>(), all);
        assert!(matches!(other.tokens(old), Err(Error::Sequence { .. })), "{name}");
        for seq in all {
            let (before, after) = (ctx.survey(seq).unwrap().bytes(), other.survey(seq).unwrap().bytes());
            assert_eq!(before, after, "{name}, sequence {seq}");
            assert_eq!(seen(&other, seq).logits, seen(&ctx, seq).logits, "{name}, sequence {seq}");
        }
        for seq in all {
            let [expected, got] = [&mut ctx, &mut other].map(|ctx| go_on(ctx, seq, 5, 10));
            assert_eq!(expected, got, "{name}, sequence {seq}");
        }
    }
}

#[test]
fn an_empty_context_and_an_empty_sequence_are_states_too() {
    let model = golden("falcon_h1");
    let mut ctx = context(&model, CellType::F16);
    let bytes = saved_all(&ctx);
    let a = tell(&mut ctx, 1);
    ctx.state_read(&mut bytes.as_slice(), &RestoreOptions::default()).unwrap();
    assert!(ctx.tokens(a).is_err());
    let a = ctx.sequence().unwrap();
    let bytes = saved(&ctx, a);
    ctx.append(a, &[Token(1), Token(2)]).unwrap();
    ctx.seq_state_read(a, &mut bytes.as_slice(), &RestoreOptions::default()).unwrap();
    assert_eq!((ctx.tokens(a).unwrap(), ctx.pos(a).unwrap().0, ctx.logits_at_hand(a)), (&[][..], 0, None));
    let b = tell(&mut ctx, 1);
    let expected = go_on(&mut ctx, b, 4, 3);
    ctx.clear();
    let b = tell(&mut ctx, 1);
    assert_eq!(go_on(&mut ctx, b, 4, 3), expected);
}

#[test]
fn sequences_beyond_those_of_the_context_are_refused() {
    let model = golden("llama");
    let mut ctx = context(&model, CellType::F16);
    let (a, b) = (tell(&mut ctx, 1), tell(&mut ctx, 2));
    ctx.release(a).unwrap();
    let bytes = saved_all(&ctx);
    let mut small = Context::new(&model, params(CellType::F16).n_seq_max(1)).unwrap();
    let live = tell(&mut small, 3);
    let before = seen(&small, live);
    let error = small.state_read(&mut bytes.as_slice(), &RestoreOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Sequence { seq } if SeqId(seq) == b), "{error}");
    // One sequence is not a context, and a context not a sequence.
    let one = saved(&ctx, b);
    assert!(small.seq_state_read(live, &mut bytes.as_slice(), &RestoreOptions::default()).is_err());
    assert!(small.state_read(&mut one.as_slice(), &RestoreOptions::default()).is_err());
    assert!(small.seq_state_read(SeqId(1), &mut one.as_slice(), &RestoreOptions::default()).is_err());
    assert_eq!(seen(&small, live), before);
}
