//! Computation of a plan in place of a model, with a comparison of everything that attention would
//! read.

use super::*;
use crate::cache::view::StateSegment;
use crate::external::{PlanCopy, PlannedCopy};

/// Check that rows are equal in all bits.
pub(super) fn assert_bits(real: &Rows, naive: &Rows) {
    let same = |a: &[f32], b: &[f32]| a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()));
    assert!(same(&real.0, &naive.0) && same(&real.1, &naive.1), "{real:?} and {naive:?}");
}

/// Compute a plan, then end it.
pub(super) fn finish<E: Engine>(
    mut plan: Plan<'_>,
    layers: &[LayerSpec],
    after: &Naive,
    end: End,
    engine: &mut E,
) -> u32 {
    let planned: Vec<PlannedCopy> = plan.copies().collect();
    let n_ubatch = match end {
        End::Drop(n) => usize::from(n).min(plan.n_ubatch()),
        End::Commit | End::Leak => plan.n_ubatch(),
    };
    let mut due = planned.iter().map(|planned| planned.copy);
    for _ in 0..n_ubatch {
        let Some(mut ubatch) = plan.next_ubatch() else { break };
        follow(&ubatch, engine, &mut due);
        let mut owners = Vec::new();
        for (i, spec) in layers.iter().enumerate() {
            let owner = match &spec.attention {
                AttentionSpec::Cached(own) => {
                    let cached = owners.iter().flatten().count();
                    store(&mut ubatch, i, own, cached, engine);
                    Some((i, cached, own))
                }
                _ => None,
            };
            owners.push(owner);
            let read = match &spec.attention {
                AttentionSpec::SharedWith(of) => {
                    assert!(ubatch.store(i).is_none());
                    owners[*of]
                }
                _ => owner,
            };
            match read {
                Some((owner, cached, own)) => read_back(&ubatch, (i, owner), own, cached, after, engine),
                None => assert!(ubatch.attention(i).is_none()),
            }
            assert_eq!(step_states(&mut ubatch, i, engine), !spec.recurrent.is_empty());
        }
    }
    match end {
        End::Commit => plan.commit().unwrap(),
        End::Drop(_) => drop(plan),
        End::Leak => core::mem::forget(plan),
    }
    planned.len() as u32
}

/// Make the copies of cells that a ubatch lists, after a check that the plan lists the same.
fn follow<E: Engine>(ubatch: &Ubatch<'_>, engine: &mut E, due: &mut impl Iterator<Item = PlanCopy>) {
    for copy in ubatch.copies() {
        assert_eq!(due.next(), Some(PlanCopy::Cells(copy)));
        let Ok(()) = engine.copy_cells(copy);
    }
    for copy in ubatch.state_segments().filter_map(|run| run.copy()) {
        assert_eq!(due.next(), Some(PlanCopy::State(copy)));
    }
}

/// Store keys and values of a ubatch in a layer, in the memory and in the engine.
pub(super) fn store<E: Engine>(
    ubatch: &mut Ubatch<'_>,
    layer: usize,
    own: &AttentionLayer,
    cached: usize,
    engine: &mut E,
) {
    let tokens: Vec<Token> = ubatch.tokens().iter().map(|t| t.token).collect();
    let (mut k, mut v) = (Vec::new(), Vec::new());
    for token in tokens {
        let row = rows(token, own, cached);
        k.extend(row.0);
        v.extend(row.1);
    }
    let mut store = ubatch.store(layer).unwrap();
    assert!(store.put(&k[1..], &v).is_err());
    store.put(&k, &v).unwrap();
    let keys = k.chunks_exact(own.n_head_kv * own.d_k);
    for ((cell, key), value) in store.cells.iter().zip(keys).zip(v.chunks_exact(own.n_head_kv * own.d_v)) {
        engine.put(layer, *cell, key, value);
    }
}

