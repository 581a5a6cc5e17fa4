//! Contexts: the sequences of a model, and everything that changes while it runs.
//!
//! A [`Context`] combines a [`Memory`] with a runner, the tokens of each sequence, and output
//! buffers. Tokens are kept because a recurrent state or a window cannot return to every position:
//! a rollback beyond their reach re-evaluates tokens, and the memory itself does not run models.
//!
//! Submodules: `engine` computes batches, `rollback` and `logits` re-evaluate tokens, `operations`
//! changes sequences, `adapters` gives them sets of adapters, `encode` serves encoders, `state` and
//! `recall` restore sequences from files and prompt caches.

mod adapters;
mod encode;
mod engine;
mod history;
mod logits;
mod operations;
#[cfg(feature = "std")]
mod recall;
mod rollback;
mod state;

use crate::adapter::AdapterSet;
use crate::budget::Budget;
use crate::cancel::Cancel;
use crate::error::Error;
use crate::graph::Head;
use crate::model::Model;
use crate::params::Params;
use crate::runner::Runner;
use crate::runner::observe::Observer;
use crate::runner::outputs::Outputs;
use alloc::{sync::Arc, vec::Vec};
use backstitch_core::{KernelSet, pool::Pool};
use backstitch_kv::storage::Fingerprint;
use backstitch_kv::{Batch, Memory, Pos, SeqId, Token, Wanted};

use history::History;
#[cfg(feature = "std")]
pub use recall::Recalled;
pub use rollback::Rollback;
pub use state::sections;
pub use state::{
    RestoreOptions, Restored, RestoredSequence, SaveOptions, SavedAdapters, SavedContext, SavedSequence,
};

/// The sequences of a model, with memory and buffers to extend them.
///
/// Every method either succeeds or leaves all sequences as they were. [`Context::rollback`]
/// documents the one exception: in a cache without a free block, a failure can leave the sequence
/// at an earlier position.
///
/// # Example
/// ```
/// use backstitch_models::{Context, Model, Params, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(128).n_seq_max(2))?;
/// let a = ctx.sequence()?;
/// ctx.append(a, &[Token(5), Token(6), Token(7)])?;
/// let mark = ctx.pos(a)?;
/// let b = ctx.fork(a)?; // shares what a holds
/// ctx.append(b, &[Token(8)])?;
/// let of_b = ctx.logits(b)?.to_vec();
/// ctx.append(a, &[Token(9)])?;
/// ctx.rollback(a, mark)?; // any kind of model
/// ctx.append(a, &[Token(8)])?;
/// assert_eq!(ctx.logits(a)?, of_b); // the same bits
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Context {
    model: Model,
    params: Params,
    memory: Memory,
    pool: Arc<dyn Pool + Send + Sync>,
    cancel: Option<Cancel>,
    runner: Runner,
    outputs: Outputs,
    /// Tokens of each sequence; `None` for ids that are free.
    sequences: Vec<Option<History>>,
    batch: Batch,
    /// Part of a batch that exceeds the logical batch size.
    piece: Batch,
}

impl core::fmt::Debug for Context {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Context").field("params", &self.params).finish_non_exhaustive()
    }
}

fn new_pool(n_threads: u32) -> Result<Arc<dyn Pool + Send + Sync>, Error> {
    #[cfg(feature = "std")]
    return Ok(Arc::new(backstitch_core::pool::ThreadPool::new(n_threads as usize)?));
    #[cfg(not(feature = "std"))]
    {
        let _ = n_threads;
        Ok(Arc::new(backstitch_core::pool::Inline))
    }
}

impl Context {
    /// Return a new context of `model` with a thread pool of its own.
    ///
    /// # Errors
    /// - [`Error::Params`] if a size is zero or out of range.
    /// - [`Error::KernelSet`] if the kernels are not supported by this processor.
    /// - [`Error::OutOfMemory`] or [`Error::Memory`] if the allocator refuses.
    pub fn new(model: &Model, params: Params) -> Result<Self, Error> {
        let pool = new_pool(params.n_threads)?;
        Self::with_pool(model, params, pool)
    }

