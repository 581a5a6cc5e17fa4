//! What restoring promises, where random programs found that it was not so.

use crate::batch::Batch;
use crate::ids::{Pos, SeqId, Token};
use crate::image::Owned;
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Params, Window};
use crate::memory::{Hybrid, Memory};
use crate::timeline::TimelineParams;
use backstitch_core::cell::CellType;

/// One windowed layer, and a budget for two checkpoints.
fn memory() -> Hybrid {
    let window = Some(Window::Sliding(20));
    let layer = AttentionLayer { n_head_kv: 1, d_k: 4, d_v: 2, window, rope: None };
    let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
    let timeline = TimelineParams { checkpoint_bytes: 2 * 768, spacing: 8, journal: 4, margin: 8 };
    let (k_type, v_type) = (CellType::F16, CellType::F16);
    Hybrid::new(&layers, &Params { n_ctx: 96, n_seq_max: 4, n_batch: 64, k_type, v_type, timeline }).unwrap()
}

fn append(memory: &mut Hybrid, seq: SeqId, n: i32) {
    let mut batch = Batch::new();
    for pos in (0..n).map(Pos) {
        batch.push(Token(1), pos, &[seq], false);
    }
    let mut plan = memory.prepare(&batch, 64).unwrap();
    while plan.next_ubatch().is_some() {}
    plan.commit().unwrap();
}

fn n_checkpoints(memory: &Hybrid, seqs: &[SeqId]) -> u32 {
    Owned::copy(&memory.snapshot(seqs).unwrap()).image.checkpoints.len() as u32
}

#[test]
fn a_restore_tells_of_checkpoints_that_the_budget_does_not_pay_for() {
    let (live, restored) = ([0, 1].map(SeqId), [2, 3].map(SeqId));
    let mut memory = memory();
    live.iter().for_each(|seq| append(&mut memory, *seq, 9));
    assert_eq!(n_checkpoints(&memory, &live), 2);
    let saved = Owned::copy(&memory.snapshot(&live).unwrap());
    let fit = memory.stage(&saved.image, &saved, &restored, false).unwrap().commit();
    let (kept, came) = (n_checkpoints(&memory, &live), n_checkpoints(&memory, &restored));
    assert_eq!((kept + came, fit.n_checkpoints_dropped), (2, 2 - came));
    memory.audit().unwrap();
}