/// Compare the cells that attention reads with the oracle: tokens up to each one's own, in order,
/// inside the window.
pub(super) fn read_back<E: Engine>(
    ubatch: &Ubatch<'_>,
    (layer, owner): (usize, usize),
    own: &AttentionLayer,
    cached: usize,
    after: &Naive,
    engine: &E,
) {
    let view = ubatch.attention(layer).unwrap();
    let n_tokens = ubatch.n_tokens();
    for (i, (token, visible)) in ubatch.tokens().iter().zip(view.visible()).enumerate() {
        let table = view.table(visible);
        let oldest = own.window.map_or(0, |window| window.first(token.pos).0);
        let cells = &after.seqs[token.seq.index()].cells;
        let seen = cells.partition_point(|c| c.pos.0 < oldest)..cells.partition_point(|c| c.pos <= token.pos);
        let seen = &cells[seen];
        // All cells for some tokens, their number for the others: comparing takes most of the time.
        let live = |i: u32| table[i as usize].live & window_bits(i, visible);
        let entries = visible.lo / 32..visible.hi.div_ceil(32);
        if i % 16 != 0 && i + 1 != n_tokens {
            let n_cells: u32 = entries.map(|i| live(i).count_ones()).sum();
            assert_eq!(n_cells as usize, seen.len(), "{visible:?}");
            continue;
        }
        let slots: Vec<u32> = entries.flat_map(|i| bits(live(i)).map(move |cell| i * 32 + cell)).collect();
        assert_eq!(slots.len(), seen.len(), "{visible:?}");
        for (slot, cell) in slots.into_iter().zip(seen) {
            let block = table[slot as usize / BLOCK_CELLS].block;
            let bytes = view.blocks.get(block).unwrap();
            assert_eq!(bytes.as_ptr().addr() % 64, 0);
            let mut row = (vec![0.0; own.n_head_kv * own.d_k], vec![0.0; own.n_head_kv * own.d_v]);
            view.layout.load_k(bytes, slot as usize % BLOCK_CELLS, &mut row.0);
            view.layout.load_v(bytes, slot as usize % BLOCK_CELLS, &mut row.1);
            assert_bits(&row, &cell.rows[cached]);
            let place = Cell { block, cell: slot % BLOCK_CELLS as u32 };
            assert_bits(&engine.get(owner, place), &cell.rows[cached]);
        }
    }
}

/// Return the cells of entry `i` that a token sees.
pub(super) fn window_bits(i: u32, visible: &Visible) -> u32 {
    (0..32).filter(|b| (visible.lo..visible.hi).contains(&(i * 32 + b))).fold(0, |bits, b| bits | 1 << b)
}

/// Step the states of a layer; return false if it has none.
pub(super) fn step_states<E: Engine>(ubatch: &mut Ubatch<'_>, layer: usize, engine: &mut E) -> bool {
    let tokens: Vec<u64> = ubatch.tokens().iter().map(|t| t.token.0.into()).collect();
    let Some(mut states) = ubatch.states(layer, 0) else { return false };
    let (mut next, mut written) = (0, Vec::new());
    for run in states.segments() {
        assert_eq!(run.start, next, "runs tile the ubatch");
        next = run.end;
        // A segment may continue in the slot of the one before it.
        let goes_on = run.read == Some(run.write);
        assert!(goes_on || !written.contains(&run.write), "no two runs write one state");
        written.push(run.write);
        let state = states.carry(&run);
        let tokens = &tokens[run.start as usize..run.end as usize];
        tokens.iter().for_each(|&token| advance(state, token));
        step_elsewhere(engine, layer, &run, tokens);
        if let Some(inputs) = states.inputs(&run) {
            inputs.iter_mut().zip(tokens).for_each(|(input, &token)| *input = token as f32);
        }
    }
    assert_eq!(next as usize, tokens.len());
    true
}

/// Step the states in the engine's storage.
fn step_elsewhere<E: Engine>(engine: &mut E, layer: usize, run: &StateSegment, tokens: &[u64]) {
    if let Some(copy) = run.copy() {
        let Ok(()) = engine.copy_state(layer, copy);
    }
    let mut state = engine.state(layer, run.write);
    tokens.iter().for_each(|&token| advance(&mut state, token));
    engine.put_state(layer, run.write, &state);
}

/// Step the states of a layer through its journal rows.
pub(super) fn replay_states<E: Engine>(ubatch: &mut Ubatch<'_>, layer: usize, engine: &mut E) {
    let Some(mut states) = ubatch.states(layer, 0) else { return };
    for run in states.segments() {
        let inputs = states.inputs(&run).unwrap().to_vec();
        let state = states.carry(&run);
        inputs.iter().for_each(|&token| advance(state, token as u64));
        let tokens: Vec<u64> = inputs.iter().map(|&token| token as u64).collect();
        step_elsewhere(engine, layer, &run, &tokens);
    }
}
