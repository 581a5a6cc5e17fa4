//! A machine that runs programs of memory operations on a context, and compares every logit with a
//! fresh evaluation.
//!
//! A program is a list of steps of four bytes: an operation, and three numbers that are taken
//! modulo what makes sense when the step runs. So any bytes are a program, and a shrunk one keeps
//! its meaning. For each sequence the machine has a *recipe*: steps that give the same sequence
//! when one thread runs them in order, in whole pieces, on an empty sequence of a fresh context
//! with the same adapters. Logits of the context are compared, bit for bit, with those of the
//! recipe.

mod adapted;
mod fresh;
mod refused;
mod tally;

pub use fresh::Fresh;
pub use tally::Tally;

use backstitch_core::pool::{Inline, Panicked, Pool, ThreadPool};
use backstitch_models::prompt_cache::PromptCache;
use backstitch_models::{
    Batch, Cancel, Context, Error, Model, Params, Pos, RestoreOptions, Restored, RollbackCost,
    RollbackParams, SaveOptions, SeqId, Token,
};
use fresh::{Deed, encode, hash};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// An operation and three numbers.
pub type Step = [u8; 4];

const N_SEQ: u32 = 4;
const N_CTX: u32 = 160;
/// The first operation of those that are about prompts, if there is a cache of them.
const PROMPTS: u8 = 208;

/// A pool that fails when a countdown reaches zero.
struct Faulty {
    inner: Box<dyn Pool + Send>,
    left: Arc<AtomicI64>,
}

impl Pool for Faulty {
    fn n_threads(&self) -> usize {
        self.inner.n_threads()
    }
    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        match self.left.fetch_sub(1, Relaxed) {
            0 => Err(Panicked),
            _ => self.inner.run(n_jobs, job),
        }
    }
}

/// The expected state of a sequence.
#[derive(Clone, Debug, Default)]
struct Twin {
    recipe: Vec<Deed>,
    /// For each token of the last `Append`: a hash of the logits that the context gave, if it was
    /// asked for them.
    given: Vec<Option<u64>>,
    pins: Vec<i32>,
}

impl Twin {
    fn appended(&self) -> usize {
        match self.recipe.last() {
            Some(Deed::Append(tokens)) => tokens.len(),
            _ => 0,
        }
    }
}

/// The outcome of a disturbed operation.
enum Disturbed<T> {
    CameThrough(T),
    Stopped,
    Refused(Error),
}

/// A context, and the expected state of its sequences.
pub struct Machine<'f> {
    ctx: Context,
    left: Arc<AtomicI64>,
    /// Looks at the request to stop until it is made.
    looks: Arc<AtomicI64>,
    twins: Vec<Option<Twin>>,
    /// One for each set of adapters that sequences may have.
    fresh: &'f mut [Fresh],
    /// The set of each sequence, by its place in `fresh`.
    sets: [usize; N_SEQ as usize],
    prompts: Option<&'f PromptCache>,
    n_vocab: usize,
    next: u32,
    pub tally: Tally,
}

impl<'f> Machine<'f> {
    /// `shape` chooses threads and the sizes of ubatches, pieces and budgets. Sequences have the
    /// sets of adapters that `fresh` has.
    pub fn new(model: &Model, fresh: &'f mut [Fresh], shape: u8) -> Machine<'f> {
        let inner: Box<dyn Pool + Send> = match shape % 3 {
            0 => Box::new(Inline),
            n => Box::new(ThreadPool::new(usize::from(n) + 1).unwrap()),
        };
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let pool = Arc::new(Faulty { inner, left: left.clone() });
        let rollback = match shape / 3 % 4 {
            0 => RollbackParams::default().checkpoint_bytes(1 << 20).spacing(8).journal(4).margin(8),
            1 => RollbackParams::default().checkpoint_bytes(200_000).spacing(16).journal(8).margin(0),
            2 => RollbackParams::default().checkpoint_bytes(1 << 22).spacing(12).journal(0).margin(3),
            _ => RollbackParams::OFF,
        };
        let (n_ubatch, n_batch) = [(7, 24), (64, 160), (16, 16), (3, 50)][usize::from(shape / 12 % 4)];
        let params = Params::default()
            .n_ctx(N_CTX)
            .n_seq_max(N_SEQ)
            .n_ubatch(n_ubatch)
            .n_batch(n_batch)
            .rollback(rollback);
        let cells = fresh[0].cells;
        let params = params.type_k(cells).type_v(cells);
        let mut ctx = Context::with_pool(model, params, pool).unwrap();
        let looks = Arc::new(AtomicI64::new(i64::MAX));
        let seen = looks.clone();
        ctx.set_cancel(Some(Cancel::from_fn(move || seen.fetch_sub(1, Relaxed) == 0)));
        let n_vocab = model.hparams().n_vocab;
        let twins = (0..N_SEQ).map(|_| None).collect();
        let sets = [0; N_SEQ as usize];
        let tally = Tally::default();
        Machine { ctx, left, looks, twins, fresh, sets, prompts: None, n_vocab, next: 1, tally }
    }

    /// Run a program and check the sequences at its end.
    pub fn run(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.step(step));
        (0..N_SEQ).for_each(|seq| self.check(seq));
    }

