//! What changes while a model runs: sequences, buffers, outputs.

mod encode;
mod history;
mod operations;
mod outputs;
mod pooling;
#[cfg(feature = "std")]
mod recall;
mod rollback;
mod state;
mod whole;

use crate::{
    error::Error,
    graph::Head,
    model::Model,
    runner::{Runner, Side},
};
use alloc::{boxed::Box, vec::Vec};
use backstitch_core::{KernelSet, cell::CellType, pool::Pool};
use backstitch_kv::{
    AttentionSpec, Batch, Hybrid, LayerSpec, Memory, Plan, Pos, SeqId, TimelineParams, Token,
};

use history::History;
pub(crate) use outputs::Outputs;
pub use pooling::Pooling;
#[cfg(feature = "std")]
pub use recall::Recalled;
pub use rollback::Rollback;
pub use state::sections;
pub use state::{RestoreOptions, Restored, RestoredSequence, SaveOptions};
use whole::Whole;

/// Sizes and choices of a context; all of its memory follows from them.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// The most tokens that one sequence, or all together, can hold; 0: as many as the model was trained with. Where no layer
    /// keeps all tokens, because all have a window or a recurrent state, sequences can become longer; beyond so many tokens the
    /// list of them grows now and then.
    pub n_ctx: u32,
    /// The most tokens computed at once. More need more memory and make prompts faster, up to a point.
    pub n_ubatch: u32,
    /// The most tokens planned at once; of longer batches the memory takes one piece after the other, and they happen whole
    /// or not at all just the same. Layers with a window need room for so many.
    pub n_batch: u32,
    /// How many sequences there can be.
    pub n_seq_max: u32,
    /// Threads, 1 to 512; without `std` there is always one.
    pub n_threads: u32,
    /// Element type of cached keys.
    pub type_k: CellType,
    /// Element type of cached values.
    pub type_v: CellType,
    /// What is kept for going back.
    pub timeline: TimelineParams,
    /// How an encoder makes one embedding of a text; none: as the model says.
    pub pooling: Option<Pooling>,
    /// Which kernels to use; none: the fastest of this processor, or the one that `BACKSTITCH_ISA` names.
    pub kernels: Option<&'static KernelSet>,
}

impl Default for Params {
    /// The model's own context length, 512 tokens at once, 2048 planned, one sequence, one thread, F16 caches, and the usual
    /// way back.
    fn default() -> Self {
        Params {
            n_ctx: 0,
            n_ubatch: 512,
            n_batch: 2048,
            n_seq_max: 1,
            n_threads: 1,
            type_k: CellType::F16,
            type_v: CellType::F16,
            timeline: TimelineParams::default(),
            pooling: None,
            kernels: None,
        }
    }
}

