//! Positions that a rollback reaches after operations that could have made it impossible.

use super::*;
use crate::memory::savepoint::Savepoint;
use crate::snapshot::{Content, Owned};
use backstitch_core::cell::BLOCK_CELLS;

fn append_to(savepoint: &mut Savepoint<'_>, batch: &Batch) -> Result<(), Error> {
    let mut plan = savepoint.prepare(batch, 64)?;
    while plan.next_ubatch().is_some() {}
    plan.commit()
}

/// Appends one token to a sequence.
fn append_one(memory: &mut Memory, seq: u32) {
    let pos = memory.seq_pos_max(SeqId(seq)).map_or(Pos::ZERO, |last| Pos(last.0 + 1));
    let mut batch = Batch::new();
    batch.push(Token(1), pos, &[SeqId(seq)], false);
    append(memory, &batch).unwrap();
}

#[test]
fn operations_that_touch_nothing_leave_the_way_back() {
    let mut memory =
        Memory::new(&hybrid(), &Params { rollback: RollbackParams::default(), ..params(2048, 3) }).unwrap();
    append(&mut memory, &run_of(0, 0..500)).unwrap();
    memory.pin(SeqId(0)).unwrap();
    append(&mut memory, &run_of(0, 500..900)).unwrap();
    let before = memory.positions(SeqId(0)).unwrap();
    memory.seq_add(SeqId(0), Pos(5000)..Pos(6000), 1).unwrap();
    memory.seq_add(SeqId(0), Pos::ZERO..Pos::MAX, 0).unwrap();
    memory.seq_div(SeqId(0), Pos::ZERO..Pos::MAX, 1).unwrap();
    memory.seq_rm(SeqId(0), Pos(900)..Pos::MAX).unwrap();
    memory.seq_rm(SeqId(0), Pos(40)..Pos(40)).unwrap();
    memory.seq_cp(SeqId(0), SeqId(1), Pos(5000)..Pos(6000)).unwrap();
    assert_eq!(memory.positions(SeqId(0)).unwrap(), before);
    assert_eq!(memory.route(SeqId(0), Pos(500)).unwrap().reevaluated, 0);
    memory.audit().unwrap();
}

#[test]
fn chains_of_forks_leave_the_journal_working() {
    let mut memory =
        Memory::new(&hybrid(), &Params { rollback: RollbackParams::default(), ..params(2048, 3) }).unwrap();
    append(&mut memory, &run_of(0, 0..100)).unwrap();
    for _ in 0..200 {
        memory.seq_cp(SeqId(0), SeqId(1), Pos::ZERO..Pos::MAX).unwrap();
        append_one(&mut memory, 0);
        memory.seq_rm(SeqId(1), Pos::ZERO..Pos::MAX).unwrap();
        memory.audit().unwrap();
    }
    // The last ones are held, and once the chain ends the journal is whole again.
    assert_eq!(memory.route(SeqId(0), Pos(298)).unwrap().reevaluated, 0);
    (0..100).for_each(|_| append_one(&mut memory, 0));
    for back in 0..=32 {
        assert_eq!(memory.route(SeqId(0), Pos(400 - back)).unwrap().reevaluated, 0, "{back} back");
    }
}

#[test]
fn a_state_of_no_numbers_has_a_way_back_too() {
    // A convolution of one tap.
    let layer = LayerSpec { recurrent: vec![StateTensor { len: 0, input: 4 }], ..LayerSpec::default() };
    let mut memory =
        Memory::new(&[layer], &Params { rollback: RollbackParams::default(), ..params(256, 1) }).unwrap();
    append(&mut memory, &run_of(0, 0..77)).unwrap();
    let mut savepoint = memory.savepoint(&[SeqId(0)]).unwrap();
    append_to(&mut savepoint, &run_of(0, 77..200)).unwrap();
    assert_eq!(savepoint.route(SeqId(0), Pos(77)).unwrap().reevaluated, 0);
    drop(savepoint);
    assert_eq!(memory.seq_pos_max(SeqId(0)), Some(Pos(76)));
    memory.audit().unwrap();
}

