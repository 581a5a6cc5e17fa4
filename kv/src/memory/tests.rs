//! Promises of a memory, one kind after the other, through its public interface.

mod batch_only;
mod external;
mod hybrid;
mod pins;
mod rollback;
mod savepoints;
mod shared_tokens;

use super::*;
use crate::cache::view::StateSegment;
use crate::ids::Token;
use crate::kind::{Operation, Retention};
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Rotation, StateTensor, Window};
use crate::params::Params;
use crate::params::RollbackParams;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_core::rope::{Pairs, Rope};

const ALL: Range<Pos> = Pos::ZERO..Pos::MAX;

fn params(n_ctx: u32, n_seq_max: u32) -> Params {
    Params {
        n_ctx,
        n_seq_max,
        n_batch: 512,
        k_type: CellType::F32,
        v_type: CellType::F32,
        rollback: RollbackParams::OFF,
    }
}

fn shape(window: Option<Window>) -> AttentionLayer {
    let rope =
        Rope { n_rot: 4, pairs: Pairs::Split, freq_base: 1e4, freq_scale: 1.0, attn_factor: 1.0, yarn: None };
    let rope = Some(Rotation { rope, frequencies: vec![1.0, 0.01] });
    AttentionLayer { n_head_kv: 1, d_k: 4, d_v: 2, window, rope }
}

fn cached() -> LayerSpec {
    LayerSpec { attention: AttentionSpec::Cached(shape(None)), ..LayerSpec::default() }
}

fn both() -> LayerSpec {
    LayerSpec { recurrent: vec![StateTensor { len: 1, input: 1 }], ..cached() }
}

fn run_of(seq: u32, range: Range<i32>) -> Batch {
    let mut batch = Batch::new();
    for pos in range {
        batch.push(Token(pos as u32), Pos(pos), &[SeqId(seq)], false);
    }
    batch
}

/// Computes nothing: cells and states stay as they are.
fn append(memory: &mut Memory, batch: &Batch) -> Result<(), Error> {
    let mut plan = memory.prepare(batch, 64)?;
    while plan.next_ubatch().is_some() {}
    plan.commit()
}

/// Stores keys that only their position tells apart, and the token as value.
fn append_turned(memory: &mut Memory, batch: &Batch) {
    let mut plan = memory.prepare(batch, 64).unwrap();
    while let Some(mut ubatch) = plan.next_ubatch() {
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for token in ubatch.tokens() {
            k.extend(turned(token.pos));
            v.extend([token.token.0 as f32, 0.5]);
        }
        ubatch.store(0).unwrap().put(&k, &v).unwrap();
    }
    plan.commit().unwrap();
}

/// The key `[1, 2, 0, 0]` turned to `pos`.
fn turned(pos: Pos) -> [f32; 4] {
    let [a, b] = [f64::from(pos.0), f64::from(pos.0) * 0.01];
    [a.cos(), 2.0 * b.cos(), a.sin(), 2.0 * b.sin()].map(|x| x as f32)
}

#[test]
fn any_memory_is_held_behind_one_interface() {
    let layers: [(&[LayerSpec], Kind); 4] = [
        (&[LayerSpec::default()], Kind::Kv(Retention::Batch)),
        (&[cached()], Kind::Kv(Retention::All)),
        (&[LayerSpec { attention: AttentionSpec::Absent, ..both() }], Kind::Recurrent),
        (&[cached(), both()], Kind::Hybrid),
    ];
    for (layers, kind) in layers {
        let mut memory: Memory = Memory::new(layers, &params(64, 2)).unwrap();
        append(&mut memory, &run_of(1, 0..10)).unwrap();
        assert_eq!(memory.kind(), kind);
        assert_eq!(memory.seq_pos_max(SeqId(1)), (kind != Kind::Kv(Retention::Batch)).then_some(Pos(9)));
    }
}

