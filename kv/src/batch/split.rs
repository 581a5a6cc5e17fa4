//! Splitting of a batch into ubatches.
//!
//! A ubatch is the unit of computation: at most `n_ubatch` tokens (physical batch size) that go
//! through the model together. The caches decide which of three ways of splitting a batch needs.
//! Each of them keeps three promises:
//!
//! - The tokens of one sequence keep their order.
//! - Every token keeps its index in the batch, so that outputs go back in the caller's order.
//! - Within a ubatch, all tokens of a sequence have the same set of sequences. Where a token of two
//!   sequences is followed by one of either sequence alone, a new ubatch begins.
//!
//! Consecutive tokens of one set of sequences within a ubatch are a *segment*. Recurrent layers
//! step one state through each segment, and checkpoints are made at the start of segments only;
//! `cut` splits segments where a checkpoint is wanted.

use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId, Token};
use crate::reserve;
use alloc::vec::Vec;
use core::ops::Range;

/// Order in which the tokens of a batch are computed. A later variant satisfies the caches that ask
/// for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Split {
    /// Order of the batch.
    Simple,
    /// Tokens of each sequence side by side, equally many of each sequence in a ubatch: recurrent
    /// layers step them in parallel.
    Equal,
    /// Ubatches of one sequence each.
    Sequence,
}

/// Token of a ubatch, with its place in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UbatchToken {
    /// Token id; 0 in a batch of embeddings.
    pub token: Token,
    /// Position of the token.
    pub pos: Pos,
    /// First of its sequences.
    pub seq: SeqId,
    /// Index of the token in the batch.
    pub index: u32,
    /// True if its output is wanted.
    pub output: bool,
}

/// Segment: neighbours in a ubatch that have the same set of sequences.
///
/// The segments of a ubatch tile its tokens. Splitting makes them as long as possible; planning
/// checkpoints cuts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Indices of the tokens in the split batch.
    pub tokens: Range<usize>,
    /// True if the tokens before it of its sequences have the same set of sequences, so that these
    /// sequences still have the same cells and one state.
    pub goes_on: bool,
    /// Checkpoint that is made of the sequences before the first of these tokens.
    pub checkpoint: Option<u32>,
    /// Journal row of the first token; later tokens follow in later rows.
    pub row: Option<u32>,
}

/// Function that takes the number of tokens, the checkpoint and the first journal row of a segment.
pub(crate) type Push<'a> = dyn FnMut(usize, Option<u32>, Option<u32>) -> Result<(), Error> + 'a;

/// Ranges of one ubatch in the tokens and segments of a split batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub tokens: Range<usize>,
    pub segments: Range<usize>,
}

/// Batch in the order in which it is computed, with the buffers for splitting.
///
/// A memory owns one and fills it for each plan, so that planning allocates nothing for batches of
/// up to `n_batch` tokens.
#[derive(Debug, Default)]
pub(crate) struct SplitBatch {
    tokens: Vec<UbatchToken>,
    /// Segments in the order of computation.
    segments: Vec<Segment>,
    /// Buffer for the segments that `cut` makes.
    pieces: Vec<Segment>,
    ubatches: Vec<Span>,
    queues: Queues,
    /// Tokens that can come next, one for each set of sequences.
    ready: Vec<usize>,
}

impl SplitBatch {
    /// Return buffers for batches of `n_batch` tokens of one sequence each.
    pub fn new(n_batch: u32, n_seq_max: u32) -> Result<SplitBatch, Error> {
        let n_seq_max = n_seq_max as usize;
        let (heads, tails) = (reserve::filled(n_seq_max, END)?, reserve::filled(n_seq_max, END)?);
        let queues = Queues { heads, tails, ..Queues::default() };
        let ready = reserve::with_room(n_seq_max)?;
        let mut split_batch = SplitBatch { queues, ready, ..SplitBatch::default() };
        split_batch.make_room(n_batch as usize, n_batch as usize)?;
        Ok(split_batch)
    }

    /// Reserve room for a batch of `n_tokens` tokens with `n_entries` sequences in total.
    fn make_room(&mut self, n_tokens: usize, n_entries: usize) -> Result<(), Error> {
        reserve::for_len(&mut self.queues.links, n_entries)?;
        reserve::for_len(&mut self.queues.tokens, n_entries)?;
        reserve::for_len(&mut self.tokens, n_tokens)?;
        reserve::for_len(&mut self.segments, n_tokens)?;
        reserve::for_len(&mut self.pieces, n_tokens)?;
        reserve::for_len(&mut self.ubatches, n_tokens)
    }

