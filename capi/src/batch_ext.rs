//! Extended batches: tokens that are added one by one.

use crate::border::{In, exports};
use crate::context::{ContextEntry, context};
use crate::decode;
use crate::error::Error;
use crate::handles::{Handle, Kind, Registry};
use crate::layouts::Embeddings;
use backstitch_models::{Batch, Pos, SeqId, Token};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A token of an extended batch.
struct Item {
    token: Option<u32>,
    row: Vec<f32>,
    position: Option<i32>,
    seqs: Vec<SeqId>,
    output: bool,
}

/// An extended batch that a handle stands for.
struct BatchExt {
    entry: Arc<ContextEntry>,
    items: Mutex<Vec<Item>>,
}

static BATCHES: Registry<BatchExt> = Registry::new(Kind::BatchExt);

impl BatchExt {
    fn items(&self) -> MutexGuard<'_, Vec<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change a token that was added.
    fn change(&self, index: i32, change: impl FnOnce(&mut Item)) -> Result<bool, Error> {
        let mut items = self.items();
        let item = usize::try_from(index).ok().and_then(|index| items.get_mut(index));
        let wanted = "the index of a token that was added";
        change(item.ok_or(Error::Range { what: "idx", found: index.into(), wanted })?);
        Ok(true)
    }

    /// Add a token, and return its index; -1 if the batch is full, -3 if the sequence is none.
    fn add(&self, seq: i32, token: Option<u32>, row: Vec<f32>) -> i32 {
        let Ok(seq) = self.entry.seq(seq) else { return -3 };
        let mut items = self.items();
        if items.len() >= self.entry.options.n_batch as usize {
            return -1;
        }
        items.push(Item { token, row, position: None, seqs: vec![seq], output: false });
        items.len() as i32 - 1
    }

    /// Return the row of an embedding that a program hands over; none if it has another width.
    fn row(&self, embd: &Embeddings) -> Result<Option<Vec<f32>>, Error> {
        let n_embd = self.entry.model.hparams.as_ref().map_or(0, |h| h.n_embd);
        if embd.n_rows != 1 || embd.n_embd != n_embd {
            return Ok(None);
        }
        // SAFETY: the C program claims that the row is as long as it says, during the call.
        let row = unsafe { In::new(embd.data) };
        Ok(Some(row.slice(n_embd, "embd.data")?.to_vec()))
    }

    /// Return the batch for the engine, with outputs of all tokens if `all_outputs`.
    fn batch(&self, all_outputs: bool) -> Result<Batch, Error> {
        let items = self.items();
        if items.is_empty() {
            return Err(Error::Batch { what: "it has no token" });
        }
        let n_embd = items.first().map_or(0, |item| item.row.len());
        let mut batch = if n_embd == 0 { Batch::new() } else { Batch::of_embeddings(n_embd) };
        for item in items.iter() {
            let unplaced = Error::Batch { what: "a token has no position" };
            let position = Pos(item.position.ok_or(unplaced)?);
            match item.token {
                Some(token) if n_embd == 0 => {
                    batch.push(Token(token), position, &item.seqs, item.output || all_outputs)
                }
                None if item.row.is_empty() => {
                    return Err(Error::Batch { what: "a token has no id and no embedding" });
                }
                None if item.row.len() == n_embd => {
                    batch.push_embedding(&item.row, position, &item.seqs, item.output || all_outputs)
                }
                _ => return Err(Error::Batch { what: "it mixes tokens and embeddings" }),
            };
        }
        Ok(batch)
    }
}

