//! Outputs of the last batch, at addresses that stay until the next one.

use crate::error::Error;
use backstitch_models::{Batch, Context, SeqId};

/// A table of rows that are copied from the engine when C asks for them.
///
/// Its memory is only allocated again if a batch has more outputs than any before, so that a
/// program which keeps an address too long reads old numbers, not freed memory.
#[derive(Debug, Default)]
struct Rows {
    numbers: Vec<f32>,
    is_filled: Vec<bool>,
    width: usize,
}

impl Rows {
    fn start(&mut self, n: usize, width: usize) {
        self.width = width;
        self.is_filled.clear();
        self.is_filled.resize(n, false);
    }

    /// Return a row, which `find` gives if it was not asked for before.
    fn row<'a>(&mut self, index: usize, find: impl FnOnce() -> Option<&'a [f32]>) -> Option<*mut f32> {
        let (start, end) = (index * self.width, (index + 1) * self.width);
        let is_filled = self.is_filled.get_mut(index)?;
        if !*is_filled {
            let row = find().filter(|row| row.len() == end - start)?;
            let len = self.is_filled.len() * self.width;
            if self.numbers.len() < len {
                self.numbers = vec![0.0; len];
                self.is_filled.fill(false);
            }
            self.numbers.get_mut(start..end)?.copy_from_slice(row);
            *self.is_filled.get_mut(index)? = true;
        }
        Some(self.numbers.get_mut(start..end)?.as_mut_ptr())
    }
}

/// Kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Logits of a token.
    Logits,
    /// The embedding of a token.
    Embedding,
}

/// Tokens of the last batch that have outputs, and the rows that C asked for.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Indices of the tokens with outputs, ascending.
    tokens: Vec<usize>,
    /// The last token of each sequence of the batch, until a sequence changes.
    last_of: Vec<(usize, SeqId)>,
    n_tokens: usize,
    logits: Rows,
    embeddings: Rows,
    pooled: Rows,
}

impl Outputs {
    /// Start the outputs of a batch that was evaluated.
    pub fn start(&mut self, batch: &Batch, context: &Context) {
        let (hparams, n_seq) = (context.model().hparams(), context.params().n_seq_max as usize);
        self.n_tokens = batch.len();
        self.tokens.clear();
        self.last_of.clear();
        for (index, _) in batch.outputs().iter().enumerate().filter(|(_, is_wanted)| **is_wanted) {
            self.tokens.push(index);
        }
        for (index, seq) in (0..batch.len()).flat_map(|i| batch.seqs(i).iter().map(move |&seq| (i, seq))) {
            self.last_of.retain(|(_, other)| *other != seq);
            self.last_of.push((index, seq));
        }
        self.logits.start(self.tokens.len(), hparams.n_vocab);
        self.embeddings.start(self.tokens.len(), hparams.n_embd);
        self.pooled.start(n_seq, hparams.n_embd);
        // These rows are few. They stay when the engine drops them with their sequence.
        for seq in (0..n_seq as u32).map(SeqId) {
            self.pooled.row(seq.index(), || context.pooled(seq));
        }
    }

    /// Note that a sequence changes: nothing can be computed from its last token any more. The rows
    /// stay until the next batch.
    pub fn detach(&mut self) {
        self.last_of.clear();
    }

    /// Forget the outputs: nothing is left that they belong to.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.last_of.clear();
        self.n_tokens = 0;
        self.pooled.start(0, 0);
    }

    /// Return the number among the outputs of token `index`; negative ones count from the end of
    /// the outputs.
    fn number(&self, index: i32) -> Result<usize, Error> {
        let n_outputs = self.tokens.len();
        let missing = Error::NoOutput { index, n_outputs };
        match usize::try_from(index) {
            Ok(token) => self.tokens.binary_search(&token).map_err(|_| missing),
            Err(_) => {
                let back = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
                n_outputs.checked_sub(back).ok_or(missing)
            }
        }
    }

    /// Return the address of a row of token `index`.
    ///
    /// # Errors
    /// [`Error::NoOutput`] if the last batch has none of that kind for it, and those of
    /// [`Context::logits`] where logits are computed from the token again.
    pub fn row(&mut self, context: &mut Context, kind: Row, index: i32) -> Result<*mut f32, Error> {
        let number = self.number(index)?;
        let token = self.tokens.get(number).copied().unwrap_or_default();
        let missing = Error::NoOutput { index, n_outputs: self.tokens.len() };
        match kind {
            Row::Embedding => self.embeddings.row(number, || context.embedding(token)).ok_or(missing),
            Row::Logits => {
                if let Some(address) = self.logits.row(number, || context.output(token)) {
                    return Ok(address);
                }
                // A batch that yielded pooled embeddings: the logits of a sequence's last token
                // follow from its memory, as long as that is what it was.
                let last = self.last_of.iter().find(|(last, _)| *last == token);
                let seq = last.map(|(_, seq)| *seq).ok_or(missing)?;
                let row = context.logits(seq)?.to_vec();
                let missing = Error::NoOutput { index, n_outputs: self.tokens.len() };
                self.logits.row(number, || Some(&row)).ok_or(missing)
            }
        }
    }

    /// Return the address of all rows, one after the other in the order of their tokens.
    ///
    /// # Errors
    /// Those of [`Outputs::row`].
    pub fn all(&mut self, context: &mut Context, kind: Row) -> Result<*mut f32, Error> {
        for token in self.tokens.clone() {
            self.row(context, kind, token as i32)?;
        }
        let first = self.tokens.first().map(|token| *token as i32);
        self.row(context, kind, first.unwrap_or(-1))
    }

    /// Return the address of the pooled embedding of a sequence.
    ///
    /// # Errors
    /// [`Error::NoOutput`].
    pub fn pooled(&mut self, seq: SeqId) -> Result<*mut f32, Error> {
        let missing = Error::NoOutput { index: seq.0 as i32, n_outputs: self.tokens.len() };
        self.pooled.row(seq.index(), || None).ok_or(missing)
    }
}