#[test]
fn an_end_that_is_held_keeps_the_way_back_before_it() {
    let mut memory =
        Memory::new(&hybrid(), &Params { rollback: RollbackParams::default(), ..params(12_000, 1) }).unwrap();
    for start in (0..1000).step_by(500) {
        append(&mut memory, &run_of(0, start..start + 500)).unwrap();
    }
    let before = memory.positions(SeqId(0)).unwrap();
    let mut savepoint = memory.savepoint(&[SeqId(0)]).unwrap();
    for start in (1000..9000).step_by(500) {
        append_to(&mut savepoint, &run_of(0, start..start + 500)).unwrap();
    }
    drop(savepoint);
    assert_eq!(memory.positions(SeqId(0)).unwrap(), before);
    memory.audit().unwrap();
}

#[test]
fn tokens_of_several_sequences_are_journaled_for_the_one_that_ends_first() {
    let mut memory =
        Memory::new(&hybrid(), &Params { rollback: RollbackParams::default(), ..params(2048, 2) }).unwrap();
    let mut batch = Batch::new();
    (0..40).for_each(|pos| {
        batch.push(Token(1), Pos(pos), &[SeqId(0), SeqId(1)], false);
    });
    (40..240).for_each(|pos| {
        batch.push(Token(1), Pos(pos), &[SeqId(0)], false);
    });
    append(&mut memory, &batch).unwrap();
    for seq in [0, 1] {
        let end = memory.seq_pos_max(SeqId(seq)).unwrap().0 + 1;
        assert_eq!(memory.route(SeqId(seq), Pos(end - 1)).unwrap().reevaluated, 0);
        assert_eq!(memory.route(SeqId(seq), Pos(end - 32)).unwrap().reevaluated, 0);
    }
}

#[test]
fn the_last_position_there_is_has_a_way_back_too() {
    let params = Params { rollback: RollbackParams::default(), ..params(64, 1) };
    let mut memory = Memory::new(&hybrid(), &params).unwrap();
    let start = i32::MAX - 40;
    let mut batch = Batch::new();
    (start..i32::MAX).for_each(|pos| _ = batch.push(Token(1), Pos(pos), &[SeqId(0)], false));
    append(&mut memory, &batch).unwrap();
    assert_eq!(memory.seq_pos_max(SeqId(0)), Some(Pos(i32::MAX - 1)));
    let stretches = memory.positions(SeqId(0)).unwrap();
    assert_eq!(stretches.last().map(|stretch| stretch.positions.end), Some(Pos::MAX));
    memory.pin(SeqId(0)).unwrap();
    assert_eq!(memory.route(SeqId(0), Pos(i32::MAX - 9)).unwrap().reevaluated, 0);
    memory.survey(SeqId(0)).unwrap();
    memory.audit().unwrap();
    // There is no position behind it.
    batch.clear();
    batch.push(Token(1), Pos::MAX, &[SeqId(0)], false);
    assert!(append(&mut memory, &batch).is_err());
}

/// Return a layer with a window.
fn windowed(window: Window) -> LayerSpec {
    LayerSpec { attention: AttentionSpec::Cached(shape(Some(window))), ..LayerSpec::default() }
}

#[test]
fn removing_again_what_is_gone_leaves_the_way_back() {
    let sliding = windowed(Window::Sliding(100));
    let memories = [
        (vec![cached(), sliding.clone()], 0..4, 0..2),
        (vec![sliding], 0..4, 0..2),
        (hybrid(), 10..15, 10..15),
        (hybrid(), 10..15, 11..13),
    ];
    for (layers, first, again) in memories {
        let rollback = RollbackParams::default();
        let mut memory = Memory::new(&layers, &Params { rollback, ..params(2048, 2) }).unwrap();
        append(&mut memory, &run_of(0, 0..300)).unwrap();
        memory.seq_rm(SeqId(0), Pos(first.start)..Pos(first.end)).unwrap();
        append(&mut memory, &run_of(0, 300..600)).unwrap();
        memory.pin(SeqId(0)).unwrap();
        append(&mut memory, &run_of(0, 600..900)).unwrap();
        let before = memory.positions(SeqId(0)).unwrap();
        let again = Pos(again.start)..Pos(again.end);
        assert!(!memory.has_seen(SeqId(0), &again), "{layers:?}");
        memory.seq_rm(SeqId(0), again).unwrap();
        assert_eq!(memory.positions(SeqId(0)).unwrap(), before, "{layers:?}");
        memory.audit().unwrap();
    }
}

