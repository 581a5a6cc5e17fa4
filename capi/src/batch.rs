//! Batches that the library allocates for programs.

use crate::border::exports;
use crate::error::Error;
use crate::layouts::Batch;
use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The most sequences in one piece of memory, so that no piece is larger than a system gives.
const MOST_TOGETHER: usize = 1 << 28;

/// The lists of a batch. Their elements stay where they are until the batch is freed.
struct Lists {
    token: Vec<i32>,
    embd: Vec<f32>,
    pos: Vec<i32>,
    n_seq_id: Vec<i32>,
    /// Sequences of some tokens each.
    seqs: Vec<Vec<i32>>,
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

const TOO_LARGE: fn(usize) -> Error =
    |n| Error::Range { what: "the batch", found: n as i64, wanted: "a size that fits in memory" };

/// Return `n` zeros, which take memory when they are written to: programs allocate for as many
/// sequences of each token as a context has tokens.
fn zeros<T: Zeroable>(n: usize) -> Result<Vec<T>, Error> {
    try_zeroed_vec(n).map_err(|()| TOO_LARGE(n))
}

impl Lists {
    fn new(n_tokens: usize, n_embd: usize, n_seq_max: usize) -> Result<Self, Error> {
        let n_tokens_here = if n_embd == 0 { n_tokens } else { 0 };
        let n_together = (MOST_TOGETHER / n_seq_max).clamp(1, n_tokens);
        let starts = (0..n_tokens).step_by(n_together);
        let lengths = starts.map(|start| n_together.min(n_tokens - start).saturating_mul(n_seq_max));
        let mut seqs: Vec<Vec<i32>> = lengths.map(zeros).collect::<Result<_, _>>()?;
        let mut seq_id = Vec::new();
        seq_id.try_reserve_exact(n_tokens + 1).map_err(|_| TOO_LARGE(n_tokens))?;
        seq_id.extend(
            seqs.iter_mut().flat_map(|some| some.chunks_exact_mut(n_seq_max)).map(<[i32]>::as_mut_ptr),
        );
        seq_id.push(std::ptr::null_mut());
        Ok(Lists {
            token: zeros(n_tokens_here)?,
            embd: zeros(n_tokens.saturating_mul(n_embd))?,
            pos: zeros(n_tokens)?,
            n_seq_id: zeros(n_tokens)?,
            seqs,
            seq_id,
            logits: zeros(n_tokens)?,
        })
    }

    fn batch(&mut self) -> Batch {
        debug_assert!(self.seq_id.len() > self.pos.len() && !self.seqs.is_empty());
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
