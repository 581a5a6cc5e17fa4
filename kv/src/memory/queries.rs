//! Read-only queries about sequences.

use super::Memory;
use crate::ids::{Pos, SeqId};
use core::ops::Range;

impl Memory {
    /// Return the maximum number of tokens of a sequence; `None` if no layer retains all tokens,
    /// because there is no limit then.
    pub fn limit(&self) -> Option<u32> {
        self.caches.limit()
    }

    /// Return true if a rollback by one token can need more than the sequence itself holds, because
    /// a layer is recurrent or releases cells.
    pub fn needs_checkpoints(&self) -> bool {
        self.checkpoints.sizes.needed
    }

    /// Return true if `seq` has seen a token in `range` that was not removed since, even if its
    /// cell is no longer retained: then removing, moving or dividing the range changes something.
    /// If no layer retains all tokens, removed tokens count as well unless they were the first ones
    /// or the last. Return false for an unknown sequence.
    pub fn has_seen(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        self.check_seq(seq).is_ok() && self.caches.touches(seq, range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::error::Error;
    use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Window};
    use crate::memory::savepoint::Savepoint;
    use crate::params::Params;
    use crate::{RollbackParams, Token};
    use backstitch_core::cell::CellType;

    fn memory(window: Option<Window>) -> Memory {
        let layer = AttentionLayer { n_head_kv: 1, d_k: 2, d_v: 2, window, ..AttentionLayer::default() };
        let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
        let (k_type, v_type, rollback) = (CellType::F16, CellType::F16, RollbackParams::OFF);
        Memory::new(&layers, &Params { n_ctx: 128, n_seq_max: 3, n_batch: 32, k_type, v_type, rollback })
            .unwrap()
    }

    fn batch(seqs: &[u32], pos: core::ops::Range<i32>) -> Batch {
        let mut batch = Batch::new();
        for pos in pos {
            seqs.iter().for_each(|&seq| _ = batch.push(Token(1), Pos(pos), &[SeqId(seq)], false));
        }
        batch
    }

    /// Append in batches of 32 tokens.
    fn append(memory: &mut Memory, seq: u32, pos: core::ops::Range<i32>) {
        for start in pos.clone().step_by(32) {
            let batch = batch(&[seq], start..pos.end.min(start + 32));
            let mut plan = memory.prepare(&batch, 32).unwrap();
            while plan.next_ubatch().is_some() {}
            plan.commit().unwrap();
        }
    }

    fn admits(memory: &mut Memory, batch: &Batch) -> Result<(), Error> {
        memory.savepoint_for(batch).map(Savepoint::commit)
    }

    #[test]
    fn long_batches_are_refused_by_order_and_by_cells_before_a_piece_is_prepared() {
        let mut m = memory(None);
        append(&mut m, 0, 0..20);
        assert_eq!(admits(&mut m, &batch(&[0], 20..128)), Ok(()));
        let full = |need, free, seq| Err(Error::Full { what: "cells", need, free, seq: SeqId(seq) });
        assert_eq!(admits(&mut m, &batch(&[0], 20..129)), full(109, 108, 0));
        append(&mut m, 0, 20..128);
        // Six blocks are left.
        assert_eq!(admits(&mut m, &batch(&[1, 2], 0..128)), full(256, 192, 1));
        let wanted = Pos(128);
        assert_eq!(
            admits(&mut m, &batch(&[1, 0], 0..50)),
            Err(Error::Order { index: 1, seq: SeqId(0), pos: Pos(0), wanted })
        );
    }

    #[test]
    fn what_lets_cells_go_has_no_limit() {
        assert_eq!(memory(None).limit(), Some(128));
        let mut m = memory(Some(Window::Sliding(8)));
        assert_eq!(m.limit(), None);
        assert_eq!(admits(&mut m, &batch(&[0], 0..1000)), Ok(()));
    }

    #[test]
    fn cells_are_shared_where_another_sequence_has_them_too() {
        let mut m = memory(None);
        append(&mut m, 0, 0..100);
        let shares = |m: &Memory, pos| m.caches.shares_cells(SeqId(0), Pos(pos));
        assert!(!shares(&m, 0));
        m.seq_cp(SeqId(0), SeqId(1), Pos::ZERO..Pos(40)).unwrap();
        // Up to the block that the copy ends in.
        assert!(shares(&m, 0) && shares(&m, 63) && !shares(&m, 64));
        m.seq_rm(SeqId(1), Pos::ZERO..Pos::MAX).unwrap();
        assert!(!shares(&m, 0));
    }
}
