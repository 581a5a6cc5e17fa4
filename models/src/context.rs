//! What changes while a model runs: sequences, buffers, outputs.

mod encode;
mod history;
mod logits;
mod operations;
mod outputs;
mod params;
mod pooling;
#[cfg(feature = "std")]
mod recall;
mod rollback;
mod state;
mod whole;

use crate::{
    budget::Budget,
    cancel::{Cancel, Stoppable},
    error::Error,
    graph::Head,
    model::Model,
    runner::{Runner, Side},
};
use alloc::{sync::Arc, vec::Vec};
use backstitch_core::{KernelSet, pool::Pool};
use backstitch_kv::{Batch, Hybrid, Memory, Plan, Pos, SeqId, Token, Wanted};

use history::History;
pub(crate) use outputs::Outputs;
pub use params::Params;
#[cfg(feature = "std")]
pub(crate) use params::all_threads;
pub use pooling::Pooling;
#[cfg(feature = "std")]
pub use recall::Recalled;
pub use rollback::Rollback;
pub use state::sections;
pub use state::{RestoreOptions, Restored, RestoredSequence, SaveOptions};
use whole::Whole;

/// Sequences of a model and all that is needed to extend them.
///
/// Every method either does what it says or leaves all sequences as they were, with one exception that
/// [`Context::rollback`] names: in a cache without a free block, a failure can leave the sequence at an earlier position.
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
    memory: Hybrid,
    pool: Arc<dyn Pool + Send + Sync>,
    cancel: Option<Cancel>,
    runner: Runner,
    outputs: Outputs,
    /// What each sequence holds; `None` where it is free.
    sequences: Vec<Option<History>>,
    batch: Batch,
    /// Part of a batch that is too long to be planned at once.
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
    /// Makes a context of `model`.
    ///
    /// # Errors
    /// For sizes of zero or beyond reason, kernels that cannot be had, or too little memory.
    pub fn new(model: &Model, params: Params) -> Result<Self, Error> {
        let pool = new_pool(params.n_threads)?;
        Self::with_pool(model, params, pool)
    }

    /// As [`Context::new`], with a pool of the caller's, which several contexts may share: they take turns with it.
    ///
    /// # Errors
    /// As [`Context::new`].
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
        let layers = model.graph().layers();
        let memory = Hybrid::new(layers, &params.memory())?;
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

    /// The bytes that this context and its model take.
    pub fn budget(&self) -> Budget {
        let params = Params { n_threads: self.pool.n_threads() as u32, ..self.params };
        let (hparams, graph) = (self.model.hparams(), self.model.graph());
        Budget { weights: self.model.n_bytes() as u64, ..Budget::new(hparams, graph, &params) }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The parameters, with what they left open decided.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Look at `cancel` from now on whenever something is computed or restored: at the latest after some milliseconds of
    /// work, it ends with [`Error::Cancelled`] once the request was made. `None` ends that. Saving does not look at it, because who
    /// was stopped often saves what there is.
    ///
    /// Whatever was cancelled leaves all sequences as they were, as any other error does. [`Context::append_partly`] keeps what
    /// was computed until then.
    pub fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.cancel = cancel;
    }

    /// The kernels in use.
    pub fn kernels(&self) -> &'static KernelSet {
        self.runner.kernels()
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::TooManySequences`] if all are in use, [`Error::OutOfMemory`].
    pub fn sequence(&mut self) -> Result<SeqId, Error> {
        let free = self.sequences.iter().position(Option::is_none);
        let id = free.ok_or(Error::TooManySequences { limit: self.params.n_seq_max })?;
        let mut history = History::new(self.params.n_ctx)?;
        history.claim();
        self.sequences[id] = Some(history);
        Ok(SeqId(id as u32))
    }

    /// Drops a sequence and frees its memory. A later sequence may get its id.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist.
    pub fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.history(seq)?;
        self.memory.seq_rm(seq, Pos::ZERO..Pos::MAX)?;
        self.memory.forget(seq)?;
        self.sequences[seq.index()] = None;
        self.outputs.forget(seq);
        Ok(())
    }

    fn history(&self, seq: SeqId) -> Result<&History, Error> {
        self.sequences.get(seq.index()).and_then(Option::as_ref).ok_or(Error::Sequence { seq: seq.0 })
    }

    /// The position that the next token of `seq` gets; 0 if it is empty.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist, because it was released, say.
    pub fn pos(&self, seq: SeqId) -> Result<Pos, Error> {
        self.history(seq)?;
        Ok(self.end(seq))
    }

    /// As [`Context::pos`], of any sequence of the memory; 0 of those that nobody has.
    fn end(&self, seq: SeqId) -> Pos {
        self.memory.seq_pos_max(seq).map_or(Pos::ZERO, |last| Pos(last.0 + 1))
    }

    /// The tokens of `seq`; empty if they are not known, because the sequence was changed in its middle or came as embeddings.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist.
    pub fn tokens(&self, seq: SeqId) -> Result<&[Token], Error> {
        self.history(seq).map(History::tokens)
    }

    /// Evaluates `tokens` behind what `seq` holds; the logits of the last are then to be had from [`Context::logits`].
    ///
    /// # Errors
    /// If they do not fit, or are not in the vocabulary; nothing has changed then.
    pub fn append(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), Error> {
        self.history(seq)?;
        let start = self.end(seq);
        let mut batch = core::mem::take(&mut self.batch);
        let filled = fill(&mut batch, seq, start, tokens, Wanted::Last);
        let result = filled.and_then(|()| self.decode(&batch));
        self.batch = batch;
        result
    }

    /// As [`Context::append`], in steps of [`Params::n_ubatch`] tokens, and after a request to stop the sequence keeps the steps
    /// that were done. Return how many of `tokens` it holds; `progress` hears that after every step.
    ///
    /// # Errors
    /// As [`Context::append`], but for [`Error::Cancelled`]; nothing has changed then.
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
        let mut batch = Batch::new();
        fill(&mut batch, seq, self.end(seq), tokens, Wanted::Last)?;
        self.check_batch(&batch)?;
        self.memory.admits(&batch)?;
        let n_step = self.params.n_ubatch as usize;
        let (mut whole, mut step, mut n_done) = (Whole::hold(self, &batch)?, Batch::new(), 0);
        while n_done < tokens.len() {
            let end = tokens.len().min(n_done + n_step);
            step.copy_from(&batch, n_done..end)?;
            match whole.ctx.decode(&step) {
                Ok(()) => n_done = end,
                Err(Error::Cancelled) => break,
                Err(error) => return Err(error),
            }
            progress(n_done);
        }
        whole.is_done = true;
        Ok(n_done)
    }

    /// Evaluates a batch: tokens of any sequences, each with its position. [`Context::output`] then has the logits of the tokens whose
    /// output was asked for, in place of those of the batch before.
    ///
    /// Sequences below `n_seq_max` need not come from [`Context::sequence`]; naming one makes it exist.
    ///
    /// # Errors
    /// If the batch is malformed or does not fit, [`Error::EncoderOnly`] if the model only encodes, [`Error::Cancelled`]; nothing has
    /// changed then, and the outputs of the batch before are still there.
    pub fn decode(&mut self, batch: &Batch) -> Result<(), Error> {
        if self.model.graph().head() == Head::Embeddings {
            return Err(Error::EncoderOnly);
        }
        self.check_batch(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let room = self.make_histories(batch).and_then(|()| self.make_room(batch));
        let result = room.and_then(|()| self.compute(batch));
        match result {
            Ok(()) => {
                self.outputs.publish();
                self.record(batch);
            }
            Err(_) => self.drop_unclaimed(),
        }
        result
    }

    /// Makes sequences that the batch names for the first time.
    fn make_histories(&mut self, batch: &Batch) -> Result<(), Error> {
        for seq in (0..batch.len()).flat_map(|i| batch.seqs(i)) {
            if let Some(slot @ None) = self.sequences.get_mut(seq.index()) {
                *slot = Some(History::new(self.params.n_ctx)?);
            }
        }
        Ok(())
    }

    /// Makes room for the batch's tokens in the lists of those that its sequences hold, so that noting them cannot fail.
    fn make_room(&mut self, batch: &Batch) -> Result<(), Error> {
        let seqs = || (0..batch.len()).flat_map(|i| batch.seqs(i));
        for seq in seqs() {
            if let Some(Some(history)) = self.sequences.get_mut(seq.index()) {
                history.expect_one();
            }
        }
        let mut result = Ok(());
        for seq in seqs() {
            if let Some(Some(history)) = self.sequences.get_mut(seq.index()) {
                // All of them, so that none goes on expecting what does not come.
                let room = history.make_room();
                result = result.and(room);
            }
        }
        result
    }

    fn drop_unclaimed(&mut self) {
        let unclaimed = |history: &mut History| !history.is_claimed();
        self.sequences.iter_mut().for_each(|slot| drop(slot.take_if(unclaimed)));
    }

    fn check_batch(&self, batch: &Batch) -> Result<(), Error> {
        let n_vocab = self.model.hparams().n_vocab;
        let stranger = batch.tokens().iter().position(|token| token.0 as usize >= n_vocab);
        if let Some(index) = stranger {
            return Err(Error::Token { index, token: batch.tokens()[index].0, n_vocab });
        }
        let limit = self.params.n_seq_max;
        let beyond = |i: usize| batch.seqs(i).iter().find(|seq| seq.0 >= limit).copied();
        match (0..batch.len()).find_map(beyond) {
            Some(seq) => Err(Error::Sequence { seq: seq.0 }),
            None => Ok(()),
        }
    }

    /// Computes a batch; its outputs, if it asks for any, wait to be published.
    fn compute(&mut self, batch: &Batch) -> Result<(), Error> {
        if batch.len() <= self.params.n_batch as usize {
            self.compute_piece(batch, Some(batch), 0)
        } else {
            self.compute_pieces(batch)
        }
    }

    /// Computes a batch that is too long to be planned at once.
    fn compute_pieces(&mut self, batch: &Batch) -> Result<(), Error> {
        self.memory.admits(batch)?;
        let n_batch = self.params.n_batch as usize;
        let mut whole = Whole::hold(self, batch)?;
        let ctx = &mut *whole.ctx;
        let (mut piece, mut begins) = (core::mem::take(&mut ctx.piece), Some(batch));
        let result = (0..batch.len()).step_by(n_batch).try_for_each(|start| {
            piece.copy_from(batch, start..batch.len().min(start + n_batch))?;
            ctx.compute_piece(&piece, begins.take(), start).map_err(|error| in_batch(error, start))
        });
        ctx.piece = piece;
        whole.is_done = result.is_ok();
        result
    }

    /// Computes a batch, or the piece from token `start` on of one that is too long, as a whole or not at all. If outputs begin
    /// with it, they are those of `begins`.
    fn compute_piece(&mut self, batch: &Batch, begins: Option<&Batch>, start: usize) -> Result<(), Error> {
        let plan = self.memory.prepare(batch, self.params.n_ubatch as usize)?;
        if let Some(batch) = begins {
            self.outputs.begin(batch, Head::Logits)?;
        }
        self.outputs.start_at(start);
        let work = Stoppable::new(&*self.pool, self.cancel.as_ref());
        run(plan, &mut self.runner, &self.model, &work, Side::Decoder, &mut self.outputs)
    }

    /// Notes which tokens the sequences now hold, and which outputs are whose.
    fn record(&mut self, batch: &Batch) {
        for (i, &token) in batch.tokens().iter().enumerate() {
            for seq in batch.seqs(i) {
                if let Some(history) = &mut self.sequences[seq.index()] {
                    history.claim();
                    history.push(token, batch.positions()[i]);
                    if batch.n_embd() > 0 {
                        history.edit();
                    }
                }
                self.outputs.assign(*seq, i);
            }
        }
    }

    /// The logits `[n_vocab]` of token `index` of the last batch that succeeded, if its output was asked for.
    pub fn output(&self, index: usize) -> Option<&[f32]> {
        self.outputs.row(Head::Logits, index)
    }

    /// How many more tokens a sequence of `len` has room for, other sequences aside.
    pub(crate) fn room_after(&self, len: usize) -> usize {
        self.memory.limit().map_or(usize::MAX, |limit| (limit as usize).saturating_sub(len))
    }

    /// A new sequence that holds what `seq` holds. Nothing is copied until one of them changes.
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist, [`Error::TooManySequences`].
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let history = self.history(seq)?.duplicate(self.params.n_ctx)?;
        let free = self.sequences.iter().position(Option::is_none);
        let id = free.ok_or(Error::TooManySequences { limit: self.params.n_seq_max })?;
        let fork = SeqId(id as u32);
        self.memory.seq_cp(seq, fork, Pos::ZERO..Pos::MAX)?;
        self.sequences[id] = Some(history);
        self.outputs.share(seq, fork);
        Ok(fork)
    }

    /// Starts timing operations; `clock` returns nanoseconds since some fixed moment.
    pub fn profile(&mut self, clock: fn() -> u64) {
        self.runner.start_profile(self.model.graph(), clock);
    }

    /// Times so far, if [`Context::profile`] was called.
    pub fn profiled(&self) -> Option<&crate::graph::Profile> {
        self.runner.profile()
    }
}

/// Computes all ubatches of `plan` and makes them visible.
fn run(
    mut plan: Plan<'_>,
    runner: &mut Runner,
    model: &Model,
    work: &Stoppable<'_>,
    side: Side,
    outputs: &mut Outputs,
) -> Result<(), Error> {
    while let Some(mut ubatch) = plan.next_ubatch() {
        runner.run(model, work, side, &mut ubatch, outputs)?;
    }
    Ok(plan.commit()?)
}

/// Errors of the piece from token `start` on count its tokens; callers count those of the batch.
fn in_batch(mut error: Error, start: usize) -> Error {
    use backstitch_kv::Error::{Diverged, NotEncoded};
    if let Error::Memory(Diverged { index, .. } | NotEncoded { index, .. }) = &mut error {
        *index = index.saturating_add(start as u32);
    }
    error
}

/// Fills `batch` with tokens of one sequence from `start` on.
fn fill(batch: &mut Batch, seq: SeqId, start: Pos, tokens: &[Token], wanted: Wanted) -> Result<(), Error> {
    batch.clear();
    batch.make_room(tokens.len())?;
    batch.extend(seq, start, tokens, wanted)?;
    Ok(())
}