#[test]
fn a_fork_copies_no_block_until_it_is_appended_to() {
    let mut memory = Memory::new(&[cached()], &params(256, 4)).unwrap();
    append(&mut memory, &run_of(0, 0..100)).unwrap();
    let free = memory.n_free_blocks();
    for dst in 1..4 {
        memory.seq_cp(SeqId(0), SeqId(dst), ALL).unwrap();
    }
    assert_eq!(memory.n_free_blocks(), free);
    append(&mut memory, &run_of(2, 100..101)).unwrap();
    assert_eq!(memory.n_free_blocks(), free - 1, "the ragged block, and no other");
}

#[test]
fn the_last_user_of_a_block_appends_in_place() {
    let mut memory = Memory::new(&[cached()], &params(256, 4)).unwrap();
    append(&mut memory, &run_of(0, 0..20)).unwrap();
    memory.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
    let free = memory.n_free_blocks();
    let mut batch = run_of(0, 20..21);
    batch.push(Token(0), Pos(20), &[SeqId(1)], false);
    append(&mut memory, &batch).unwrap();
    assert_eq!(memory.n_free_blocks(), free - 1);
}

/// A sequence leaves a block for a copy, a shorter one that shares the block appends to it, and the
/// plan is dropped:
/// the cells behind the shorter one's end belong to the first again. Found by random programs.
#[test]
fn undoing_gives_a_longer_sequence_its_cells_back() {
    let mut memory = Memory::new(&[cached()], &params(256, 2)).unwrap();
    append_turned(&mut memory, &run_of(0, 0..20));
    memory.seq_cp(SeqId(0), SeqId(1), Pos(0)..Pos(5)).unwrap();
    let before = memory.cells(0, SeqId(0));
    for order in [[0, 1], [1, 0]] {
        let mut batch = Batch::new();
        for seq in order {
            batch.push(Token(99), Pos(if seq == 0 { 20 } else { 5 }), &[SeqId(seq)], false);
        }
        let mut plan = memory.prepare(&batch, 1).unwrap();
        while let Some(mut ubatch) = plan.next_ubatch() {
            ubatch.store(0).unwrap().put(&[99.0; 4], &[99.0; 2]).unwrap();
        }
        drop(plan);
        assert_eq!(memory.cells(0, SeqId(0)), before);
        memory.audit().unwrap();
    }
}

/// A copy ends in slots that were removed, a block further than its last cell. Found by random
/// programs.
#[test]
fn a_copy_that_ends_in_removed_cells_ends_with_its_last_cell() {
    let mut memory = Memory::new(&[cached()], &params(256, 2)).unwrap();
    append_turned(&mut memory, &run_of(0, 0..60));
    memory.seq_rm(SeqId(0), Pos(29)..Pos(40)).unwrap();
    memory.seq_cp(SeqId(0), SeqId(1), Pos(0)..Pos(40)).unwrap();
    memory.audit().unwrap();
    append(&mut memory, &run_of(1, 29..70)).unwrap();
    assert_eq!(memory.cells(0, SeqId(1)).len(), 70);
    memory.audit().unwrap();
}

#[test]
fn a_batch_that_does_not_fit_is_refused_whole_and_told_how_much_is_missing() {
    let mut memory = Memory::new(&[cached()], &params(64, 1)).unwrap();
    append(&mut memory, &run_of(0, 0..40)).unwrap();
    let refused = append(&mut memory, &run_of(0, 40..70));
    assert_eq!(refused, Err(Error::Full { what: "cells", need: 30, free: 24, seq: SeqId(0) }));
    assert_eq!(memory.seq_pos_max(SeqId(0)), Some(Pos(39)));
    append(&mut memory, &run_of(0, 40..64)).unwrap();

    let mut several = Memory::new(&[cached()], &params(64, 3)).unwrap();
    let refused = append(&mut several, &run_of(2, 0..65));
    assert_eq!(
        refused,
        Err(Error::Full { what: "cells", need: 65, free: 64, seq: SeqId(2) }),
        "a sequence has n_ctx cells"
    );
    several.audit().unwrap();
}

