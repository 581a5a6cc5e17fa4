//! Pins and ends of savepoints, where several checkpoints or sequences have one position.

use super::*;
use crate::memory::savepoint::Savepoint;

const A: SeqId = SeqId(0);
const B: SeqId = SeqId(1);

/// Return a memory of all kinds whose budget pays for `n_paid` checkpoints.
fn memory(n_paid: u64) -> Memory {
    let rollback = RollbackParams::default().checkpoint_bytes(n_paid * 4096);
    let memory = Memory::new(&hybrid(), &Params { rollback, ..params(20_000, 2) }).unwrap();
    assert_eq!(u64::from(memory.checkpoints.sizes.n_paid), n_paid);
    memory
}

fn append_to(savepoint: &mut Savepoint<'_>, seq: SeqId, range: Range<i32>) {
    for start in range.clone().step_by(500) {
        let batch = run_of(seq.0, start..range.end.min(start + 500));
        let mut plan = savepoint.prepare(&batch, 64).unwrap();
        while plan.next_ubatch().is_some() {}
        plan.commit().unwrap();
    }
}

fn back(memory: &mut Memory, seq: SeqId, pos: i32) {
    let mut rewind = memory.rewind(seq, Pos(pos), 64).unwrap();
    while rewind.next_ubatch().is_some() {}
    rewind.commit().unwrap();
}

/// Return the number of pinned entries in the list of a sequence.
fn n_pinned(memory: &Memory, seq: SeqId) -> usize {
    memory.checkpoints.list(seq).iter().filter(|entry| memory.checkpoints.get(entry.id).pinned).count()
}

/// Let a fork share the end of `A`, a checkpoint.
fn fork_at_checkpoint(memory: &mut Memory) {
    memory.savepoint(&[A]).unwrap().commit();
    memory.seq_cp(A, B, ALL).unwrap();
    assert_eq!(memory.checkpoints.list(A).last(), memory.checkpoints.list(B).last());
}

/// Let `A` have two checkpoints at 50: a pinned one that `B` shares, and one of its own.
fn pinned_and_forked() -> Memory {
    let mut memory = memory(20);
    append(&mut memory, &run_of(0, 0..50)).unwrap();
    memory.pin(A).unwrap();
    memory.seq_cp(A, B, ALL).unwrap();
    append(&mut memory, &run_of(0, 50..60)).unwrap();
    back(&mut memory, A, 50);
    let ends: Vec<i32> = memory.checkpoints.list(A).iter().map(|entry| entry.pos.0).collect();
    assert!(ends.ends_with(&[50, 50]), "{ends:?}");
    memory
}

#[test]
fn a_savepoint_unpins_its_own_checkpoint_and_no_other_at_the_position() {
    let mut memory = pinned_and_forked();
    let mut savepoint = memory.savepoint(&[A]).unwrap();
    append_to(&mut savepoint, A, 50..60);
    savepoint.commit();
    // Both lists name the pin of the caller.
    assert_eq!((n_pinned(&memory, A), n_pinned(&memory, B)), (1, 1));
}

#[test]
fn a_position_is_pinned_once_and_unpinned_whole() {
    let mut memory = pinned_and_forked();
    let n_free = memory.checkpoints.n_free_pins();
    memory.pin(A).unwrap();
    assert_eq!(memory.checkpoints.n_free_pins(), n_free);
    memory.savepoint(&[A]).unwrap().commit();
    assert_eq!(memory.unpin(A, Pos(50)), Ok(true));
    assert_eq!((n_pinned(&memory, A), n_pinned(&memory, B)), (0, 0));
    assert_eq!(memory.unpin(A, Pos(50)), Ok(false));
}

#[test]
fn an_end_that_was_rolled_back_over_is_unpinned_in_forks_too() {
    for room in [false, true] {
        let mut memory = memory(20);
        append(&mut memory, &run_of(0, 0..50)).unwrap();
        fork_at_checkpoint(&mut memory);
        let mut savepoint = memory.savepoint(&[A]).unwrap();
        let mut rewind = savepoint.rewind(A, Pos(32), 64).unwrap();
        while rewind.next_ubatch().is_some() {}
        rewind.commit().unwrap();
        if room {
            savepoint.make_room();
        }
        savepoint.commit();
        assert_eq!((n_pinned(&memory, A), n_pinned(&memory, B)), (0, 0));
        memory.audit().unwrap();
    }
}

