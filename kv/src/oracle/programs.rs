//! Random programs on the real memory and the naive one, compared after every step.
//!
//! A program is a list of steps over few sequences and a cache so small that it fills up. Numbers in steps are taken
//! modulo what makes sense when they run, so that shrinking a program keeps it meaningful. Keys, values and
//! states are functions of the token alone, every token is new, and every cell that attention would read is compared
//! while a plan is open.

use super::*;
use crate::extent::bits;
use crate::ids::Token;
use crate::layer::{Rotation, StatePart, Window};
use crate::memory::{Memory, Visible};
use crate::plan::{Plan, Ubatch};
use crate::rewind::Means;
use crate::timeline::TimelineParams;
use alloc::vec;
use backstitch_core::cell::{BLOCK_CELLS, CellType};
use backstitch_core::rope::{Pairs, Rope};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Appends runs of tokens: which sequences (as bits) and how many.
    Decode {
        runs: Vec<(u8, u8)>,
        woven: bool,
        n_ubatch: u8,
        end: End,
    },
    /// Appends one token somewhere it does not belong.
    Misplaced {
        seqs: u8,
        offset: i8,
    },
    Remove {
        seq: u8,
        range: (u8, u8),
    },
    /// As a rollback does: the last few.
    RemoveTail {
        seq: u8,
        n: u8,
    },
    /// Goes back so many tokens; the last number counts ubatches that are replayed before it is dropped.
    Rewind {
        seq: u8,
        n: u8,
        n_ubatch: u8,
        dropped: Option<u8>,
    },
    Pin {
        seq: u8,
    },
    Unpin {
        seq: u8,
        n: u8,
    },
    /// As a fork does, if the target is emptied first.
    Copy {
        src: u8,
        dst: u8,
        range: (u8, u8),
        emptied: bool,
    },
    Keep {
        seq: u8,
    },
    Add {
        seq: u8,
        range: (u8, u8),
        delta: i8,
    },
    Divide {
        seq: u8,
        range: (u8, u8),
        divisor: i8,
    },
    Clear,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    /// Dropped after so many ubatches.
    Drop(u8),
    /// Leaked, as `mem::forget` does.
    Leak,
}

fn range() -> impl Strategy<Value = (u8, u8)> {
    // 255 is an open end; small numbers are prefixes.
    let start = prop_oneof![2 => Just(0u8), 3 => 0u8..90];
    let end = prop_oneof![3 => Just(255u8), 4 => 0u8..100];
    (start, end)
}

fn step() -> impl Strategy<Value = Step> {
    let seqs = prop_oneof![3 => (0u8..4).prop_map(|s| 1 << s), 1 => 1u8..16];
    let end = prop_oneof![6 => Just(End::Commit), 2 => (0u8..4).prop_map(End::Drop), 1 => Just(End::Leak)];
    let runs = prop::collection::vec((seqs.clone(), 1u8..40), 1..4);
    prop_oneof![
        18 => (runs, any::<bool>(), 1u8..48, end)
            .prop_map(|(runs, woven, n_ubatch, end)| Step::Decode { runs, woven, n_ubatch, end }),
        1 => (seqs, -3i8..4).prop_map(|(seqs, offset)| Step::Misplaced { seqs, offset }),
        2 => (0u8..5, range()).prop_map(|(seq, range)| Step::Remove { seq, range }),
        3 => (0u8..4, 1u8..40).prop_map(|(seq, n)| Step::RemoveTail { seq, n }),
        10 => (0u8..5, prop_oneof![4 => 1u8..8, 2 => 0u8..90], 1u8..6, prop::option::weighted(0.2, 0u8..4))
            .prop_map(|(seq, n, n_ubatch, dropped)| Step::Rewind { seq, n, n_ubatch, dropped }),
        1 => (0u8..5).prop_map(|seq| Step::Pin { seq }),
        1 => (0u8..4, 0u8..40).prop_map(|(seq, n)| Step::Unpin { seq, n }),
        4 => (0u8..5, 0u8..4, prop_oneof![range(), Just((0, 255))], prop::bool::weighted(0.8))
            .prop_map(|(src, dst, range, emptied)| Step::Copy { src, dst, range, emptied }),
        2 => (0u8..4, range(), -40i8..40).prop_map(|(seq, range, delta)| Step::Add { seq, range, delta }),
        1 => (0u8..4, range(), -1i8..5).prop_map(|(seq, range, divisor)| Step::Divide { seq, range, divisor }),
        1 => prop_oneof![2 => (0u8..5).prop_map(|seq| Step::Keep { seq }), 1 => Just(Step::Clear)],
    ]
}

