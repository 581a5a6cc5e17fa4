//! Outputs: rows of logits or embeddings, and the sequences that they belong to.
//!
//! There are two sets of rows: those of the last successful batch, which callers see, and those of
//! the batch in progress. The two are swapped when it succeeds, so that a failed batch changes no
//! output.

mod shared;

pub use shared::SharedLogits;

use super::origin::are_finite;
use super::pooling::Pooled;
use crate::error::Error;
use crate::graph::Head;
use crate::hparams::{Hparams, Pooling};
use alloc::{sync::Arc, vec, vec::Vec};
use backstitch_kv::{Batch, SeqId};

/// Logits of a sequence, independent of any batch; forks share them.
pub(crate) type Logits = Arc<Vec<f32>>;

/// Number of rows up to which space for the next batch is reserved at once. Batches with few rows
/// are mostly followed by similar ones, so decoding soon allocates nothing; large batches may come
/// alone.
const FEW_ROWS: usize = 64;

/// Outputs of one batch, in the caller's order.
#[derive(Debug)]
struct Rows {
    head: Head,
    /// Number of values per row.
    width: usize,
    /// Values `[n_rows, width]`; longer if an earlier batch had more, but never than `FEW_ROWS`
    /// rows of logits if it has no more itself. Callers may share them, and they never change then.
    values: Logits,
    /// Embeddings beside logits, if they were asked for; longer if an earlier batch had more.
    beside: Vec<f32>,
    /// Number of values per row of `beside`; `None` if there are none.
    width_beside: Option<usize>,
    /// Row of each token of the batch; `None` if it has no output.
    of_index: Vec<Option<u32>>,
    pooled: Pooled,
}

impl Rows {
    /// Return no rows, with space for one row of logits, so that the first token allocates nothing.
    fn new(n_vocab: usize, n_seq_max: u32) -> Self {
        Rows {
            head: Head::Logits,
            width: n_vocab,
            values: Arc::new(Vec::with_capacity(n_vocab)),
            beside: Vec::new(),
            width_beside: None,
            of_index: Vec::new(),
            pooled: Pooled::new(n_seq_max),
        }
    }

    /// Return the values for writing: new ones, if a caller shares those that are there.
    fn own_values(&mut self) -> &mut Vec<f32> {
        if Arc::get_mut(&mut self.values).is_none() {
            self.values = Logits::default();
        }
        Arc::make_mut(&mut self.values)
    }

    /// Reserve `n_rows` rows for a batch of `n_tokens`.
    fn make_room(&mut self, head: Head, width: usize, n_tokens: usize, n_rows: usize) -> Result<(), Error> {
        let len = n_rows.saturating_mul(width);
        let what = if head == Head::Logits { "logits" } else { "embeddings" };
        self.of_index.clear();
        let tokens = self.of_index.try_reserve(n_tokens);
        let values = self.own_values();
        // Callers may share the logits of a few rows, but not with the space of a large batch.
        if head == Head::Logits && n_rows <= FEW_ROWS && values.len() > FEW_ROWS * width {
            *values = Vec::new();
        }
        let more = values.try_reserve_exact(len.saturating_sub(values.len()));
        if tokens.and(more).is_err() {
            return Err(Error::OutOfMemory { what, n_bytes: 4 * len as u64 });
        }
        // Old values are overwritten later, so clearing them would be wasted.
        if values.len() < len {
            values.resize(len, 0.0);
        }
        (self.head, self.width, self.width_beside) = (head, width, None);
        Ok(())
    }

    /// Reserve space for another batch of `n_tokens` whose rows have `n_floats` values in all.
    fn make_spare_room(&mut self, n_tokens: usize, n_floats: usize) -> Result<(), Error> {
        let tokens = self.of_index.try_reserve(n_tokens.saturating_sub(self.of_index.len()));
        // Values that a caller shares will not be written to.
        let values = Arc::get_mut(&mut self.values)
            .map_or(Ok(()), |values| values.try_reserve_exact(n_floats.saturating_sub(values.len())));
        let refused = Error::OutOfMemory { what: "logits", n_bytes: 4 * n_floats as u64 };
        tokens.and(values).map_err(|_| refused)
    }

