//! What a memory promises, one kind after the other, through the interface that callers have.

mod way_back;

use super::*;
use crate::ids::Token;
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Params, Rotation, StatePart, Window};
use crate::timeline::TimelineParams;
use alloc::boxed::Box;
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
        timeline: TimelineParams::OFF,
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
    LayerSpec { recurrent: vec![StatePart { len: 1, input: 1 }], ..cached() }
}

fn run_of(seq: u32, range: Range<i32>) -> Batch {
    let mut batch = Batch::new();
    for pos in range {
        batch.push(Token(pos as u32), Pos(pos), &[SeqId(seq)], false);
    }
    batch
}

/// Computes nothing: cells and states stay as they are.
fn append(memory: &mut dyn Memory, batch: &Batch) -> Result<(), Error> {
    let mut plan = memory.prepare(batch, 64)?;
    while plan.next_ubatch().is_some() {}
    plan.commit()
}

/// Stores keys that only their position tells apart, and the token as value.
fn append_turned(memory: &mut Hybrid, batch: &Batch) {
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
        (&[LayerSpec::default()], Kind::None),
        (&[cached()], Kind::Unified),
        (&[LayerSpec { attention: AttentionSpec::Absent, ..both() }], Kind::Recurrent),
        (&[cached(), both()], Kind::Hybrid),
    ];
    for (layers, kind) in layers {
        let mut memory: Box<dyn Memory> = Box::new(Hybrid::new(layers, &params(64, 2)).unwrap());
        append(&mut *memory, &run_of(1, 0..10)).unwrap();
        assert_eq!(memory.kind(), kind);
        assert_eq!(memory.seq_pos_max(SeqId(1)), (kind != Kind::None).then_some(Pos(9)));
    }
}

#[test]
fn a_fork_copies_no_block_until_it_is_appended_to() {
    let mut memory = Hybrid::new(&[cached()], &params(256, 4)).unwrap();
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
    let mut memory = Hybrid::new(&[cached()], &params(256, 4)).unwrap();
    append(&mut memory, &run_of(0, 0..20)).unwrap();
    memory.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
    let free = memory.n_free_blocks();
    let mut batch = run_of(0, 20..21);
    batch.push(Token(0), Pos(20), &[SeqId(1)], false);
    append(&mut memory, &batch).unwrap();
    assert_eq!(memory.n_free_blocks(), free - 1);
}