fn program() -> impl Strategy<Value = (u32, Vec<Step>)> {
    // From a cache that two long sequences fill to one that is seldom full.
    (prop::sample::select(vec![33, 100, 130, 160, 160, 700]), prop::collection::vec(step(), 1..50))
}

fn attention(
    n_head_kv: usize,
    d_k: usize,
    d_v: usize,
    window: Option<Window>,
    pairs: Option<Pairs>,
) -> AttentionSpec {
    let rope = pairs.map(|pairs| Rotation {
        rope: Rope { n_rot: 4, pairs, freq_base: 1e4, freq_scale: 1.0, attn_factor: 1.0, yarn: None },
        frequencies: vec![1.0, 0.01],
    });
    AttentionSpec::Cached(AttentionLayer { n_head_kv, d_k, d_v, window, rope })
}

fn layer(attention: AttentionSpec) -> LayerSpec {
    LayerSpec { attention, ..LayerSpec::default() }
}

/// Two sequences' attention: shapes differ, one has a window, one shares.
fn transformer() -> Vec<LayerSpec> {
    vec![
        layer(attention(2, 5, 3, None, Some(Pairs::Split))),
        layer(attention(1, 4, 2, Some(Window::Sliding(9)), Some(Pairs::Adjacent))),
        layer(AttentionSpec::SharedWith(0)),
        layer(attention(1, 2, 1, None, None)),
    ]
}

/// Nothing is kept whole.
fn windowed() -> Vec<LayerSpec> {
    vec![
        layer(attention(2, 5, 3, Some(Window::Sliding(20)), Some(Pairs::Split))),
        layer(attention(1, 2, 1, Some(Window::Chunked(16)), None)),
    ]
}

/// Windows and states, no layer that keeps everything.
fn windowed_and_recurrent() -> Vec<LayerSpec> {
    [windowed(), recurrent()].concat()
}

fn recurrent() -> Vec<LayerSpec> {
    let recurrent = vec![StatePart { len: 3, input: 1 }];
    vec![LayerSpec { attention: AttentionSpec::Absent, recurrent }, LayerSpec::default()]
}

fn hybrid() -> Vec<LayerSpec> {
    let mut layers = transformer();
    layers[1].recurrent = vec![StatePart { len: 3, input: 1 }];
    layers.extend(recurrent());
    layers
}

/// The key and value of a token in a layer that caches.
fn rows(token: Token, layer: &AttentionLayer, i: usize) -> Rows {
    let value = |j: usize| ((token.0 * 37 + i as u32 * 11 + j as u32 * 7) % 1009) as f32 / 64.0 - 7.3;
    let keys = (0..layer.n_head_kv * layer.d_k).map(value).collect();
    (keys, (0..layer.n_head_kv * layer.d_v).map(|j| -value(j + 3)).collect())
}

/// The state after one more token; order matters.
fn advance(state: &mut [f32], token: u64) {
    for (i, x) in state.iter_mut().enumerate() {
        *x = (*x * 31.0 + token as f32 + i as f32 + 1.0) % 4093.0;
    }
}

