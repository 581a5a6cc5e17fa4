//! Memories without storage of their own, and engines that follow them or do not.

use super::*;
use crate::external::{CellCopy, Change, KeyShift, PlanCopy, Storage};
use crate::snapshot::{Content, Owned};
use crate::storage::{self, Fingerprint, Header, Scope, Writer, write_snapshot};
use crate::testing::Naive;
use crate::testing::programs::{Blocks, Engine};

/// A memory without storage, and an engine that may ignore the copies of plans.
struct Pair {
    memory: Memory,
    engine: Blocks,
    naive: Naive,
    follows: bool,
}

impl Pair {
    fn new(follows: bool) -> Pair {
        let (layers, params) = ([cached(), both()], params(256, 3));
        let memory = Memory::without_storage(&layers, &params).unwrap();
        let engine = Blocks::new(&memory, &layers, &params);
        Pair { engine, memory, naive: Naive::new(&layers, &params), follows }
    }

    fn append(&mut self, seq: u32, range: Range<i32>) {
        let batch = run_of(seq, range);
        let row = |token: Token, layer: usize| (vec![token.0 as f32 + 0.5; 4], vec![layer as f32; 2]);
        self.naive.append(&batch, |index, layer| row(batch.tokens()[index], layer)).unwrap();
        let mut plan = self.memory.prepare(&batch, 16).unwrap();
        while let Some(mut ubatch) = plan.next_ubatch() {
            for copy in ubatch.copies().filter(|_| self.follows) {
                let Ok(()) = self.engine.copy_cells(copy);
            }
            let tokens: Vec<Token> = ubatch.tokens().iter().map(|token| token.token).collect();
            for layer in 0..2 {
                let mut store = ubatch.store(layer).unwrap();
                assert!(store.blocks.as_ref().is_empty());
                let (n, full) = (tokens.len(), vec![0.0; tokens.len() * 4]);
                assert_eq!(store.put(&full, &full[..n * 2]), Err(Error::NoStorage));
                for (cell, &token) in store.cells.iter().zip(&tokens) {
                    let (key, value) = row(token, layer);
                    self.engine.put(layer, *cell, &key, &value);
                }
                assert!(ubatch.attention(layer).unwrap().blocks.is_empty());
            }
            let runs: Vec<_> = ubatch.state_segments().collect();
            let mut states = ubatch.states(1, 0).unwrap();
            assert!(states.segments().eq(runs.iter().copied()));
            for run in runs {
                assert!(states.carry(&run).is_empty() && states.inputs(&run).is_none());
            }
        }
        plan.commit().unwrap();
    }

    fn is_right(&self) -> bool {
        (0..3).map(SeqId).all(|seq| {
            let cells = &self.naive.sequence(seq).unwrap().cells;
            (0..2).all(|layer| {
                let places = self.memory.cell_places(layer, seq);
                assert_eq!(places.len(), cells.len());
                places.iter().zip(cells).all(|((pos, at), cell)| {
                    *pos == cell.pos && self.engine.get(layer, *at) == cell.rows[layer]
                })
            })
        })
    }

    fn fork(&mut self) {
        self.memory.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
        self.naive.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
    }
}

#[test]
fn storage_that_ignores_copies_is_wrong_after_a_fork_and_storage_that_follows_them_is_right() {
    for follows in [false, true] {
        let mut pair = Pair::new(follows);
        pair.append(0, 0..40);
        assert!(pair.is_right());
        pair.fork();
        assert!(pair.is_right(), "a fork copies nothing");
        pair.append(1, 40..45);
        pair.append(0, 40..43);
        assert_eq!(pair.is_right(), follows);
    }
}

#[test]
fn a_plan_names_block_cells_and_ubatch_of_each_copy() {
    let mut pair = Pair::new(true);
    pair.append(0, 0..40);
    pair.fork();
    let at = pair.memory.cell_places(0, SeqId(0))[39].1;
    let batch = run_of(1, 40..45);
    let plan = pair.memory.prepare(&batch, 2).unwrap();
    let copies: Vec<_> = plan.copies().map(|planned| (planned.ubatch, planned.copy)).collect();
    drop(plan);
    let [(0, PlanCopy::Cells(cells)), (0, PlanCopy::State(state))] = copies[..] else {
        panic!("{copies:?}");
    };
    let CellCopy { cache: 0, from, to, cells: 0xff } = cells else { panic!("{cells:?}") };
    assert!(from == at.block && to != from);
    assert!(state.from.is_some_and(|from| from != state.to) && state.token == 0);
}

#[test]
fn operations_list_what_they_change_and_plans_wait_until_it_is_taken() {
    let (layers, params) = ([cached()], params(256, 3));
    let mut memory = Memory::without_storage(&layers, &params).unwrap();
    append(&mut memory, &run_of(0, 0..10)).unwrap();
    memory.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
    assert_eq!(memory.take_changes(), []);
    memory.seq_add(SeqId(1), Pos(4)..Pos::MAX, 3).unwrap();
    assert_eq!(append(&mut memory, &run_of(1, 13..14)), Err(Error::Unfollowed { n_changes: 2 }));
    let [from, to] = [0, 1].map(|seq| memory.cell_places(0, SeqId(seq))[0].1.block);
    let copy = CellCopy { cache: 0, from, to, cells: 0x3ff };
    let shift = KeyShift { cache: 0, block: to, cells: 0x3f0, delta: 3 };
    assert_eq!(memory.take_changes(), [Change::CopyCells(copy), Change::ShiftKeys(shift)]);
    append(&mut memory, &run_of(1, 13..14)).unwrap();
}

#[test]
fn snapshots_and_restores_say_where_the_engine_has_the_bytes() {
    let mut pair = Pair::new(true);
    pair.append(0, 0..40);
    let export = pair.memory.export(&[SeqId(0)]).unwrap();
    assert!(export.block(0, 0).is_empty() && export.placement().caches == [0]);
    let mut bytes = Vec::new();
    let header = Header { fingerprint: Fingerprint([1; 32]), scope: Scope::Sequence };
    let refused = write_snapshot(&mut Writer::new(&mut bytes, header).unwrap(), &export, None);
    assert!(matches!(refused, Err(storage::Error::Memory(Error::NoStorage))), "{refused:?}");
    let (snapshot, from) = (export.snapshot().clone(), export.placement().clone());
    assert!(from.blocks[0].iter().all(Option::is_some) && from.states[0].is_some());
    // Bytes are read from nowhere: a source without any will do.
    let source = Owned { snapshot: snapshot.clone(), ..Owned::default() };
    let import = pair.memory.import(&snapshot, &source, &[SeqId(2)], false).unwrap();
    let to = import.placement().clone();
    assert_eq!((to.blocks[0].len(), to.blocks[0][0] != from.blocks[0][0]), (2, true));
    import.commit();
    for (block, to) in from.blocks[0].iter().zip(&to.blocks[0]) {
        let (from, to) = (block.unwrap(), to.unwrap());
        let Ok(()) = pair.engine.copy_cells(CellCopy { cache: 0, from, to, cells: u32::MAX });
    }
    pair.naive.seq_cp(SeqId(0), SeqId(2), ALL).unwrap();
    assert!(pair.is_right());
}
