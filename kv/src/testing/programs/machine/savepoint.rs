//! The step that makes a savepoint.

use super::*;
use crate::memory::savepoint::Savepoint;

/// Return the number of tokens to re-evaluate for each position of a sequence, its end included.
fn costs(memory: &Memory, seq: SeqId) -> Vec<u32> {
    let end = memory.seq_pos_max(seq).map_or(0, |last| last.0 + 1);
    (0..=end).map(|pos| memory.route(seq, Pos(pos)).unwrap().reevaluated).collect()
}

impl<E: Engine> Machine<E> {
    /// Make a savepoint, roll back and append under it, and commit or drop it. A savepoint that is
    /// dropped leaves no position of its sequences more expensive, and none leaves a pin.
    pub(super) fn savepoint(
        &mut self,
        seqs: u8,
        back: Option<(u8, u8)>,
        runs: &[(u8, u8)],
        room: bool,
        committed: bool,
    ) {
        let (naive, pins) = (self.naive.clone(), self.pins.clone());
        let listed: Vec<SeqId> = (0..4).filter(|seq| seqs >> seq & 1 == 1).map(SeqId).collect();
        let runs: Vec<(u8, u8)> =
            runs.iter().map(|run| (run.0 & seqs, run.1)).filter(|run| run.0 > 0).collect();
        // The methods of the machine do not use the memory meanwhile.
        let mut real = core::mem::replace(&mut self.real, Memory::new(&[], &self.params).unwrap());
        let before: Vec<_> = listed.iter().map(|seq| costs(&real, *seq)).collect();
        let n_free_pins = real.checkpoints.n_free_pins();
        let mut savepoint = real.savepoint(&listed).unwrap();
        let back = back.and_then(|(seq, n)| self.rewind_under(&mut savepoint, SeqId(seq.into()), n));
        self.fill(&runs, false);
        if !self.batch.is_empty() {
            self.decode_under(&mut savepoint);
        }
        let settled = back.filter(|_| room && savepoint.make_room());
        if committed {
            savepoint.commit();
            assert!(real.checkpoints.n_free_pins() >= n_free_pins);
        } else {
            drop(savepoint);
            let after = core::mem::replace(&mut self.naive, naive);
            let after_pins = core::mem::replace(&mut self.pins, pins);
            if let Some(seq) = settled {
                self.naive.seqs[seq.index()] = after.seqs[seq.index()].clone();
                self.pins.retain(|pin| pin.0 != seq || after_pins.contains(pin));
            }
            for (seq, before) in listed.iter().zip(before).filter(|(seq, _)| settled != Some(**seq)) {
                let after = costs(&real, *seq);
                assert!(after.iter().zip(&before).all(|(a, b)| a <= b), "{seq}: {after:?} after {before:?}");
            }
            assert!(settled.is_some() || real.checkpoints.n_free_pins() == n_free_pins);
        }
        self.real = real;
        self.tally.savepoints += 1;
    }

    /// Roll back as far as that takes no evaluation; return the sequence.
    fn rewind_under(&mut self, savepoint: &mut Savepoint<'_>, seq: SeqId, n: u8) -> Option<SeqId> {
        let end = self.naive.seq_pos_max(seq).map_or(0, |last| last.0 + 1);
        let mut rewind = match savepoint.rewind(seq, Pos((end - i32::from(n)).max(0)), 5) {
            Ok(rewind) => rewind,
            Err(Error::Full { .. }) => {
                self.tally.full += 1;
                return None;
            }
            Err(error) => panic!("{error:?}"),
        };
        while let Some(mut ubatch) = rewind.next_ubatch() {
            for layer in 0..self.layers.len() {
                replay_states(&mut ubatch, layer, &mut self.engine);
            }
        }
        let route = rewind.route();
        rewind.commit().unwrap();
        let to = Pos(route.restored_from.0 + route.replayed as i32);
        self.naive.rewind(seq, to);
        self.pins.retain(|pin| pin.0 != seq || pin.1 <= to);
        Some(seq)
    }

    /// Append the batch, unless it is refused.
    fn decode_under(&mut self, savepoint: &mut Savepoint<'_>) {
        let (layers, tokens) = (self.naive.attention.clone(), self.batch.tokens().to_vec());
        let mut after = self.naive.clone();
        let wanted = after.append(&self.batch, |index, i| rows(tokens[index], &layers[i], i));
        let (specs, engine) = (&self.layers, &mut self.engine);
        let prepared = savepoint.prepare(&self.batch, 16);
        let finished = prepared.map(|plan| finish(plan, specs, &after, End::Commit, engine));
        match finished {
            Ok(n_copies) => {
                assert_eq!(wanted, Ok(()));
                self.tally.copied += n_copies;
                self.naive = after;
            }
            // The savepoint keeps blocks and states.
            Err(Error::Full { .. }) => self.tally.full += 1,
            Err(error) => self.refused(error, wanted, 0),
        }
    }
}
