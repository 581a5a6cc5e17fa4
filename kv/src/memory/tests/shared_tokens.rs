//! Tokens that several sequences have in common, in one batch.

use super::*;
use crate::layer::Retained;
use crate::params::Sizes;

fn shared_prompt_and_endings() -> Batch {
    let mut batch = Batch::new();
    let all: Vec<SeqId> = (0..4).map(SeqId).collect();
    for pos in 0..40 {
        batch.push(Token(pos), Pos(pos as i32), &all, false);
    }
    for seq in 0..4 {
        for pos in 40..45 {
            batch.push(Token(100 * seq + pos), Pos(pos as i32), &[SeqId(seq)], true);
        }
    }
    batch
}

#[test]
fn a_prompt_for_all_and_an_ending_for_each_go_in_one_batch() {
    let mut memory = Memory::new(&[both()], &params(128, 4)).unwrap();
    append_turned(&mut memory, &shared_prompt_and_endings());
    for seq in 0..4 {
        let cells = memory.cells(0, SeqId(seq));
        let tokens = cells.iter().map(|(_, (_, values))| values[0] as u32);
        assert!(tokens.eq((0..40).chain((40..45).map(|pos| 100 * seq + pos))), "sequence {seq}");
    }
    // One block for the prompt's first 32 tokens, one for each sequence's rest.
    assert_eq!(
        memory.n_free_blocks(),
        params(128, 4).settled().n_blocks(Retained::All, &Sizes::default()) - 5
    );
    memory.audit().unwrap();
}

#[test]
fn dropping_such_a_plan_leaves_nothing() {
    let mut memory = Memory::new(&[both()], &params(128, 4)).unwrap();
    let batch = shared_prompt_and_endings();
    for n in 0..3 {
        let mut plan = memory.prepare(&batch, 64).unwrap();
        for _ in 0..n {
            plan.next_ubatch().unwrap();
        }
        drop(plan);
        assert_eq!(
            memory.n_free_blocks(),
            params(128, 4).settled().n_blocks(Retained::All, &Sizes::default())
        );
        memory.audit().unwrap();
    }
}

#[test]
fn many_recurrent_sequences_step_in_one_ubatch() {
    let layers = [LayerSpec { attention: AttentionSpec::Absent, ..both() }];
    let mut memory = Memory::new(&layers, &params(1024, 256)).unwrap();
    for pos in 0..3 {
        let mut batch = Batch::new();
        for seq in 0..256 {
            batch.push(Token(seq), Pos(pos), &[SeqId(seq)], true);
        }
        let mut plan = memory.prepare(&batch, 256).unwrap();
        assert_eq!(plan.n_ubatch(), 1);
        let n_runs = plan.next_ubatch().and_then(|mut ubatch| Some(ubatch.states(0, 0)?.segments().count()));
        assert_eq!(n_runs, Some(256));
        plan.commit().unwrap();
    }
    memory.audit().unwrap();
}
