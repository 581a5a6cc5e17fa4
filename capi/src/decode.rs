//! Batches: from C's to the engine's, decoded or encoded, and the outputs.

use crate::border::{In, exports};
use crate::context::{ContextEntry, Live, Row, context, in_evaluation};
use crate::error::Error;
use crate::handles::Handle;
use crate::layouts::Batch as CBatch;
use backstitch_models::{Batch, Error as ModelError, Pooling, Pos, SeqId, Token};
use std::time::Instant;

/// The largest number of sequences of one token.
const MAX_SEQ_IDS: i32 = 1 << 16;

/// A batch of C's with its lists checked for null.
struct Lists<'a> {
    tokens: Option<&'a [i32]>,
    embeddings: Option<&'a [f32]>,
    positions: Option<&'a [i32]>,
    seqs: Option<Vec<Vec<SeqId>>>,
    outputs: Option<&'a [i8]>,
}

/// Arguments that point into a batch, kept as long as its lists are read.
struct Pointers {
    token: In<i32>,
    embd: In<f32>,
    pos: In<i32>,
    n_seq_id: In<i32>,
    seq_id: In<In<i32>>,
    logits: In<i8>,
}

impl Pointers {
    fn of(batch: &CBatch) -> Self {
        // SAFETY: the C program claims that a list of its batch is null, or has an element for each
        // token, during the call.
        let token = unsafe { In::new(batch.token.cast_const()) };
        // SAFETY: as for the tokens; the rows are `n_embd` long.
        let embd = unsafe { In::new(batch.embd.cast_const()) };
        // SAFETY: as for the tokens.
        let pos = unsafe { In::new(batch.pos.cast_const()) };
        // SAFETY: as for the tokens.
        let n_seq_id = unsafe { In::new(batch.n_seq_id.cast_const()) };
        // SAFETY: as for the tokens; each element points to as many sequences as `n_seq_id` says.
        let seq_id = unsafe { In::new(batch.seq_id.cast_const().cast()) };
        // SAFETY: as for the tokens.
        let logits = unsafe { In::new(batch.logits.cast_const()) };
        Pointers { token, embd, pos, n_seq_id, seq_id, logits }
    }
}

/// Return a list, or none for null.
fn list<'a, T: Copy>(list: &'a In<T>, n: usize, what: &'static str) -> Result<Option<&'a [T]>, Error> {
    if list.is_null() { Ok(None) } else { list.slice(n, what).map(Some) }
}

impl<'a> Lists<'a> {
    fn read(entry: &ContextEntry, pointers: &'a Pointers, n: usize, n_embd: usize) -> Result<Self, Error> {
        let n_numbers = n.checked_mul(n_embd).ok_or(Error::Batch { what: "too many embeddings" })?;
        Ok(Lists {
            tokens: list(&pointers.token, n, "batch.token")?,
            embeddings: list(&pointers.embd, n_numbers, "batch.embd")?,
            positions: list(&pointers.pos, n, "batch.pos")?,
            seqs: Self::seqs(entry, pointers, n)?,
            outputs: list(&pointers.logits, n, "batch.logits")?,
        })
    }

    /// Return the sequences of each token; none if all are in sequence 0.
    fn seqs(entry: &ContextEntry, pointers: &Pointers, n: usize) -> Result<Option<Vec<Vec<SeqId>>>, Error> {
        let Some(ids) = list(&pointers.seq_id, n, "batch.seq_id")? else { return Ok(None) };
        let counts = list(&pointers.n_seq_id, n, "batch.n_seq_id")?;
        let seqs = ids.iter().enumerate().map(|(i, ids)| {
            let count = counts.and_then(|counts| counts.get(i)).copied().unwrap_or(1);
            if !(1..=MAX_SEQ_IDS).contains(&count) {
                let wanted = "a positive number";
                return Err(Error::Range { what: "batch.n_seq_id", found: count.into(), wanted });
            }
            let ids = ids.slice(count as usize, "batch.seq_id")?;
            ids.iter().map(|&seq| entry.seq(seq)).collect()
        });
        seqs.collect::<Result<_, Error>>().map(Some)
    }
}