#[test]
fn shifting_a_full_context_for_ever_never_runs_out_of_cells() {
    let mut memory = Memory::new(&[cached()], &params(512, 1)).unwrap();
    append(&mut memory, &run_of(0, 0..400)).unwrap();
    for round in 0..200 {
        let drop = 17 + round % 90;
        memory.seq_rm(SeqId(0), Pos(8)..Pos(8 + drop)).unwrap();
        memory.seq_add(SeqId(0), Pos(8 + drop)..Pos::MAX, -drop).unwrap();
        assert_eq!(memory.seq_pos_max(SeqId(0)), Some(Pos(399 - drop)), "round {round}");
        append(&mut memory, &run_of(0, 400 - drop..400)).unwrap();
        memory.audit().unwrap();
    }
}

#[test]
fn moved_keys_are_those_of_their_new_position() {
    let mut memory = Memory::new(&[cached()], &params(128, 2)).unwrap();
    append_turned(&mut memory, &run_of(0, 0..60));
    memory.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
    memory.seq_rm(SeqId(0), Pos(8)..Pos(20)).unwrap();
    memory.seq_add(SeqId(0), Pos(20)..Pos::MAX, -12).unwrap();
    let cells = memory.cells(0, SeqId(0));
    assert_eq!(cells.len(), 48);
    for (i, (pos, (keys, values))) in cells.iter().enumerate() {
        let token = if i < 8 { i } else { i + 12 };
        assert_eq!((pos.0 as usize, values[0]), (i, token as f32));
        assert!(keys.iter().zip(turned(*pos)).all(|(k, wanted)| (k - wanted).abs() < 1e-5), "{pos} {keys:?}");
    }
    // The fork kept what it shared.
    for (pos, (keys, _)) in memory.cells(0, SeqId(1)) {
        assert_eq!(keys, turned(pos));
    }
}

#[test]
fn dividing_and_spreading_positions_extends_a_context_as_group_attention_does() {
    let mut memory = Memory::new(&[cached()], &params(128, 1)).unwrap();
    append_turned(&mut memory, &run_of(0, 0..64));
    memory.seq_div(SeqId(0), Pos(0)..Pos(32), 4).unwrap();
    memory.seq_add(SeqId(0), Pos(32)..Pos(64), -24).unwrap();
    let cells = memory.cells(0, SeqId(0));
    for (i, (pos, (keys, _))) in cells.iter().enumerate() {
        assert_eq!(pos.0 as usize, if i < 32 { i / 4 } else { i - 24 });
        assert!(keys.iter().zip(turned(*pos)).all(|(k, wanted)| (k - wanted).abs() < 1e-5));
    }
    append(&mut memory, &run_of(0, 40..50)).unwrap();
}

#[test]
fn a_move_that_would_break_the_order_changes_nothing() {
    let mut memory = Memory::new(&[cached(), both()], &params(128, 2)).unwrap();
    append(&mut memory, &run_of(0, 0..30)).unwrap();
    let before = memory.cells(0, SeqId(0));
    let overtakes = |pos, moved| Err(Error::Overtakes { seq: SeqId(0), pos: Pos(pos), moved });
    assert_eq!(memory.seq_add(SeqId(0), Pos(10)..Pos(20), -2), overtakes(10, 8));
    assert_eq!(memory.seq_add(SeqId(0), Pos(10)..Pos(20), 2), overtakes(19, 21));
    assert_eq!(
        memory.seq_add(SeqId(0), Pos(10)..Pos::MAX, i32::MAX),
        overtakes(29, 29 + i64::from(i32::MAX))
    );
    assert_eq!(memory.seq_div(SeqId(0), Pos(10)..Pos(20), 2), overtakes(10, 5));
    assert_eq!(memory.cells(0, SeqId(0)), before);
}