/// Sequences of a model and all that is needed to extend them.
///
/// Every method either does what it says or leaves all sequences as they were, with one exception that
/// [`Context::rollback`] names: in a cache without a free block, a failure can leave the sequence at an earlier position.
///
/// # Example
/// ```
/// use backstitch_models::{Context, Model, Params, Token};
///
/// let model = Model::from_bytes(&std::fs::read("../goldens/models/falcon_h1.gguf")?)?;
/// let mut ctx = Context::new(&model, Params { n_ctx: 128, n_seq_max: 2, ..Params::default() })?;
/// let a = ctx.sequence()?;
/// ctx.append(a, &[Token(5), Token(6), Token(7)])?;
/// let mark = ctx.pos(a);
/// let b = ctx.fork(a)?; // shares what a holds
/// ctx.append(b, &[Token(8)])?;
/// let of_b = ctx.logits(b).map(<[f32]>::to_vec);
/// ctx.append(a, &[Token(9)])?;
/// ctx.rollback(a, mark)?; // any kind of model
/// ctx.append(a, &[Token(8)])?;
/// assert_eq!(ctx.logits(a).map(<[f32]>::to_vec), of_b); // the same bits
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Context {
    model: Model,
    params: Params,
    memory: Hybrid,
    pool: Box<dyn Pool + Send>,
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

fn new_pool(n_threads: u32) -> Result<Box<dyn Pool + Send>, Error> {
    #[cfg(feature = "std")]
    return Ok(Box::new(backstitch_core::pool::ThreadPool::new(n_threads as usize)?));
    #[cfg(not(feature = "std"))]
    {
        let _ = n_threads;
        Ok(Box::new(backstitch_core::pool::Inline))
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

    /// As [`Context::new`], with a pool of the caller's.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn with_pool(model: &Model, mut params: Params, pool: Box<dyn Pool + Send>) -> Result<Self, Error> {
        if params.n_ctx == 0 {
            params.n_ctx = model.hparams().n_ctx_train;
        }
        check(&params)?;
        let set = match params.kernels {
            Some(set) => set,
            None => KernelSet::detect()?,
        };
        params.n_ubatch = params.n_ubatch.min(params.n_ctx);
        let layers = model.graph().layers();
        // What is not kept has to be seen in one piece.
        let is_uncached = |layer: &LayerSpec| matches!(layer.attention, AttentionSpec::Uncached { .. });
        let in_pieces = !layers.iter().any(is_uncached);
        params.n_batch = if in_pieces { params.n_batch.min(params.n_ctx) } else { params.n_ctx };
        let memory = Hybrid::new(layers, &Self::memory_params(&params))?;
        let runner = Runner::new(model, &params, set, &*pool)?;
        let pooling = *params.pooling.get_or_insert(model.hparams().pooling);
        let outputs = Outputs::new(model.hparams(), params.n_seq_max, pooling);
        let sequences = (0..params.n_seq_max).map(|_| None).collect();
        Ok(Context {
            model: model.clone(),
            params,
            memory,
            pool,
            runner,
            outputs,
            sequences,
            batch: Batch::new(),
            piece: Batch::new(),
        })
    }

    /// Bytes of caches and states that a context of these parameters keeps.
    pub fn memory_bytes(layers: &[backstitch_kv::LayerSpec], params: &Params) -> u64 {
        Self::memory_params(params).bytes(layers)
    }

    fn memory_params(params: &Params) -> backstitch_kv::Params {
        backstitch_kv::Params {
            n_ctx: params.n_ctx,
            // One more than callers can have: a rollback keeps the old state there until the new one is sure.
            n_seq_max: params.n_seq_max.saturating_add(1),
            n_batch: params.n_batch.min(params.n_ctx),
            k_type: params.type_k,
            v_type: params.type_v,
            timeline: params.timeline,
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The parameters, with what they left open decided.
    pub fn params(&self) -> &Params {
        &self.params
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

    /// Drops a sequence and frees its memory.
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

    /// The position that the next token of `seq` gets; 0 if it is empty or does not exist.
    pub fn pos(&self, seq: SeqId) -> Pos {
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
        let start = self.pos(seq);
        let mut batch = core::mem::take(&mut self.batch);
        let filled = fill(&mut batch, seq, start, tokens, Wanted::Last);
        let result = filled.and_then(|()| self.decode(&batch));
        self.batch = batch;
        result
    }

    /// Evaluates a batch: tokens of any sequences, each with its position. Logits of the tokens whose output was
    /// asked for are then to be had from [`Context::output`]; those of earlier batches are gone.
    ///
    /// Sequences below `n_seq_max` need not come from [`Context::sequence`]; naming one makes it exist.
    ///
    /// # Errors
    /// If the batch is malformed or does not fit, and [`Error::EncoderOnly`] if the model only encodes; nothing has
    /// changed then.
    pub fn decode(&mut self, batch: &Batch) -> Result<(), Error> {
        if self.model.graph().head() == Head::Embeddings {
            return Err(Error::EncoderOnly);
        }
        self.check_batch(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let room = self.make_histories(batch).and_then(|()| self.make_room(batch));
        let result = room.and_then(|()| self.compute(batch, Fresh::Outputs));
        match result {
            Ok(()) => self.record(batch),
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

    fn compute(&mut self, batch: &Batch, fresh: Fresh) -> Result<(), Error> {
        let begins = (fresh == Fresh::Outputs).then_some(batch);
        if batch.len() <= self.params.n_batch as usize {
            self.compute_piece(batch, begins, 0)?;
        } else {
            self.compute_pieces(batch, begins)?;
        }
        if fresh == Fresh::Outputs {
            self.outputs.publish();
        }
        Ok(())
    }

    /// Computes a batch that is too long to be planned at once.
    fn compute_pieces(&mut self, batch: &Batch, mut begins: Option<&Batch>) -> Result<(), Error> {
        self.memory.admits(batch)?;
        let n_batch = self.params.n_batch as usize;
        let mut whole = Whole::hold(self, batch)?;
        let ctx = &mut *whole.ctx;
        let mut piece = core::mem::take(&mut ctx.piece);
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
        run(plan, &mut self.runner, &self.model, &*self.pool, Side::Decoder, &mut self.outputs)
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

    /// The logits `[n_vocab]` of token `index` of the last batch, if its output was asked for.
    pub fn output(&self, index: usize) -> Option<&[f32]> {
        self.outputs.row(Head::Logits, index)
    }

    /// The logits `[n_vocab]` of the last token of `seq`, if the last batch computed them and the sequence has not been
    /// changed since.
    pub fn logits(&self, seq: SeqId) -> Option<&[f32]> {
        self.outputs.of_sequence(seq)
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
    pool: &dyn Pool,
    side: Side,
    outputs: &mut Outputs,
) -> Result<(), Error> {
    while let Some(mut ubatch) = plan.next_ubatch() {
        runner.run(model, pool, side, &mut ubatch, outputs)?;
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

/// Whether a computation replaces the logits of the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fresh {
    Outputs,
    Nothing,
}

/// Which tokens' outputs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    None,
    Last,
    All,
}

/// Fills `batch` with tokens of one sequence from `start` on.
fn fill(batch: &mut Batch, seq: SeqId, start: Pos, tokens: &[Token], wanted: Wanted) -> Result<(), Error> {
    batch.clear();
    batch.make_room(tokens.len())?;
    for (i, &token) in tokens.iter().enumerate() {
        let output = wanted == Wanted::All || wanted == Wanted::Last && i + 1 == tokens.len();
        // Saturates where it cannot fit; the memory refuses such a batch.
        let pos = Pos(start.0.saturating_add(i.min(i32::MAX as usize) as i32));
        batch.push(token, pos, &[seq], output);
    }
    Ok(())
}

fn check(params: &Params) -> Result<(), Error> {
    let bounds = [
        ("n_ctx", params.n_ctx, 1 << 30, "a number from 1 to 2^30"),
        ("n_ubatch", params.n_ubatch, 1 << 16, "a number from 1 to 65536"),
        ("n_batch", params.n_batch, 1 << 30, "a number from 1 to 2^30"),
        ("n_seq_max", params.n_seq_max, 1 << 16, "a number from 1 to 65536"),
    ];
    match bounds.into_iter().find(|&(_, found, limit, _)| found == 0 || found > limit) {
        Some((what, found, _, wanted)) => Err(Error::Params { what, found: found.into(), wanted }),
        None => Ok(()),
    }
}