    fn row(&self, row: usize) -> Option<&[f32]> {
        self.values.get(row * self.width..(row + 1) * self.width)
    }

    fn number(&self, index: usize) -> Option<usize> {
        self.of_index.get(index).copied().flatten().map(|row| row as usize)
    }

    /// Reserve the embeddings `[n_rows, width]` beside the logits of a batch.
    fn make_room_beside(&mut self, width: usize) -> Result<(), Error> {
        let len = self.of_index.iter().flatten().count().saturating_mul(width);
        let more = self.beside.try_reserve_exact(len.saturating_sub(self.beside.len()));
        more.map_err(|_| Error::OutOfMemory { what: "embeddings", n_bytes: 4 * len as u64 })?;
        self.beside.resize(len.max(self.beside.len()), 0.0);
        self.width_beside = Some(width);
        Ok(())
    }
}

/// Outputs of the last successful batch and of the one in progress, and the logits of sequences.
///
/// A row belongs to a sequence as long as the batch is the last one. Logits that must live longer,
/// those of pins or restored sequences, are copied to `own`.
#[derive(Debug)]
pub(crate) struct Outputs {
    n_vocab: usize,
    n_embd: usize,
    /// Pooling of embeddings.
    pooling: Pooling,
    shown: Rows,
    staged: Rows,
    /// First token of the piece in progress, counted in the batch.
    start: usize,
    /// Row of the last token, per sequence.
    row_of_seq: Vec<Option<u32>>,
    /// Logits of the last token, per sequence, if they are not a row: they were restored or
    /// recomputed.
    own: Vec<Option<Logits>>,
}

impl Outputs {
    /// Return empty outputs.
    pub(crate) fn new(h: &Hparams, n_seq_max: u32, pooling: Pooling) -> Self {
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

    /// Reserve space for the outputs that `batch` requests. Space grows to the largest batch and
    /// stays until logits of few rows are requested again. The outputs of the previous batch remain
    /// visible until these are published.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub(crate) fn begin(&mut self, batch: &Batch, head: Head) -> Result<(), Error> {
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

    /// Yield the embeddings of the tokens with outputs beside their logits, for the batch that has
    /// begun.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub(crate) fn begin_beside(&mut self) -> Result<(), Error> {
        self.staged.make_room_beside(self.n_embd)
    }

    /// Return true if the batch in progress yields embeddings beside logits.
    pub(crate) fn are_both(&self) -> bool {
        self.staged.width_beside.is_some()
    }

    /// Make the staged outputs visible, in place of the former ones.
    pub(crate) fn publish(&mut self) {
        core::mem::swap(&mut self.shown, &mut self.staged);
        self.row_of_seq.fill(None);
    }

    /// Return the staged output of token `index` of a batch that will not be published.
    pub(crate) fn staged(&self, index: usize) -> Option<&[f32]> {
        self.staged.row(self.staged.number(index)?)
    }

    /// Return true if the staged outputs of these tokens of the piece in progress are finite.
    pub(crate) fn are_finite(&self, mut tokens: impl Iterator<Item = usize>) -> bool {
        let Rows { width_beside, beside, .. } = &self.staged;
        tokens.all(|index| {
            let Some(row) = self.row_number(index) else { return true };
            let beside = width_beside.and_then(|width| beside.get(row * width..(row + 1) * width));
            [self.staged.row(row), beside].into_iter().flatten().all(are_finite)
        })
    }

    /// Return true if the staged outputs are embeddings.
    pub(crate) fn are_embeddings(&self) -> bool {
        self.staged.head == Head::Embeddings
    }

    /// Return true if the outputs of all tokens are needed, also of those that the batch does not
    /// request.
    pub(crate) fn takes_all(&self) -> bool {
        self.are_embeddings() && self.pooling != Pooling::None
    }

