//! Layers that keep nothing from batch to batch.

use super::*;

fn memory(causal: bool) -> Memory {
    windowed(causal, None)
}

fn windowed(causal: bool, window: Option<Window>) -> Memory {
    let attention = AttentionSpec::BatchOnly { layer: shape(window), causal };
    Memory::new(&[LayerSpec { attention, ..LayerSpec::default() }], &params(64, 3)).unwrap()
}

fn interleaved() -> Batch {
    let mut batch = Batch::new();
    for pos in 0..40 {
        for seq in [2, 0] {
            batch.push(Token(pos), Pos(pos as i32), &[SeqId(seq)], true);
        }
    }
    batch
}

#[test]
fn tokens_see_all_of_their_sequence_and_nothing_stays() {
    let (mut memory, batch) = (memory(false), interleaved());
    for _ in 0..3 {
        let mut plan = memory.prepare(&batch, 64).unwrap();
        let mut n_tokens = 0;
        while let Some(ubatch) = plan.next_ubatch() {
            let view = ubatch.attention(0).unwrap();
            assert!(view.visible().iter().all(|seen| (seen.lo, seen.hi) == (0, 40)));
            n_tokens += ubatch.n_tokens();
        }
        plan.commit().unwrap();
        assert_eq!((n_tokens, memory.seq_pos_max(SeqId(0))), (80, None));
        memory.audit().unwrap();
    }
}

#[test]
fn a_symmetric_window_reaches_to_both_sides() {
    let (mut memory, batch) = (windowed(false, Some(Window::Symmetric(8))), interleaved());
    let mut plan = memory.prepare(&batch, 64).unwrap();
    while let Some(ubatch) = plan.next_ubatch() {
        for (token, seen) in ubatch.tokens().iter().zip(ubatch.attention(0).unwrap().visible()) {
            let pos = token.pos.0 as u32;
            assert_eq!((seen.lo, seen.hi), (pos.saturating_sub(4), (pos + 5).min(40)));
        }
    }
    plan.commit().unwrap();
}

#[test]
fn a_sequence_that_does_not_fit_a_ubatch_is_refused() {
    let mut memory = memory(false);
    let refused = memory.prepare(&run_of(1, 0..20), 16).err();
    let what = "tokens of one sequence in a ubatch";
    assert_eq!(refused, Some(Error::TooMany { what, value: 20, limit: 16 }));
    memory.audit().unwrap();
}

#[test]
fn causal_tokens_see_those_before_them_across_ubatches() {
    let (mut memory, batch) = (memory(true), interleaved());
    let mut plan = memory.prepare(&batch, 7).unwrap();
    while let Some(ubatch) = plan.next_ubatch() {
        for (token, seen) in ubatch.tokens().iter().zip(ubatch.attention(0).unwrap().visible()) {
            assert_eq!((seen.seq, seen.lo, seen.hi), (token.seq, 0, token.pos.0 as u32 + 1));
        }
    }
    plan.commit().unwrap();
    assert_eq!(memory.seq_pos_max(SeqId(2)), None);
}
