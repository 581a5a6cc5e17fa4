//! Splitting a batch into ubatches.
//!
//! A ubatch is what is computed at once. Three ways to split, by what the memory needs; none of them reorders the
//! tokens of a sequence, and every token keeps its index in the batch, so that outputs go back to the caller's order.
//! Within a ubatch all tokens of a sequence have the same sequences: where a token for two sequences is followed by one for either,
//! a new ubatch begins.

use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId, Token};
use crate::room;
use alloc::vec::Vec;
use core::ops::Range;

/// How a batch is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Split {
    /// In the order of the batch.
    Simple,
    /// Each sequence's tokens together and, in one ubatch, as many of each: recurrent layers step them side by side.
    Equal,
    /// One sequence a ubatch.
    Sequence,
}

/// A token of a ubatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UbatchToken {
    /// The token; 0 in a batch of embeddings.
    pub token: Token,
    /// Its position.
    pub pos: Pos,
    /// The sequence it belongs to, the first of them if there are several.
    pub seq: SeqId,
    /// Its index in the batch.
    pub index: u32,
    /// Whether its output is wanted.
    pub output: bool,
}

/// Neighbours in a ubatch that have the same sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where they are in the schedule.
    pub tokens: Range<usize>,
    /// The checkpoint that is made of what the sequences are before the first of them.
    pub checkpoint: Option<u32>,
    /// The row that the first of them has in the journals.
    pub row: Option<u32>,
}

/// Takes a piece of a run.
pub(crate) type Push<'a> = dyn FnMut(usize, Option<u32>, Option<u32>) -> Result<(), Error> + 'a;

/// One ubatch of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub tokens: Range<usize>,
    pub runs: Range<usize>,
}

/// A batch in the order it is computed, and the buffers for making it.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    tokens: Vec<UbatchToken>,
    runs: Vec<Run>,
    /// Room for the runs that others are cut into.
    pieces: Vec<Run>,
    ubatches: Vec<Span>,
    queues: Queues,
    /// Tokens that can come next, one a set of sequences.
    ready: Vec<usize>,
}

impl Schedule {
    /// Buffers for batches of `n_batch` tokens of one sequence each.
    pub fn new(n_batch: u32, n_seq_max: u32) -> Result<Schedule, Error> {
        let mut schedule = Schedule::default();
        schedule.make_room(n_batch as usize, n_batch as usize, n_seq_max as usize)?;
        Ok(schedule)
    }

    fn make_room(&mut self, n_tokens: usize, n_entries: usize, n_seq_max: usize) -> Result<(), Error> {
        for list in [&mut self.queues.links, &mut self.queues.tokens] {
            room::for_len(list, n_entries)?;
        }
        for list in [&mut self.queues.heads, &mut self.queues.tails] {
            room::for_len(list, n_seq_max)?;
        }
        room::for_len(&mut self.ready, n_seq_max)?;
        room::for_len(&mut self.tokens, n_tokens)?;
        room::for_len(&mut self.runs, n_tokens)?;
        room::for_len(&mut self.pieces, n_tokens)?;
        room::for_len(&mut self.ubatches, n_tokens)
    }

