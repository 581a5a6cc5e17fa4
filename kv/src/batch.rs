//! Batches: the tokens to evaluate next, as the caller gives them.
//!
//! A batch is independent of any memory. [`Memory::prepare`](crate::Memory::prepare) checks it,
//! reserves cells and states, and splits it into ubatches. A batch can be filled, prepared, cleared
//! and filled again without allocating.

pub(crate) mod split;

use crate::error::Error;
use crate::ids::{Pos, SeqId, Token};
use crate::reserve;
use alloc::vec::Vec;

/// Choice of the tokens of a list whose outputs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No token.
    None,
    /// Last token.
    Last,
    /// All tokens.
    All,
}

impl Wanted {
    /// Return true if token `index` of `len` is asked for its output.
    fn includes(self, index: usize, len: usize) -> bool {
        match self {
            Wanted::None => false,
            Wanted::Last => index + 1 == len,
            Wanted::All => true,
        }
    }
}

/// Batch of tokens or embeddings, each with a position, its sequences, and a flag that asks for its
/// output.
///
/// A token of several sequences is computed once and its cell is shared by all of them, which must
/// hold the same cells before it. Pushing checks nothing; `prepare` reports every error with the
/// index of the token.
///
/// # Example
/// ```
/// use backstitch_kv::{Batch, Pos, SeqId, Token};
///
/// let mut batch = Batch::new();
/// batch.push(Token(1), Pos(0), &[SeqId(0)], false).push(Token(7), Pos(1), &[SeqId(0)], true);
/// assert_eq!(batch.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Elements of one embedding; 0 for a batch of tokens.
    n_embd: usize,
    tokens: Vec<Token>,
    /// Embeddings, `[n_tokens, n_embd]`.
    embeddings: Vec<f32>,
    pos: Vec<Pos>,
    outputs: Vec<bool>,
    /// Sequences of all tokens, ascending within a token.
    seqs: Vec<SeqId>,
    /// End of each token's sequences in `seqs`.
    seq_ends: Vec<u32>,
}

impl Batch {
    /// Return an empty batch of tokens.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Return an empty batch of embeddings of `n_embd` elements each.
    pub fn of_embeddings(n_embd: usize) -> Batch {
        Batch { n_embd, ..Batch::default() }
    }

    /// Add a token. Positions of one sequence must ascend by one.
    pub fn push(&mut self, token: Token, pos: Pos, seqs: &[SeqId], output: bool) -> &mut Batch {
        self.tokens.push(token);
        self.pos.push(pos);
        self.outputs.push(output);
        let start = self.seqs.len();
        self.seqs.extend_from_slice(seqs);
        self.seqs[start..].sort_unstable();
        self.seq_ends.push(self.seqs.len() as u32);
        self
    }

    /// Add `tokens` of one sequence from position `pos` on.
    ///
    /// # Errors
    /// - [`Error::Position`] if they go beyond the last position.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    ///
    /// Nothing is added then.
    ///
    /// # Example
    /// ```
    /// use backstitch_kv::{Batch, Pos, SeqId, Token, Wanted};
    ///
    /// let mut batch = Batch::new();
    /// batch.extend(SeqId(0), Pos(0), &[Token(1), Token(7), Token(3)], Wanted::Last)?;
    /// batch.extend(SeqId(1), Pos(20), &[Token(4)], Wanted::Last)?;
    /// assert_eq!(batch.outputs(), [false, false, true, true]);
    /// # Ok::<(), backstitch_kv::Error>(())
    /// ```
    pub fn extend(
        &mut self,
        seq: SeqId,
        pos: Pos,
        tokens: &[Token],
        outputs: Wanted,
    ) -> Result<&mut Batch, Error> {
        let n = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        if n > 0 && pos.checked_add(n).is_none() {
            let first_beyond = (Pos::MAX - pos).max(0) as u64;
            let index = u32::try_from(self.len() as u64 + first_beyond).unwrap_or(u32::MAX);
            return Err(Error::Position { index, pos: Pos::MAX });
        }
        self.make_more_room(tokens.len())?;
        for (i, &token) in tokens.iter().enumerate() {
            self.push(token, pos + i as u32, &[seq], outputs.includes(i, tokens.len()));
        }
        Ok(self)
    }