exports! {
    /// Return an empty batch for a context, or null.
    fn llama_batch_ext_init(ctx: Handle) -> Handle = [Handle::NULL] {
        BATCHES.insert(BatchExt { entry: context(ctx)?, items: Mutex::default() })
    }

    /// Free a batch.
    fn llama_batch_ext_free(batch: Handle) {
        if batch.is_null() {
            return Ok(());
        }
        BATCHES.remove(batch).map(drop)
    }

    /// Remove all tokens.
    fn llama_batch_ext_clear(batch: Handle) {
        BATCHES.get(batch)?.items().clear();
        Ok(())
    }

    /// Add a token that gets its embedding from [`llama_batch_ext_set_embd_token`], and return its
    /// index; -1 if the batch is full, -3 if the sequence is none.
    fn llama_batch_ext_add(batch: Handle, seq_id: i32) -> i32 = [-2] {
        Ok(BATCHES.get(batch)?.add(seq_id, None, Vec::new()))
    }

    /// Add a token, and return its index; -1 if the batch is full, -2 if it is no token, -3 if the
    /// sequence is none.
    fn llama_batch_ext_add_token(batch: Handle, seq_id: i32, id: i32) -> i32 = [-2] {
        let batch = BATCHES.get(batch)?;
        let n_vocab = batch.entry.model.hparams.as_ref().map_or(0, |h| h.n_vocab);
        match u32::try_from(id) {
            Ok(id) if (id as usize) < n_vocab => Ok(batch.add(seq_id, Some(id), Vec::new())),
            _ => Ok(-2),
        }
    }

    /// Add an embedding; numbers are those of [`llama_batch_ext_add_token`].
    fn llama_batch_ext_add_embd(batch: Handle, seq_id: i32, embd: Embeddings) -> i32 = [-2] {
        let batch = BATCHES.get(batch)?;
        Ok(batch.row(&embd)?.map_or(-2, |row| batch.add(seq_id, None, row)))
    }

    /// Add a token to another sequence too.
    fn llama_batch_ext_add_seq(batch: Handle, idx: i32, seq_id: i32) -> bool = [false] {
        let batch = BATCHES.get(batch)?;
        let seq = batch.entry.seq(seq_id)?;
        batch.change(idx, |item| if !item.seqs.contains(&seq) { item.seqs.push(seq) })
    }

    /// Set the embedding of a token without id. False if it has one, or another width is needed.
    fn llama_batch_ext_set_embd_token(batch: Handle, idx: i32, embd: Embeddings) -> bool = [false] {
        let batch = BATCHES.get(batch)?;
        let Some(row) = batch.row(&embd)? else { return Ok(false) };
        let mut is_set = false;
        batch.change(idx, |item| {
            is_set = item.token.is_none() && item.row.is_empty();
            if is_set {
                item.row = row;
            }
        })?;
        Ok(is_set)
    }

    /// Refuse: no model takes states of another one.
    fn llama_batch_ext_set_embd_state(batch: Handle, idx: i32, embd: Embeddings) -> bool = [false] {
        let _ = (BATCHES.get(batch)?, idx, embd);
        Err(Error::Absent { what: "states beside a token" })
    }

    /// Ask for the output of a token, or not.
    fn llama_batch_ext_set_output_embd(batch: Handle, idx: i32, value: bool) -> bool = [false] {
        BATCHES.get(batch)?.change(idx, |item| item.output = value)
    }

    /// Ask for the output of a token, or not.
    fn llama_batch_ext_set_output_logits(batch: Handle, idx: i32, value: bool) -> bool = [false] {
        BATCHES.get(batch)?.change(idx, |item| item.output = value)
    }

    /// Set the position of a token: the first number that `pos` points to.
    fn llama_batch_ext_set_pos(batch: Handle, idx: i32, pos: In<i32>) -> bool = [false] {
        let position = pos.get("pos")?;
        BATCHES.get(batch)?.change(idx, |item| item.position = Some(position))
    }

    /// Encode (0) or decode (1) a batch; numbers are those of `llama_decode`.
    fn llama_process(ctx: Handle, kind: i32, batch: Handle) -> i32 = [-1] {
        let batch = BATCHES.get(batch)?;
        if !(0..=1).contains(&kind) {
            let wanted = "0 (encode) or 1 (decode)";
            return Err(Error::Range { what: "type", found: kind.into(), wanted });
        }
        let encode = kind == 0;
        decode::evaluate("llama_process", ctx, encode, |entry, live| {
            batch.batch(decode::yields_all(entry, live, encode))
        })
    }
}
