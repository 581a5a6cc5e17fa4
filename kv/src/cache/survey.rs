//! Description of what all caches hold of a sequence.

use super::Caches;
use crate::ids::SeqId;
use crate::kind::Kind;
use crate::survey::{Held, Layers};
use alloc::vec::Vec;

impl Caches {
    /// Describe what each cache holds of `seq` and of each of its checkpoints.
    pub fn survey(&self, seq: SeqId, checkpoints: &[u32]) -> Vec<(Layers, Vec<Held>)> {
        let kv = self.kv.iter().map(|kv| match kv.keeps() {
            true => kv.survey(seq, checkpoints),
            false => (Layers::new(kv.kind(), kv.cells.layers.len()), Vec::new()),
        });
        // Encoder output is apart from the positions of its sequence, so its blocks are not listed
        // with them.
        let cross = self.cross.as_ref();
        let cross = cross.map(|cross| (Layers::new(Kind::Cross, cross.cells.layers.len()), Vec::new()));
        let states = self.states.as_ref().map(|states| states.survey(seq, checkpoints));
        kv.chain(cross).chain(states).collect()
    }
}
