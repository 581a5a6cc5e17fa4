//! Caches and recurrent states in one memory.

use super::*;

fn memory() -> Memory {
    Memory::new(&[both(), cached()], &params(256, 2)).unwrap()
}

#[test]
fn the_first_position_is_the_last_because_the_state_knows_no_other() {
    let mut memory = memory();
    append(&mut memory, &run_of(0, 0..56)).unwrap();
    let ends = |memory: &Memory| (memory.seq_pos_min(SeqId(0)), memory.seq_pos_max(SeqId(0)));
    assert_eq!(ends(&memory), (Some(Pos(55)), Some(Pos(55))));
    memory.seq_rm(SeqId(0), ALL).unwrap();
    assert_eq!(ends(&memory), (None, None));
}

#[test]
fn a_context_shift_moves_the_cache_and_keeps_the_state() {
    let mut memory = memory();
    append(&mut memory, &run_of(0, 0..40)).unwrap();
    memory.seq_rm(SeqId(0), Pos(8)..Pos(20)).unwrap();
    memory.seq_add(SeqId(0), Pos(20)..Pos::MAX, -12).unwrap();
    assert_eq!(memory.seq_pos_min(SeqId(0)), Some(Pos(27)));
    assert_eq!(memory.seq_pos_max(SeqId(0)), Some(Pos(27)));
    append(&mut memory, &run_of(0, 28..36)).unwrap();
    assert_eq!(memory.cells(0, SeqId(0)).len(), 36);
}

#[test]
fn a_tail_is_unsupported_and_no_layer_forgets_it() {
    let mut memory = memory();
    append(&mut memory, &run_of(0, 0..40)).unwrap();
    let unsupported = |op| Err(Error::Unsupported { op, kind: Kind::Recurrent });
    assert_eq!(memory.seq_rm(SeqId(0), Pos(30)..Pos::MAX), unsupported(Operation::Remove));
    assert_eq!(memory.seq_cp(SeqId(0), SeqId(1), Pos(0)..Pos(30)), unsupported(Operation::Copy));
    assert_eq!(memory.seq_add(SeqId(0), Pos(30)..Pos::MAX, -99), unsupported(Operation::Add));
    assert_eq!((memory.cells(0, SeqId(0)).len(), memory.cells(0, SeqId(1)).len()), (40, 0));
    append(&mut memory, &run_of(0, 40..50)).unwrap();
}

#[test]
fn a_part_that_is_full_leaves_the_others_untouched() {
    let mut memory = Memory::new(&[both()], &params(32, 2)).unwrap();
    append(&mut memory, &run_of(0, 0..32)).unwrap();
    let state = memory.state(0, SeqId(0)).map(<[f32]>::to_vec);
    assert!(append(&mut memory, &run_of(0, 32..33)).is_err());
    assert_eq!(memory.state(0, SeqId(0)).map(<[f32]>::to_vec), state);
    memory.audit().unwrap();
}

#[test]
fn the_first_ubatch_writes_a_fresh_state_and_later_ones_go_on_in_place() {
    let mut memory = memory();
    append(&mut memory, &run_of(0, 0..10)).unwrap();
    let batch = run_of(0, 10..15);
    let mut plan = memory.prepare(&batch, 2).unwrap();
    let mut slots = Vec::new();
    while let Some(mut ubatch) = plan.next_ubatch() {
        let n_tokens = ubatch.n_tokens() as u32;
        let runs: Vec<StateSegment> = ubatch.states(0, 0).unwrap().segments().collect();
        assert_eq!((runs.len(), runs[0].start, runs[0].end), (1, 0, n_tokens));
        slots.push((runs[0].read.unwrap(), runs[0].write));
    }
    let [(old, fresh), second, third] = slots[..] else { panic!("{slots:?}") };
    assert_ne!(old, fresh);
    assert_eq!((second, third), ((fresh, fresh), (fresh, fresh)));
}
