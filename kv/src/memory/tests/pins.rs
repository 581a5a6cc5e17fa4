//! Pins: what they are charged for, and what a savepoint leaves of them.

use super::*;
use crate::cache::charges::Charge;

/// Blocks of a window of 100 tokens, and their bytes.
const WINDOW: u64 = 5;
const BLOCK: u64 = 32 * 6 * 4;

fn windowed() -> LayerSpec {
    LayerSpec { attention: AttentionSpec::Cached(shape(Some(Window::Sliding(100)))), ..LayerSpec::default() }
}

/// Return a memory whose budget pays for `n_windows` windows, and for no journal.
fn memory(layers: &[LayerSpec], n_windows: u64) -> Memory {
    let rollback = RollbackParams::default().checkpoint_bytes(n_windows * WINDOW * BLOCK);
    Memory::new(layers, &Params { rollback, ..params(4096, 3) }).unwrap()
}

fn pinned(memory: &Memory, seq: u32) -> Vec<i32> {
    memory.pins(SeqId(seq)).unwrap().map(|pos| pos.0).collect()
}

fn end(memory: &Memory, seq: u32) -> i32 {
    memory.seq_pos_max(SeqId(seq)).map_or(0, |last| last.0 + 1)
}

#[test]
fn cells_that_pins_share_are_charged_once() {
    let mut memory = memory(&[cached(), windowed()], 4);
    let mut n_pins = 0;
    for message in 0..40 {
        append(&mut memory, &run_of(0, message * 16..(message + 1) * 16)).unwrap();
        let before = memory.positions(SeqId(0)).unwrap();
        match memory.pin(SeqId(0)) {
            Ok(()) => n_pins += 1,
            Err(error) => {
                assert!(matches!(error, Error::Pinned { .. }), "{error:?}");
                // A pin that is refused changes nothing.
                assert_eq!(memory.positions(SeqId(0)).unwrap(), before);
            }
        }
        memory.audit().unwrap();
    }
    // 20 blocks: each message has half a block to itself, and a copy of the block it ends in.
    assert!(n_pins >= 12, "{n_pins} pins");
    assert_eq!(pinned(&memory, 0).len(), n_pins);
    for pos in pinned(&memory, 0) {
        assert_eq!(memory.route(SeqId(0), Pos(pos)).unwrap().reevaluated, 0);
    }
    // Room for a window is room for one more pin.
    let pins = pinned(&memory, 0);
    pins.iter().rev().take(10).for_each(|pos| assert!(memory.unpin(SeqId(0), Pos(*pos)).unwrap()));
    memory.pin(SeqId(0)).unwrap();
    memory.audit().unwrap();
}

#[test]
fn a_fork_pays_for_what_differs() {
    let mut memory = memory(&[cached(), windowed()], 3);
    append(&mut memory, &run_of(0, 0..96)).unwrap();
    memory.pin(SeqId(0)).unwrap();
    let charged = |memory: &Memory| {
        let window = memory.caches.with_cells().find_map(|cells| cells.window.as_ref()).unwrap();
        window.charges[Charge::Pinned as usize].n_blocks()
    };
    let first = charged(&memory);
    for fork in [1, 2] {
        memory.seq_cp(SeqId(0), SeqId(fork), ALL).unwrap();
        append(&mut memory, &run_of(fork, 96..128)).unwrap();
        memory.pin(SeqId(fork)).unwrap();
    }
    assert_eq!(charged(&memory), first + 2);
    // A pin of several sequences is charged until the last of them is gone.
    memory.seq_rm(SeqId(0), ALL).unwrap();
    memory.seq_rm(SeqId(1), ALL).unwrap();
    assert_eq!(charged(&memory), first + 1);
    memory.seq_rm(SeqId(2), ALL).unwrap();
    assert_eq!(charged(&memory), 0);
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> i32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n) as i32
    }
}

/// Do something random to a memory of three sequences. Windows never run out of cells, so whatever
/// is refused for want of them is a fault.
fn act(memory: &mut Memory, random: &mut Random) {
    let (seq, other) = (random.below(3) as u32, random.below(3) as u32);
    let from = end(memory, seq);
    match random.below(10) {
        0..=3 if from < 1200 => {
            let n = 1 + random.below(90);
            append(memory, &run_of(seq, from..from + n)).unwrap();
        }
        4..=6 => drop(memory.pin(SeqId(seq))),
        7 if from > 0 => {
            let pos = Pos(random.below(from as u64));
            let mut rewind = memory.rewind(SeqId(seq), pos, 64).unwrap();
            while rewind.next_ubatch().is_some() {}
            rewind.commit().unwrap();
        }
        8 if seq != other => {
            memory.seq_rm(SeqId(other), ALL).unwrap();
            memory.seq_cp(SeqId(seq), SeqId(other), ALL).unwrap();
        }
        9 => {
            if let Some(pos) = pinned(memory, seq).first() {
                memory.unpin(SeqId(seq), Pos(*pos)).unwrap();
            }
        }
        _ => memory.seq_rm(SeqId(seq), ALL).unwrap(),
    }
}