struct Machine {
    layers: Vec<LayerSpec>,
    params: Params,
    real: Hybrid,
    naive: Naive,
    batch: Batch,
    next_token: u32,
    /// Sequences in which cells that are gone may have positions that others moved to.
    moved: [bool; 4],
    /// Positions that can be gone back to at once.
    pins: Vec<(SeqId, Pos)>,
    /// How often each interesting thing happened.
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    commits: u32,
    undone: u32,
    full: u32,
    diverged: u32,
    errors: u32,
    shared: u32,
    /// Ways back of each kind.
    held: u32,
    replayed: u32,
    evaluated: u32,
}

impl Machine {
    fn new(layers: Vec<LayerSpec>, n_ctx: u32, k_type: CellType, v_type: CellType) -> Machine {
        // Few checkpoints, so that they are taken from one another.
        let state = if n_ctx.is_multiple_of(2) { 1 << 20 } else { 3_000 };
        let timeline = TimelineParams { checkpoint_bytes: state, spacing: 8, journal: 4, margin: 8 };
        let timeline = if n_ctx == 33 { TimelineParams::OFF } else { timeline };
        let params = Params { n_ctx, n_seq_max: 4, n_batch: 128, k_type, v_type, timeline };
        let real = Hybrid::new(&layers, &params).unwrap();
        let naive = Naive::new(&layers, &params);
        let (batch, pins) = (Batch::new(), Vec::new());
        Machine {
            layers,
            params,
            real,
            naive,
            batch,
            next_token: 0,
            moved: [false; 4],
            pins,
            tally: Tally::default(),
        }
    }