    /// Add an embedding `[n_embd]` to a batch made by [`Batch::of_embeddings`].
    pub fn push_embedding(&mut self, row: &[f32], pos: Pos, seqs: &[SeqId], output: bool) -> &mut Batch {
        self.embeddings.extend_from_slice(row);
        self.push(Token::default(), pos, seqs, output)
    }

    /// Remove all tokens and keep the allocations.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.embeddings.clear();
        self.pos.clear();
        self.outputs.clear();
        self.seqs.clear();
        self.seq_ends.clear();
    }

    /// Reserve room for `n_tokens` tokens of one sequence each, so that pushing them allocates
    /// nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn make_room(&mut self, n_tokens: usize) -> Result<(), Error> {
        reserve::for_len(&mut self.tokens, n_tokens)?;
        reserve::for_len(&mut self.embeddings, n_tokens.saturating_mul(self.n_embd))?;
        reserve::for_len(&mut self.pos, n_tokens)?;
        reserve::for_len(&mut self.outputs, n_tokens)?;
        reserve::for_len(&mut self.seqs, n_tokens)?;
        reserve::for_len(&mut self.seq_ends, n_tokens)
    }

    /// Reserve room for `n` more tokens of one sequence each, with spare room as `Vec` grows.
    fn make_more_room(&mut self, n: usize) -> Result<(), Error> {
        reserve::for_more(&mut self.tokens, n)?;
        reserve::for_more(&mut self.pos, n)?;
        reserve::for_more(&mut self.outputs, n)?;
        reserve::for_more(&mut self.seqs, n)?;
        reserve::for_more(&mut self.seq_ends, n)
    }

    /// Replace this batch by a copy of tokens `range` of another one; indices beyond its end are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses; the batch is empty then.
    pub fn copy_from(&mut self, other: &Batch, range: core::ops::Range<usize>) -> Result<(), Error> {
        self.clear();
        self.n_embd = other.n_embd;
        let range = range.start..range.end.min(other.len());
        self.make_room(range.len())?;
        let n_seqs = range.clone().map(|index| other.seqs(index).len()).sum();
        reserve::for_len(&mut self.seqs, n_seqs)?;
        for index in range {
            if let Some(row) = other.embedding(index) {
                self.embeddings.extend_from_slice(row);
            }
            self.push(other.tokens[index], other.pos[index], other.seqs(index), other.outputs[index]);
        }
        Ok(())
    }

    /// Return the number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Return true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Return the number of elements of one embedding; 0 for a batch of tokens.
    pub fn n_embd(&self) -> usize {
        self.n_embd
    }

    /// Return the tokens in the caller's order; zeros for a batch of embeddings.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Return the positions in the caller's order.
    pub fn positions(&self) -> &[Pos] {
        &self.pos
    }

    /// Return the output flags in the caller's order.
    pub fn outputs(&self) -> &[bool] {
        &self.outputs
    }

    /// Return the sequences of token `index`, ascending; empty if there is no such token.
    pub fn seqs(&self, index: usize) -> &[SeqId] {
        self.seqs.get(self.seq_range(index)).unwrap_or_default()
    }

    /// Return the embedding `[n_embd]` of token `index`, or `None` in a batch of tokens.
    pub fn embedding(&self, index: usize) -> Option<&[f32]> {
        if self.n_embd == 0 {
            return None;
        }
        self.embeddings.chunks_exact(self.n_embd).nth(index)
    }

    /// Return the range of [`Self::all_seqs`] that holds the sequences of token `index`.
    pub(crate) fn seq_range(&self, index: usize) -> core::ops::Range<usize> {
        let end = |i: usize| self.seq_ends.get(i).map_or(0, |&end| end as usize);
        let start = if index == 0 { 0 } else { end(index - 1) };
        start..end(index).max(start)
    }

    /// Return the sequences of all tokens, one token after the other.
    pub(crate) fn all_seqs(&self) -> &[SeqId] {
        &self.seqs
    }

    /// Check everything that does not depend on the contents of the memory.
    ///
    /// # Errors
    /// - [`Error::TooMany`] if the batch is longer than `n_batch`.
    /// - [`Error::MixedInputs`] if tokens and embeddings are mixed.
    /// - [`Error::Position`], [`Error::NoSequence`], [`Error::UnknownSequence`] or
    ///   [`Error::RepeatedSequence`] for the first token that is wrong by itself.
    pub(crate) fn check(&self, n_batch: u32, n_seq_max: u32) -> Result<(), Error> {
        let n_tokens = self.len() as u64;
        if n_tokens > u64::from(n_batch) {
            return Err(Error::TooMany { what: "tokens in a batch", value: n_tokens, limit: n_batch.into() });
        }
        if self.embeddings.len() as u64 != n_tokens * self.n_embd as u64 {
            return Err(Error::MixedInputs { n_tokens, n_values: self.embeddings.len() as u64 });
        }
        (0..self.len()).try_for_each(|index| self.check_token(index, n_seq_max))
    }

    /// Check the position and the sequences of one token.
    fn check_token(&self, index: usize, n_seq_max: u32) -> Result<(), Error> {
        let (seqs, pos) = (self.seqs(index), self.pos[index]);
        let index = index as u32;
        if pos < Pos::ZERO || pos == Pos::MAX {
            return Err(Error::Position { index, pos });
        }
        match seqs.last() {
            None => return Err(Error::NoSequence { index }),
            Some(&seq) if seq.0 >= n_seq_max => return Err(Error::UnknownSequence { seq, n_seq_max }),
            Some(_) => {}
        }
        match seqs.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::RepeatedSequence { index, seq: pair[0] }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqs(ids: &[u32]) -> Vec<SeqId> {
        ids.iter().map(|&id| SeqId(id)).collect()
    }

    #[test]
    fn sequences_come_back_per_token_in_ascending_order() {
        let mut batch = Batch::new();
        batch.push(Token(1), Pos(0), &seqs(&[2, 0]), false).push(Token(2), Pos(0), &seqs(&[1]), true);
        assert_eq!(batch.seqs(0), seqs(&[0, 2]));
        assert_eq!(batch.seqs(1), seqs(&[1]));
        assert!(batch.seqs(2).is_empty());
    }

    #[test]
    fn tokens_of_a_sequence_are_added_in_one_go_or_not_at_all() {
        let tokens: Vec<Token> = (0..5).map(Token).collect();
        let mut batch = Batch::new();
        batch.extend(SeqId(2), Pos(7), &tokens, Wanted::Last).unwrap();
        batch.extend(SeqId(1), Pos(0), &tokens[..2], Wanted::All).unwrap();
        batch.extend(SeqId(1), Pos(2), &tokens[..1], Wanted::None).unwrap();
        batch.extend(SeqId(0), Pos::MAX, &[], Wanted::All).unwrap();
        assert_eq!(batch.positions(), [7, 8, 9, 10, 11, 0, 1, 2].map(Pos));
        assert_eq!(batch.outputs(), [false, false, false, false, true, true, true, false]);
        assert_eq!((batch.seqs(4), batch.seqs(7)), (&seqs(&[2])[..], &seqs(&[1])[..]));
        let refused = batch.extend(SeqId(0), Pos(i32::MAX - 3), &tokens, Wanted::None).map(|_| ());
        assert_eq!(refused, Err(Error::Position { index: 11, pos: Pos::MAX }));
        assert_eq!(batch.len(), 8);
        batch.extend(SeqId(0), Pos(i32::MAX - 3), &tokens[..3], Wanted::None).unwrap();
        assert_eq!(batch.check(64, 4), Ok(()));
    }

    #[test]
    fn a_cleared_batch_is_filled_again_without_allocating() {
        let mut batch = Batch::new();
        let fill = |batch: &mut Batch| {
            for i in 0..64 {
                batch.push(Token(i), Pos(i as i32), &[SeqId(0)], false);
            }
        };
        fill(&mut batch);
        let before = (batch.tokens.as_ptr(), batch.seqs.as_ptr(), batch.seq_ends.as_ptr());
        batch.clear();
        assert!(batch.is_empty());
        fill(&mut batch);
        assert_eq!((batch.tokens.as_ptr(), batch.seqs.as_ptr(), batch.seq_ends.as_ptr()), before);
    }

    #[test]
    fn a_copy_ignores_indices_beyond_the_end() {
        let mut batch = Batch::new();
        batch.push(Token(1), Pos(0), &seqs(&[0]), false).push(Token(2), Pos(1), &seqs(&[0, 1]), true);
        let mut copy = Batch::new();
        for (range, tokens) in [
            (0..usize::MAX, &batch.tokens[..]),
            (1..usize::MAX, &batch.tokens[1..]),
            (2..usize::MAX, &[]),
            (usize::MAX..usize::MAX, &[]),
        ] {
            assert_eq!(copy.copy_from(&batch, range), Ok(()));
            assert_eq!(copy.tokens(), tokens);
        }
        copy.copy_from(&batch, 1..9).unwrap();
        assert_eq!(
            (copy.seqs(0), copy.outputs(), copy.positions()),
            (batch.seqs(1), &[true][..], &[Pos(1)][..])
        );
    }

    #[test]
    fn impossible_batches_are_refused_with_the_value_that_is_wrong() {
        let one = |pos: i32, ids: &[u32]| {
            let mut batch = Batch::new();
            batch.push(Token(0), Pos(pos), &seqs(ids), false);
            batch
        };
        assert_eq!(one(-3, &[0]).check(8, 4), Err(Error::Position { index: 0, pos: Pos(-3) }));
        assert_eq!(one(i32::MAX, &[0]).check(8, 4), Err(Error::Position { index: 0, pos: Pos::MAX }));
        assert_eq!(one(0, &[]).check(8, 4), Err(Error::NoSequence { index: 0 }));
        assert_eq!(one(0, &[1, 4]).check(8, 4), Err(Error::UnknownSequence { seq: SeqId(4), n_seq_max: 4 }));
        assert_eq!(one(0, &[1, 2, 1]).check(8, 4), Err(Error::RepeatedSequence { index: 0, seq: SeqId(1) }));
        assert_eq!(one(0, &[1]).check(8, 4), Ok(()));
        let too_many = Error::TooMany { what: "tokens in a batch", value: 1, limit: 0 };
        assert_eq!(one(0, &[1]).check(0, 4), Err(too_many));
    }

    #[test]
    fn tokens_and_embeddings_do_not_mix() {
        let mut batch = Batch::of_embeddings(3);
        batch.push_embedding(&[1.0, 2.0, 3.0], Pos(0), &[SeqId(0)], true);
        assert_eq!(batch.check(8, 1), Ok(()));
        assert_eq!(batch.embedding(0), Some([1.0, 2.0, 3.0].as_slice()));
        batch.push(Token(4), Pos(1), &[SeqId(0)], true);
        assert_eq!(batch.check(8, 1), Err(Error::MixedInputs { n_tokens: 2, n_values: 3 }));
        let mut short = Batch::new();
        short.push_embedding(&[1.0], Pos(0), &[SeqId(0)], true);
        assert_eq!(short.check(8, 1), Err(Error::MixedInputs { n_tokens: 1, n_values: 1 }));
    }
}
