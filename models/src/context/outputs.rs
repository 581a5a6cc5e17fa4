//! Rows of logits or embeddings, and whose they are.

use super::pooling::{Pooled, Pooling};
use crate::{error::Error, graph::Head, hparams::Hparams};
use alloc::{sync::Arc, vec, vec::Vec};
use backstitch_kv::{Batch, SeqId};

/// Outputs of the last batch, in the caller's order.
#[derive(Debug)]
pub(crate) struct Outputs {
    n_vocab: usize,
    n_embd: usize,
    head: Head,
    /// `[n_rows, width]`.
    rows: Vec<f32>,
    /// For each token of the batch its row.
    row_of_index: Vec<Option<u32>>,
    /// The token of the batch that is the first of the piece being computed.
    start: usize,
    /// For each sequence the row of its last token.
    row_of_seq: Vec<Option<u32>>,
    /// For each sequence the logits of its last token where they came with it from a file. The next batch lets go of them too.
    restored: Vec<Option<Arc<Vec<f32>>>>,
    /// What is made of embeddings.
    pooling: Pooling,
    pooled: Pooled,
    /// Whether all of them were computed: what a failure leaves half done is not shown.
    is_whole: bool,
}

impl Outputs {
    /// No outputs yet.
    pub(super) fn new(h: &Hparams, n_seq_max: u32, pooling: Pooling) -> Self {
        Outputs {
            n_vocab: h.n_vocab,
            n_embd: h.n_embd,
            head: Head::Logits,
            // Room for the usual case, one row, so that the first token allocates nothing either.
            rows: Vec::with_capacity(h.n_vocab),
            row_of_index: Vec::new(),
            start: 0,
            row_of_seq: vec![None; n_seq_max as usize],
            restored: vec![None; n_seq_max as usize],
            pooling,
            pooled: Pooled::new(n_seq_max),
            is_whole: true,
        }
    }

    /// Makes room for the outputs that `batch` asks for; grows to the largest batch met and stays there. None are to be had
    /// until they are published.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; earlier outputs are kept then, but pooled ones.
    pub(super) fn begin(&mut self, batch: &Batch, head: Head) -> Result<(), Error> {
        let all = head == Head::Embeddings && self.pooling != Pooling::None;
        let width = self.width(head);
        let n_rows = batch.outputs().iter().filter(|&&wanted| wanted || all).count();
        let len = n_rows.saturating_mul(width);
        let what = if head == Head::Logits { "logits" } else { "embeddings" };
        let refused = Error::OutOfMemory { what, n_bytes: 4 * len as u64 };
        if self.rows.try_reserve_exact(len.saturating_sub(self.rows.len())).is_err() {
            return Err(refused);
        }
        match all {
            true => self.pooled.begin(batch, width)?,
            false => self.pooled.clear(),
        }
        self.is_whole = false;
        self.row_of_index.clear();
        self.forget_rows();
        self.head = head;
        // Rows of earlier batches are overwritten, not wiped.
        if self.rows.len() < len {
            self.rows.resize(len, 0.0);
        }
        let mut row = 0;
        self.row_of_index.extend(batch.outputs().iter().map(|&wanted| {
            (wanted || all).then(|| {
                row += 1;
                row - 1
            })
        }));
        Ok(())
    }

    /// All that `begin` made room for is there now.
    pub(super) fn publish(&mut self) {
        self.is_whole = true;
    }

    /// Whether the outputs of all tokens are needed, also of those that the batch does not ask for.
    pub(crate) fn takes_all(&self) -> bool {
        self.head == Head::Embeddings && self.pooling != Pooling::None
    }

    /// Makes one embedding for each sequence of `batch`, whose own are there.
    pub(super) fn pool(&mut self, batch: &Batch) {
        if !self.takes_all() {
            return;
        }
        let width = self.width(self.head);
        for i in 0..batch.len() {
            let Some(row) = self.row_at(i) else { continue };
            let Some(x) = self.rows.get(row * width..(row + 1) * width) else { continue };
            batch.seqs(i).iter().for_each(|&seq| self.pooled.add(self.pooling, seq, x));
        }
        self.pooled.finish(self.pooling);
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.row_of_index.clear();
        self.forget_rows();
        self.pooled.clear();
    }

    fn forget_rows(&mut self) {
        self.row_of_seq.fill(None);
        self.restored.fill(None);
    }

    /// The logits of the last token of `seq` are these, until it changes or the next batch puts out others.
    pub(super) fn restore(&mut self, seq: SeqId, logits: Option<Arc<Vec<f32>>>) {
        self.forget(seq);
        if let Some(slot) = self.restored.get_mut(seq.index()) {
            *slot = logits;
        }
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
        self.restored[fork.index()] = self.restored[seq.index()].clone();
    }

    /// The last outputs are no longer those of `seq`.
    pub(super) fn forget(&mut self, seq: SeqId) {
        if let Some(slot) = self.row_of_seq.get_mut(seq.index()) {
            *slot = None;
        }
        if let Some(slot) = self.restored.get_mut(seq.index()) {
            *slot = None;
        }
        self.pooled.forget(seq);
    }

    /// The output of token `index` of the batch, if the last batch put out what `head` says.
    pub(super) fn row(&self, head: Head, index: usize) -> Option<&[f32]> {
        let row = self.row_at(index).filter(|_| self.is_whole && self.head == head)?;
        self.row_of_head(row)
    }

    /// The logits of the last token of `seq`.
    pub(super) fn of_sequence(&self, seq: SeqId) -> Option<&[f32]> {
        if let Some(logits) = self.restored.get(seq.index())? {
            return Some(logits);
        }
        let row = self.row_of_seq.get(seq.index()).copied().flatten()? as usize;
        self.row_of_head(row)
    }

    /// The pooled embedding of `seq`.
    pub(super) fn pooled(&self, seq: SeqId) -> Option<&[f32]> {
        self.pooled.of_sequence(seq).filter(|_| self.is_whole)
    }

    fn width(&self, head: Head) -> usize {
        if head == Head::Logits { self.n_vocab } else { self.n_embd }
    }

    fn row_of_head(&self, row: usize) -> Option<&[f32]> {
        let width = self.width(self.head);
        self.rows.get(row * width..(row + 1) * width)
    }

    fn row_at(&self, index: usize) -> Option<usize> {
        self.row_of_index.get(index).copied().flatten().map(|row| row as usize)
    }

    /// The piece that is computed next starts at token `start` of the batch.
    pub(super) fn start_at(&mut self, start: usize) {
        self.start = start;
    }

    /// The number of the row of token `index` of the piece that is being computed.
    pub(crate) fn row_number(&self, index: usize) -> Option<usize> {
        self.row_at(self.start.saturating_add(index))
    }

    /// All rows, for whoever computes them.
    pub(crate) fn rows_mut(&mut self) -> &mut [f32] {
        &mut self.rows
    }
}
