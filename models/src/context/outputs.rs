//! Rows of logits, and whose they are.

use crate::error::Error;
use alloc::{vec, vec::Vec};
use backstitch_kv::{Batch, SeqId};

/// Logits of the last batch, in the caller's order.
#[derive(Debug)]
pub(crate) struct Outputs {
    n_vocab: usize,
    /// `[n_rows, n_vocab]`.
    logits: Vec<f32>,
    /// For each token of the batch its row.
    row_of_index: Vec<Option<u32>>,
    /// The token of the batch that is the first of the piece being computed.
    start: usize,
    /// For each sequence the row of its last token.
    row_of_seq: Vec<Option<u32>>,
}

impl Outputs {
    pub(super) fn new(n_vocab: usize, n_seq_max: u32) -> Self {
        // Room for the usual case, one row, so that the first token allocates nothing either.
        let logits = Vec::with_capacity(n_vocab);
        Outputs {
            n_vocab,
            logits,
            row_of_index: Vec::new(),
            start: 0,
            row_of_seq: vec![None; n_seq_max as usize],
        }
    }

    /// Makes room for the outputs that `batch` asks for; grows to the largest batch met and stays there.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; earlier outputs are kept then.
    pub(super) fn begin(&mut self, batch: &Batch) -> Result<(), Error> {
        let n_rows = batch.outputs().iter().filter(|&&wanted| wanted).count();
        let len = n_rows.saturating_mul(self.n_vocab);
        let refused = Error::OutOfMemory { what: "logits", n_bytes: 4 * len as u64 };
        if self.logits.try_reserve_exact(len.saturating_sub(self.logits.len())).is_err() {
            return Err(refused);
        }
        self.clear();
        // Rows of earlier batches are overwritten, not wiped.
        if self.logits.len() < len {
            self.logits.resize(len, 0.0);
        }
        let mut row = 0;
        self.row_of_index.extend(batch.outputs().iter().map(|&wanted| {
            wanted.then(|| {
                row += 1;
                row - 1
            })
        }));
        Ok(())
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.row_of_index.clear();
        self.row_of_seq.fill(None);
    }

    /// Notes that token `index` is the last of `seq` so far.
    pub(super) fn assign(&mut self, seq: SeqId, index: usize) {
        let row = self.row_of_index.get(index).copied().flatten();
        if let Some(slot) = self.row_of_seq.get_mut(seq.index()) {
            *slot = row;
        }
    }

    /// The row of `seq` is `fork`'s too.
    pub(super) fn share(&mut self, seq: SeqId, fork: SeqId) {
        self.row_of_seq[fork.index()] = self.row_of_seq[seq.index()];
    }

    /// The last logits are no longer those of `seq`.
    pub(super) fn forget(&mut self, seq: SeqId) {
        if let Some(slot) = self.row_of_seq.get_mut(seq.index()) {
            *slot = None;
        }
    }

    /// The logits of token `index` of the batch.
    pub(super) fn row(&self, index: usize) -> Option<&[f32]> {
        let row = self.row_of_index.get(index).copied().flatten()?;
        self.rows(row as usize, 1)
    }

    pub(super) fn of_sequence(&self, seq: SeqId) -> Option<&[f32]> {
        let row = self.row_of_seq.get(seq.index()).copied().flatten()?;
        self.rows(row as usize, 1)
    }

    fn rows(&self, first: usize, n: usize) -> Option<&[f32]> {
        self.logits.get(first * self.n_vocab..(first + n) * self.n_vocab)
    }

    /// The piece that is computed next starts at token `start` of the batch.
    pub(super) fn start_at(&mut self, start: usize) {
        self.start = start;
    }

    /// The number of the row of token `index` of the piece that is being computed.
    pub(crate) fn row_number(&self, index: usize) -> Option<usize> {
        self.row_of_index.get(self.start.saturating_add(index)).copied().flatten().map(|row| row as usize)
    }

    /// All rows, for whoever computes them.
    pub(crate) fn logits_mut(&mut self) -> &mut [f32] {
        &mut self.logits
    }
}