    fn run(&mut self, step: &Step) {
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
                // What is pinned is pinned in all forks.
                self.pins.retain(|pin| pin.1 != pos);
            }
            Step::Copy { src, dst, range, emptied } => {
                if *emptied && src != dst {
                    self.operation(dst, &(0, 255), Operation::Remove, 0);
                }
                self.operation(src, range, Operation::Copy, i32::from(*dst));
            }
            Step::Keep { seq } => self.operation(seq, &(0, 255), Operation::Keep, 0),
            Step::Add { seq, range, delta } => self.operation(seq, range, Operation::Add, i32::from(*delta)),
            Step::Divide { seq, range, divisor } => {
                self.operation(seq, range, Operation::Divide, i32::from(*divisor));
            }
            Step::Clear => {
                self.pins.clear();
                self.real.clear();
                self.naive.clear();
            }
        }
        self.compare();
    }

    fn remove(&mut self, seq: SeqId, range: Range<Pos>) {
        self.pins.retain(|pin| pin.0 != seq);
        let real = self.real.seq_rm(seq, range.clone());
        if !self.is_gone(seq, range.start, real) {
            let naive = self.naive.seq_rm(seq, range);
            self.agree(real, naive);
        }
    }

    /// Whether an error is about cells behind a window that are really gone, seen from where a sequence would end.
    fn is_gone(&mut self, seq: SeqId, end: Pos, result: Result<(), Error>) -> bool {
        if !matches!(result, Err(Error::Unsupported { kind: Kind::Windowed, .. })) {
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

    /// Whether the token before `end` was removed.
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
            (0..self.layers.len()).for_each(|layer| replay_states(&mut ubatch, layer));
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
        match route.means() {
            Means::Held => tally.held += 1,
            Means::Replayed => tally.replayed += 1,
            Means::Evaluated => tally.evaluated += 1,
        }
    }

    fn operation(&mut self, seq: &u8, range: &(u8, u8), op: Operation, argument: i32) {
        let seq = SeqId(u32::from(*seq));
        self.pins.retain(|pin| match op {
            Operation::Copy => true,
            Operation::Keep => pin.0 == seq,
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
            Operation::Keep => (real.seq_keep(seq), self.naive.seq_keep(seq)),
            Operation::Add => {
                let free = real.n_free_blocks();
                let moved = real.seq_add(seq, range.clone(), argument);
                if self.is_gone(seq, Pos::ZERO, moved) {
                    return;
                }
                if let Err(Error::Full { .. }) = moved {
                    // Every block of the sequence would have to be copied at worst.
                    let cells = self.naive.sequence(seq).map_or(0, |s| s.cells.len() as u32);
                    assert!(
                        self.has_windows() || cells > free,
                        "full: {cells} cells to move, {free} blocks free"
                    );
                    self.tally.full += 1;
                    return;
                }
                if moved.is_ok() {
                    // What is gone is in nobody's way.
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

    /// Fills the batch with runs that follow what the sequences hold.
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
        let specs = &self.layers;
        let finished = self.real.prepare(&self.batch, n_ubatch).map(|plan| finish(plan, specs, &after, end));
        match finished {
            Err(error) => self.refused(error, wanted, free),
            Ok(()) => {
                assert_eq!(wanted, Ok(()));
                if let End::Commit = end {
                    self.naive = after;
                    self.tally.commits += 1;
                } else {
                    // Undoes a leaked plan.
                    self.real.seq_rm(SeqId(0), Pos::ZERO..Pos::ZERO).unwrap();
                    self.tally.undone += 1;
                }
            }
        }
    }

    /// Errors agree, or are about room or about blocks, which the oracle does not know.
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
                // A run of one set of sequences needs a copy, its cells, and a block for a ragged end.
                let worst = runs.len() * 3 + self.batch.len().div_ceil(BLOCK_CELLS) + self.batch.len() / 16;
                // What is free in a window's cache does not help another.
                assert!(
                    self.has_windows() || worst > free as usize,
                    "full with {free} free, {worst} needed at worst: {error:?}"
                );
            }
            (Error::Full { what: "states", .. }, Ok(())) => {
                self.tally.full += 1;
                assert!(self.batch.all_seqs().len() > 4, "{error:?}");
            }
            // Sequences with equal cells in different blocks.
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
                    for (real, naive) in real.iter().zip(&naive[gone..]) {
                        assert_eq!(real.0, naive.pos, "layer {i}, sequence {seq}");
                        assert_bits(&real.1, &naive.rows[cached]);
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
        let used = self.params.n_blocks() - self.real.n_free_blocks().min(self.params.n_blocks());
        self.tally.shared += u32::from(self.has_windows() || held > used as usize * BLOCK_CELLS);
    }

    fn compare_states(&self, layer: usize) {
        for seq in (0..4).map(SeqId) {
            let seen = self.naive.seqs[seq.index()].state.as_ref().map(|state| {
                let mut x = [0.0; 3];
                state.seen.iter().for_each(|&token| advance(&mut x, token));
                x
            });
            assert_eq!(self.real.state(layer, seq), seen.as_ref().map(|x| x.as_slice()), "state of {seq}");
        }
    }
}

fn assert_bits(real: &Rows, naive: &Rows) {
    let same = |a: &[f32], b: &[f32]| a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()));
    assert!(same(&real.0, &naive.0) && same(&real.1, &naive.1), "{real:?} and {naive:?}");
}

/// Computes as a model would, then ends the plan.
fn finish(mut plan: Plan<'_>, layers: &[LayerSpec], after: &Naive, end: End) {
    let n_ubatch = match end {
        End::Drop(n) => usize::from(n).min(plan.n_ubatch()),
        End::Commit | End::Leak => plan.n_ubatch(),
    };
    for _ in 0..n_ubatch {
        let Some(mut ubatch) = plan.next_ubatch() else { break };
        let mut owners = Vec::new();
        for (i, spec) in layers.iter().enumerate() {
            let owner = match &spec.attention {
                AttentionSpec::Cached(own) => {
                    store(&mut ubatch, i, own, owners.iter().flatten().count());
                    Some((owners.iter().flatten().count(), own))
                }
                _ => None,
            };
            owners.push(owner);
            let read = match &spec.attention {
                AttentionSpec::SharedWith(of) => {
                    assert!(ubatch.store(i).is_none());
                    owners[*of]
                }
                _ => owner,
            };
            match read {
                Some((cached, own)) => read_back(&ubatch, i, own, cached, after),
                None => assert!(ubatch.attention(i).is_none()),
            }
            assert_eq!(step_states(&mut ubatch, i), !spec.recurrent.is_empty());
        }
    }
    match end {
        End::Commit => plan.commit().unwrap(),
        End::Drop(_) => drop(plan),
        End::Leak => core::mem::forget(plan),
    }
}

fn store(ubatch: &mut Ubatch<'_>, layer: usize, own: &AttentionLayer, cached: usize) {
    let tokens: Vec<Token> = ubatch.tokens().iter().map(|t| t.token).collect();
    let (mut k, mut v) = (Vec::new(), Vec::new());
    for token in tokens {
        let row = rows(token, own, cached);
        k.extend(row.0);
        v.extend(row.1);
    }
    let mut store = ubatch.store(layer).unwrap();
    assert!(store.put(&k[1..], &v).is_err());
    store.put(&k, &v).unwrap();
}

/// What attention would read: the tokens up to each one's own, in order, inside the window.
fn read_back(ubatch: &Ubatch<'_>, layer: usize, own: &AttentionLayer, cached: usize, after: &Naive) {
    let view = ubatch.attention(layer).unwrap();
    assert_eq!(view.storage.as_ptr() as usize % 64, 0);
    let n_tokens = ubatch.n_tokens();
    for (i, (token, visible)) in ubatch.tokens().iter().zip(view.visible()).enumerate() {
        let table = view.table(visible);
        let oldest = own.window.map_or(0, |window| window.first(token.pos).0);
        let cells = &after.seqs[token.seq.index()].cells;
        let seen = cells.partition_point(|c| c.pos.0 < oldest)..cells.partition_point(|c| c.pos <= token.pos);
        let seen = &cells[seen];
        // Every cell for some tokens, their number for all: comparing is what takes the time.
        let live = |i: u32| table[i as usize].live & window_bits(i, visible);
        let entries = visible.lo / 32..visible.hi.div_ceil(32);
        if i % 16 != 0 && i + 1 != n_tokens {
            let n_cells: u32 = entries.map(|i| live(i).count_ones()).sum();
            assert_eq!(n_cells as usize, seen.len(), "{visible:?}");
            continue;
        }
        let slots: Vec<u32> = entries.flat_map(|i| bits(live(i)).map(move |cell| i * 32 + cell)).collect();
        assert_eq!(slots.len(), seen.len(), "{visible:?}");
        for (slot, cell) in slots.into_iter().zip(seen) {
            let block = table[slot as usize / BLOCK_CELLS].block as usize;
            let bytes = &view.storage[view.layout.block_range(block)];
            let mut row = (vec![0.0; own.n_head_kv * own.d_k], vec![0.0; own.n_head_kv * own.d_v]);
            view.layout.load_k(bytes, slot as usize % BLOCK_CELLS, &mut row.0);
            view.layout.load_v(bytes, slot as usize % BLOCK_CELLS, &mut row.1);
            assert_bits(&row, &cell.rows[cached]);
        }
    }
}

/// Which cells of entry `i` a token sees.
fn window_bits(i: u32, visible: &Visible) -> u32 {
    (0..32).filter(|b| (visible.lo..visible.hi).contains(&(i * 32 + b))).fold(0, |bits, b| bits | 1 << b)
}

/// Steps the states of a layer; false if it has none.
fn step_states(ubatch: &mut Ubatch<'_>, layer: usize) -> bool {
    let tokens: Vec<u64> = ubatch.tokens().iter().map(|t| t.token.0.into()).collect();
    let Some(mut states) = ubatch.states(layer, 0) else { return false };
    let (mut next, mut written) = (0, Vec::new());
    for run in states.runs() {
        assert_eq!(run.start, next, "runs tile the ubatch");
        next = run.end;
        // A run may go on where the one before it stopped.
        let goes_on = run.read == Some(run.write);
        assert!(goes_on || !written.contains(&run.write), "no two runs write one state");
        written.push(run.write);
        let state = states.carry(&run);
        let tokens = &tokens[run.start as usize..run.end as usize];
        tokens.iter().for_each(|&token| advance(state, token));
        if let Some(inputs) = states.inputs(&run) {
            inputs.iter_mut().zip(tokens).for_each(|(input, &token)| *input = token as f32);
        }
    }
    assert_eq!(next as usize, tokens.len());
    true
}

/// Steps the states of a layer through what was journaled.
fn replay_states(ubatch: &mut Ubatch<'_>, layer: usize) {
    let Some(mut states) = ubatch.states(layer, 0) else { return };
    for run in states.runs() {
        let inputs = states.inputs(&run).unwrap().to_vec();
        let state = states.carry(&run);
        inputs.iter().for_each(|&token| advance(state, token as u64));
    }
}

const TYPES: [(CellType, CellType); 3] =
    [(CellType::F32, CellType::F32), (CellType::F16, CellType::BF16), (CellType::BF16, CellType::F16)];

fn run(layers: Vec<LayerSpec>, n_ctx: u32, steps: &[Step]) -> Tally {
    let (k_type, v_type) = TYPES[steps.len() % TYPES.len()];
    let mut machine = Machine::new(layers, n_ctx, k_type, v_type);
    steps.iter().for_each(|step| machine.run(step));
    machine.tally
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 4_000, ..ProptestConfig::default() }
}