/// Nothing of what a memory reckons with positions goes beyond the last.
#[test]
fn the_last_positions_are_as_good_as_any() {
    let budgets = [
        RollbackParams { checkpoint_bytes: 1 << 12, spacing: 8, journal: 4, margin: 8 },
        RollbackParams { checkpoint_bytes: 1 << 12, spacing: 8, journal: 0, margin: 0 },
        RollbackParams::OFF,
    ];
    let windowed = |window| LayerSpec {
        attention: AttentionSpec::Cached(shape(Some(window))),
        recurrent: vec![StateTensor { len: 1, input: 1 }],
    };
    let kinds = [cached(), both(), windowed(Window::Sliding(12)), windowed(Window::Chunked(12))];
    for (spec, rollback) in kinds.iter().flat_map(|spec| budgets.map(|rollback| (spec, rollback))) {
        let mut memory =
            Memory::new(std::slice::from_ref(spec), &Params { rollback, ..params(512, 3) }).unwrap();
        let (a, b, last) = (SeqId(0), SeqId(1), i32::MAX);
        append(&mut memory, &run_of(0, last - 200..last - 40)).unwrap();
        memory.seq_cp(a, b, Pos::ZERO..Pos::MAX).unwrap();
        // More pins than the budget pays for, the last of them after the last position.
        for start in (last - 40..last).step_by(5) {
            append(&mut memory, &run_of(0, start..start + 5)).unwrap();
            let _ = memory.pin(a);
            memory.savepoint(&[a]).unwrap().commit();
        }
        append(&mut memory, &run_of(1, last - 40..last)).unwrap();
        for seq in [a, b] {
            assert_eq!(memory.seq_pos_max(seq), Some(Pos(last - 1)));
            memory.positions(seq).unwrap();
            memory.survey(seq).unwrap();
        }
        let refused = append(&mut memory, &run_of(0, last..last));
        assert!(refused.is_ok(), "no tokens");
        let mut beyond = Batch::new();
        beyond.push(Token(0), Pos::MAX, &[a], false);
        assert!(matches!(append(&mut memory, &beyond), Err(Error::Position { index: 0, pos: Pos::MAX })));
        assert!(memory.seq_add(b, Pos(last - 20)..Pos::MAX, 1).is_err());
        let _ = memory.seq_add(b, Pos(last - 20)..Pos::MAX, -1);
        while let Some(end) = memory.seq_pos_max(a).filter(|end| end.0 > last - 60) {
            let mut rewind = memory.rewind(a, end, 64).unwrap();
            while rewind.next_ubatch().is_some() {}
            rewind.commit().unwrap();
        }
        memory.audit().unwrap();
    }
}

#[test]
fn bad_calls_are_typed_errors_that_name_the_value() {
    let mut memory = Memory::new(&[cached(), both()], &params(128, 2)).unwrap();
    append(&mut memory, &run_of(0, 0..30)).unwrap();
    append(&mut memory, &run_of(1, 0..30)).unwrap();
    let unknown = Err(Error::UnknownSequence { seq: SeqId(2), n_seq_max: 2 });
    let range = |start, end| Err(Error::Range { start: Pos(start), end: Pos(end) });
    assert_eq!(memory.seq_rm(SeqId(2), ALL), unknown);
    assert_eq!(memory.seq_keep(SeqId(2)), unknown);
    assert_eq!(memory.seq_cp(SeqId(0), SeqId(2), ALL), unknown);
    assert_eq!(memory.seq_rm(SeqId(0), Pos(-1)..Pos(3)), range(-1, 3));
    assert_eq!(memory.seq_add(SeqId(0), Pos(5)..Pos(3), 1), range(5, 3));
    assert_eq!(memory.seq_div(SeqId(0), ALL, 0), Err(Error::Divisor { divisor: 0 }));
    assert_eq!(memory.seq_cp(SeqId(0), SeqId(0), ALL), Err(Error::SameSequence { seq: SeqId(0) }));
    assert_eq!(memory.seq_cp(SeqId(0), SeqId(1), ALL), Err(Error::Occupied { seq: SeqId(1) }));
    let order =
        |pos, wanted| Err(Error::Order { index: 0, seq: SeqId(0), pos: Pos(pos), wanted: Pos(wanted) });
    assert_eq!(append(&mut memory, &run_of(0, 29..31)), order(29, 30));
    assert_eq!(append(&mut memory, &run_of(0, 31..32)), order(31, 30));
    let together = |memory: &mut Memory| {
        let mut batch = Batch::new();
        batch.push(Token(0), Pos(30), &[SeqId(0), SeqId(1)], false);
        append(memory, &batch)
    };
    assert_eq!(together(&mut memory), Err(Error::Diverged { index: 0, seq: SeqId(0), other: SeqId(1) }));
    assert_eq!(memory.prepare(&Batch::new(), 0).err().map(|e| matches!(e, Error::Shape { .. })), Some(true));
    assert_eq!((memory.seq_pos_max(SeqId(0)), memory.seq_pos_max(SeqId(1))), (Some(Pos(29)), Some(Pos(29))));
    memory.audit().unwrap();
}

