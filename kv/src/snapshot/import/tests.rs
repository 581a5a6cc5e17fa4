//! Promises of an import that random programs found broken.

use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId, Token};
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Window};
use crate::memory::Memory;
use crate::params::Params;
use crate::params::RollbackParams;
use crate::snapshot::{Owned, Source};
use backstitch_core::cell::CellType;
use backstitch_core::pool::ThreadPool;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One windowed layer, and a budget for one window, of two blocks.
fn memory() -> Memory {
    let window = Some(Window::Sliding(20));
    let layer = AttentionLayer { n_head_kv: 1, d_k: 4, d_v: 2, window, rope: None };
    let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
    let rollback = RollbackParams { checkpoint_bytes: 768, spacing: 8, journal: 4, margin: 8 };
    let (k_type, v_type) = (CellType::F16, CellType::F16);
    Memory::new(&layers, &Params { n_ctx: 96, n_seq_max: 4, n_batch: 64, k_type, v_type, rollback }).unwrap()
}

fn append(memory: &mut Memory, seq: SeqId, n: i32) {
    let mut batch = Batch::new();
    for pos in (0..n).map(Pos) {
        batch.push(Token(1), pos, &[seq], false);
    }
    let mut plan = memory.prepare(&batch, 64).unwrap();
    while plan.next_ubatch().is_some() {}
    plan.commit().unwrap();
}

fn n_checkpoints(memory: &Memory, seqs: &[SeqId]) -> u32 {
    Owned::copy(&memory.export(seqs).unwrap()).snapshot.checkpoints.len() as u32
}

#[test]
fn a_restore_tells_of_checkpoints_that_the_budget_does_not_pay_for() {
    let (live, restored) = ([0, 1].map(SeqId), [2, 3].map(SeqId));
    let mut memory = memory();
    live.iter().for_each(|seq| append(&mut memory, *seq, 9));
    assert_eq!(n_checkpoints(&memory, &live), 2);
    let saved = Owned::copy(&memory.export(&live).unwrap());
    let fit = memory.import(&saved.snapshot, &saved, &restored, false).unwrap().commit();
    let (kept, came) = (n_checkpoints(&memory, &live), n_checkpoints(&memory, &restored));
    assert_eq!((kept + came, fit.n_checkpoints_dropped), (2, 2 - came));
    memory.audit().unwrap();
}

/// Has all blocks but one.
struct Broken(Owned);

impl Source for Broken {
    type Error = Error;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Error> {
        assert!(block != 1, "on purpose");
        self.0.fill_block(group, block, layers)
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        self.0.fill_state(state, pieces)
    }

    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        self.0.fill_journal(journal, pieces)
    }
}

/// A sequence of two blocks, each byte of which is another than its neighbours.
fn two_blocks(memory: &mut Memory) -> Owned {
    append(memory, SeqId(0), 40);
    let mut saved = Owned::copy(&memory.export(&[SeqId(0)]).unwrap());
    assert_eq!(saved.blocks[0].len(), 2);
    saved.blocks.iter_mut().flatten().flatten().zip(1..).for_each(|(bytes, salt)| {
        bytes.iter_mut().zip(0_u32..).for_each(|(byte, i)| *byte = (i * salt) as u8 & 0x3f);
    });
    saved
}

#[test]
fn threads_fill_what_one_fills() {
    let mut memory = memory();
    let saved = two_blocks(&mut memory);
    let pool = ThreadPool::new(3).unwrap();
    memory.import_with(&saved.snapshot, &saved, &[SeqId(1)], false, &pool).unwrap().commit();
    assert_eq!(Owned::copy(&memory.export(&[SeqId(1)]).unwrap()).blocks, saved.blocks);
}

#[test]
fn a_source_that_panics_on_a_thread_changes_nothing() {
    let mut memory = memory();
    let broken = Broken(two_blocks(&mut memory));
    let before = Owned::copy(&memory.export(&[SeqId(0)]).unwrap());
    let pool = ThreadPool::new(2).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        memory.import_with(&broken.0.snapshot, &broken, &[SeqId(0)], false, &pool).map(drop)
    }));
    assert!(panicked.is_err());
    memory.seq_rm(SeqId(1), Pos::ZERO..Pos::MAX).unwrap();
    assert_eq!(Owned::copy(&memory.export(&[SeqId(0)]).unwrap()), before);
    memory.audit().unwrap();
}