    /// Return a new context like [`Context::new`] that shares the thread pool `pool`. Contexts that
    /// share a pool take turns with it.
    ///
    /// # Errors
    /// Those of [`Context::new`].
    pub fn with_pool(
        model: &Model,
        mut params: Params,
        pool: Arc<dyn Pool + Send + Sync>,
    ) -> Result<Self, Error> {
        params = params.settled(model.hparams(), model.graph());
        params.check()?;
        let set = match params.kernels {
            Some(set) => set,
            None => KernelSet::detect()?,
        };
        let layers = model.graph().layers_in(params.n_ctx_seq);
        let memory = Memory::new(&layers, &params.memory())?;
        let runner = Runner::new(model, &params, set, &*pool)?;
        let pooling = *params.pooling.get_or_insert(model.hparams().pooling);
        let outputs = Outputs::new(model.hparams(), params.n_seq_max, pooling);
        let sequences = (0..params.n_seq_max).map(|_| None).collect();
        Ok(Context {
            model: model.clone(),
            params,
            memory,
            pool,
            cancel: None,
            runner,
            outputs,
            sequences,
            batch: Batch::new(),
            piece: Batch::new(),
        })
    }

    /// Return the bytes that this context, its model and the adapters of its sequences occupy.
    pub fn budget(&self) -> Budget {
        let params = Params { n_threads: self.pool.n_threads() as u32, ..self.params };
        let (hparams, graph) = (self.model.hparams(), self.model.graph());
        let (weights, adapters) = (self.model.n_bytes() as u64, self.runner.adapters.n_bytes());
        Budget { weights, adapters, ..Budget::new(hparams, graph, &params) }
    }

    /// Return the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Return the fingerprint that states of this context bear: the model's, or that of the model
    /// in long contexts.
    pub fn fingerprint(&self) -> Fingerprint {
        self.model.fingerprint_in(self.params.n_ctx_seq)
    }

