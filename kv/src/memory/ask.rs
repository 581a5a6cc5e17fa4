//! Questions whose answers save callers a failure halfway.

use super::{Hybrid, Pass};
use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use core::ops::Range;

impl Hybrid {
    /// Checks a batch of any length, before it is prepared piece by piece: every token follows the last of its sequences, and
    /// there are cells for all of them. What else a piece may lack, such as a block that sequences cannot share, is found when
    /// that piece is prepared.
    ///
    /// # Errors
    /// As [`Memory::prepare`](crate::Memory::prepare).
    pub fn admits(&mut self, batch: &Batch) -> Result<(), Error> {
        self.undo();
        batch.check(u32::MAX, self.params.n_seq_max)?;
        self.check_order(batch, Pass::Decode)?;
        self.parts.iter().try_for_each(|part| part.admits(batch))
    }

    /// The most tokens that a sequence can hold; none if no layer keeps all, for then there is no limit.
    pub fn limit(&self) -> Option<u32> {
        self.parts.iter().filter_map(|part| part.limit()).min()
    }

    /// Whether `seq` has seen a token in `range` that was not removed since, still held or not: whether removing, moving or
    /// dividing the range changes anything. False for sequences that there are not.
    pub fn has_seen(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        self.check_seq(seq).is_ok() && self.parts.iter().any(|part| part.touches(seq, range))
    }

    /// Whether other sequences use cells that `seq` holds from `pos` on, so that giving these up would make no room. What windows
    /// and recurrent states take is not asked for: there is room for those of every sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn shares_cells(&self, seq: SeqId, pos: Pos) -> Result<bool, Error> {
        self.check_seq(seq)?;
        Ok(self.parts.iter().any(|part| part.shares_cells(seq, pos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Params, Window};
    use crate::{Memory, TimelineParams, Token};
    use backstitch_core::cell::CellType;

    fn memory(window: Option<Window>) -> Hybrid {
        let layer = AttentionLayer { n_head_kv: 1, d_k: 2, d_v: 2, window, ..AttentionLayer::default() };
        let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
        let (k_type, v_type, timeline) = (CellType::F16, CellType::F16, TimelineParams::OFF);
        Hybrid::new(&layers, &Params { n_ctx: 128, n_seq_max: 3, n_batch: 32, k_type, v_type, timeline })
            .unwrap()
    }

    fn batch(seqs: &[u32], pos: core::ops::Range<i32>) -> Batch {
        let mut batch = Batch::new();
        for pos in pos {
            seqs.iter().for_each(|&seq| _ = batch.push(Token(1), Pos(pos), &[SeqId(seq)], false));
        }
        batch
    }

    /// Appends piece by piece.
    fn append(memory: &mut Hybrid, seq: u32, pos: core::ops::Range<i32>) {
        for start in pos.clone().step_by(32) {
            let batch = batch(&[seq], start..pos.end.min(start + 32));
            let mut plan = memory.prepare(&batch, 32).unwrap();
            while plan.next_ubatch().is_some() {}
            plan.commit().unwrap();
        }
    }

    #[test]
    fn long_batches_are_refused_by_order_and_by_cells_before_a_piece_is_prepared() {
        let mut m = memory(None);
        append(&mut m, 0, 0..20);
        assert_eq!(m.admits(&batch(&[0], 20..128)), Ok(()));
        let full = |need, free, seq| Err(Error::Full { what: "cells", need, free, seq: SeqId(seq) });
        assert_eq!(m.admits(&batch(&[0], 20..129)), full(109, 108, 0));
        // Seven blocks are left.
        assert_eq!(m.admits(&batch(&[1, 2], 0..128)), full(256, 224, 1));
        let wanted = Pos(20);
        assert_eq!(
            m.admits(&batch(&[1, 0], 0..50)),
            Err(Error::Order { index: 1, seq: SeqId(0), pos: Pos(0), wanted })
        );
    }

    #[test]
    fn what_lets_cells_go_has_no_limit() {
        assert_eq!(memory(None).limit(), Some(128));
        let mut m = memory(Some(Window::Sliding(8)));
        assert_eq!(m.limit(), None);
        assert_eq!(m.admits(&batch(&[0], 0..1000)), Ok(()));
    }

    #[test]
    fn cells_are_shared_where_another_sequence_has_them_too() {
        let mut m = memory(None);
        append(&mut m, 0, 0..100);
        let shares = |m: &Hybrid, pos| m.shares_cells(SeqId(0), Pos(pos)).unwrap();
        assert!(!shares(&m, 0));
        m.seq_cp(SeqId(0), SeqId(1), Pos::ZERO..Pos(40)).unwrap();
        // Up to the block that the copy ends in.
        assert!(shares(&m, 0) && shares(&m, 63) && !shares(&m, 64));
        m.seq_rm(SeqId(1), Pos::ZERO..Pos::MAX).unwrap();
        assert!(!shares(&m, 0));
        assert!(m.shares_cells(SeqId(3), Pos(0)).is_err());
    }
}
