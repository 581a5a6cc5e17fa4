//! Calls that must be refused, and change nothing.

use super::{Machine, N_SEQ};
use backstitch_models::{Batch, Error, Pos, SeqId, Token};

impl Machine<'_> {
    /// Make calls that must be refused.
    pub(super) fn nonsense(&mut self, seq: u32, b: u8, c: u8) {
        let (id, end) = (SeqId(seq), self.end(seq));
        let later = Pos(end + 1 + i32::from(b));
        let mut batch = Batch::new();
        batch.push(Token(0), later, &[id], true);
        match &self.twins[seq as usize] {
            None => assert!(matches!(self.ctx.decode(&batch), Err(Error::Sequence { .. }))),
            Some(_) if end > 0 => assert!(self.ctx.decode(&batch).is_err()),
            Some(_) => {}
        }
        assert!(self.ctx.rollback(id, later).is_err());
        assert!(self.ctx.rollback(id, Pos(-1 - i32::from(c))).is_err());
        assert!(self.ctx.seq_rm(id, Pos(i32::from(b) + 1)..Pos(i32::from(b))).is_err());
        assert!(self.ctx.seq_rm(SeqId(N_SEQ + u32::from(c)), Pos(0)..Pos(1)).is_err());
        assert!(self.ctx.seq_cp(id, id, Pos(0)..Pos(1)).is_err());
        assert!(self.ctx.seq_div(id, Pos(0)..Pos(1), -i32::from(c)).is_err());
        self.refuse_sets(seq);
    }

    /// Make calls that must be refused because of the sets of sequences.
    fn refuse_sets(&mut self, seq: u32) {
        let (id, end) = (SeqId(seq), self.end(seq));
        let set = self.sets[seq as usize];
        if self.twins[seq as usize].is_none() || end == 0 || self.fresh.len() < 2 {
            return;
        }
        let another = self.fresh[(set + 1) % self.fresh.len()].set.clone();
        assert!(matches!(self.ctx.set_adapters(id, &another), Err(Error::Adapter(_))));
        assert_eq!(self.ctx.adapters(id).unwrap(), &self.fresh[set].set);
        let stranger = (0..N_SEQ).find(|&other| {
            self.twins[other as usize].is_some() && self.sets[other as usize] != set && self.end(other) == end
        });
        if let Some(other) = stranger {
            let mut batch = Batch::new();
            batch.push(Token(0), Pos(end), &[id, SeqId(other)], true);
            assert!(matches!(self.ctx.decode(&batch), Err(Error::Adapter(_))));
        }
    }
}