/// Return memories of windows, of recurrences and of both, with small budgets.
fn memories() -> Vec<Memory> {
    let recurrent = LayerSpec { recurrent: vec![StateTensor { len: 64, input: 2 }], ..LayerSpec::default() };
    let narrow = AttentionSpec::Cached(shape(Some(Window::Sliding(40))));
    let narrow = LayerSpec { attention: narrow, ..LayerSpec::default() };
    let kinds =
        [vec![windowed()], vec![windowed(), narrow], vec![recurrent.clone()], vec![windowed(), recurrent]];
    let sizes = [0, 1, 3, 8];
    kinds.iter().flat_map(|layers| sizes.map(|n_windows| memory(layers, n_windows))).collect()
}

#[test]
fn pins_stay_and_windows_never_run_out_in_random_programs() {
    let mut random = Random(7);
    for mut memory in memories() {
        for _ in 0..300 {
            act(&mut memory, &mut random);
            memory.audit().unwrap();
            for window in memory.caches.with_cells().filter_map(|cells| cells.window.as_ref()) {
                assert!(!window.exceeds(Charge::Pinned));
            }
            for seq in 0..3 {
                for pos in pinned(&memory, seq) {
                    assert_eq!(memory.route(SeqId(seq), Pos(pos)).unwrap().reevaluated, 0);
                }
            }
        }
    }
}

#[test]
fn a_dropped_savepoint_leaves_what_there_was() {
    let mut random = Random(11);
    for mut memory in memories() {
        for round in 0..60 {
            (0..3).for_each(|_| act(&mut memory, &mut random));
            let all = [0, 1, 2].map(SeqId);
            // Sequences may have a copy of a block that they shared, so cells are not compared.
            let kept = |memory: &Memory| {
                all.map(|seq| (memory.checkpoints.list(seq).to_vec(), memory.positions(seq).unwrap()))
            };
            // A rollback leaves checkpoints beyond the budget until the next token.
            memory.keep_to_budget();
            let before = kept(&memory);
            let listed = &all[..1 + random.below(3) as usize];
            let mut savepoint = memory.savepoint(listed).unwrap();
            for _ in 0..3 {
                let from = savepoint.seq_pos_max(SeqId(0)).map_or(0, |last| last.0 + 1);
                let batch = run_of(0, from..from + 1 + random.below(120));
                let mut plan = savepoint.prepare(&batch, 64).unwrap();
                while plan.next_ubatch().is_some() {}
                plan.commit().unwrap();
            }
            drop(savepoint);
            // Other sequences may have lost checkpoints to the budget.
            for (seq, (after, before)) in listed.iter().zip(kept(&memory).iter().zip(&before)) {
                assert_eq!(after, before, "{seq}, round {round}");
            }
            memory.audit().unwrap();
        }
    }
}

#[test]
fn every_part_of_a_sequence_has_its_encoder_output() {
    let cross = LayerSpec { attention: AttentionSpec::Cross(shape(None)), ..LayerSpec::default() };
    let mut memory = Memory::new(&[cached(), cross], &params(64, 3)).unwrap();
    for (seq, n) in [(0, 9), (1, 5)] {
        let batch = run_of(seq, 0..n);
        let mut plan = memory.prepare_encoding(&batch, 64).unwrap();
        while plan.next_ubatch().is_some() {}
        plan.commit().unwrap();
    }
    let outputs = |memory: &Memory| {
        let cells = memory.caches.with_cells().last().unwrap();
        [0, 1, 2].map(|seq| cells.table(SeqId(seq)).extents().to_vec())
    };
    let [first, second, none] = outputs(&memory);
    assert!(!first.is_empty() && first != second && none.is_empty());
    // No token is decoded yet; an empty part has nothing.
    memory.seq_cp(SeqId(0), SeqId(2), Pos(3)..Pos(3)).unwrap();
    assert_eq!(outputs(&memory), [first.clone(), second.clone(), none]);
    for range in [Pos(0)..Pos(7), Pos(2)..Pos(7), ALL] {
        for dst in [1, 2] {
            memory.seq_cp(SeqId(0), SeqId(dst), range.clone()).unwrap();
            memory.audit().unwrap();
        }
        assert_eq!(outputs(&memory), [first.clone(), first.clone(), first.clone()]);
        memory.forget(SeqId(1)).unwrap();
        memory.forget(SeqId(2)).unwrap();
    }
}
