//! Rows of logits or embeddings, and whose they are.
//!
//! There are two sets of rows: those of the last batch that succeeded, which callers see, and those of the batch that is being
//! computed. They change places when it has succeeded, so that a failure takes nothing away.

use super::pooling::{Pooled, Pooling};
use crate::{error::Error, graph::Head, hparams::Hparams};
use alloc::{sync::Arc, vec, vec::Vec};
use backstitch_kv::{Batch, SeqId};

/// Logits that belong to a sequence, apart from any batch; forks share them.
pub(super) type Logits = Arc<Vec<f32>>;

/// Batches that ask for so many rows are followed by others alike: room for these is made at once, so that decoding soon stops to
/// allocate. Larger ones may come alone.
const FEW_ROWS: usize = 64;

/// Outputs of one batch, in the caller's order.
#[derive(Debug)]
struct Rows {
    head: Head,
    /// Floats in a row.
    width: usize,
    /// `[n_rows, width]`; longer if an earlier batch had more.
    values: Vec<f32>,
    /// For each token of the batch its row.
    of_index: Vec<Option<u32>>,
    pooled: Pooled,
}

impl Rows {
    /// No rows, with room for one of logits: the usual case, so that the first token allocates nothing either.
    fn new(n_vocab: usize, n_seq_max: u32) -> Self {
        Rows {
            head: Head::Logits,
            width: n_vocab,
            values: Vec::with_capacity(n_vocab),
            of_index: Vec::new(),
            pooled: Pooled::new(n_seq_max),
        }
    }

    /// Makes room for `n_rows` rows of a batch of `n_tokens`.
    fn make_room(&mut self, head: Head, width: usize, n_tokens: usize, n_rows: usize) -> Result<(), Error> {
        let len = n_rows.saturating_mul(width);
        let what = if head == Head::Logits { "logits" } else { "embeddings" };
        let more = self.values.try_reserve_exact(len.saturating_sub(self.values.len()));
        self.of_index.clear();
        if more.and_then(|()| self.of_index.try_reserve(n_tokens)).is_err() {
            return Err(Error::OutOfMemory { what, n_bytes: 4 * len as u64 });
        }
        // Rows of earlier batches are overwritten, not wiped.
        if self.values.len() < len {
            self.values.resize(len, 0.0);
        }
        (self.head, self.width) = (head, width);
        Ok(())
    }

    /// Makes room for another batch of `n_tokens`, whose rows have `n_floats`, beside what is shown.
    fn make_spare_room(&mut self, n_tokens: usize, n_floats: usize) -> Result<(), Error> {
        let tokens = self.of_index.try_reserve(n_tokens.saturating_sub(self.of_index.len()));
        let n_more = n_floats.saturating_sub(self.values.len());
        let refused = Error::OutOfMemory { what: "logits", n_bytes: 4 * n_floats as u64 };
        tokens.and_then(|()| self.values.try_reserve_exact(n_more)).map_err(|_| refused)
    }

    fn row(&self, row: usize) -> Option<&[f32]> {
        self.values.get(row * self.width..(row + 1) * self.width)
    }

    fn number(&self, index: usize) -> Option<usize> {
        self.of_index.get(index).copied().flatten().map(|row| row as usize)
    }

    fn clear(&mut self) {
        self.of_index.clear();
        self.pooled.clear();
    }
}

/// Outputs of the last batch that succeeded and of the one being computed, and the logits of sequences.
#[derive(Debug)]
pub(crate) struct Outputs {
    n_vocab: usize,
    n_embd: usize,
    /// What is made of embeddings.
    pooling: Pooling,
    shown: Rows,
    staged: Rows,
    /// The token of the batch that is the first of the piece being computed.
    start: usize,
    /// For each sequence the row shown of its last token.
    row_of_seq: Vec<Option<u32>>,
    /// For each sequence the logits of its last token where they are its own: they came with it from a file, or were made again.
    own: Vec<Option<Logits>>,
}

impl Outputs {
    /// No outputs yet.
    pub(super) fn new(h: &Hparams, n_seq_max: u32, pooling: Pooling) -> Self {
        Outputs {
            n_vocab: h.n_vocab,
            n_embd: h.n_embd,
            pooling,
            shown: Rows::new(h.n_vocab, n_seq_max),
            staged: Rows::new(h.n_vocab, n_seq_max),
            start: 0,
            row_of_seq: vec![None; n_seq_max as usize],
            own: vec![None; n_seq_max as usize],
        }
    }