    /// Return the tokens in the order of computation.
    pub fn tokens(&self) -> &[UbatchToken] {
        &self.tokens
    }

    /// Return the segments in the order of computation.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Return the sequences of a segment.
    pub fn seqs<'b>(&self, segment: &Segment, batch: &'b Batch) -> &'b [SeqId] {
        self.tokens.get(segment.tokens.start).map_or(&[], |token| batch.seqs(token.index as usize))
    }

    /// Return the ubatches in the order of computation.
    pub fn ubatches(&self) -> &[Span] {
        &self.ubatches
    }

    /// Cut segments into shorter ones.
    ///
    /// `cut` is called with the tokens of each segment, and with a function that takes the number
    /// of tokens, the checkpoint and the first journal row of each new segment. Together the new
    /// segments must cover the tokens of the old one.
    pub fn cut(
        &mut self,
        mut cut: impl FnMut(&[UbatchToken], &mut Push<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut pieces = core::mem::take(&mut self.pieces);
        pieces.clear();
        let mut result = Ok(());
        for span in &mut self.ubatches {
            let first = pieces.len();
            for segment in &self.segments[span.segments.clone()] {
                let (mut start, mut goes_on) = (segment.tokens.start, segment.goes_on);
                let mut push = |n_tokens: usize, checkpoint, row| {
                    reserve::for_more(&mut pieces, 1)?;
                    pieces.push(Segment { tokens: start..start + n_tokens, goes_on, checkpoint, row });
                    (start, goes_on) = (start + n_tokens, true);
                    Ok(())
                };
                if result.is_ok() {
                    result = cut(&self.tokens[segment.tokens.clone()], &mut push);
                }
            }
            span.segments = first..pieces.len();
        }
        self.pieces = core::mem::replace(&mut self.segments, pieces);
        result
    }

    /// Split a checked batch into ubatches of at most `n_ubatch` tokens.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the buffers cannot grow to a batch of this length.
    pub fn fill(&mut self, batch: &Batch, split: Split, n_ubatch: usize) -> Result<(), Error> {
        self.tokens.clear();
        self.segments.clear();
        self.ubatches.clear();
        self.make_room(batch.len(), batch.all_seqs().len())?;
        self.queues.fill(batch);
        match split {
            Split::Simple => self.simple(batch, n_ubatch),
            Split::Equal => self.equal(batch, n_ubatch),
            Split::Sequence => self.by_sequence(batch, n_ubatch),
        }
        Ok(())
    }

    /// Split in the order of the batch. A ubatch ends when it is full or the next token does not
    /// fit to it.
    fn simple(&mut self, batch: &Batch, n_ubatch: usize) {
        for index in 0..batch.len() {
            let joins = self.ubatches.last().is_some_and(|last| {
                last.tokens.len() < n_ubatch && self.queues.fits(batch, index, last.tokens.start)
            });
            if !joins {
                self.open();
            }
            self.push(batch, index);
        }
    }

    /// Split into ubatches with equally many tokens of each set of sequences that is ready.
    fn equal(&mut self, batch: &Batch, n_ubatch: usize) {
        loop {
            self.queues.ready(batch, &mut self.ready);
            self.ready.truncate(n_ubatch);
            if self.ready.is_empty() {
                return;
            }
            let cap = n_ubatch / self.ready.len();
            let length = |&index: &usize| self.queues.segment_len(batch, index, cap);
            let length = self.ready.iter().map(length).min().unwrap_or(1);
            self.open();
            for i in 0..self.ready.len() {
                self.take_segment(batch, self.ready[i], length);
            }
        }
    }

    /// Split into ubatches of one set of sequences each.
    fn by_sequence(&mut self, batch: &Batch, n_ubatch: usize) {
        for index in 0..batch.len() {
            if !self.queues.is_taken(batch, index) {
                let length = self.queues.segment_len(batch, index, n_ubatch);
                self.open();
                self.take_segment(batch, index, length);
            }
        }
    }

    /// Begin a ubatch.
    fn open(&mut self) {
        let (tokens, segments) = (self.tokens.len(), self.segments.len());
        self.ubatches.push(Span { tokens: tokens..tokens, segments: segments..segments });
    }

    /// Move `length` tokens into the ubatch, beginning with token `index` of the batch.
    fn take_segment(&mut self, batch: &Batch, index: usize, length: usize) {
        let mut next = Some(index);
        for _ in 0..length {
            let Some(index) = next else { return };
            next = self.push(batch, index);
        }
    }

    /// Append token `index` of the batch to the ubatch, and to its last segment if the sequences
    /// agree. Return the next token of its first sequence.
    fn push(&mut self, batch: &Batch, index: usize) -> Option<usize> {
        let ubatch = self.ubatches.last_mut()?;
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
        match self.segments.last_mut() {
            Some(segment) if joins => segment.tokens.end = at + 1,
            _ => {
                let goes_on = self.queues.goes_on(batch, seqs);
                self.segments.push(Segment { tokens: at..at + 1, goes_on, checkpoint: None, row: None });
            }
        }
        ubatch.tokens.end = at + 1;
        ubatch.segments.end = self.segments.len();
        self.queues.take(batch, index)
    }
}