#[test]
fn what_a_window_has_left_can_be_removed_after_its_front() {
    for front in [4, 100, 160, 280] {
        let params = Params { rollback: RollbackParams::default(), ..params(512, 2) };
        let mut memory = Memory::new(&[windowed(Window::Sliding(100))], &params).unwrap();
        append(&mut memory, &run_of(0, 0..300)).unwrap();
        memory.seq_rm(SeqId(0), Pos(0)..Pos(front)).unwrap();
        assert_eq!(memory.seq_rm(SeqId(0), Pos(front)..Pos::MAX), Ok(()), "{front}");
        assert_eq!(memory.seq_pos_max(SeqId(0)), None);
        memory.audit().unwrap();
    }
}

#[test]
fn a_margin_reaches_back_over_the_start_of_a_chunk() {
    for window in [Window::Chunked(128), Window::Sliding(128), Window::Symmetric(40)] {
        let rollback = RollbackParams { margin: 64, ..RollbackParams::OFF };
        let mut memory = Memory::new(&[windowed(window)], &Params { rollback, ..params(1024, 1) }).unwrap();
        for end in 1..400 {
            append(&mut memory, &run_of(0, end - 1..end)).unwrap();
            for pos in (end - 64).max(0)..end {
                assert_eq!(memory.route(SeqId(0), Pos(pos)).unwrap().reevaluated, 0, "{pos} from {end}");
            }
            assert!(memory.cells(0, SeqId(0)).len() <= 128 + 64 + BLOCK_CELLS, "{window:?}");
        }
    }
}

/// Return the position from which a rollback of a sequence to `pos` starts.
fn restored_from(memory: &Memory, seq: u32, pos: i32) -> i32 {
    memory.route(SeqId(seq), Pos(pos)).unwrap().restored_from.0
}

/// Return the positions of the rollback floors of a sequence.
fn floors(memory: &Memory, seq: u32) -> Vec<i32> {
    let list = memory.checkpoints.list(SeqId(seq)).iter();
    list.filter(|entry| memory.checkpoints.get(entry.id).floor).map(|entry| entry.pos.0).collect()
}

/// Let a sequence of 600 tokens lose 100 of them, and close the gap.
fn edited(layers: &[LayerSpec]) -> Memory {
    let rollback = RollbackParams::default();
    let mut memory = Memory::new(layers, &Params { rollback, ..params(2048, 2) }).unwrap();
    append(&mut memory, &run_of(0, 0..300)).unwrap();
    append(&mut memory, &run_of(0, 300..600)).unwrap();
    memory.seq_rm(SeqId(0), Pos(100)..Pos(200)).unwrap();
    memory.seq_add(SeqId(0), Pos(200)..Pos(600), -100).unwrap();
    assert_eq!(floors(&memory, 0), [500]);
    memory
}

#[test]
fn an_edited_sequence_that_was_cut_keeps_its_way_back() {
    let sliding = windowed(Window::Sliding(64));
    for layers in [vec![sliding.clone()], vec![cached(), sliding]] {
        for by_removal in [false, true] {
            let mut memory = edited(&layers);
            match by_removal {
                true => memory.seq_rm(SeqId(0), Pos(490)..Pos::MAX).unwrap(),
                false => memory.rewind(SeqId(0), Pos(490), 64).unwrap().commit().unwrap(),
            }
            assert_eq!(floors(&memory, 0), [490]);
            append(&mut memory, &run_of(0, 490..690)).unwrap();
            assert_eq!(restored_from(&memory, 0, 505), 490);
            // A prefix of it, too.
            memory.seq_cp(SeqId(0), SeqId(1), Pos::ZERO..Pos(680)).unwrap();
            assert_eq!(restored_from(&memory, 1, 505), 490);
            memory.audit().unwrap();
        }
    }
}