    /// Pool the staged embeddings of each sequence of `batch`.
    pub(crate) fn pool(&mut self, batch: &Batch) {
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

    /// Drop the outputs of all sequences. The rows of the last batch stay visible until the next.
    pub(crate) fn clear(&mut self) {
        self.shown.pooled.clear();
        self.row_of_seq.fill(None);
        self.own.fill(None);
    }

    /// Set the logits of the last token of `seq`, until it changes.
    pub(crate) fn give(&mut self, seq: SeqId, logits: Option<Logits>) {
        if let Some(slot) = self.row_of_seq.get_mut(seq.index()) {
            *slot = None;
        }
        if let Some(slot) = self.own.get_mut(seq.index()) {
            *slot = logits;
        }
    }

    /// Record token `index` as the last of `seq` so far.
    pub(crate) fn assign(&mut self, seq: SeqId, index: usize) {
        let row = self.shown.of_index.get(index).copied().flatten();
        let row = row.filter(|_| self.shown.head == Head::Logits);
        if let Some(slot) = self.row_of_seq.get_mut(seq.index()) {
            *slot = row;
        }
        if let Some(slot) = self.own.get_mut(seq.index()) {
            *slot = None;
        }
    }

    /// Share the row or logits of `seq` with `fork`.
    pub(crate) fn share(&mut self, seq: SeqId, fork: SeqId) {
        self.row_of_seq[fork.index()] = self.row_of_seq[seq.index()];
        self.own[fork.index()] = self.own[seq.index()].clone();
    }

    /// Drop the outputs of `seq`, because its last token has changed.
    pub(crate) fn forget(&mut self, seq: SeqId) {
        self.give(seq, None);
        self.shown.pooled.forget(seq);
    }

    /// Return the output of token `index`, if the last batch produced outputs of the kind `head`.
    pub(crate) fn row(&self, head: Head, index: usize) -> Option<&[f32]> {
        let row = self.shown.number(index)?;
        if self.shown.head == head {
            return self.shown.row(row);
        }
        let width = self.shown.width_beside.filter(|_| head == Head::Embeddings)?;
        self.shown.beside.get(row * width..(row + 1) * width)
    }

    /// Return the logits of the last token of `seq`.
    pub(crate) fn of_sequence(&self, seq: SeqId) -> Option<&[f32]> {
        if let Some(logits) = self.own.get(seq.index())? {
            return Some(logits);
        }
        let row = self.row_of_seq.get(seq.index()).copied().flatten()? as usize;
        self.shown.row(row)
    }

    /// Return a copy of the logits of the last token of `seq` that outlives the batch; `None` if
    /// they are not available or the allocator refuses.
    pub(crate) fn keep(&self, seq: SeqId) -> Option<Logits> {
        match self.own.get(seq.index()) {
            Some(Some(logits)) => Some(logits.clone()),
            _ => copied(self.of_sequence(seq)?).ok(),
        }
    }

    /// Return the pooled embedding of `seq`.
    pub(crate) fn pooled(&self, seq: SeqId) -> Option<&[f32]> {
        self.shown.pooled.of_sequence(seq)
    }

    /// Set the first token of the piece to compute next.
    pub(crate) fn start_at(&mut self, start: usize) {
        self.start = start;
    }

    /// Return the row of token `index` of the piece in progress.
    pub(crate) fn row_number(&self, index: usize) -> Option<usize> {
        self.staged.number(self.start.saturating_add(index))
    }

    /// Return all staged rows, to be filled in by the model.
    pub(crate) fn rows_mut(&mut self) -> &mut [f32] {
        self.staged.own_values()
    }

    /// Return the staged rows for embeddings, which may lie beside logits.
    pub(crate) fn embeddings_mut(&mut self) -> &mut [f32] {
        if self.are_both() { &mut self.staged.beside } else { self.rows_mut() }
    }
}

/// Return a copy of logits.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocator refuses.
pub(crate) fn copied(logits: &[f32]) -> Result<Logits, Error> {
    let mut copy = Vec::new();
    let refused = Error::OutOfMemory { what: "logits", n_bytes: size_of_val(logits) as u64 };
    copy.try_reserve_exact(logits.len()).map_err(|_| refused)?;
    copy.extend_from_slice(logits);
    Ok(Arc::new(copy))
}