#[test]
fn a_plan_is_committed_whole_or_not_at_all() {
    let mut memory = Memory::new(&[cached(), both()], &params(128, 2)).unwrap();
    let batch = run_of(0, 0..100);
    let mut plan = memory.prepare(&batch, 64).unwrap();
    assert_eq!(plan.n_ubatch(), 2);
    assert_eq!(plan.next_ubatch().map(|ubatch| ubatch.n_tokens()), Some(64));
    assert_eq!(plan.commit(), Err(Error::Unfinished { started: 1, n_ubatch: 2 }));
    assert_eq!(memory.seq_pos_max(SeqId(0)), None);
    memory.audit().unwrap();
}

#[test]
fn impossible_layers_are_refused() {
    let attention = |attention| LayerSpec { attention, ..LayerSpec::default() };
    let huge = AttentionLayer { n_head_kv: usize::MAX, d_k: 3, d_v: 3, ..AttentionLayer::default() };
    let mut turning = shape(None);
    turning.d_k = 2;
    let state = StateTensor { len: usize::MAX, input: 1 };
    let cases = [
        (vec![attention(AttentionSpec::SharedWith(0))], 0),
        (vec![cached(), attention(AttentionSpec::SharedWith(2)), cached()], 1),
        (vec![cached(), LayerSpec::default(), attention(AttentionSpec::SharedWith(1))], 2),
        (vec![attention(AttentionSpec::Cached(AttentionLayer::default()))], 0),
        (vec![attention(AttentionSpec::Cached(huge))], 0),
        (vec![attention(AttentionSpec::Cached(turning))], 0),
        (vec![cached(), attention(AttentionSpec::Cached(shape(Some(Window::Sliding(0)))))], 1),
        (vec![cached(), LayerSpec { recurrent: vec![state], ..LayerSpec::default() }], 1),
    ];
    for (layers, bad) in cases {
        let made = Memory::new(&layers, &params(64, 1));
        assert!(matches!(made.err(), Some(Error::Layer { layer, .. }) if layer == bad), "{layers:?}");
    }
}

#[test]
fn a_window_as_wide_as_the_context_takes_no_more_than_none() {
    let layers = |window| vec![LayerSpec { attention: AttentionSpec::Cached(shape(window)), ..cached() }];
    let params = Params { rollback: RollbackParams::default(), ..params(64, 2) };
    let whole = params.bytes(&layers(None));
    for size in [64, 4096, u32::MAX] {
        let wide = layers(Some(Window::Sliding(size)));
        assert_eq!(params.bytes(&wide), whole);
        let mut memory = Memory::new(&wide, &params).unwrap();
        append(&mut memory, &run_of(0, 0..64)).unwrap();
        assert!(matches!(append(&mut memory, &run_of(0, 64..65)), Err(Error::Full { .. })), "{size}");
        assert_eq!(memory.seq_pos_min(SeqId(0)), Some(Pos(0)));
    }
}

