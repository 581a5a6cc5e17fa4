//! Counts of the operations that programs ran. Tests check that every kind occurred.

/// The number of times that each thing happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub rows_compared: u64,
    pub decodes: u64,
    pub faults: u64,
    pub cancelled: u64,
    pub logits_compared: u64,
    pub refused: u64,
    pub forks: u64,
    pub held: u64,
    pub replayed: u64,
    pub evaluated: u64,
    pub edits: u64,
    pub restored: u64,
    /// Rows and logits that were compared although other sets of adapters gave others.
    pub adapted: u64,
    pub recalled: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let mine = [
            &mut self.rows_compared,
            &mut self.decodes,
            &mut self.faults,
            &mut self.cancelled,
            &mut self.logits_compared,
            &mut self.refused,
            &mut self.forks,
            &mut self.held,
            &mut self.replayed,
            &mut self.evaluated,
            &mut self.edits,
            &mut self.restored,
            &mut self.adapted,
            &mut self.recalled,
        ];
        let o = other;
        let others = [
            o.rows_compared,
            o.decodes,
            o.faults,
            o.cancelled,
            o.logits_compared,
            o.refused,
            o.forks,
            o.held,
            o.replayed,
            o.evaluated,
            o.edits,
            o.restored,
            o.adapted,
            o.recalled,
        ];
        mine.into_iter().zip(others).for_each(|(a, b)| *a += b);
    }
}