    /// Makes room for the outputs that `batch` asks for; grows to the largest batch met and stays there. Those of the batch before
    /// are shown until these are published.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn begin(&mut self, batch: &Batch, head: Head) -> Result<(), Error> {
        let all = head == Head::Embeddings && self.pooling != Pooling::None;
        let width = if head == Head::Logits { self.n_vocab } else { self.n_embd };
        let n_rows = batch.outputs().iter().filter(|&&wanted| wanted || all).count();
        let staged = &mut self.staged;
        staged.make_room(head, width, batch.len(), n_rows)?;
        match all {
            true => staged.pooled.begin(batch, width)?,
            false => staged.pooled.clear(),
        }
        let mut row = 0;
        staged.of_index.extend(batch.outputs().iter().map(|&wanted| {
            (wanted || all).then(|| {
                row += 1;
                row - 1
            })
        }));
        self.shown.make_spare_room(batch.len(), if n_rows <= FEW_ROWS { n_rows * width } else { 0 })
    }

    /// All that `begin` made room for is there now: it takes the place of what was shown.
    pub(super) fn publish(&mut self) {
        core::mem::swap(&mut self.shown, &mut self.staged);
        self.row_of_seq.fill(None);
    }

    /// The output of token `index` of a batch that was computed and will not be published.
    pub(super) fn staged(&self, index: usize) -> Option<&[f32]> {
        self.staged.row(self.staged.number(index)?)
    }

    /// Return true if the outputs of all tokens are needed, also of those that the batch does not ask for.
    pub(crate) fn takes_all(&self) -> bool {
        self.staged.head == Head::Embeddings && self.pooling != Pooling::None
    }

    /// Makes one embedding for each sequence of `batch`, whose own are there.
    pub(super) fn pool(&mut self, batch: &Batch) {
        if !self.takes_all() {
            return;
        }
        let Rows { width, values, of_index, pooled, .. } = &mut self.staged;
        for (i, row) in of_index.iter().enumerate() {
            let Some(row) = row.map(|row| row as usize) else { continue };
            let Some(x) = values.get(row * *width..(row + 1) * *width) else { continue };
            batch.seqs(i).iter().for_each(|&seq| pooled.add(self.pooling, seq, x));
        }
        pooled.finish(self.pooling);
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.shown.clear();
        self.row_of_seq.fill(None);
        self.own.fill(None);
    }

    /// The logits of the last token of `seq` are these, until it changes.
    pub(super) fn give(&mut self, seq: SeqId, logits: Option<Logits>) {
        self.forget(seq);
        if let Some(slot) = self.own.get_mut(seq.index()) {
            *slot = logits;
        }
    }

    /// Notes that token `index` is the last of `seq` so far.
    pub(super) fn assign(&mut self, seq: SeqId, index: usize) {
        let row = self.shown.of_index.get(index).copied().flatten();
        if let Some(slot) = self.row_of_seq.get_mut(seq.index()) {
            *slot = row;
        }
        if let Some(slot) = self.own.get_mut(seq.index()) {
            *slot = None;
        }
    }

    /// The row of `seq` is `fork`'s too.
    pub(super) fn share(&mut self, seq: SeqId, fork: SeqId) {
        self.row_of_seq[fork.index()] = self.row_of_seq[seq.index()];
        self.own[fork.index()] = self.own[seq.index()].clone();
    }

    /// The last outputs are no longer those of `seq`.
    pub(super) fn forget(&mut self, seq: SeqId) {
        if let Some(slot) = self.row_of_seq.get_mut(seq.index()) {
            *slot = None;
        }
        if let Some(slot) = self.own.get_mut(seq.index()) {
            *slot = None;
        }
        self.shown.pooled.forget(seq);
    }

    /// The output of token `index` of the batch, if the last batch put out what `head` says.
    pub(super) fn row(&self, head: Head, index: usize) -> Option<&[f32]> {
        let row = self.shown.number(index).filter(|_| self.shown.head == head)?;
        self.shown.row(row)
    }

    /// The logits of the last token of `seq`.
    pub(super) fn of_sequence(&self, seq: SeqId) -> Option<&[f32]> {
        if let Some(logits) = self.own.get(seq.index())? {
            return Some(logits);
        }
        let row = self.row_of_seq.get(seq.index()).copied().flatten()? as usize;
        self.shown.row(row)
    }

    /// A copy of the logits of the last token of `seq` that outlives the batch; none if they are not at hand or there is no memory.
    pub(super) fn keep(&self, seq: SeqId) -> Option<Logits> {
        match self.own.get(seq.index()) {
            Some(Some(logits)) => Some(logits.clone()),
            _ => copied(self.of_sequence(seq)?).ok(),
        }
    }

    /// The pooled embedding of `seq`.
    pub(super) fn pooled(&self, seq: SeqId) -> Option<&[f32]> {
        self.shown.pooled.of_sequence(seq)
    }

    /// The piece that is computed next starts at token `start` of the batch.
    pub(super) fn start_at(&mut self, start: usize) {
        self.start = start;
    }

    /// The number of the row of token `index` of the piece that is being computed.
    pub(crate) fn row_number(&self, index: usize) -> Option<usize> {
        self.staged.number(self.start.saturating_add(index))
    }

    /// All rows, for whoever computes them.
    pub(crate) fn rows_mut(&mut self) -> &mut [f32] {
        &mut self.staged.values
    }
}

/// Logits in memory of their own.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(super) fn copied(logits: &[f32]) -> Result<Logits, Error> {
    let mut copy = Vec::new();
    let refused = Error::OutOfMemory { what: "logits", n_bytes: size_of_val(logits) as u64 };
    copy.try_reserve_exact(logits.len()).map_err(|_| refused)?;
    copy.extend_from_slice(logits);
    Ok(Arc::new(copy))
}