    fn step(&mut self, &[what, a, b, c]: &Step) {
        let (seq, other) = (u32::from(a) % N_SEQ, u32::from(b) % N_SEQ);
        match what % 16 {
            _ if what >= PROMPTS && self.prompts.is_some() => self.prompt(seq, other, c),
            0..=4 => self.decode(seq, b, c, false),
            5 | 6 => self.decode(seq, b, c, true),
            7..=10 => self.rollback(seq, b, c),
            11 => self.fork(seq),
            12 => self.edit(seq, b, c),
            13 if b % 3 == 0 => self.pin(seq),
            13 if b % 3 == 1 => self.save(seq, c),
            13 => self.release(seq),
            14 => self.copy(seq, other, c),
            _ => self.nonsense(seq, b, c),
        }
        self.compare_positions();
        // Some sequences are skipped, because logits that were not asked for must be as good later.
        (0..N_SEQ).filter(|seq| c >> seq & 1 == 1).for_each(|seq| self.compare_logits(seq));
    }

    /// Compare the logits of a sequence, present or evaluated on demand, with its recipe.
    fn compare_logits(&mut self, seq: u32) {
        let Some(Some(twin)) = self.twins.get(seq as usize) else { return };
        let end = self.end(seq);
        match self.ctx.logits(SeqId(seq)).map(hash) {
            Ok(given) => {
                let set = self.sets[seq as usize];
                if let Some(expected) = self.fresh[set].last(&twin.recipe) {
                    assert_eq!(given, expected, "logits of sequence {seq}, which ends at {end}");
                    self.tally.logits_compared += 1;
                    self.tally.adapted += u64::from(set > 0);
                }
            }
            Err(Error::NoLogits { .. }) => assert_eq!(end, 0),
            Err(Error::Edited { .. }) => assert!(twin.recipe.len() > 1),
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) => self.tally.refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.end(seq), end);
    }

    /// Compare the logits that are present: of all sequences, and of the last batch.
    fn at_hand(&self) -> Vec<Option<u64>> {
        let of_sequences = (0..N_SEQ).map(|seq| self.ctx.logits_at_hand(SeqId(seq)));
        of_sequences.chain((0..100).map(|i| self.ctx.output(i))).map(|row| row.map(hash)).collect()
    }

    /// Let a pool fail after some calls, or cancel after some checks, while `act` runs. Return true
    /// if that happened.
    fn disturb<T>(
        &mut self,
        c: u8,
        after: i64,
        act: impl Fn(&mut Context) -> Result<T, Error>,
    ) -> Disturbed<T> {
        let countdown = if c & 8 == 0 { &self.left } else { &self.looks };
        countdown.store(after, Relaxed);
        let result = act(&mut self.ctx);
        let left = countdown.swap(i64::MAX, Relaxed);
        match result {
            Err(Error::Core(_)) if left < 0 && c & 8 == 0 => self.tally.faults += 1,
            Err(Error::Cancelled) if left < 0 && c & 8 != 0 => self.tally.cancelled += 1,
            Err(error @ (Error::Core(_) | Error::Cancelled)) => panic!("{error:?} with {left} left"),
            Ok(done) => {
                assert!(left >= 0, "it came through, although it was disturbed");
                return Disturbed::CameThrough(done);
            }
            Err(error) => return Disturbed::Refused(error),
        }
        Disturbed::Stopped
    }

    fn end(&self, seq: u32) -> i32 {
        self.ctx.pos(SeqId(seq)).map_or(0, |pos| pos.0)
    }

    fn compare_positions(&self) {
        for (seq, twin) in self.twins.iter().enumerate() {
            let end = self.end(seq as u32);
            let Some(twin) = twin else {
                assert!(self.ctx.pos(SeqId(seq as u32)).is_err(), "sequence {seq} exists");
                continue;
            };
            let plain = twin.recipe.iter().all(|deed| matches!(deed, Deed::Append(_)));
            if plain {
                assert_eq!(end as usize, twin.appended(), "the end of sequence {seq}");
                let tokens = self.ctx.tokens(SeqId(seq as u32)).unwrap();
                match twin.recipe.last() {
                    Some(Deed::Append(all)) => assert!(tokens.iter().map(|t| t.0).eq(all.iter().copied())),
                    _ => assert!(tokens.is_empty()),
                }
            }
        }
    }

    /// Compare the logits that the context returned for a sequence with its recipe.
    fn check(&mut self, seq: u32) {
        let Some(Some(twin)) = self.twins.get_mut(seq as usize) else { return };
        if twin.given.iter().all(Option::is_none) {
            return;
        }
        let set = self.sets[seq as usize];
        let Some(expected) = self.fresh[set].rows(&twin.recipe) else { return twin.given.fill(None) };
        assert_eq!(expected.len(), twin.given.len());
        for (i, (given, &expected)) in twin.given.iter_mut().zip(expected).enumerate() {
            if let Some(given) = given.take() {
                assert_eq!(given, expected, "logits of token {i} of the last piece of sequence {seq}");
                self.tally.rows_compared += 1;
                self.tally.adapted += u64::from(set > 0);
            }
        }
    }

    /// Append some tokens to one sequence, or to several in one batch.
    fn decode(&mut self, seq: u32, b: u8, c: u8, several: bool) {
        let mut batch = Batch::new();
        let mut owners = Vec::new();
        let n_tokens = u32::from(b) % if c.is_multiple_of(7) { 90 } else { 12 } + 1;
        let mut ends: Vec<i32> = (0..N_SEQ).map(|seq| self.end(seq)).collect();
        for i in 0..n_tokens {
            let owner = if several { (seq + i / (1 + u32::from(c) % 3) % 2) % N_SEQ } else { seq };
            self.next = self.next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let token = (self.next >> 16) % self.n_vocab as u32;
            let end = &mut ends[owner as usize];
            batch.push(Token(token), Pos(*end), &[SeqId(owner)], (i + u32::from(c)) % 3 != 0);
            *end += 1;
            owners.push((owner, token));
        }
        self.begin(&owners);
        if c % 4 == 1 && !self.fail(&batch, c) {
            return;
        }
        self.begin(&owners);
        match self.ctx.decode(&batch) {
            Ok(()) => self.record(&batch, &owners),
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) => {
                self.tally.refused += 1;
                for seq in self.begun(&owners) {
                    self.ctx.release(seq).unwrap();
                }
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Return the sequences that a batch starts.
    fn begun(&self, owners: &[(u32, u32)]) -> Vec<SeqId> {
        let is_begun =
            |seq: &u32| self.twins[*seq as usize].is_none() && owners.iter().any(|(owner, _)| owner == seq);
        (0..N_SEQ).filter(is_begun).map(SeqId).collect()
    }

    /// Create the sequences that a batch starts, and encode an input for each if the model takes
    /// one.
    fn begin(&mut self, owners: &[(u32, u32)]) {
        for seq in self.begun(owners) {
            self.create(seq);
            self.adapt(seq, self.next >> 16);
            encode(&mut self.ctx, seq);
        }
    }

    /// Create the sequence with this id, if it does not exist.
    fn create(&mut self, seq: SeqId) {
        let mut others = Vec::new();
        while self.ctx.pos(seq).is_err() {
            others.extend(Some(self.ctx.sequence().unwrap()).filter(|made| *made != seq));
        }
        others.into_iter().for_each(|other| self.ctx.release(other).unwrap());
    }

    fn record(&mut self, batch: &Batch, owners: &[(u32, u32)]) {
        self.tally.decodes += 1;
        for (i, &(owner, token)) in owners.iter().enumerate() {
            let twin = self.twins[owner as usize].get_or_insert_default();
            if !matches!(twin.recipe.last(), Some(Deed::Append(_))) {
                twin.recipe.push(Deed::Append(Vec::new()));
                twin.given.clear();
            }
            if let Some(Deed::Append(tokens)) = twin.recipe.last_mut() {
                tokens.push(token);
            }
            let given = self.ctx.output(i).map(hash);
            assert_eq!(given.is_some(), batch.outputs()[i]);
            twin.given.push(given);
        }
    }

    /// Let a decode fail somewhere. Return false if the batch no longer fits, because it could not
    /// be rolled back.
    fn fail(&mut self, batch: &Batch, c: u8) -> bool {
        let before = self.at_hand();
        match self.disturb(c, i64::from(c) * 3 % 97, |ctx| ctx.decode(batch)) {
            // It needed fewer steps: as if it had not been there.
            Disturbed::CameThrough(()) => return self.undo(batch),
            Disturbed::Stopped | Disturbed::Refused(Error::Memory(_)) => {}
            Disturbed::Refused(error) => panic!("{error:?}"),
        }
        assert_eq!(self.at_hand(), before, "what was at hand before a decode that failed");
        true
    }

    /// Roll back a batch that succeeded.
    fn undo(&mut self, batch: &Batch) -> bool {
        let mut undone = true;
        for seq in 0..N_SEQ {
            let first = (0..batch.len()).find(|&i| batch.seqs(i) == [SeqId(seq)]);
            let Some(first) = first else { continue };
            let back = batch.positions()[first];
            match self.ctx.rollback(SeqId(seq), back) {
                Ok(_) => {}
                Err(Error::Edited { .. } | Error::Memory(_)) => {
                    undone = false;
                    self.give_up(seq);
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            if self.twins[seq as usize].is_none() {
                self.ctx.release(SeqId(seq)).unwrap();
            }
        }
        undone
    }

    /// Empty a sequence.
    fn give_up(&mut self, seq: u32) {
        self.ctx.release(SeqId(seq)).unwrap();
        self.twins[seq as usize] = None;
    }

    fn rollback(&mut self, seq: u32, b: u8, c: u8) {
        self.check(seq);
        let Some(Some(twin)) = self.twins.get(seq as usize) else { return };
        let (end, edited) = (self.end(seq), twin.recipe.len() > 1);
        let back = i32::from(b) % if c.is_multiple_of(3) { 100 } else { 10 };
        let pos = (end - back).max(0);
        if c % 5 == 1 {
            match self.disturb(c, i64::from(c) % 31, |ctx| ctx.rollback(SeqId(seq), Pos(pos))) {
                Disturbed::CameThrough(_) => return self.rolled_back(seq, pos, end),
                // It was alone in a full cache, and gave its cells up for the new ones.
                Disturbed::Stopped if self.end(seq) < end => return self.give_up(seq),
                Disturbed::Stopped | Disturbed::Refused(_) => {}
            }
            assert_eq!(self.end(seq), end);
        }
        match self.ctx.rollback(SeqId(seq), Pos(pos)) {
            Ok(done) => {
                match (done.replayed, done.reevaluated) {
                    (0, 0) => self.tally.held += 1,
                    (_, 0) => self.tally.replayed += 1,
                    _ => self.tally.evaluated += 1,
                }
                self.rolled_back(seq, pos, end);
            }
            Err(Error::Edited { .. }) => assert!(edited),
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) => self.tally.refused += 1,
            Err(error) => panic!("{error}"),
        }
    }

    fn rolled_back(&mut self, seq: u32, pos: i32, end: i32) {
        let back = self.end(seq);
        let Some(Some(twin)) = self.twins.get_mut(seq as usize) else { return };
        // After a removal, the last token left may be further back.
        assert!(back == pos || back < pos && twin.recipe.len() > 1, "{back} is not {pos}");
        let n_removed = (end - pos) as usize;
        twin.pins.retain(|&pin| pin <= pos);
        match twin.recipe.last_mut() {
            Some(Deed::Append(tokens)) if tokens.len() >= n_removed => {
                tokens.truncate(tokens.len() - n_removed);
                twin.given.truncate(tokens.len());
                if tokens.is_empty() {
                    twin.recipe.pop();
                }
            }
            _ => {
                twin.recipe.push(Deed::Remove(pos, i32::MAX));
                twin.given.clear();
            }
        }
        if pos == 0 {
            *twin = Twin::default();
        }
    }

    fn fork(&mut self, seq: u32) {
        let Some(Some(twin)) = self.twins.get(seq as usize) else { return };
        // The logits that one of them was given are checked once.
        let copy = Twin { given: vec![None; twin.given.len()], ..twin.clone() };
        match self.ctx.fork(SeqId(seq)) {
            Ok(fork) => {
                self.tally.forks += 1;
                assert!(self.twins[fork.index()].is_none());
                self.sets[fork.index()] = self.sets[seq as usize];
                self.twins[fork.index()] = Some(copy);
            }
            Err(Error::TooManySequences { .. }) => assert!(self.twins.iter().all(Option::is_some)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Remove or move positions other than the end.
    fn edit(&mut self, seq: u32, b: u8, c: u8) {
        self.check(seq);
        let Some(Some(twin)) = self.twins.get(seq as usize) else { return };
        let end = self.end(seq);
        if end == 0 {
            return;
        }
        let (from, len) = (i32::from(b) % end, i32::from(c) % 9 + 1);
        let n_deeds = twin.recipe.len();
        let deed = if c.is_multiple_of(2) && n_deeds > 1 {
            Deed::Move(from, i32::MAX, -len)
        } else {
            Deed::Remove(from, (from + len).min(end))
        };
        let id = SeqId(seq);
        let range = |start: i32, end: i32| -> Range<Pos> { Pos(start)..Pos(end) };
        let result = match deed {
            Deed::Move(start, end, delta) => self.ctx.seq_add(id, range(start, end), delta),
            Deed::Remove(start, end) => self.ctx.seq_rm(id, range(start, end)),
            Deed::Append(_) => return,
        };
        match result {
            Ok(()) if self.end(seq) == 0 => self.twins[seq as usize] = Some(Twin::default()),
            Ok(()) => {
                self.tally.edits += 1;
                if let Some(Some(twin)) = self.twins.get_mut(seq as usize) {
                    twin.pins.clear();
                    match deed {
                        // The end was taken off, which is a rollback.
                        Deed::Remove(start, stop) if stop == end => return self.rolled_back(seq, start, end),
                        deed => twin.recipe.push(deed),
                    }
                    twin.given.clear();
                }
            }
            Err(_) => {
                self.tally.refused += 1;
                assert_eq!(self.end(seq), end);
            }
        }
    }

    fn pin(&mut self, seq: u32) {
        let end = self.end(seq);
        let Some(Some(twin)) = self.twins.get_mut(seq as usize) else { return };
        match self.ctx.pin(SeqId(seq)) {
            Ok(()) => twin.pins.push(end),
            Err(Error::Memory(backstitch_kv::Error::Pinned { .. })) => self.tally.refused += 1,
            Err(error) => panic!("{error}"),
        }
        self.check_positions(seq);
    }

    /// The rollback costs that the context states must be consistent, and honour pins.
    fn check_positions(&self, seq: u32) {
        let Some(Some(twin)) = self.twins.get(seq as usize) else { return };
        let ranges = self.ctx.positions(SeqId(seq)).unwrap();
        let mut next = Pos(0);
        for range in &ranges {
            assert_eq!(range.positions.start, next);
            next = range.positions.end;
            assert!(range.restored_from <= range.positions.start);
        }
        assert_eq!(next.0, self.end(seq) + 1);
        for &pin in &twin.pins {
            let range = ranges.iter().find(|range| range.positions.contains(&Pos(pin)));
            assert!(range.is_some_and(|range| range.cost != RollbackCost::Reevaluated), "pin at {pin}");
        }
    }

    /// Save a sequence and restore it in its own place or as another; or save and restore all.
    fn save(&mut self, seq: u32, c: u8) {
        let Some(Some(twin)) = self.twins.get(seq as usize) else { return };
        let free = self.twins.iter().position(Option::is_none).map(|free| free as u32);
        let (target, options) = (free.filter(|_| c % 3 == 1), SaveOptions::default());
        let logits: Vec<_> = (0..N_SEQ).map(|seq| self.ctx.logits_at_hand(SeqId(seq)).map(hash)).collect();
        let (mut bytes, sets) = (Vec::new(), self.adapter_sets());
        let read = RestoreOptions::default().adapters(&sets);
        let result = if c.is_multiple_of(3) {
            self.ctx.state_write(&mut bytes, &options).unwrap();
            self.ctx.state_read(&mut bytes.as_slice(), &read)
        } else {
            self.ctx.seq_state_write(SeqId(seq), &mut bytes, &options).unwrap();
            let target = SeqId(target.unwrap_or(seq));
            self.ctx.seq_state_read(target, &mut bytes.as_slice(), &read)
        };
        let restored = match result {
            Ok(restored) => restored,
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) => {
                self.tally.refused += 1;
                return;
            }
            Err(error) => panic!("{error}"),
        };
        self.tally.restored += 1;
        if let Some(target) = target {
            self.twins[target as usize] = Some(Twin { given: vec![None; twin.given.len()], ..twin.clone() });
            self.sets[target as usize] = self.sets[seq as usize];
            assert_eq!(self.ctx.logits_at_hand(SeqId(target)).map(hash), logits[seq as usize]);
        }
        self.compare_restored(&restored, &logits, target);
    }

    /// Check that logits are as before, and that pins are lost only if the restore says that it
    /// left something out or unpinned it.
    fn compare_restored(&mut self, restored: &Restored, logits: &[Option<u64>], added: Option<u32>) {
        for (seq, before) in (0..).zip(logits).filter(|(seq, _)| Some(*seq) != added) {
            assert_eq!(self.ctx.logits_at_hand(SeqId(seq)).map(hash), *before, "logits of sequence {seq}");
        }
        for sequence in &restored.sequences {
            let lost = restored.fit.n_checkpoints_dropped + restored.fit.n_unpinned;
            if let Some(Some(twin)) = self.twins.get_mut(sequence.seq.index())
                && lost > 0
            {
                twin.pins.clear();
            }
            self.check_positions(sequence.seq.0);
        }
    }

    fn release(&mut self, seq: u32) {
        self.check(seq);
        if self.twins[seq as usize].is_some() {
            self.give_up(seq);
        }
    }

    /// Copy the beginning of one sequence to another.
    fn copy(&mut self, src: u32, dst: u32, c: u8) {
        let Some(Some(twin)) = self.twins.get(src as usize) else { return };
        let is_plain = twin.recipe.len() == 1;
        if src == dst || self.twins[dst as usize].is_some() || !is_plain {
            return;
        }
        let n = i32::from(c) % (self.end(src) + 1);
        let mut copy = Twin { given: Vec::new(), pins: Vec::new(), ..twin.clone() };
        self.create(SeqId(dst));
        self.adapt(SeqId(dst), u32::from(c) >> 4);
        if self.sets[src as usize] != self.sets[dst as usize] {
            let error = self.ctx.seq_cp(SeqId(src), SeqId(dst), Pos(0)..Pos(n)).unwrap_err();
            assert!(matches!(error, Error::Adapter(_)), "{error}");
            return self.ctx.release(SeqId(dst)).unwrap();
        }
        match self.ctx.seq_cp(SeqId(src), SeqId(dst), Pos(0)..Pos(n)) {
            Ok(()) if n == 0 => self.ctx.release(SeqId(dst)).unwrap(),
            Ok(()) => {
                if let Some(Deed::Append(tokens)) = copy.recipe.last_mut() {
                    tokens.truncate(n as usize);
                    copy.given = vec![None; tokens.len()];
                }
                self.twins[dst as usize] = Some(copy);
            }
            Err(Error::Memory(_)) => {
                self.tally.refused += 1;
                self.ctx.release(SeqId(dst)).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}