/// A sequence leaves a block for a copy, a shorter one that shares the block goes on in it, and the plan is dropped:
/// the cells behind the shorter one's end belong to the first again. Found by random programs.
#[test]
fn undoing_gives_a_longer_sequence_its_cells_back() {
    let mut memory = Hybrid::new(&[cached()], &params(256, 2)).unwrap();
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

/// A copy ends in slots that were removed, a block further than its last cell. Found by random programs.
#[test]
fn a_copy_that_ends_in_removed_cells_ends_with_its_last_cell() {
    let mut memory = Hybrid::new(&[cached()], &params(256, 2)).unwrap();
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
    let mut memory = Hybrid::new(&[cached()], &params(64, 1)).unwrap();
    append(&mut memory, &run_of(0, 0..40)).unwrap();
    let refused = append(&mut memory, &run_of(0, 40..70));
    assert_eq!(refused, Err(Error::Full { what: "cells", need: 32, free: 0, seq: SeqId(0) }));
    assert_eq!(memory.seq_pos_max(SeqId(0)), Some(Pos(39)));
    append(&mut memory, &run_of(0, 40..64)).unwrap();

    let mut several = Hybrid::new(&[cached()], &params(64, 3)).unwrap();
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
    let mut memory = Hybrid::new(&[cached()], &params(512, 1)).unwrap();
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
    let mut memory = Hybrid::new(&[cached()], &params(128, 2)).unwrap();
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
    let mut memory = Hybrid::new(&[cached()], &params(128, 1)).unwrap();
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
    let mut memory = Hybrid::new(&[cached(), both()], &params(128, 2)).unwrap();
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

#[test]
fn bad_calls_are_typed_errors_that_name_the_value() {
    let mut memory = Hybrid::new(&[cached(), both()], &params(128, 2)).unwrap();
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
    let together = |memory: &mut Hybrid| {
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
    let mut memory = Hybrid::new(&[cached(), both()], &params(128, 2)).unwrap();
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
    let state = StatePart { len: usize::MAX, input: 1 };
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
        let made = Hybrid::new(&layers, &params(64, 1));
        assert!(matches!(made.err(), Some(Error::Layer { layer, .. }) if layer == bad), "{layers:?}");
    }
}

#[test]
fn a_window_as_wide_as_the_context_takes_no_more_than_none() {
    let layers = |window| vec![LayerSpec { attention: AttentionSpec::Cached(shape(window)), ..cached() }];
    let params = Params { timeline: TimelineParams::default(), ..params(64, 2) };
    let whole = params.bytes(&layers(None));
    for size in [64, 4096, u32::MAX] {
        let wide = layers(Some(Window::Sliding(size)));
        assert_eq!(params.bytes(&wide), whole);
        let mut memory = Hybrid::new(&wide, &params).unwrap();
        append(&mut memory, &run_of(0, 0..64)).unwrap();
        assert!(matches!(append(&mut memory, &run_of(0, 64..65)), Err(Error::Full { .. })), "{size}");
        assert_eq!(memory.seq_pos_min(SeqId(0)), Some(Pos(0)));
    }
}

mod hybrid {
    use super::*;

    fn memory() -> Hybrid {
        Hybrid::new(&[both(), cached()], &params(256, 2)).unwrap()
    }

    #[test]
    fn the_first_position_is_the_last_because_the_state_knows_no_other() {
        let mut memory = memory();
        append(&mut memory, &run_of(0, 0..56)).unwrap();
        let ends = |memory: &Hybrid| (memory.seq_pos_min(SeqId(0)), memory.seq_pos_max(SeqId(0)));
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
        let mut memory = Hybrid::new(&[both()], &params(32, 2)).unwrap();
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
            let runs: Vec<StateRun> = ubatch.states(0, 0).unwrap().runs().collect();
            assert_eq!((runs.len(), runs[0].start, runs[0].end), (1, 0, n_tokens));
            slots.push((runs[0].read.unwrap(), runs[0].write));
        }
        let [(old, fresh), second, third] = slots[..] else { panic!("{slots:?}") };
        assert_ne!(old, fresh);
        assert_eq!((second, third), ((fresh, fresh), (fresh, fresh)));
    }
}

mod uncached {
    use super::*;

    fn memory(causal: bool) -> Hybrid {
        let attention = AttentionSpec::Uncached { layer: shape(None), causal };
        Hybrid::new(&[LayerSpec { attention, ..LayerSpec::default() }], &params(64, 3)).unwrap()
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
}

mod together {
    use super::*;

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
        let mut memory = Hybrid::new(&[both()], &params(128, 4)).unwrap();
        append_turned(&mut memory, &shared_prompt_and_endings());
        for seq in 0..4 {
            let cells = memory.cells(0, SeqId(seq));
            let tokens = cells.iter().map(|(_, (_, values))| values[0] as u32);
            assert!(tokens.eq((0..40).chain((40..45).map(|pos| 100 * seq + pos))), "sequence {seq}");
        }
        // One block for the prompt's first 32 tokens, one for each sequence's rest.
        assert_eq!(memory.n_free_blocks(), params(128, 4).n_blocks() - 5);
        memory.audit().unwrap();
    }

    #[test]
    fn dropping_such_a_plan_leaves_nothing() {
        let mut memory = Hybrid::new(&[both()], &params(128, 4)).unwrap();
        let batch = shared_prompt_and_endings();
        for n in 0..3 {
            let mut plan = memory.prepare(&batch, 64).unwrap();
            for _ in 0..n {
                plan.next_ubatch().unwrap();
            }
            drop(plan);
            assert_eq!(memory.n_free_blocks(), params(128, 4).n_blocks());
            memory.audit().unwrap();
        }
    }

    #[test]
    fn many_recurrent_sequences_step_in_one_ubatch() {
        let layers = [LayerSpec { attention: AttentionSpec::Absent, ..both() }];
        let mut memory = Hybrid::new(&layers, &params(1024, 256)).unwrap();
        for pos in 0..3 {
            let mut batch = Batch::new();
            for seq in 0..256 {
                batch.push(Token(seq), Pos(pos), &[SeqId(seq)], true);
            }
            let mut plan = memory.prepare(&batch, 256).unwrap();
            assert_eq!(plan.n_ubatch(), 1);
            let n_runs = plan.next_ubatch().and_then(|mut ubatch| Some(ubatch.states(0, 0)?.runs().count()));
            assert_eq!(n_runs, Some(256));
            plan.commit().unwrap();
        }
        memory.audit().unwrap();
    }
}

/// All kinds in one memory.
fn hybrid() -> Vec<LayerSpec> {
    let windowed = AttentionSpec::Cached(shape(Some(Window::Sliding(100))));
    let windowed = LayerSpec { attention: windowed, ..LayerSpec::default() };
    vec![cached(), windowed, LayerSpec { recurrent: vec![StatePart { len: 64, input: 2 }], ..cached() }]
}

#[test]
fn forking_a_hybrid_of_2000_tokens_takes_no_block_and_no_state() {
    let params = Params { timeline: TimelineParams::default(), ..params(2048, 65) };
    let mut memory = Hybrid::new(&hybrid(), &params).unwrap();
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
fn a_journal_of_32_tokens_takes_less_than_a_tenth_of_32_states() {
    // Mamba-2 2.7B: what enters the convolution and the time steps; what enters the recurrence comes out of the convolution.
    let (d_inner, n_head, d_state, d_conv) = (5120, 80, 128, 4);
    let n_channels = d_inner + 2 * d_state;
    let conv = StatePart { len: (d_conv - 1) * n_channels, input: n_channels };
    let ssd = StatePart { len: d_inner * d_state, input: n_head };
    let layers: Vec<LayerSpec> =
        (0..64).map(|_| LayerSpec { recurrent: vec![conv, ssd], ..LayerSpec::default() }).collect();
    let bytes = |journal| {
        let timeline = TimelineParams { checkpoint_bytes: 0, spacing: 256, journal, margin: 0 };
        Params { timeline, ..params(4096, 1) }.bytes(&layers)
    };
    let state = 64 * 4 * (conv.len + ssd.len) as u64;
    let rows = 64 * 4 * 32 * (conv.input + ssd.input) as u64;
    // Three journals, so that two are whole while the third fills, and the states that they begin at.
    assert_eq!(bytes(32) - bytes(0), 3 * rows + 3 * state);
    assert!(10 * rows < 32 * state, "{rows} bytes of rows, {state} of a state");
    assert!(10 * 3 * rows < 32 * state);
}