/// All kinds in one memory.
fn hybrid() -> Vec<LayerSpec> {
    let windowed = AttentionSpec::Cached(shape(Some(Window::Sliding(100))));
    let windowed = LayerSpec { attention: windowed, ..LayerSpec::default() };
    vec![cached(), windowed, LayerSpec { recurrent: vec![StateTensor { len: 64, input: 2 }], ..cached() }]
}

#[test]
fn forking_a_hybrid_of_2000_tokens_takes_no_block_and_no_state() {
    let params = Params { rollback: RollbackParams::default(), ..params(2048, 65) };
    let mut memory = Memory::new(&hybrid(), &params).unwrap();
    for start in (0..2000).step_by(500) {
        append(&mut memory, &run_of(0, start..start + 500)).unwrap();
    }
    let free = memory.n_free_blocks();
    for fork in 1..=64 {
        memory.seq_cp(SeqId(0), SeqId(fork), Pos::ZERO..Pos::MAX).unwrap();
    }
    assert_eq!(memory.n_free_blocks(), free);
    memory.audit().unwrap();
    // All can go on at once: each takes a block of each cache, and a state.
    let mut batch = Batch::new();
    (0..=64).for_each(|seq| {
        batch.push(Token(seq), Pos(2000), &[SeqId(seq)], true);
    });
    append(&mut memory, &batch).unwrap();
    memory.audit().unwrap();
}

#[test]
fn reported_bytes_of_caches_are_the_allocated_ones() {
    let layer = |window| {
        let attention = AttentionLayer { n_head_kv: 8, d_k: 64, d_v: 64, window, ..shape(None) };
        LayerSpec { attention: AttentionSpec::Cached(attention), ..cached() }
    };
    let layers = [layer(None), layer(Some(Window::Sliding(256))), layer(None)];
    for n_ctx in [64, 4096, 65_536] {
        let params = params(n_ctx, 2);
        let memory = Memory::new(&layers, &params).unwrap();
        let allocated = memory.caches.with_cells().map(|cells| cells.bytes.len() as u64);
        let (allocated, reported) = (allocated.sum::<u64>(), params.bytes(&layers).caches);
        // Tables and positions are the rest.
        let rest = reported - allocated;
        assert!(rest > 0 && rest * 100 < allocated, "{n_ctx}: {reported} reported, {allocated} allocated");
    }
}

#[test]
fn a_journal_of_32_tokens_takes_less_than_a_tenth_of_32_states() {
    // Mamba-2 2.7B: inputs of the convolution and the time steps; the convolution computes
    // the inputs of the recurrence.
    let (d_inner, n_head, d_state, d_conv) = (5120, 80, 128, 4);
    let n_channels = d_inner + 2 * d_state;
    let conv = StateTensor { len: (d_conv - 1) * n_channels, input: n_channels };
    let ssd = StateTensor { len: d_inner * d_state, input: n_head };
    let layers: Vec<LayerSpec> =
        (0..64).map(|_| LayerSpec { recurrent: vec![conv, ssd], ..LayerSpec::default() }).collect();
    let bytes = |journal| {
        let rollback = RollbackParams { checkpoint_bytes: 0, spacing: 256, journal, margin: 0 };
        Params { rollback, ..params(4096, 1) }.bytes(&layers).total()
    };
    let state = 64 * 4 * (conv.len + ssd.len) as u64;
    let rows = 64 * 4 * 32 * (conv.input + ssd.input) as u64;
    // Three journals, so that two are complete while the third fills, and their initial states.
    assert_eq!(bytes(32) - bytes(0), 2 * (3 * rows + 3 * state));
    assert!(10 * rows < 32 * state, "{rows} bytes of rows, {state} of a state");
    assert!(10 * 3 * rows < 32 * state);
}