/// Positions that follow each sequence, for a batch that states none.
struct Next<'a> {
    live: &'a Live,
    ends: Vec<(SeqId, i32)>,
}

impl Next<'_> {
    fn position(&mut self, seqs: &[SeqId]) -> Result<Pos, Error> {
        let mut position = None;
        for &seq in seqs {
            let end = match self.ends.iter_mut().find(|(other, _)| *other == seq) {
                Some(end) => end,
                None => {
                    let end = self.live.context()?.pos(seq)?.0;
                    self.ends.push((seq, end));
                    self.ends.last_mut().ok_or(Error::Batch { what: "it has no sequence" })?
                }
            };
            if position.is_some_and(|position| position != end.1) {
                return Err(Error::Batch { what: "a token without position continues two sequences" });
            }
            position = Some(end.1);
            end.1 += 1;
        }
        position.map(Pos).ok_or(Error::Batch { what: "a token has no sequence" })
    }
}

/// Return true if all tokens of a batch have outputs, whatever it says.
pub fn yields_all(entry: &ContextEntry, live: &Live, encode: bool) -> bool {
    encode || entry.model.only_encodes() || live.embeddings
}

/// Convert a batch. Tokens that belong to no vocabulary, and positions that do not follow, are left
/// to the engine to refuse.
fn convert(entry: &ContextEntry, live: &Live, batch: &CBatch, encode: bool) -> Result<Batch, Error> {
    let n = usize::try_from(batch.n_tokens).ok().filter(|&n| n > 0);
    let wanted = "a positive number";
    let n = n.ok_or(Error::Range { what: "batch.n_tokens", found: batch.n_tokens.into(), wanted })?;
    let n_embd = live.context()?.model().hparams().n_embd;
    let pointers = Pointers::of(batch);
    let lists = Lists::read(entry, &pointers, n, n_embd)?;
    let mut made = match (lists.tokens, lists.embeddings) {
        (Some(_), None) => Batch::new(),
        (None, Some(_)) => Batch::of_embeddings(n_embd),
        _ => return Err(Error::Batch { what: "it needs either tokens or embeddings" }),
    };
    made.make_room(n).map_err(ModelError::from)?;
    let all_outputs = yields_all(entry, live, encode);
    let mut next = Next { live, ends: Vec::new() };
    let first = [SeqId(0)];
    for i in 0..n {
        let seqs = lists.seqs.as_ref().and_then(|seqs| seqs.get(i)).map_or(&first[..], Vec::as_slice);
        let position = match lists.positions.and_then(|positions| positions.get(i)) {
            Some(&position) => Pos(position),
            None => next.position(seqs)?,
        };
        let output = match lists.outputs.and_then(|outputs| outputs.get(i)) {
            _ if all_outputs => true,
            Some(&output) => output != 0,
            None => i + 1 == n,
        };
        match (lists.tokens, lists.embeddings) {
            (Some(tokens), _) => {
                let token = tokens.get(i).copied().unwrap_or(-1);
                let token = u32::try_from(token);
                let found = tokens.get(i).copied().unwrap_or(-1).into();
                let wanted = "a token of the vocabulary";
                let token = token.map_err(|_| Error::Range { what: "batch.token", found, wanted })?;
                made.push(Token(token), position, seqs, output);
            }
            (None, rows) => {
                let row = rows.and_then(|rows| rows.get(i * n_embd..(i + 1) * n_embd)).unwrap_or_default();
                made.push_embedding(row, position, seqs, output);
            }
        }
    }
    Ok(made)
}

/// Return llama_decode's number for an error: 1 if there is no room, 2 if it was aborted, -1 if the
/// batch is wrong, -2 and below for what else can go wrong.
fn code(error: &Error) -> i32 {
    match error {
        Error::Model(ModelError::Memory(backstitch_kv::Error::Full { .. })) => 1,
        Error::Model(ModelError::Cancelled) => 2,
        Error::Model(ModelError::OutOfMemory { .. }) => -2,
        Error::Panicked { .. } => -3,
        _ => -1,
    }
}