    /// Return the parameters, with all defaults filled in.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Check `cancel` from now on while computing or restoring. Within a few milliseconds of a
    /// request, the operation ends with [`Error::Cancelled`]. `None` ends that. Saving ignores
    /// requests, because a program that is stopped often saves its sequences.
    ///
    /// A cancelled operation leaves all sequences as they were, like any other error.
    /// [`Context::append_partly`] keeps what was computed until then.
    pub fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.cancel = cancel;
    }

    /// Return the kernels in use.
    pub fn kernels(&self) -> &'static KernelSet {
        self.runner.kernels()
    }

    /// Create an empty sequence and return its id. It is evaluated with the adapters that
    /// [`Context::set_default_adapters`] named, without any unless that was called.
    ///
    /// Sequences come into being here, by [`Context::fork`] and by restoring one. Every other
    /// operation on a sequence that does not exist is [`Error::Sequence`].
    ///
    /// # Errors
    /// - [`Error::TooManySequences`] if all ids are in use.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn sequence(&mut self) -> Result<SeqId, Error> {
        let free = self.sequences.iter().position(Option::is_none);
        let id = free.ok_or(Error::TooManySequences { limit: self.params.n_seq_max })?;
        self.sequences[id] = Some(History::new(self.params.n_ctx)?);
        let seq = SeqId(id as u32);
        self.runner.adapters.assign(seq, self.runner.adapters.default.clone());
        Ok(seq)
    }

    /// Drop a sequence and free its memory. A later sequence may get its id.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist.
    pub fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.history(seq)?;
        self.memory.seq_rm(seq, Pos::ZERO..Pos::MAX)?;
        self.memory.forget(seq)?;
        self.sequences[seq.index()] = None;
        self.outputs.forget(seq);
        self.runner.adapters.assign(seq, AdapterSet::EMPTY);
        Ok(())
    }

    fn history(&self, seq: SeqId) -> Result<&History, Error> {
        self.sequences.get(seq.index()).and_then(Option::as_ref).ok_or(Error::Sequence { seq: seq.0 })
    }

    fn history_mut(&mut self, seq: SeqId) -> Option<&mut History> {
        self.sequences.get_mut(seq.index())?.as_mut()
    }

    /// Return the position of the next token of `seq`; 0 if it is empty.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist, for example because it was released.
    pub fn pos(&self, seq: SeqId) -> Result<Pos, Error> {
        self.history(seq)?;
        Ok(self.end(seq))
    }

    /// Return the position of the next token of any id; 0 for free ids.
    fn end(&self, seq: SeqId) -> Pos {
        self.memory.seq_pos_max(seq).map_or(Pos::ZERO, |last| Pos(last.0 + 1))
    }

    /// Return the tokens of `seq`; none if they are not all known, because the sequence was changed
    /// in its middle or consists of embeddings.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist.
    pub fn tokens(&self, seq: SeqId) -> Result<&[Token], Error> {
        self.history(seq).map(History::tokens)
    }

    /// Evaluate `tokens` at the end of `seq`; [`Context::logits`] then returns the logits of the
    /// last one.
    ///
    /// # Errors
    /// Those of [`Context::decode`], and [`Error::Sequence`] if `seq` does not exist.
    pub fn append(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), Error> {
        self.history(seq)?;
        let start = self.end(seq);
        let mut batch = core::mem::take(&mut self.batch);
        let filled = fill(&mut batch, seq, start, tokens, Wanted::Last);
        let result = filled.and_then(|()| self.decode(&batch));
        self.batch = batch;
        result
    }

    /// Evaluate like [`Context::append`] in steps of [`Params::n_ubatch`] tokens, and keep the
    /// finished steps if the operation is cancelled. Return the number of `tokens` that the
    /// sequence then holds; `progress` receives that number after every step.
    ///
    /// # Errors
    /// Those of [`Context::append`], except [`Error::Cancelled`]; nothing has changed then.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::{Cancel, Context, Model, Params, Pos, Token};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_ubatch(8))?;
    /// let (seq, cancel) = (ctx.sequence()?, Cancel::new());
    /// ctx.set_cancel(Some(cancel.clone()));
    /// let stop_at_half = |n| if n >= 16 { cancel.cancel() };
    /// assert_eq!(ctx.append_partly(seq, &[Token(5); 32], stop_at_half)?, 16);
    /// assert_eq!(ctx.pos(seq)?, Pos(16));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append_partly(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        mut progress: impl FnMut(usize),
    ) -> Result<usize, Error> {
        self.history(seq)?;
        if self.model.graph().head() == Head::Embeddings {
            return Err(Error::EncoderOnly);
        }
        let mut batch = Batch::new();
        fill(&mut batch, seq, self.end(seq), tokens, Wanted::Last)?;
        self.check_batch(&batch)?;
        self.make_room(&batch)?;
        self.set_floors(&batch)?;
        let n_done = self.compute_steps(&batch, &mut progress)?;
        if n_done > 0 {
            self.outputs.publish();
            self.record(&batch, n_done);
        }
        Ok(n_done)
    }

    /// Compute a batch ubatch by ubatch until it is done or cancelled; return the number of tokens
    /// done. Their outputs are staged for publication.
    fn compute_steps(&mut self, batch: &Batch, progress: &mut dyn FnMut(usize)) -> Result<usize, Error> {
        let (memory, mut engine) = self.split();
        let n_ubatch = engine.params.n_ubatch.min(engine.params.n_batch) as usize;
        let mut savepoint = memory.savepoint_for(batch)?;
        let (mut step, mut n_done) = (Batch::new(), 0);
        while n_done < batch.len() {
            let end = batch.len().min(n_done + n_ubatch);
            step.copy_from(batch, n_done..end)?;
            let plan = savepoint.prepare(&step, n_ubatch)?;
            let begins = (n_done == 0).then_some(batch);
            match engine.compute_plan(plan, begins, n_done) {
                Ok(()) => n_done = end,
                Err(Error::Cancelled) => {
                    // The computed tokens have no outputs.
                    step.clear();
                    engine.outputs.begin(&step, Head::Logits)?;
                    break;
                }
                Err(error) => return Err(error),
            }
            progress(n_done);
        }
        savepoint.commit();
        Ok(n_done)
    }

    /// Evaluate a batch: tokens of any sequences, each with its position. [`Context::output`] then
    /// returns the requested logits, in place of those of the previous batch.
    ///
    /// # Errors
    /// Nothing has changed then, and the outputs of the previous batch are still available.
    ///
    /// - [`Error::EncoderOnly`] if the model only encodes.
    /// - [`Error::Token`] if a token is not in the vocabulary.
    /// - [`Error::Sequence`] if a sequence does not exist; [`Context::sequence`] creates one.
    /// - [`Error::Adapter`] if a token belongs to sequences with different adapters.
    /// - [`Error::BeyondPositions`] if the model has no embedding for a position.
    /// - [`Error::Memory`] if positions do not follow their sequence or the batch does not fit; see
    ///   [`Memory::prepare`].
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    /// - [`Error::Cancelled`] after a request; see [`Context::set_cancel`].
    pub fn decode(&mut self, batch: &Batch) -> Result<(), Error> {
        self.evaluate(batch, Head::Logits, false)
    }

    /// Evaluate a batch; its outputs are of the kind `head`, or embeddings and logits if `both`.
    fn evaluate(&mut self, batch: &Batch, head: Head, both: bool) -> Result<(), Error> {
        if self.model.graph().head() == Head::Embeddings {
            return Err(Error::EncoderOnly);
        }
        self.check_batch(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        self.make_room(batch)?;
        self.set_floors(batch)?;
        self.compute(batch, head, both)?;
        self.outputs.pool(batch);
        self.outputs.publish();
        self.record(batch, batch.len());
        Ok(())
    }

    /// Reserve space for the batch's tokens in the histories of its sequences, so that recording
    /// them cannot fail.
    fn make_room(&mut self, batch: &Batch) -> Result<(), Error> {
        for seq in seqs(batch) {
            if let Some(history) = self.history_mut(seq) {
                history.expect_one();
            }
        }
        let mut result = Ok(());
        for seq in seqs(batch) {
            if let Some(history) = self.history_mut(seq) {
                // All histories, because each one has to reset its count of expected tokens.
                let room = history.make_room();
                result = result.and(room);
            }
        }
        result
    }

    /// Make the end of each sequence whose known tokens begin with this batch its rollback floor,
    /// so that no rollback among them re-evaluates one that is not known.
    fn set_floors(&mut self, batch: &Batch) -> Result<(), Error> {
        for (index, &pos) in batch.positions().iter().enumerate().filter(|_| batch.n_embd() == 0) {
            for &seq in batch.seqs(index) {
                if self.history(seq)?.begins_next() && pos == self.end(seq) {
                    self.memory.set_floor(seq)?;
                }
            }
        }
        Ok(())
    }

    /// Check that the tokens of a batch are in the vocabulary and that its sequences exist.
    fn check_batch(&self, batch: &Batch) -> Result<(), Error> {
        let n_vocab = self.model.hparams().n_vocab;
        let stranger = batch.tokens().iter().position(|token| token.0 as usize >= n_vocab);
        if let Some(index) = stranger {
            return Err(Error::Token { index, token: batch.tokens()[index].0, n_vocab });
        }
        seqs(batch).try_for_each(|seq| self.history(seq).map(|_| ()))?;
        self.check_adapters(batch)
    }

    /// Compute a batch; its outputs are staged for publication.
    fn compute(&mut self, batch: &Batch, head: Head, both: bool) -> Result<(), Error> {
        let (memory, mut engine) = self.split();
        (engine.head, engine.both) = (head, both);
        if batch.len() <= engine.params.n_batch as usize {
            let plan = memory.prepare(batch, engine.params.n_ubatch as usize)?;
            return engine.compute_plan(plan, Some(batch), 0);
        }
        let mut savepoint = memory.savepoint_for(batch)?;
        engine.compute(&mut savepoint, batch)?;
        savepoint.commit();
        Ok(())
    }

    /// Record the new tokens of each sequence, and which outputs belong to it.
    fn record(&mut self, batch: &Batch, n_tokens: usize) {
        for (i, &token) in batch.tokens().iter().enumerate().take(n_tokens) {
            for &seq in batch.seqs(i) {
                if let Some(history) = self.history_mut(seq) {
                    history.push(token, batch.positions()[i]);
                    if batch.n_embd() > 0 {
                        history.edit();
                    }
                }
                self.outputs.assign(seq, i);
            }
        }
    }

    /// Return the logits `[n_vocab]` of token `index` of the last successful batch, if they were
    /// requested.
    pub fn output(&self, index: usize) -> Option<&[f32]> {
        self.outputs.row(Head::Logits, index)
    }

    /// Return the number of tokens that a sequence of `len` tokens can still take, if it is the
    /// only one.
    pub(crate) fn room_after(&self, len: usize) -> usize {
        self.memory.limit().map_or(usize::MAX, |limit| (limit as usize).saturating_sub(len))
    }

    /// Return a new sequence with the content of `seq`. Blocks and states are shared until one of
    /// them changes; nothing is copied.
    ///
    /// # Errors
    /// - [`Error::Sequence`] if `seq` does not exist.
    /// - [`Error::TooManySequences`] if all ids are in use.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let history = self.history(seq)?.duplicate(self.params.n_ctx)?;
        let free = self.sequences.iter().position(Option::is_none);
        let id = free.ok_or(Error::TooManySequences { limit: self.params.n_seq_max })?;
        let fork = SeqId(id as u32);
        self.memory.seq_cp(seq, fork, Pos::ZERO..Pos::MAX)?;
        self.sequences[id] = Some(history);
        self.runner.adapters.assign(fork, self.runner.adapters.of(seq).clone());
        self.outputs.share(seq, fork);
        Ok(fork)
    }

    /// Start to measure the time of operations; `clock` returns nanoseconds since a fixed moment.
    pub fn profile(&mut self, clock: fn() -> u64) {
        self.runner.start_profile(self.model.graph(), clock);
    }

    /// Return the times so far, if [`Context::profile`] was called.
    pub fn profiled(&self) -> Option<&crate::graph::Profile> {
        self.runner.profile()
    }

    /// Show the inputs of all products to a function from now on, or to none. Showing takes time
    /// and memory; decoding without an observer does not.
    ///
    /// Products of the last layer are shown for tokens whose output is asked for.
    ///
    /// ```
    /// use backstitch_models::{Context, Model, Params, Token};
    /// use std::sync::mpsc::channel;
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let mut ctx = Context::new(&model, Params::default())?;
    /// let (send, shown) = channel();
    /// ctx.set_observer(Some(Box::new(move |input| {
    ///     let n_rows = input.rows.len() / input.n_cols;
    ///     send.send((String::from(input.tensor), n_rows)).unwrap_or_default();
    /// })));
    /// let seq = ctx.sequence()?;
    /// ctx.append(seq, &[Token(1), Token(2)])?;
    /// assert!(shown.try_iter().any(|input| input == ("blk.0.ffn_up.weight".into(), 2)));
    /// # Ok::<(), backstitch_models::Error>(())
    /// ```
    pub fn set_observer(&mut self, observer: Option<Observer>) {
        self.runner.set_observer(observer);
    }
}

/// Return the sequences of each token of a batch.
fn seqs(batch: &Batch) -> impl Iterator<Item = SeqId> {
    (0..batch.len()).flat_map(|i| batch.seqs(i)).copied()
}

/// Replace the content of `batch` with tokens of one sequence from position `start` on.
fn fill(batch: &mut Batch, seq: SeqId, start: Pos, tokens: &[Token], wanted: Wanted) -> Result<(), Error> {
    batch.clear();
    batch.make_room(tokens.len())?;
    batch.extend(seq, start, tokens, wanted)?;
    Ok(())
}
