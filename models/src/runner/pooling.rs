//! Pooling: one embedding for a whole sequence, made of those of its tokens.

use crate::error::Error;
use crate::hparams::Pooling;
use alloc::{vec, vec::Vec};
use backstitch_kv::{Batch, SeqId};

/// Pooled embeddings of the last batch, one per sequence.
#[derive(Debug)]
pub(super) struct Pooled {
    width: usize,
    /// Pooled embeddings, `[n_rows, width]`.
    rows: Vec<f32>,
    /// Number of tokens added to each row so far.
    n_tokens: Vec<u32>,
    row_of_seq: Vec<Option<u32>>,
}

impl Pooled {
    pub(super) fn new(n_seq_max: u32) -> Self {
        let row_of_seq = vec![None; n_seq_max as usize];
        Pooled { width: 0, rows: Vec::new(), n_tokens: Vec::new(), row_of_seq }
    }

    /// Reserve a row of `width` for each sequence of `batch`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses; all rows are cleared then.
    pub(super) fn begin(&mut self, batch: &Batch, width: usize) -> Result<(), Error> {
        self.clear();
        self.width = width;
        let mut n_rows = 0;
        for seq in (0..batch.len()).flat_map(|i| batch.seqs(i)) {
            if let Some(row @ None) = self.row_of_seq.get_mut(seq.index()) {
                *row = Some(n_rows);
                n_rows += 1;
            }
        }
        let len = (n_rows as usize).saturating_mul(width);
        let more_rows = self.rows.try_reserve_exact(len);
        if more_rows.and_then(|()| self.n_tokens.try_reserve_exact(n_rows as usize)).is_err() {
            self.clear();
            return Err(Error::OutOfMemory { what: "pooled embeddings", n_bytes: 4 * len as u64 });
        }
        self.rows.resize(len, 0.0);
        self.n_tokens.resize(n_rows as usize, 0);
        Ok(())
    }

    /// Add the embedding `x` of the next token of `seq`.
    pub(super) fn add(&mut self, pooling: Pooling, seq: SeqId, x: &[f32]) {
        let Some(row) = self.row_number(seq) else { return };
        let Some(out) = self.rows.get_mut(row * self.width..(row + 1) * self.width) else { return };
        match (pooling, self.n_tokens[row]) {
            (Pooling::None, _) | (Pooling::Cls, 1..) => {}
            (Pooling::Mean, _) => out.iter_mut().zip(x).for_each(|(out, x)| *out += x),
            (Pooling::Cls, 0) | (Pooling::Last, _) => out.copy_from_slice(x),
        }
        self.n_tokens[row] += 1;
    }

    /// Finish the rows after the last token.
    pub(super) fn finish(&mut self, pooling: Pooling) {
        if pooling == Pooling::Mean {
            for (row, &n) in self.rows.chunks_exact_mut(self.width.max(1)).zip(&self.n_tokens) {
                row.iter_mut().for_each(|x| *x /= n as f32);
            }
        }
    }

    /// Clear all rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.n_tokens.clear();
        self.row_of_seq.fill(None);
    }

    /// Clear the row of `seq`.
    pub(super) fn forget(&mut self, seq: SeqId) {
        if let Some(row) = self.row_of_seq.get_mut(seq.index()) {
            *row = None;
        }
    }

    fn row_number(&self, seq: SeqId) -> Option<usize> {
        self.row_of_seq.get(seq.index()).copied().flatten().map(|row| row as usize)
    }

    /// Return the pooled embedding of `seq`.
    pub(super) fn of_sequence(&self, seq: SeqId) -> Option<&[f32]> {
        let row = self.row_number(seq)?;
        self.rows.get(row * self.width..(row + 1) * self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_kv::{Pos, Token};

    #[test]
    fn every_sequence_is_pooled_from_its_own_tokens() {
        let mut batch = Batch::new();
        let x = [[1.0, 2.0], [3.0, 5.0], [10.0, 20.0]];
        let seqs: [&[SeqId]; 3] = [&[SeqId(0)], &[SeqId(0), SeqId(2)], &[SeqId(2)]];
        for seqs in seqs {
            batch.push(Token(0), Pos(0), seqs, false);
        }
        let cases = [
            (Pooling::Mean, [[2.0, 3.5], [6.5, 12.5]]),
            (Pooling::Cls, [[1.0, 2.0], [3.0, 5.0]]),
            (Pooling::Last, [[3.0, 5.0], [10.0, 20.0]]),
        ];
        let mut pooled = Pooled::new(3);
        for (pooling, wanted) in cases {
            pooled.begin(&batch, 2).unwrap();
            for (seqs, x) in seqs.iter().zip(&x) {
                seqs.iter().for_each(|&seq| pooled.add(pooling, seq, x));
            }
            pooled.finish(pooling);
            assert_eq!(pooled.of_sequence(SeqId(0)), Some(&wanted[0][..]), "{pooling:?}");
            assert_eq!(pooled.of_sequence(SeqId(1)), None);
            assert_eq!(pooled.of_sequence(SeqId(2)), Some(&wanted[1][..]), "{pooling:?}");
        }
        pooled.forget(SeqId(0));
        assert_eq!(pooled.of_sequence(SeqId(0)), None);
    }
}
