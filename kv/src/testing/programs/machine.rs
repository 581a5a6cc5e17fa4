//! The machine that runs a program on a memory and on the oracle.

mod savepoint;

use super::*;
use crate::layer::Retained;
use crate::params::Sizes;

/// Three things that have to agree: a memory, an engine's storage, and the oracle.
///
/// [`Machine::run`] performs a step on each and compares them. It panics where they differ, or
/// where one accepts what another refuses.
pub struct Machine<E> {
    layers: Vec<LayerSpec>,
    params: Params,
    real: Memory,
    /// Storage under test, which follows the memory.
    engine: E,
    naive: Naive,
    batch: Batch,
    next_token: u32,
    /// True for sequences in which dropped cells may have positions that other tokens moved to.
    moved: [bool; 4],
    /// Pinned positions, to which a sequence can return at once.
    pins: Vec<(SeqId, Pos)>,
    /// The state file saved last.
    saved: Vec<u8>,
    tally: Tally,
}

/// Counts of events, by which a test makes sure that its programs reach all paths.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Batches committed.
    pub commits: u32,
    /// Batches prepared and undone.
    pub undone: u32,
    /// Steps refused because blocks or states ran out.
    pub full: u32,
    /// Tokens refused because their sequences lie in different blocks.
    pub diverged: u32,
    /// Steps refused for other reasons.
    pub errors: u32,
    /// Steps after which sequences shared blocks.
    pub shared: u32,
    /// Rollbacks to positions that were still held.
    pub held: u32,
    /// Rollbacks that replayed the journal.
    pub replayed: u32,
    /// Rollbacks that left tokens to re-evaluate.
    pub evaluated: u32,
    /// Snapshots imported.
    pub restored: u32,
    /// Copies and shifts that the engine's storage followed.
    pub copied: u32,
    /// Savepoints committed or dropped.
    pub savepoints: u32,
}