/// Queue of the tokens of each sequence, in order.
///
/// An entry is one sequence of one token. Entries are numbered through the batch as in
/// [`Batch::all_seqs`].
#[derive(Debug, Default)]
struct Queues {
    /// Next entry of each sequence.
    heads: Vec<u32>,
    /// Last entry of each sequence while the queues are filled; later the last token taken from
    /// each.
    tails: Vec<u32>,
    /// Entry that follows each entry in its sequence.
    links: Vec<u32>,
    /// Token of each entry.
    tokens: Vec<u32>,
}

/// End of a queue.
const END: u32 = u32::MAX;

impl Queues {
    /// Queue all tokens of a batch.
    fn fill(&mut self, batch: &Batch) {
        self.heads.fill(END);
        self.tails.fill(END);
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

    /// Advance past token `index` and return the next token of its first sequence.
    fn take(&mut self, batch: &Batch, index: usize) -> Option<usize> {
        let range = batch.seq_range(index);
        for entry in range.clone() {
            let seq = batch.all_seqs()[entry].index();
            self.heads[seq] = self.links[entry];
            self.tails[seq] = index as u32;
        }
        self.next(range.start).map(|entry| self.tokens[entry] as usize)
    }

    /// Return the entry that follows `entry` in its sequence.
    fn next(&self, entry: usize) -> Option<usize> {
        self.links.get(entry).filter(|&&next| next != END).map(|&next| next as usize)
    }

    /// Return true if token `index` can join a ubatch that began with token `start` of the batch.
    ///
    /// It can if the tokens of its sequences in that ubatch have the same set of sequences.
    fn fits(&self, batch: &Batch, index: usize, start: usize) -> bool {
        let seqs = batch.seqs(index);
        let agrees = |last: u32| last == END || (last as usize) < start || batch.seqs(last as usize) == seqs;
        seqs.iter().all(|seq| agrees(self.tails[seq.index()]))
    }

    /// Return true if the last token taken from each of `seqs` has the sequences `seqs`.
    fn goes_on(&self, batch: &Batch, seqs: &[SeqId]) -> bool {
        seqs.iter().all(|seq| batch.seqs(self.tails[seq.index()] as usize) == seqs)
    }

    /// Return true if token `index` was taken already.
    fn is_taken(&self, batch: &Batch, index: usize) -> bool {
        let entry = batch.seq_range(index).start;
        batch.seqs(index).first().is_none_or(|seq| self.heads[seq.index()] > entry as u32)
    }

    /// Return true if token `index` is the next token of each of its sequences.
    fn is_ready(&self, batch: &Batch, index: usize) -> bool {
        batch.seq_range(index).all(|entry| self.heads[batch.all_seqs()[entry].index()] == entry as u32)
    }

    /// List the tokens that are next in all of their sequences, ordered by first sequence.
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

    /// Return the length of the segment that starts at token `index`, at most `cap` tokens.
    fn segment_len(&self, batch: &Batch, index: usize, cap: usize) -> usize {
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
        let mut split_batch = SplitBatch::new(0, 8).unwrap();
        split_batch.fill(&batch, split, n_ubatch).unwrap();
        let tokens = |span: &Span| split_batch.tokens[span.tokens.clone()].iter().map(|t| t.index).collect();
        split_batch.ubatches().iter().map(tokens).collect()
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