#[test]
fn a_cut_through_a_hole_ends_at_the_last_token_there_is() {
    let rollback = RollbackParams::default();
    let layers = [windowed(Window::Sliding(64))];
    let mut memory = Memory::new(&layers, &Params { rollback, ..params(2048, 1) }).unwrap();
    append(&mut memory, &run_of(0, 0..300)).unwrap();
    memory.seq_rm(SeqId(0), Pos(270)..Pos(280)).unwrap();
    memory.seq_rm(SeqId(0), Pos(280)..Pos::MAX).unwrap();
    assert_eq!((memory.seq_pos_max(SeqId(0)), floors(&memory, 0)), (Some(Pos(269)), vec![270]));
    append(&mut memory, &run_of(0, 270..600)).unwrap();
    assert_eq!(restored_from(&memory, 0, 300), 270);
    memory.audit().unwrap();
}

#[test]
fn a_copy_of_the_end_of_a_sequence_has_a_way_back_to_where_it_was_made() {
    let sliding = windowed(Window::Sliding(64));
    for layers in [vec![sliding.clone()], vec![cached(), sliding]] {
        let mut memory = edited(&layers);
        memory.seq_cp(SeqId(0), SeqId(1), Pos(450)..Pos::MAX).unwrap();
        assert_eq!(floors(&memory, 1), [500]);
        append(&mut memory, &run_of(1, 500..740)).unwrap();
        assert_eq!(restored_from(&memory, 1, 510), 500);
        memory.audit().unwrap();
    }
}

#[test]
fn a_floor_is_the_way_back_to_what_follows_it_and_closes_none() {
    let rollback = RollbackParams::default();
    let params = Params { rollback, ..params(2048, 2) };
    let mut memory = Memory::new(&hybrid(), &params).unwrap();
    append(&mut memory, &run_of(0, 0..300)).unwrap();
    memory.pin(SeqId(0)).unwrap();
    append(&mut memory, &run_of(0, 300..700)).unwrap();
    memory.set_floor(SeqId(0)).unwrap();
    append(&mut memory, &run_of(0, 700..1200)).unwrap();
    assert_eq!((restored_from(&memory, 0, 710), restored_from(&memory, 0, 300)), (700, 300));
    // The next one takes its place, except in a fork.
    memory.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
    for start in (1200..1400).step_by(10) {
        memory.set_floor(SeqId(0)).unwrap();
        append(&mut memory, &run_of(0, start..start + 10)).unwrap();
    }
    assert_eq!((floors(&memory, 0), floors(&memory, 1)), (vec![700, 1390], vec![700]));
    // That of the fork is none of this sequence alone.
    let alone = memory.export(&[SeqId(0)]).unwrap();
    let mut snapshot = alone.snapshot().clone();
    assert_eq!(snapshot.checkpoints.iter().filter(|checkpoint| checkpoint.floor).count(), 1);
    snapshot.checkpoints.iter_mut().for_each(|checkpoint| checkpoint.floor = true);
    assert!(matches!(snapshot.check(), Err(Error::Snapshot { what: "rollback floors", .. })));
    drop(alone);
    memory.seq_rm(SeqId(1), ALL).unwrap();
    memory.set_floor(SeqId(0)).unwrap();
    assert_eq!(floors(&memory, 0), [1400]);
    assert_eq!(memory.set_floor(SeqId(2)), Err(Error::UnknownSequence { seq: SeqId(2), n_seq_max: 2 }));
    memory.audit().unwrap();
    // A snapshot has all of them.
    let owned = Owned::copy(&memory.export(&[SeqId(0)]).unwrap());
    let mut other = Memory::new(&hybrid(), &params).unwrap();
    other.import(&owned.snapshot, &owned, &[SeqId(1)], false).unwrap().commit();
    assert_eq!(other.positions(SeqId(1)), memory.positions(SeqId(0)));
    assert_eq!(floors(&other, 1), [1400]);
}