/// Check that a savepoint of `seqs`, all of which end at 1000, can be undone exactly.
fn assert_undone(memory: &mut Memory, seqs: &[SeqId]) {
    let before: Vec<_> = seqs.iter().map(|seq| memory.positions(*seq).unwrap()).collect();
    let n_free = memory.checkpoints.n_free_pins();
    // So few tokens that the first are journaled, and so many that all else would be forgotten.
    for end in [1040, 9000] {
        let mut savepoint = memory.savepoint(seqs).unwrap();
        for seq in seqs {
            append_to(&mut savepoint, *seq, 1000..end);
        }
        drop(savepoint);
        for (seq, before) in seqs.iter().zip(&before) {
            assert_eq!(memory.positions(*seq).unwrap(), *before, "{seq} from {end}");
        }
        assert_eq!(memory.checkpoints.n_free_pins(), n_free);
        memory.audit().unwrap();
    }
}

fn up_to_1000(n_paid: u64) -> Memory {
    let mut memory = memory(n_paid);
    for start in [0, 500] {
        append(&mut memory, &run_of(0, start..start + 500)).unwrap();
    }
    memory
}

#[test]
fn a_savepoint_at_a_pin_keeps_the_way_back_before_it() {
    let mut memory = up_to_1000(20);
    memory.pin(A).unwrap();
    assert_undone(&mut memory, &[A]);
    assert_eq!(n_pinned(&memory, A), 1);
}

#[test]
fn a_savepoint_of_forks_keeps_the_way_back_of_each() {
    let mut memory = up_to_1000(20);
    fork_at_checkpoint(&mut memory);
    assert_undone(&mut memory, &[A, B]);
}

#[test]
fn a_savepoint_of_one_fork_keeps_checkpoints_that_the_other_could_spare() {
    let mut memory = up_to_1000(3);
    memory.seq_cp(A, B, ALL).unwrap();
    assert_undone(&mut memory, &[B]);
}

#[test]
fn a_committed_savepoint_keeps_no_more_than_a_window() {
    for is_pinned in [false, true] {
        let mut memory = up_to_1000(20);
        if is_pinned {
            memory.pin(A).unwrap();
        }
        let mut savepoint = memory.savepoint(&[A]).unwrap();
        append_to(&mut savepoint, A, 1000..1010);
        savepoint.commit();
        let end = memory.checkpoints.before(A, Pos(1000)).unwrap();
        assert_eq!((end.pos, memory.checkpoints.get(end.id).pinned), (Pos(1000), is_pinned));
        let window = memory.caches.with_cells().find_map(|cells| cells.window.as_ref()).unwrap();
        assert_eq!(window.held[end.id as usize].n_cells(), 99);
        append(&mut memory, &run_of(0, 1010..1500)).unwrap();
        memory.audit().unwrap();
        if is_pinned {
            assert_eq!(memory.route(A, Pos(1000)).unwrap().reevaluated, 0);
        }
    }
}

#[test]
fn savepoints_of_forks_find_room_however_many_there_were() {
    for (n_paid, step) in [(1, 1), (2, 1), (5, 1), (1, 10), (5, 10), (1, 600), (5, 600)] {
        let mut memory = memory(n_paid);
        append(&mut memory, &run_of(0, 0..50)).unwrap();
        let end = 50 + 16 * step;
        for start in (50..end).step_by(step as usize) {
            let mut savepoint = memory.savepoint(&[A]).unwrap();
            append_to(&mut savepoint, A, start..start + step);
            savepoint.commit();
            let n_held = memory.checkpoints.list(A).len() as u64;
            // The nearest ones stay whatever the budget.
            assert!(n_held <= n_paid + 9, "{n_held} checkpoints of {n_paid}, steps of {step} at {start}");
        }
        memory.seq_cp(A, B, ALL).unwrap();
        append(&mut memory, &run_of(1, end..end + 5)).unwrap();
        let mut savepoint = memory.savepoint(&[A, B]).unwrap();
        append_to(&mut savepoint, A, end..end + 5);
        append_to(&mut savepoint, B, end + 5..end + 10);
        savepoint.commit();
        memory.audit().unwrap();
    }
}