    pub fn tokens(&self) -> &[UbatchToken] {
        &self.tokens
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn ubatches(&self) -> &[Span] {
        &self.ubatches
    }

    /// Cuts runs into pieces: `cut` is called with the tokens of each run and a function that takes the number of tokens,
    /// the checkpoint and the first row of each piece.
    pub fn cut(
        &mut self,
        mut cut: impl FnMut(&[UbatchToken], &mut Push<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut pieces = core::mem::take(&mut self.pieces);
        pieces.clear();
        let mut result = Ok(());
        for span in &mut self.ubatches {
            let first = pieces.len();
            for run in &self.runs[span.runs.clone()] {
                let mut start = run.tokens.start;
                let mut push = |n_tokens: usize, checkpoint, row| {
                    room::for_one(&mut pieces)?;
                    pieces.push(Run { tokens: start..start + n_tokens, checkpoint, row });
                    start += n_tokens;
                    Ok(())
                };
                if result.is_ok() {
                    result = cut(&self.tokens[run.tokens.clone()], &mut push);
                }
            }
            span.runs = first..pieces.len();
        }
        self.pieces = core::mem::replace(&mut self.runs, pieces);
        result
    }

    /// Splits a checked batch into ubatches of at most `n_ubatch` tokens.
    pub fn fill(
        &mut self,
        batch: &Batch,
        split: Split,
        n_ubatch: usize,
        n_seq_max: u32,
    ) -> Result<(), Error> {
        self.tokens.clear();
        self.runs.clear();
        self.ubatches.clear();
        for list in [&mut self.queues.links, &mut self.queues.tokens] {
            list.clear();
        }
        self.make_room(batch.len(), batch.all_seqs().len(), n_seq_max as usize)?;
        self.queues.fill(batch, n_seq_max);
        match split {
            Split::Simple => self.simple(batch, n_ubatch),
            Split::Equal => self.equal(batch, n_ubatch),
            Split::Sequence => self.by_sequence(batch, n_ubatch),
        }
        Ok(())
    }

    fn simple(&mut self, batch: &Batch, n_ubatch: usize) {
        for index in 0..batch.len() {
            let full = self.ubatches.last().is_none_or(|last| last.tokens.len() >= n_ubatch);
            let start = self.ubatches.last().map_or(0, |last| last.tokens.start);
            if full || !self.queues.fits(batch, index, start) {
                self.open();
            }
            self.queues.take(batch, index);
            self.push(batch, index);
        }
    }

    fn equal(&mut self, batch: &Batch, n_ubatch: usize) {
        loop {
            self.queues.ready(batch, &mut self.ready);
            self.ready.truncate(n_ubatch);
            if self.ready.is_empty() {
                return;
            }
            let cap = n_ubatch / self.ready.len();
            let length = |&index: &usize| self.queues.run_length(batch, index, cap);
            let length = self.ready.iter().map(length).min().unwrap_or(1);
            self.open();
            for i in 0..self.ready.len() {
                self.take_run(batch, self.ready[i], length);
            }
        }
    }

    fn by_sequence(&mut self, batch: &Batch, n_ubatch: usize) {
        for index in 0..batch.len() {
            if !self.queues.is_taken(batch, index) {
                let length = self.queues.run_length(batch, index, n_ubatch);
                self.open();
                self.take_run(batch, index, length);
            }
        }
    }

    /// Begins a ubatch.
    fn open(&mut self) {
        let (tokens, runs) = (self.tokens.len(), self.runs.len());
        self.ubatches.push(Span { tokens: tokens..tokens, runs: runs..runs });
    }

    /// Moves `length` tokens, the first of which is `index`, into the ubatch.
    fn take_run(&mut self, batch: &Batch, index: usize, length: usize) {
        let mut next = Some(index);
        for _ in 0..length {
            let Some(index) = next else { return };
            next = self.queues.take(batch, index);
            self.push(batch, index);
        }
    }

    fn push(&mut self, batch: &Batch, index: usize) {
        let Some(ubatch) = self.ubatches.last_mut() else { return };
        let seqs = batch.seqs(index);
        let at = self.tokens.len();
        self.tokens.push(UbatchToken {
            token: batch.tokens()[index],
            pos: batch.positions()[index],
            seq: seqs.first().copied().unwrap_or_default(),
            index: index as u32,
            output: batch.outputs()[index],
        });
        let joins = at > ubatch.tokens.start && batch.seqs(self.tokens[at - 1].index as usize) == seqs;
        match self.runs.last_mut() {
            Some(run) if joins => run.tokens.end = at + 1,
            _ => self.runs.push(Run { tokens: at..at + 1, checkpoint: None, row: None }),
        }
        ubatch.tokens.end = at + 1;
        ubatch.runs.end = self.runs.len();
    }
}

/// The tokens of each sequence, in order, with a cursor.
///
/// An entry is one sequence of one token; entries are numbered through the batch.
#[derive(Debug, Default)]
struct Queues {
    /// The next entry of each sequence.
    heads: Vec<u32>,
    /// While filling, the last entry of each sequence; later the last token taken of it.
    tails: Vec<u32>,
    /// The entry of the same sequence that follows each.
    links: Vec<u32>,
    /// The token of each entry.
    tokens: Vec<u32>,
}

const END: u32 = u32::MAX;

impl Queues {
    fn fill(&mut self, batch: &Batch, n_seq_max: u32) {
        for list in [&mut self.heads, &mut self.tails] {
            list.clear();
            list.resize(n_seq_max as usize, END);
        }
        self.links.clear();
        self.links.resize(batch.all_seqs().len(), END);
        self.tokens.clear();
        for index in 0..batch.len() {
            for entry in batch.seq_range(index) {
                let seq = batch.all_seqs()[entry].index();
                match self.tails[seq] {
                    END => self.heads[seq] = entry as u32,
                    tail => self.links[tail as usize] = entry as u32,
                }
                self.tails[seq] = entry as u32;
                self.tokens.push(index as u32);
            }
        }
        self.tails.fill(END);
    }

    /// Advances past token `index`; returns the next token of its first sequence.
    fn take(&mut self, batch: &Batch, index: usize) -> Option<usize> {
        let range = batch.seq_range(index);
        for entry in range.clone() {
            let seq = batch.all_seqs()[entry].index();
            self.heads[seq] = self.links[entry];
            self.tails[seq] = index as u32;
        }
        self.next(range.start).map(|entry| self.tokens[entry] as usize)
    }

    fn next(&self, entry: usize) -> Option<usize> {
        self.links.get(entry).filter(|&&next| next != END).map(|&next| next as usize)
    }

    /// Whether token `index` can join a ubatch that began with token `start` of the batch: tokens of its sequences
    /// there have the same sequences.
    fn fits(&self, batch: &Batch, index: usize, start: usize) -> bool {
        let seqs = batch.seqs(index);
        let agrees = |last: u32| last == END || (last as usize) < start || batch.seqs(last as usize) == seqs;
        seqs.iter().all(|seq| agrees(self.tails[seq.index()]))
    }

    fn is_taken(&self, batch: &Batch, index: usize) -> bool {
        let entry = batch.seq_range(index).start;
        batch.seqs(index).first().is_none_or(|seq| self.heads[seq.index()] > entry as u32)
    }

    /// Whether token `index` is the next of each of its sequences.
    fn is_ready(&self, batch: &Batch, index: usize) -> bool {
        batch.seq_range(index).all(|entry| self.heads[batch.all_seqs()[entry].index()] == entry as u32)
    }

    /// The tokens that are next for all their sequences, by first sequence.
    fn ready(&self, batch: &Batch, out: &mut Vec<usize>) {
        out.clear();
        for (seq, &head) in self.heads.iter().enumerate().filter(|&(_, &head)| head != END) {
            let index = self.tokens[head as usize] as usize;
            let first = batch.seqs(index).first().is_some_and(|first| first.index() == seq);
            if first && self.is_ready(batch, index) {
                out.push(index);
            }
        }
    }

    /// How many tokens from `index` on, `cap` at most, follow each other in all their sequences.
    fn run_length(&self, batch: &Batch, index: usize, cap: usize) -> usize {
        let (mut index, mut length) = (index, 1);
        while length < cap {
            let Some(next) = self.next(batch.seq_range(index).start) else { break };
            let next = self.tokens[next] as usize;
            let follows = |(here, there): (usize, usize)| self.next(here) == Some(there);
            let same = batch.seqs(next) == batch.seqs(index);
            if !same || !batch.seq_range(index).zip(batch.seq_range(next)).all(follows) {
                break;
            }
            (index, length) = (next, length + 1);
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A batch from sequence sets; positions count up per first sequence.
    fn batch(sets: &[&[u32]]) -> Batch {
        let mut batch = Batch::new();
        let mut next = [0; 8];
        for (i, set) in sets.iter().enumerate() {
            let seqs: Vec<SeqId> = set.iter().map(|&s| SeqId(s)).collect();
            let pos = Pos(next[set[0] as usize]);
            for &s in *set {
                next[s as usize] += 1;
            }
            batch.push(Token(i as u32), pos, &seqs, i % 2 == 0);
        }
        batch
    }

    fn split(sets: &[&[u32]], split: Split, n_ubatch: usize) -> Vec<Vec<u32>> {
        let batch = batch(sets);
        let mut schedule = Schedule::default();
        schedule.fill(&batch, split, n_ubatch, 8).unwrap();
        let tokens = |span: &Span| schedule.tokens[span.tokens.clone()].iter().map(|t| t.index).collect();
        schedule.ubatches().iter().map(tokens).collect()
    }

    #[test]
    fn simple_keeps_the_order_of_the_batch() {
        let sets: [&[u32]; 5] = [&[0], &[1], &[0], &[1], &[0]];
        assert_eq!(split(&sets, Split::Simple, 2), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(split(&sets, Split::Simple, 8), [vec![0, 1, 2, 3, 4]]);
    }

    #[test]
    fn equal_takes_as_many_of_each_sequence_in_contiguous_runs() {
        let sets: [&[u32]; 7] = [&[0], &[1], &[0], &[1], &[0], &[2], &[0]];
        assert_eq!(split(&sets, Split::Equal, 8), [vec![0, 1, 5], vec![2, 3], vec![4, 6]]);
        assert_eq!(split(&sets, Split::Equal, 2), [vec![0, 1], vec![2, 3], vec![4, 5], vec![6]]);
        assert_eq!(split(&sets, Split::Equal, 1).len(), 7);
    }

    #[test]
    fn by_sequence_puts_one_set_of_sequences_into_a_ubatch() {
        let sets: [&[u32]; 6] = [&[0], &[1], &[0], &[1], &[0], &[1]];
        assert_eq!(split(&sets, Split::Sequence, 2), [vec![0, 2], vec![1, 3], vec![4], vec![5]]);
        assert_eq!(split(&sets, Split::Sequence, 8), [vec![0, 2, 4], vec![1, 3, 5]]);
    }

    #[test]
    fn a_token_for_several_sequences_never_shares_a_ubatch_with_one_for_some_of_them() {
        let sets: [&[u32]; 6] = [&[0, 1], &[0, 1], &[0], &[1], &[0], &[2]];
        assert_eq!(split(&sets, Split::Simple, 8), [vec![0, 1], vec![2, 3, 4, 5]]);
        assert_eq!(split(&sets, Split::Equal, 8), [vec![0, 5], vec![1], vec![2, 3], vec![4]]);
        assert_eq!(split(&sets, Split::Sequence, 8), [vec![0, 1], vec![2, 4], vec![3], vec![5]]);
    }

    #[test]
    fn every_token_comes_once_and_in_order_of_its_sequences_whatever_the_split() {
        let mut random = 7u32;
        let mut below = |n: u32| {
            random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            (random >> 16) % n
        };
        for case in 0..2000 {
            let sets: Vec<Vec<u32>> = (0..below(24))
                .map(|_| match below(6) {
                    0 => vec![0, 1],
                    1 => vec![1, 2, 3],
                    _ => vec![below(4)],
                })
                .collect();
            let sets: Vec<&[u32]> = sets.iter().map(Vec::as_slice).collect();
            let n_ubatch = 1 + below(9) as usize;
            for how in [Split::Simple, Split::Equal, Split::Sequence] {
                let ubatches = split(&sets, how, n_ubatch);
                assert!(ubatches.iter().all(|u| (1..=n_ubatch).contains(&u.len())), "{case} {how:?}");
                let order: Vec<u32> = ubatches.concat();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.iter().copied().eq(0..sets.len() as u32), "{case} {how:?}: {order:?}");
                for seq in 0..4 {
                    let of = |&&i: &&u32| sets[i as usize].contains(&seq);
                    assert!(order.iter().filter(of).is_sorted(), "{case} {how:?}: {order:?}");
                    for ubatch in &ubatches {
                        let mut of_seq = ubatch.iter().filter(of).map(|&i| sets[i as usize]);
                        let first = of_seq.next();
                        assert!(of_seq.all(|set| Some(set) == first), "{case} {how:?}: {ubatch:?}");
                    }
                }
            }
        }
    }
}
