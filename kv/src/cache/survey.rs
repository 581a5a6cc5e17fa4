//! Description of what all caches hold of a sequence.

use super::Caches;
use crate::ids::SeqId;
use crate::kind::Kind;
use crate::survey::{Checkpoint, Layers};
use alloc::vec::Vec;

impl Caches {
    /// Describe what each cache holds of `seq`, and add what it holds for each numbered checkpoint.
    pub fn survey(&self, seq: SeqId, checkpoints: &mut [(u32, Checkpoint)]) -> Vec<Layers> {
        let mut layers: Vec<Layers> = self.kv.iter().map(|kv| kv.survey(seq, checkpoints)).collect();
        // Encoder output is apart from the positions of its sequence, so its blocks are not listed
        // with them.
        let cross = self.cross.as_ref();
        layers.extend(cross.map(|cross| Layers::new(Kind::Cross, cross.cells.layers.len())));
        layers.extend(self.states.as_ref().map(|states| states.survey(seq, checkpoints)));
        layers
    }
}
