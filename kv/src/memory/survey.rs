//! Survey of a sequence: the blocks, states, checkpoints and journals that it uses.
//!
//! The types are in [`crate::survey`]; here a [`Memory`] fills them in.

use super::Memory;
use crate::error::Error;
use crate::ids::SeqId;
use crate::survey::Survey;

impl Memory {
    /// Return a description of the blocks, states, checkpoints and journals of `seq`.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn survey(&self, seq: SeqId) -> Result<Survey, Error> {
        self.check_seq(seq)?;
        let end = self.end(seq);
        let (mut checkpoints, budget) = self.checkpoints.survey(seq, end);
        let layers = self.caches.survey(seq, &mut checkpoints);
        let checkpoints = checkpoints.into_iter().map(|(_, checkpoint)| checkpoint).collect();
        Ok(Survey { seq, kind: self.kind(), end, layers, checkpoints, budget })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::ids::{Pos, Token};
    use crate::kind::{Kind, Retention};
    use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, StateTensor, Window};
    use crate::params::Params;
    use crate::params::RollbackParams;
    use crate::survey::{Bytes, Layers};
    use alloc::vec;
    use alloc::vec::Vec;
    use backstitch_core::cell::CellType;
    use core::ops::Range;

    const ROLLBACK: RollbackParams =
        RollbackParams { checkpoint_bytes: 1 << 20, spacing: 32, journal: 8, margin: 16 };
    const ALL: Range<Pos> = Pos::ZERO..Pos::MAX;
    /// 32 cells of a key of 4 and a value of 2 numbers.
    const BLOCK: u64 = 32 * 6 * 4;

    fn attention(window: Option<Window>) -> AttentionSpec {
        AttentionSpec::Cached(AttentionLayer { n_head_kv: 1, d_k: 4, d_v: 2, window, rope: None })
    }

    /// Layers as Falcon-H1 has them: both attention and a state.
    fn falcon() -> Vec<LayerSpec> {
        let recurrent = vec![StateTensor { len: 6, input: 2 }, StateTensor { len: 10, input: 3 }];
        vec![LayerSpec { attention: attention(None), recurrent }; 3]
    }

    fn memory(layers: &[LayerSpec]) -> Memory {
        let (k_type, v_type) = (CellType::F32, CellType::F32);
        let params = Params { n_ctx: 512, n_seq_max: 3, n_batch: 512, k_type, v_type, rollback: ROLLBACK };
        Memory::new(layers, &params).unwrap()
    }

    fn append(memory: &mut Memory, seq: u32, range: Range<i32>) {
        let mut batch = Batch::new();
        for pos in range {
            batch.push(Token(1), Pos(pos), &[SeqId(seq)], false);
        }
        let mut plan = memory.prepare(&batch, 64).unwrap();
        while plan.next_ubatch().is_some() {}
        plan.commit().unwrap();
    }

    fn cells(layers: &Layers) -> Vec<(i32, i32, u32, u32)> {
        layers.extents.iter().map(|e| (e.first.0, e.last.0, e.n_cells, e.sequences)).collect()
    }

    #[test]
    fn an_empty_sequence_holds_nothing_and_an_unknown_one_is_an_error() {
        let memory = memory(&falcon());
        let survey = memory.survey(SeqId(2)).unwrap();
        assert_eq!((survey.end, survey.checkpoints.len(), survey.bytes()), (Pos(0), 0, Bytes::default()));
        let unknown = Error::UnknownSequence { seq: SeqId(3), n_seq_max: 3 };
        assert_eq!(memory.survey(SeqId(3)), Err(unknown));
    }

    #[test]
    fn blocks_and_states_of_a_hybrid_are_counted_by_kind() {
        let mut memory = memory(&falcon());
        append(&mut memory, 0, 0..70);
        let survey = memory.survey(SeqId(0)).unwrap();
        assert_eq!((survey.kind, survey.end), (Kind::Hybrid, Pos(70)));
        let [unified, recurrent] = &survey.layers[..] else { panic!("{:?}", survey.layers) };
        assert_eq!(
            (unified.kind, unified.n_layer, unified.block_bytes),
            (Kind::Kv(Retention::All), 3, 3 * BLOCK)
        );
        assert_eq!(cells(unified), [(0, 31, 32, 1), (32, 63, 32, 1), (64, 69, 6, 1)]);
        assert!(unified.extents.iter().all(|e| e.users == 1));
        assert_eq!((recurrent.kind, recurrent.state_bytes, recurrent.row_bytes), (Kind::Recurrent, 192, 60));
        let n_rows: u32 = survey.checkpoints.iter().map(|c| c.n_rows).sum();
        let bytes = survey.bytes();
        assert_eq!((bytes.cells, bytes.cells_shared), (9 * BLOCK, 0));
        assert_eq!((bytes.states, bytes.journal), (192, u64::from(n_rows) * 60));
    }

    #[test]
    fn checkpoints_say_why_they_are_there_and_what_they_cost() {
        let mut memory = memory(&falcon());
        append(&mut memory, 0, 0..50);
        memory.pin(SeqId(0)).unwrap();
        append(&mut memory, 0, 50..70);
        let survey = memory.survey(SeqId(0)).unwrap();
        let at = |pos| survey.checkpoints.iter().find(|c| c.pos == Pos(pos)).copied().unwrap();
        assert!(at(32).is_scheduled && !at(32).is_pinned);
        assert!(at(50).is_pinned && !at(50).is_scheduled);
        // The last whole eight positions and the current ones are journaled.
        assert_eq!((at(56).n_rows, at(64).n_rows), (8, 6));
        assert!(survey.checkpoints.iter().all(|c| (c.state_bytes, c.n_blocks, c.sequences) == (192, 0, 1)));
        assert_eq!(at(32).bytes_alone, 192);
        let n = survey.checkpoints.len() as u32;
        assert_eq!((survey.bytes().checkpoints, survey.budget.n_checkpoints), (u64::from(n) * 192, n));
        assert_eq!(survey.budget.params, ROLLBACK);
    }

    #[test]
    fn a_pin_at_the_end_shares_the_live_state() {
        let mut memory = memory(&falcon());
        append(&mut memory, 0, 0..5);
        memory.pin(SeqId(0)).unwrap();
        let survey = memory.survey(SeqId(0)).unwrap();
        let pin = survey.checkpoints.iter().find(|c| c.is_pinned).unwrap();
        assert_eq!((pin.state_bytes, pin.bytes_alone), (192, 0));
        assert_eq!(survey.layers[1].state_users, 2);
    }

    #[test]
    fn forks_share_blocks_until_they_go_on() {
        let mut memory = memory(&falcon());
        append(&mut memory, 0, 0..70);
        memory.seq_cp(SeqId(0), SeqId(1), ALL).unwrap();
        let shared = memory.survey(SeqId(1)).unwrap();
        assert!(shared.layers[0].extents.iter().all(|e| (e.users, e.sequences) == (2, 2)));
        assert_eq!(shared.bytes().cells_shared, shared.bytes().cells);
        assert!(shared.checkpoints.iter().all(|c| c.sequences == 2));
        assert_eq!(shared.layers[1].state_users, 2);
        append(&mut memory, 1, 70..71);
        let (a, b) = (memory.survey(SeqId(0)).unwrap(), memory.survey(SeqId(1)).unwrap());
        assert_eq!(cells(&a.layers[0]), [(0, 31, 32, 2), (32, 63, 32, 2), (64, 69, 6, 1)]);
        assert_eq!(cells(&b.layers[0]), [(0, 31, 32, 2), (32, 63, 32, 2), (64, 70, 7, 1)]);
        assert_eq!(a.layers[0].extents[0].block, b.layers[0].extents[0].block);
        assert_ne!(a.layers[0].extents[2].block, b.layers[0].extents[2].block);
    }

    #[test]
    fn windows_drop_old_blocks_and_checkpoints_keep_theirs() {
        let window = Some(Window::Sliding(32));
        let layers = [attention(None), attention(window)]
            .map(|attention| LayerSpec { attention, ..LayerSpec::default() });
        let mut memory = memory(&layers);
        (0..10).for_each(|i| append(&mut memory, 0, i * 32..(i + 1) * 32));
        let survey = memory.survey(SeqId(0)).unwrap();
        let [whole, windowed] = &survey.layers[..] else { panic!("{:?}", survey.layers) };
        assert_eq!((whole.extents.len(), whole.window, whole.margin), (10, None, 0));
        assert_eq!(
            (windowed.kind, windowed.window, windowed.margin),
            (Kind::Kv(Retention::Window), window, 16)
        );
        // The window reaches back to 289, the margin to 273.
        assert_eq!(cells(windowed), [(256, 287, 32, 1), (288, 319, 32, 1)]);
        let far = survey.checkpoints.first().unwrap();
        assert!(far.is_scheduled && far.pos < Pos(256), "{far:?}");
        assert_eq!((far.n_blocks, far.n_blocks_alone, far.bytes_alone), (1, 1, BLOCK));
        let held: u64 = survey.checkpoints.iter().map(|c| c.bytes_alone).sum();
        assert_eq!(survey.bytes().checkpoints, held);
        assert!(held > 0);
        let near = survey.checkpoints.iter().find(|c| c.pos == Pos(288)).unwrap();
        assert_eq!((near.n_blocks, near.n_blocks_alone), (1, 0), "the sequence has it as well");
        assert_eq!((windowed.extents[0].users, windowed.extents[0].sequences), (2, 1));
    }
}
