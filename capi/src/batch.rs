//! Batches that the library allocates for programs.

use crate::border::exports;
use crate::error::Error;
use crate::layouts::Batch;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The most numbers of one list, so that a size which a program computed wrongly is an error.
const MOST: usize = 1 << 31;

/// The lists of a batch. Their elements stay where they are until the batch is freed.
struct Lists {
    token: Vec<i32>,
    embd: Vec<f32>,
    pos: Vec<i32>,
    n_seq_id: Vec<i32>,
    seqs: Vec<i32>,
    /// The address of each token's part of `seqs`, and a null.
    seq_id: Vec<*mut i32>,
    logits: Vec<i8>,
}

// SAFETY: the addresses point into `seqs`, which moves with them between threads; only the program
// looks at them.
unsafe impl Send for Lists {}

/// The batches that are alive, by the address of their positions.
static ALLOCATED: LazyLock<Mutex<HashMap<usize, Lists>>> = LazyLock::new(Mutex::default);

/// A batch without anything.
const EMPTY: Batch = Batch {
    n_tokens: 0,
    token: std::ptr::null_mut(),
    embd: std::ptr::null_mut(),
    pos: std::ptr::null_mut(),
    n_seq_id: std::ptr::null_mut(),
    seq_id: std::ptr::null_mut(),
    logits: std::ptr::null_mut(),
};

/// Return `n` zeros.
fn zeros<T: Clone + Default>(n: usize) -> Result<Vec<T>, Error> {
    let refused = Error::Range { what: "the batch", found: n as i64, wanted: "a size that fits in memory" };
    let mut list = Vec::new();
    match n <= MOST && list.try_reserve_exact(n).is_ok() {
        true => list.resize(n, T::default()),
        false => return Err(refused),
    }
    Ok(list)
}

impl Lists {
    fn new(n_tokens: usize, n_embd: usize, n_seq_max: usize) -> Result<Self, Error> {
        let n_tokens_here = if n_embd == 0 { n_tokens } else { 0 };
        let mut seqs: Vec<i32> = zeros(n_tokens.saturating_mul(n_seq_max))?;
        let start = seqs.as_mut_ptr();
        let part = |i| start.wrapping_add(i * n_seq_max);
        Ok(Lists {
            token: zeros(n_tokens_here)?,
            embd: zeros(n_tokens.saturating_mul(n_embd))?,
            pos: zeros(n_tokens)?,
            n_seq_id: zeros(n_tokens)?,
            seq_id: (0..n_tokens).map(part).chain([std::ptr::null_mut()]).collect(),
            seqs,
            logits: zeros(n_tokens)?,
        })
    }

    fn batch(&mut self) -> Batch {
        debug_assert!(self.seq_id.len() > self.pos.len() && self.seqs.len() >= self.pos.len());
        let or_null = |is_empty: bool, address: *mut i32| match is_empty {
            true => std::ptr::null_mut(),
            false => address,
        };
        Batch {
            n_tokens: 0,
            token: or_null(self.token.is_empty(), self.token.as_mut_ptr()),
            embd: or_null(self.embd.is_empty(), self.embd.as_mut_ptr().cast()).cast(),
            pos: self.pos.as_mut_ptr(),
            n_seq_id: self.n_seq_id.as_mut_ptr(),
            seq_id: self.seq_id.as_mut_ptr(),
            logits: self.logits.as_mut_ptr(),
        }
    }
}

exports! {
    /// Return a batch of tokens of one list, which continue sequence 0; the last yields an output.
    fn llama_batch_get_one(tokens: *mut i32, n_tokens: i32) -> Batch = [EMPTY] {
        Ok(Batch { n_tokens, token: tokens, ..EMPTY })
    }

    /// Allocate a batch of up to `n_tokens` tokens, or of embeddings of `embd` numbers each, in up
    /// to `n_seq_max` sequences each. All lists of the result are null if that is not possible.
    fn llama_batch_init(n_tokens: i32, embd: i32, n_seq_max: i32) -> Batch = [EMPTY] {
        let size = |number: i32, least: i32, what| match usize::try_from(number) {
            Ok(size) if number >= least => Ok(size),
            _ => Err(Error::Range { what, found: number.into(), wanted: "a positive number" }),
        };
        let n_tokens = size(n_tokens, 1, "n_tokens")?;
        let mut lists = Lists::new(n_tokens, size(embd, 0, "embd")?, size(n_seq_max, 1, "n_seq_max")?)?;
        let batch = lists.batch();
        ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).insert(batch.pos as usize, lists);
        Ok(batch)
    }

    /// Free a batch that `llama_batch_init` allocated; does nothing to others.
    fn llama_batch_free(batch: Batch) {
        if !batch.pos.is_null() {
            ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).remove(&(batch.pos as usize));
        }
        Ok(())
    }
}