/// Evaluate the batch that `make` gives, and return its number for C; the error that it stands for
/// goes to the log.
///
/// # Errors
/// None: the result is one for [`crate::border::call`].
pub fn evaluate(
    function: &'static str,
    handle: Handle,
    encode: bool,
    make: impl FnOnce(&ContextEntry, &Live) -> Result<Batch, Error>,
) -> Result<i32, Error> {
    let done = context(handle).and_then(|entry| {
        let mut live = entry.live()?;
        let start = Instant::now();
        let batch = make(&entry, &live)?;
        in_evaluation(|| run(&entry, &mut live, &batch, encode))?;
        live.perf.add(batch.len(), start);
        Ok(0)
    });
    Ok(done.unwrap_or_else(|error| {
        crate::log::failed(function, &error);
        code(&error)
    }))
}

/// Evaluate a batch.
fn run(entry: &ContextEntry, live: &mut Live, batch: &Batch, encode: bool) -> Result<(), Error> {
    let embeddings = live.embeddings;
    let context = live.change()?;
    let is_pooled = context.params().pooling.is_some_and(|pooling| pooling != Pooling::None);
    match () {
        () if encode || entry.model.only_encodes() => context.encode_batch(batch)?,
        () if embeddings && is_pooled => context.decode_embeddings(batch)?,
        () if embeddings => context.decode_with_embeddings(batch)?,
        () => context.decode(batch)?,
    }
    let (context, outputs) = live.outputs()?;
    outputs.start(batch, context);
    Ok(())
}

exports! {
    /// Evaluate a batch: 0 if it is done, 1 if there is no room for it, 2 if it was aborted, -1 if
    /// it is wrong. If it is not done, every sequence is as it was.
    fn llama_decode(handle: Handle, batch: CBatch) -> i32 = [-3] {
        evaluate("llama_decode", handle, false, |entry, live| convert(entry, live, &batch, false))
    }

    /// Encode a batch; numbers are those of `llama_decode`.
    fn llama_encode(handle: Handle, batch: CBatch) -> i32 = [-3] {
        evaluate("llama_encode", handle, true, |entry, live| convert(entry, live, &batch, true))
    }

    /// Return the logits of all outputs of the last batch, one row after the other; null if there
    /// are none. The address is valid until the next batch.
    fn llama_get_logits(handle: Handle) -> *mut f32 = [std::ptr::null_mut()] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        let (context, outputs) = live.outputs()?;
        outputs.all(context, Row::Logits)
    }

    /// Return the logits of token `i` of the last batch, or of the last output but `-i - 1`.
    fn llama_get_logits_ith(handle: Handle, i: i32) -> *mut f32 = [std::ptr::null_mut()] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        let (context, outputs) = live.outputs()?;
        outputs.row(context, Row::Logits, i)
    }

    /// Return the embeddings of all outputs of the last batch; null if it yielded none, or pooled
    /// ones.
    fn llama_get_embeddings(handle: Handle) -> *mut f32 = [std::ptr::null_mut()] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        let (context, outputs) = live.outputs()?;
        outputs.all(context, Row::Embedding)
    }

    /// Return the embedding of token `i` of the last batch, or of the last output but `-i - 1`.
    fn llama_get_embeddings_ith(handle: Handle, i: i32) -> *mut f32 = [std::ptr::null_mut()] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        let (context, outputs) = live.outputs()?;
        outputs.row(context, Row::Embedding, i)
    }

    /// Return the pooled embedding of a sequence of the last batch; null without pooling.
    fn llama_get_embeddings_seq(handle: Handle, seq_id: i32) -> *mut f32 = [std::ptr::null_mut()] {
        let entry = context(handle)?;
        let (seq, mut live) = (entry.seq(seq_id)?, entry.live()?);
        live.outputs.pooled(seq)
    }
}