/// Runs `cases` programs, and makes sure that they did something.
fn hold(layers: fn() -> Vec<LayerSpec>, cases: u32, name: &'static str) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        test_name: Some(name),
        source_file: Some(file!()),
        ..config(cases)
    });
    let sum = core::cell::Cell::new(Tally::default());
    let result = runner.run(&program(), |(n_ctx, steps)| {
        let (t, s) = (run(layers(), n_ctx, &steps), sum.get());
        sum.set(Tally {
            commits: s.commits + t.commits,
            undone: s.undone + t.undone,
            full: s.full + t.full,
            diverged: s.diverged + t.diverged,
            errors: s.errors + t.errors,
            shared: s.shared + t.shared,
            held: s.held + t.held,
            replayed: s.replayed + t.replayed,
            evaluated: s.evaluated + t.evaluated,
        });
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}\n{runner}"));
    let t = sum.get();
    std::println!("{name}: {cases} programs, {t:?}");
    assert!(t.commits > cases && t.undone > cases && t.errors > cases / 2, "programs do too little: {t:?}");
    let caches = layers().iter().any(|spec| !matches!(spec.attention, AttentionSpec::Absent));
    assert!(
        !caches || name.starts_with("windowed") || (t.full > cases / 20 && t.shared > cases),
        "programs never fill or share the cache: {t:?}"
    );
    let goes_back = match name {
        "recurrent" | "hybrid" => t.held.min(t.replayed).min(t.evaluated),
        "windowed" => t.held.min(t.evaluated),
        _ => t.held,
    };
    assert!(goes_back > cases / 5, "programs seldom go back: {t:?}");
}

#[test]
fn unified_agrees_with_the_oracle() {
    hold(transformer, 300, "unified");
}

#[test]
fn windowed_agrees_with_the_oracle() {
    hold(windowed, 200, "windowed");
    hold(windowed_and_recurrent, 200, "windowed and recurrent");
}

#[test]
fn recurrent_agrees_with_the_oracle() {
    hold(recurrent, 200, "recurrent");
}

#[test]
fn hybrid_agrees_with_the_oracle() {
    hold(hybrid, 200, "hybrid");
}

#[test]
#[ignore = "takes a while"]
fn unified_and_windowed_agree_with_the_oracle_in_20_000_programs() {
    hold(transformer, 20_000, "unified");
    hold(windowed, 20_000, "windowed");
}

#[test]
#[ignore = "takes a while"]
fn recurrent_and_hybrid_agree_with_the_oracle_in_20_000_programs() {
    hold(recurrent, 20_000, "recurrent");
    hold(hybrid, 20_000, "hybrid");
    hold(windowed_and_recurrent, 20_000, "windowed and recurrent");
}