impl<E: Engine> Machine<E> {
    /// Return a machine of four empty sequences. An odd `n_ctx` makes checkpoints scarce; 33 turns
    /// them off.
    pub fn new(layers: Vec<LayerSpec>, n_ctx: u32, k_type: CellType, v_type: CellType) -> Machine<E> {
        // Few checkpoints, so that sequences compete for them.
        let state = if n_ctx.is_multiple_of(2) { 1 << 20 } else { 3_000 };
        let rollback = RollbackParams { checkpoint_bytes: state, spacing: 8, journal: 4, margin: 8 };
        let rollback = if n_ctx == 33 { RollbackParams::OFF } else { rollback };
        let params = Params { n_ctx, n_seq_max: 4, n_batch: 128, k_type, v_type, rollback };
        let real = Memory::listing(&layers, &params).unwrap();
        let engine = E::new(&real, &layers, &params);
        let naive = Naive::new(&layers, &params);
        let (batch, pins) = (Batch::new(), Vec::new());
        Machine {
            layers,
            params,
            real,
            engine,
            naive,
            batch,
            next_token: 0,
            moved: [false; 4],
            pins,
            saved: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Return the counts of events so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Run a step on all three and compare them.
    pub fn run(&mut self, step: &Step) {
        match step {
            Step::Decode { runs, woven, n_ubatch, end } => {
                self.fill(runs, *woven);
                self.decode(usize::from(*n_ubatch), *end);
            }
            Step::Misplaced { seqs, offset } => {
                self.fill(&[(*seqs, 1)], false);
                let (pos, token) = (self.batch.positions()[0], self.batch.tokens()[0]);
                let seqs = self.batch.seqs(0).to_vec();
                self.batch.clear();
                self.batch.push(token, Pos(pos.0 + i32::from(*offset)), &seqs, true);
                self.decode(8, End::Commit);
            }
            Step::Remove { seq, range } => self.operation(seq, range, Operation::Remove, 0),
            Step::RemoveTail { seq, n } => {
                let seq = SeqId(u32::from(*seq));
                let end = self.naive.seq_pos_max(seq).map_or(0, |last| last.0 + 1);
                let range = Pos((end - i32::from(*n)).max(0))..Pos::MAX;
                self.remove(seq, range);
            }
            Step::Rewind { seq, n, n_ubatch, dropped } => self.rewind(*seq, *n, *n_ubatch, *dropped),
            Step::Pin { seq } => self.pin(SeqId(u32::from(*seq))),
            Step::Unpin { seq, n } => {
                let seq = SeqId(u32::from(*seq));
                let pos = self.naive.seq_pos_max(seq).map_or(Pos(0), |last| Pos(last.0 + 1 - i32::from(*n)));
                self.real.unpin(seq, pos).unwrap();
                // Forks share pins, so one unpin removes it from all of them.
                self.pins.retain(|pin| pin.1 != pos);
            }
            Step::Savepoint { seqs, back, runs, room, committed } => {
                self.savepoint(*seqs, *back, runs, *room, *committed);
            }
            Step::Copy { src, dst, range, emptied } => {
                if *emptied && src != dst {
                    self.operation(dst, &(0, 255), Operation::Remove, 0);
                }
                self.operation(src, range, Operation::Copy, i32::from(*dst));
            }
            Step::Keep { seq } => self.keep(SeqId(u32::from(*seq))),
            Step::Add { seq, range, delta } => self.operation(seq, range, Operation::Add, i32::from(*delta)),
            Step::Divide { seq, range, divisor } => {
                self.operation(seq, range, Operation::Divide, i32::from(*divisor));
            }
            Step::Clear => {
                self.pins.clear();
                self.real.clear();
                self.naive.clear();
            }
            Step::MoveOut => self.move_out(),
            Step::MoveElsewhere { journal, few } => self.move_elsewhere(*journal, *few),
            Step::Restore { src, dst, end } => {
                self.restore(SeqId(u32::from(*src)), SeqId(u32::from(*dst)), *end);
            }
        }
        for change in self.real.take_changes() {
            self.tally.copied += 1;
            let Ok(()) = self.engine.follow(change);
        }
        self.compare();
    }

    /// Continue all sequences in another memory with the same checkpoints, as if nothing had
    /// happened.
    fn move_out(&mut self) {
        let seqs = [0, 1, 2, 3].map(SeqId);
        self.real.keep_to_budget();
        let ways = seqs.map(|seq| self.real.positions(seq));
        self.saved = saved(&self.real.export(&seqs).unwrap(), &self.saved);
        let container = Container::parse(&self.saved).unwrap();
        assert_eq!(container.uncommitted(), 0);
        let stored = StoredSnapshot::open(&container).unwrap();
        let mut other = Memory::listing(&self.layers, &self.params).unwrap();
        let mut engine = E::new(&other, &self.layers, &self.params);
        let staged = other.import(stored.snapshot(), &stored, &seqs, false).unwrap();
        let owned = Owned::load(stored.snapshot(), &stored).unwrap();
        restore_elsewhere(&mut engine, &owned, staged.placement());
        let fit = staged.commit();
        assert_eq!(fit, Fit::default());
        (self.real, self.engine) = (other, engine);
        assert_eq!(seqs.map(|seq| self.real.positions(seq)), ways);
        self.tally.restored += 1;
    }

    /// Continue all sequences in a memory with other checkpoints.
    fn move_elsewhere(&mut self, journal: u8, few: bool) {
        let seqs = [0, 1, 2, 3].map(SeqId);
        let journal = u32::from(journal);
        let checkpoint_bytes = if few { 600 } else { 1 << 20 };
        let rollback = RollbackParams { checkpoint_bytes, spacing: 8, journal, margin: 8 };
        let params = Params { rollback, ..self.params };
        let owned = Owned::copy(&self.real.export(&seqs).unwrap());
        let mut other = Memory::listing(&self.layers, &params).unwrap();
        let mut engine = E::new(&other, &self.layers, &params);
        match other.import(&owned.snapshot, &owned, &seqs, false) {
            Ok(staged) => {
                restore_elsewhere(&mut engine, &owned, staged.placement());
                staged.commit();
            }
            Err(ImportError::Memory(Error::Full { .. })) => return self.tally.full += 1,
            Err(error) => panic!("{error:?}"),
        }
        (self.real, self.engine, self.params) = (other, engine, params);
        // The budget of the new memory may not allow all pins.
        self.pins.clear();
        self.tally.restored += 1;
    }

    fn restore(&mut self, src: SeqId, dst: SeqId, end: End) {
        let owned = Owned::copy(&self.real.export(&[src]).unwrap());
        let staged = match self.real.import(&owned.snapshot, &owned, &[dst], false) {
            Ok(staged) => staged,
            Err(ImportError::Memory(Error::Full { .. })) => return self.tally.full += 1,
            Err(ImportError::Memory(Error::UnknownSequence { .. })) => return assert!(dst.0 >= 4),
            Err(error) => panic!("{error:?}"),
        };
        // Bytes of unused blocks may be filled, whether the import is committed or not.
        restore_elsewhere(&mut self.engine, &owned, staged.placement());
        match end {
            End::Commit => {
                staged.commit();
                self.naive.seqs[dst.index()] = self.naive.seqs[src.index()].clone();
                self.moved[dst.index()] = self.moved[src.index()];
                self.pins.retain(|pin| pin.0 != dst);
                self.tally.restored += 1;
            }
            End::Drop(_) => drop(staged),
            End::Leak => {
                core::mem::forget(staged);
                self.real.seq_rm(SeqId(0), Pos::ZERO..Pos::ZERO).unwrap();
            }
        }
    }

    fn remove(&mut self, seq: SeqId, range: Range<Pos>) {
        self.pins.retain(|pin| pin.0 != seq);
        let real = self.real.seq_rm(seq, range.clone());
        if !self.is_gone(seq, range.start, real) {
            let naive = self.naive.seq_rm(seq, range);
            self.agree(real, naive);
        }
    }

    /// Return true if an error is about cells that a window did drop, as seen from the sequence's
    /// end after the operation.
    fn is_gone(&mut self, seq: SeqId, end: Pos, result: Result<(), Error>) -> bool {
        if !matches!(result, Err(Error::Unsupported { kind: Kind::Kv(Retention::Window), .. })) {
            return false;
        }
        self.tally.errors += 1;
        let gone = self.layers.iter().enumerate().any(|(i, spec)| match &spec.attention {
            AttentionSpec::Cached(AttentionLayer { window: Some(window), .. }) => {
                let held = self.real.cells(i, seq).first().map_or(Pos::ZERO, |cell| cell.0);
                window.first(end).min(Pos(end.0 - 1)) < held || self.has_hole(seq, end)
            }
            _ => false,
        });
        assert!(gone || self.moved[seq.index()], "{result:?}");
        true
    }

    /// Return true if the token before `end` was removed.
    fn has_hole(&self, seq: SeqId, end: Pos) -> bool {
        self.naive.sequence(seq).is_some_and(|s| s.cells.iter().all(|cell| cell.pos.0 != end.0 - 1))
    }

    fn pin(&mut self, seq: SeqId) {
        match self.real.pin(seq) {
            Ok(()) => {
                let end = self.naive.seq_pos_max(seq).map_or(Pos::ZERO, |last| Pos(last.0 + 1));
                self.pins.push((seq, end));
            }
            Err(Error::Pinned { limit, .. }) => {
                let mut pinned: Vec<_> = self.pins.iter().map(|pin| pin.1).collect();
                pinned.sort_unstable();
                pinned.dedup();
                assert!(limit == 0 || limit < 40, "{limit} and {pinned:?}");
            }
            Err(error) => assert!(seq.0 >= 4, "{error:?}"),
        }
    }

    fn rewind(&mut self, seq: u8, n: u8, n_ubatch: u8, dropped: Option<u8>) {
        let seq = SeqId(u32::from(seq));
        let end = self.naive.seq_pos_max(seq).map_or(0, |last| last.0 + 1);
        assert!(matches!(
            self.real.route(seq, Pos(end + 1)),
            Err(Error::Future { .. } | Error::UnknownSequence { .. })
        ));
        let pos = Pos((end - i32::from(n)).max(0));
        let Ok(route) = self.real.route(seq, pos) else { return assert!(seq.0 >= 4) };
        let mut rewind = match self.real.rewind(seq, pos, usize::from(n_ubatch)) {
            Ok(rewind) => rewind,
            Err(Error::Full { .. }) => return self.tally.full += 1,
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(rewind.route(), route);
        let mut n_replayed = 0;
        while dropped.is_none_or(|n| n_replayed < u32::from(n)) {
            let Some(mut ubatch) = rewind.next_ubatch() else { break };
            assert!(ubatch.tokens().is_empty());
            for layer in 0..self.layers.len() {
                replay_states(&mut ubatch, layer, &mut self.engine);
            }
            n_replayed += 1;
        }
        if dropped.is_some() {
            return drop(rewind);
        }
        rewind.commit().unwrap();
        let to = if route.reevaluated > 0 { route.restored_from } else { pos };
        assert_eq!(to.0 as u32 + route.reevaluated, pos.0 as u32);
        self.naive.rewind(seq, to);
        self.pins.retain(|pin| pin.0 != seq || pin.1 <= to);
        let tally = &mut self.tally;
        match route.cost() {
            RollbackCost::Held => tally.held += 1,
            RollbackCost::Replayed => tally.replayed += 1,
            RollbackCost::Reevaluated => tally.evaluated += 1,
        }
    }

    fn keep(&mut self, seq: SeqId) {
        self.pins.retain(|pin| pin.0 == seq);
        let (real, naive) = (self.real.seq_keep(seq), self.naive.seq_keep(seq));
        self.agree(real, naive);
    }

    fn operation(&mut self, seq: &u8, range: &(u8, u8), op: Operation, argument: i32) {
        let seq = SeqId(u32::from(*seq));
        self.pins.retain(|pin| match op {
            Operation::Copy => true,
            _ => pin.0 != seq,
        });
        let is_move = matches!(op, Operation::Add | Operation::Divide);
        if is_move && seq.0 < 4 {
            self.moved[seq.index()] = true;
        }
        let pos = |at: u8| if at == 255 { Pos::MAX } else { Pos(i32::from(at)) };
        let range = pos(range.0)..pos(range.1);
        let touches =
            |cell: &NaiveCell| range.contains(&cell.pos) && argument != i32::from(op == Operation::Divide);
        let touches = self.naive.sequence(seq).is_some_and(|s| s.cells.iter().any(touches));
        let first_held = if is_move && touches && self.is_all_windowed() {
            (0..2).filter_map(|i| Some(self.real.cells(i, seq).first()?.0)).min().unwrap_or(Pos::ZERO)
        } else {
            Pos::ZERO
        };
        let real = &mut self.real;
        let (real, naive) = match op {
            Operation::Remove => return self.remove(seq, range),
            Operation::Copy => {
                let dst = SeqId(argument as u32);
                let copied = real.seq_cp(seq, dst, range.clone());
                if self.is_gone(seq, range.end, copied) {
                    return;
                }
                (copied, self.naive.seq_cp(seq, dst, range))
            }
            Operation::Add => {
                let free = real.n_free_blocks();
                let moved = real.seq_add(seq, range.clone(), argument);
                if self.is_gone(seq, Pos::ZERO, moved) {
                    return;
                }
                if let Err(Error::Full { .. }) = moved {
                    // In the worst case every block of the sequence is copied.
                    let cells = self.naive.sequence(seq).map_or(0, |s| s.cells.len() as u32);
                    assert!(
                        self.has_windows() || cells > free,
                        "full: {cells} cells to move, {free} blocks free"
                    );
                    self.tally.full += 1;
                    return;
                }
                if moved.is_ok() {
                    // Dropped cells no longer block a move.
                    self.naive.recycle(seq, first_held);
                }
                (moved, self.naive.seq_add(seq, range, argument))
            }
            Operation::Divide => {
                let moved = real.seq_div(seq, range.clone(), argument);
                if self.is_gone(seq, Pos::ZERO, moved) {
                    return;
                }
                if let Err(Error::Full { .. }) = moved {
                    self.tally.full += 1;
                    return;
                }
                if moved.is_ok() {
                    self.naive.recycle(seq, first_held);
                }
                (moved, self.naive.seq_div(seq, range, argument))
            }
        };
        self.agree(real, naive);
    }

    fn is_all_windowed(&self) -> bool {
        let is_windowed = |spec: &LayerSpec| match &spec.attention {
            AttentionSpec::Cached(own) => own.window.is_some(),
            _ => true,
        };
        self.layers.iter().all(is_windowed) && !matches!(self.layers[0].attention, AttentionSpec::Absent)
    }

    fn has_windows(&self) -> bool {
        let is_windowed =
            |spec: &LayerSpec| matches!(&spec.attention, AttentionSpec::Cached(own) if own.window.is_some());
        self.layers.iter().any(is_windowed)
    }

    fn agree(&mut self, real: Result<(), Error>, naive: Result<(), Error>) {
        self.tally.errors += u32::from(real.is_err());
        let kind = |result: &Result<(), Error>| result.as_ref().err().map(core::mem::discriminant);
        assert_eq!(kind(&real), kind(&naive), "{real:?} and {naive:?}");
    }

    /// Fill the batch with segments that follow the ends of their sequences.
    fn fill(&mut self, runs: &[(u8, u8)], woven: bool) {
        self.batch.clear();
        let mut next: Vec<i32> =
            (0..4).map(|s| self.naive.seq_pos_max(SeqId(s)).map_or(0, |last| last.0 + 1)).collect();
        let mut left: Vec<(u8, u8)> = runs.to_vec();
        while let Some(i) = left.iter().position(|run| run.1 > 0) {
            let turn = if woven { i + self.next_token as usize } else { i };
            let turn = (0..left.len()).map(|j| (turn + j) % left.len()).find(|&j| left[j].1 > 0).unwrap_or(i);
            left[turn].1 -= 1;
            let mut set: Vec<u32> = (0..4).filter(|s| left[turn].0 >> s & 1 == 1).collect();
            // Sequences that differ cannot share a token; mostly they do not try.
            if !self.next_token.is_multiple_of(256) {
                let (first, pos) = (set[0] as usize, next[set[0] as usize]);
                let same = |s: usize| self.naive.seqs[s].same_as(&self.naive.seqs[first]);
                set.retain(|&s| next[s as usize] == pos && same(s as usize));
            }
            let seqs: Vec<SeqId> = set.iter().map(|&s| SeqId(s)).collect();
            let pos = Pos(next[set[0] as usize]);
            set.iter().for_each(|&s| next[s as usize] += 1);
            self.batch.push(Token(self.next_token), pos, &seqs, true);
            self.next_token += 1;
        }
    }

    fn decode(&mut self, n_ubatch: usize, end: End) {
        let layers: Vec<AttentionLayer> = self.naive.attention.clone();
        let tokens = self.batch.tokens();
        let mut after = self.naive.clone();
        let wanted = after.append(&self.batch, |index, i| rows(tokens[index], &layers[i], i));
        let free = self.real.n_free_blocks();
        let (specs, engine) = (&self.layers, &mut self.engine);
        let prepared = self.real.prepare(&self.batch, n_ubatch);
        let finished = prepared.map(|plan| finish(plan, specs, &after, end, engine));
        match finished {
            Err(error) => self.refused(error, wanted, free),
            Ok(n_copies) => {
                assert_eq!(wanted, Ok(()));
                self.tally.copied += n_copies;
                if let End::Commit = end {
                    self.naive = after;
                    self.tally.commits += 1;
                } else {
                    // The next operation undoes the leaked plan.
                    self.real.seq_rm(SeqId(0), Pos::ZERO..Pos::ZERO).unwrap();
                    self.tally.undone += 1;
                }
            }
        }
    }

    /// Check that the oracle agrees with an error, or that the error is about blocks, which it does
    /// not have.
    fn refused(&mut self, error: Error, wanted: Result<(), Error>, free: u32) {
        match (error, wanted) {
            (Error::Full { what: "cells", .. }, Ok(())) => {
                self.tally.full += 1;
                let mut runs = Vec::new();
                for index in 0..self.batch.len() {
                    if !runs.contains(&self.batch.seqs(index)) {
                        runs.push(self.batch.seqs(index));
                    }
                }
                // A segment of one set of sequences needs a copy, its cells, and a block for a
                // ragged end.
                let worst = runs.len() * 3 + self.batch.len().div_ceil(BLOCK_CELLS) + self.batch.len() / 16;
                // Free blocks of a window's cache are of no use to another cache.
                assert!(
                    self.has_windows() || worst > free as usize,
                    "full with {free} free, {worst} needed at worst: {error:?}"
                );
            }
            (Error::Full { what: "states", .. }, Ok(())) => {
                self.tally.full += 1;
                assert!(self.batch.all_seqs().len() > 4, "{error:?}");
            }
            // The sequences have equal tokens in different blocks.
            (Error::Diverged { .. }, Ok(()) | Err(Error::Full { .. })) => self.tally.diverged += 1,
            (Error::Full { .. }, Err(Error::Diverged { .. })) => self.tally.full += 1,
            (error, wanted) => self.agree(Err(error), wanted),
        }
    }

    fn compare(&mut self) {
        self.real.audit().unwrap();
        let mut cached = 0;
        for (i, spec) in self.layers.iter().enumerate() {
            if let AttentionSpec::Cached(own) = &spec.attention {
                for seq in (0..4).map(SeqId) {
                    let naive = &self.naive.seqs[seq.index()].cells;
                    let real = self.real.cells(i, seq);
                    let gone = naive.len() - real.len();
                    let first_seen = |last: &NaiveCell| own.window.map(|w| w.first(Pos(last.pos.0 + 1)));
                    let first_seen = naive.last().and_then(first_seen).unwrap_or(Pos::ZERO);
                    assert!(
                        gone == 0 || own.window.is_some() && naive[gone - 1].pos < first_seen,
                        "layer {i}, sequence {seq}"
                    );
                    let places = self.real.cell_places(i, seq);
                    assert_eq!(places.len(), real.len());
                    for ((real, place), naive) in real.iter().zip(places).zip(&naive[gone..]) {
                        assert_eq!((real.0, place.0), (naive.pos, naive.pos), "layer {i}, sequence {seq}");
                        assert_bits(&real.1, &naive.rows[cached]);
                        assert_bits(&self.engine.get(i, place.1), &naive.rows[cached]);
                    }
                }
                cached += 1;
            }
            if !spec.recurrent.is_empty() {
                self.compare_states(i);
            }
        }
        for seq in (0..5).map(SeqId) {
            let (real, naive) = (self.real.seq_pos_min(seq), self.naive.seq_pos_min(seq));
            assert!(if self.has_windows() { real >= naive } else { real == naive }, "{real:?} and {naive:?}");
            assert_eq!(self.real.seq_pos_max(seq), self.naive.seq_pos_max(seq));
        }
        for (seq, pos) in &self.pins {
            assert_eq!(
                self.real.route(*seq, *pos).map(|route| route.reevaluated),
                Ok(0),
                "pin of {seq} at {pos}"
            );
        }
        let held: usize = self.naive.seqs.iter().map(|s| s.cells.len()).sum();
        let used = self.params.settled().n_blocks(Retained::All, &Sizes::default())
            - self.real.n_free_blocks().min(self.params.settled().n_blocks(Retained::All, &Sizes::default()));
        self.tally.shared += u32::from(self.has_windows() || held > used as usize * BLOCK_CELLS);
    }

    fn compare_states(&self, layer: usize) {
        for seq in (0..4).map(SeqId) {
            let seen = self.naive.seqs[seq.index()].state.as_ref().map(|state| {
                let mut x = [0.0; 3];
                state.seen.iter().for_each(|&token| advance(&mut x, token));
                x
            });
            let wanted = seen.as_ref().map(|x| x.as_slice());
            assert_eq!(self.real.state(layer, seq), wanted, "state of {seq}");
            let elsewhere = self.real.state_slot(seq).map(|slot| self.engine.state(layer, slot));
            assert_eq!(elsewhere.as_deref(), wanted, "state of {seq} elsewhere");
        }
    }
}

/// Write imported bytes to the engine's storage, where the memory has reserved them.
fn restore_elsewhere<E: Engine>(engine: &mut E, owned: &Owned, placement: &Placement) {
    let groups = owned.snapshot.shape.groups.iter().zip(&owned.blocks).zip(&placement.blocks);
    for ((group, blocks), places) in groups {
        for (layers, block) in blocks.iter().zip(places) {
            let Some(block) = *block else { continue };
            for (layer, bytes) in group.layers.iter().zip(layers) {
                engine.fill_block(layer.layer as usize, block, bytes);
            }
        }
    }
    for (pieces, slot) in owned.states.iter().zip(&placement.states) {
        let Some(slot) = *slot else { continue };
        for (layer, state) in owned.snapshot.shape.recurrent.iter().zip(pieces) {
            engine.put_state(layer.layer as usize, slot, state);
        }
    }
}

/// Save everything, as a continuation of the file saved before.
fn saved(content: &impl Content, before: &[u8]) -> Vec<u8> {
    let header = Header { fingerprint: Fingerprint([7; 32]), scope: Scope::Context };
    let mut new = Vec::new();
    let mut bytes = before.to_vec();
    let written = if before.is_empty() {
        let mut writer = Writer::in_place(&mut new, header).unwrap();
        write_snapshot(&mut writer, content, None).unwrap();
        writer.finish().unwrap()
    } else {
        let old = Container::parse(before).unwrap();
        let snapshot = StoredSnapshot::open(&old).unwrap();
        let mut writer = Writer::append(&mut new, &old).unwrap();
        write_snapshot(&mut writer, content, Some(&snapshot)).unwrap();
        writer.finish().unwrap()
    };
    bytes.extend_from_slice(&new);
    let (at, slot) = written.slot();
    bytes[at as usize..at as usize + slot.len()].copy_from_slice(&slot);
    bytes
}
