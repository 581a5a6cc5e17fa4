//! Contexts: the state that changes while a model runs.
//!
//! A context handle stands for a [`ContextEntry`]: what never changes lies open, the rest behind a
//! lock. llama.h lets one thread use a context at a time; threads that do not keep to that wait for
//! each other here. A callback that calls back into its context fails with [`Error::Busy`].

mod outputs;
mod perf;

use crate::adapter::Chosen;
use crate::border::{self, Flag, exports};
use crate::error::Error;
use crate::handles::{Handle, Kind, Registry, sibling};
use crate::layouts::{AbortCallback, ContextParams};
use crate::log::{self, Level};
use crate::model::{ModelEntry, model};
use backstitch_models::{Cancel, CellType, Context, Hparams, Params, Pooling, SeqId};
pub use outputs::{Outputs, Row};
pub use perf::{Perf, now_us};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pooling of embeddings by llama.h's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooled {
    /// The model's own.
    Default,
    /// One that this library has.
    By(Pooling),
    /// One that it lacks.
    Unknown(i32),
}

impl Pooled {
    /// Return the pooling for a number.
    pub fn from_number(number: i32) -> Self {
        match number {
            -1 => Pooled::Default,
            0 => Pooled::By(Pooling::None),
            1 => Pooled::By(Pooling::Mean),
            2 => Pooled::By(Pooling::Cls),
            3 => Pooled::By(Pooling::Last),
            other => Pooled::Unknown(other),
        }
    }
}

/// Wishes for a context, whatever the layout that they came in.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of llama.h, as far as they mean something here")]
pub struct Options {
    pub n_ctx: u32,
    pub n_batch: u32,
    pub n_ubatch: u32,
    pub n_seq_max: u32,
    pub n_threads: i32,
    pub n_threads_batch: i32,
    pub pooling: Pooled,
    pub type_k: i32,
    pub type_v: i32,
    pub abort: AbortCallback,
    pub abort_data: usize,
    pub embeddings: bool,
    /// True if sequences share the cells of one stream in llama.cpp's files.
    pub is_unified: bool,
    /// True if values lie transposed in llama.cpp's files.
    pub v_trans: bool,
    /// True if the rotation of keys should be another than the model's, which is not done.
    pub has_rope: bool,
    /// True if a callback should see tensors, which is not done.
    pub has_eval_callback: bool,
    /// True if samplers should run inside the context, which is not done.
    pub has_samplers: bool,
    /// True for a context of the layers that predict further tokens, which are never loaded.
    pub has_kind: bool,
    /// 0 if tokens should see those before them, 1 if they should see all, -1 to leave it to the
    /// model, which always decides.
    pub attention: i32,
}

/// A context that a handle stands for.
pub struct ContextEntry {
    /// The model, which lives as long as its contexts.
    pub model: Arc<ModelEntry>,
    /// The handle under which the program knows the model.
    pub model_handle: Handle,
    /// The wishes, with defaults filled in.
    pub options: Options,
    live: Mutex<Live>,
}

/// The part of a context that changes.
pub struct Live {
    context: Option<Context>,
    /// True if batches yield embeddings.
    pub embeddings: bool,
    /// Thread counts that the program set; the pool keeps those of the beginning.
    pub n_threads: [i32; 2],
    /// Outputs of the last batch.
    pub outputs: Outputs,
    /// Times and counts.
    pub perf: Perf,
    /// The state that was written to learn its size, until something changes.
    pub written: Option<(Option<SeqId>, Vec<u8>)>,
    /// True to write states as llama.cpp does, without a seal.
    pub plain_states: bool,
    /// The adapters with which all sequences are evaluated.
    pub adapters: Chosen,
}

/// The contexts that are alive.
pub static CONTEXTS: Registry<ContextEntry> = Registry::new(Kind::Context);

/// Return the context of a handle.
///
/// # Errors
/// [`Error::Null`], [`Error::Foreign`] or [`Error::Stale`].
pub fn context(handle: Handle) -> Result<Arc<ContextEntry>, Error> {
    CONTEXTS.get(handle)
}

/// Return the context of the handle of its memory.
///
/// # Errors
/// Those of [`context`].
pub fn of_memory(handle: Handle) -> Result<Arc<ContextEntry>, Error> {
    CONTEXTS.get_as(handle, &[Kind::Memory, Kind::Context])
}

impl ContextEntry {
    /// Lock the part that changes.
    ///
    /// # Errors
    /// [`Error::Busy`] if a callback of the context calls it.
    pub fn live(&self) -> Result<MutexGuard<'_, Live>, Error> {
        if border::is_in_callback() {
            return self.live.try_lock().map_err(|_| Error::Busy);
        }
        Ok(self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Return true if `seq` is one of the sequences.
    pub fn has(&self, seq: i32) -> bool {
        u32::try_from(seq).is_ok_and(|seq| seq < self.options.n_seq_max)
    }

    /// Return the sequence of a number.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn seq(&self, seq: i32) -> Result<SeqId, Error> {
        match self.has(seq) {
            true => Ok(SeqId(seq as u32)),
            false => {
                Err(Error::Range { what: "seq_id", found: seq.into(), wanted: "from 0 to n_seq_max - 1" })
            }
        }
    }
}

impl Live {
    /// Return the context, to read it.
    ///
    /// # Errors
    /// [`Error::VocabOnly`].
    pub fn context(&self) -> Result<&Context, Error> {
        self.context.as_ref().ok_or(Error::VocabOnly)
    }

    /// Return the context, to change it. What was written of it is void then, and logits that were
    /// not computed with the last batch do not follow from its sequences any more.
    ///
    /// # Errors
    /// [`Error::VocabOnly`].
    pub fn change(&mut self) -> Result<&mut Context, Error> {
        self.written = None;
        self.outputs.detach();
        self.context.as_mut().ok_or(Error::VocabOnly)
    }

    /// Make every sequence exist that does not: in llama.h all of them always do.
    pub fn make_sequences(&mut self) {
        while self.context.as_mut().is_some_and(|context| context.sequence().is_ok()) {}
    }

    /// Return the context with the outputs that it filled, for reading both.
    ///
    /// # Errors
    /// [`Error::VocabOnly`].
    pub fn outputs(&mut self) -> Result<(&mut Context, &mut Outputs), Error> {
        Ok((self.context.as_mut().ok_or(Error::VocabOnly)?, &mut self.outputs))
    }
}

thread_local! {
    /// True while this thread evaluates a batch.
    static IN_EVALUATION: Cell<bool> = const { Cell::new(false) };
}

/// Evaluate a batch by `work`, which the program's callback may abort.
pub fn in_evaluation<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IN_EVALUATION.set(self.0);
        }
    }
    // Also if the work panics. A callback may have another context evaluate something.
    let _before = Before(IN_EVALUATION.replace(true));
    work()
}

/// Return the request to cancel that asks a callback of the program's. Only the thread that
/// evaluates a batch asks, as in llama.cpp: a callback may be bound to its thread, and programs
/// expect no other call to end early. The other threads of the pool see what it was told.
fn cancel_of(callback: AbortCallback, data: usize) -> Option<Cancel> {
    let callback = callback?;
    let is_aborted = move || border::in_callback(|| callback(data as *mut c_void));
    Some(Cancel::from_fn(move || IN_EVALUATION.get() && is_aborted()))
}

/// Return the type of cells for one of ggml's numbers.
fn cell_type(number: i32, what: &'static str) -> Result<CellType, Error> {
    match number {
        0 => Ok(CellType::F32),
        1 => Ok(CellType::F16),
        2 => Ok(CellType::Q4_0),
        8 => Ok(CellType::Q8_0),
        30 => Ok(CellType::BF16),
        other => {
            let wanted = "F32 (0), F16 (1), Q4_0 (2), Q8_0 (8) or BF16 (30)";
            Err(Error::Range { what, found: other.into(), wanted })
        }
    }
}

/// Warn about wishes that are not fulfilled.
fn warn(options: &Options, hparams: Option<&Hparams>) {
    let is_causal = hparams.is_none_or(|h| h.is_causal);
    let ignored = [
        (options.has_rope, "another rotation of keys than the model's (rope_*, yarn_*)"),
        (options.has_eval_callback, "cb_eval"),
        (options.has_samplers, "samplers inside the context"),
        (options.has_kind, "ctx_type"),
        (options.attention == i32::from(is_causal), "another attention than the model's (attention_type)"),
    ];
    for (_, what) in ignored.iter().filter(|(is_wanted, _)| *is_wanted) {
        log::write(Level::Warning, &format!("{what}: ignored"));
    }
}

/// Return the tokens of a context of `n_streams` equal streams, and of one of them. Streams are
/// padded as in llama.cpp, whose programs may count on tokens beyond those that they ask for.
///
/// # Errors
/// [`Error::Range`] if all streams together have too many.
fn padded(n_ctx: u32, n_streams: u32) -> Result<(u32, u32), Error> {
    const STEP: u32 = 256;
    let pad = |n: u32| n.checked_next_multiple_of(STEP);
    let stream = pad(n_ctx).and_then(|n| pad((n / n_streams.max(1)).max(1)));
    let all = stream.and_then(|stream| Some((stream.checked_mul(n_streams)?, stream)));
    let wanted = "a number of tokens that leaves room for padding";
    all.ok_or(Error::Range { what: "n_ctx", found: n_ctx.into(), wanted })
}

/// Make a context, with the wishes as they were fulfilled.
fn make(model: &ModelEntry, options: &mut Options) -> Result<Option<Context>, Error> {
    let n_seq_max = options.n_seq_max.max(1);
    let Some(whole) = &model.model else {
        options.n_seq_max = n_seq_max;
        return Ok(None);
    };
    let pooling = match options.pooling {
        Pooled::Default => None,
        Pooled::By(pooling) => Some(pooling),
        Pooled::Unknown(number) => {
            let wanted = "a pooling that this library has (-1 to 3)";
            return Err(Error::Range { what: "pooling_type", found: number.into(), wanted });
        }
    };
    let n_threads = options.n_threads.max(options.n_threads_batch);
    let n_ctx = if options.n_ctx == 0 { whole.hparams().n_ctx_train } else { options.n_ctx };
    let (n_ctx, n_ctx_seq) = padded(n_ctx, if options.is_unified { 1 } else { n_seq_max })?;
    let mut params = Params::default()
        .n_ctx(n_ctx)
        .n_ctx_seq(n_ctx_seq)
        .n_seq_max(n_seq_max)
        .type_k(cell_type(options.type_k, "type_k")?)
        .type_v(cell_type(options.type_v, "type_v")?)
        .pooling(pooling);
    if n_threads > 0 {
        params = params.n_threads(n_threads as u32);
    }
    if options.n_batch > 0 {
        params = params.n_batch(options.n_batch);
    }
    let n_ubatch = if options.n_ubatch == 0 { options.n_batch } else { options.n_ubatch };
    if n_ubatch > 0 {
        params = params.n_ubatch(n_ubatch);
    }
    let mut context = Context::new(whole, params)?;
    context.set_cancel(cancel_of(options.abort, options.abort_data));
    let settled = context.params();
    (options.n_ctx, options.n_batch, options.n_ubatch) = (settled.n_ctx, settled.n_batch, settled.n_ubatch);
    options.n_seq_max = settled.n_seq_max;
    if let Some(pooling) = settled.pooling {
        options.pooling = Pooled::By(pooling);
    }
    Ok(Some(context))
}

exports! {
    /// Make a context of a model, or return null.
    fn llama_init_from_model(handle: Handle, params: ContextParams) -> Handle = [Handle::NULL] {
        let (model, mut options) = (model(handle)?, params.options());
        warn(&options, model.hparams.as_ref());
        let context = make(&model, &mut options)?;
        let live = Live {
            context,
            embeddings: options.embeddings,
            n_threads: [options.n_threads, options.n_threads_batch],
            outputs: Outputs::default(),
            perf: Perf::new(model.load_ms),
            written: None,
            plain_states: false,
            adapters: Chosen::default(),
        };
        let entry = ContextEntry { model, model_handle: handle, options, live: Mutex::new(live) };
        entry.live()?.make_sequences();
        CONTEXTS.insert(entry)
    }

    /// Free a context.
    fn llama_free(handle: Handle) {
        if handle.is_null() {
            return Ok(());
        }
        CONTEXTS.remove(handle).map(drop)
    }

    /// Return parameters of a context with the defaults filled in.
    fn llama_context_default_params() -> ContextParams = [ContextParams::default()] {
        Ok(ContextParams::default())
    }

    /// Return the number of tokens that the context has room for.
    fn llama_n_ctx(handle: Handle) -> u32 = [0] {
        Ok(context(handle)?.options.n_ctx)
    }

    /// Return the number of tokens that one sequence may have.
    fn llama_n_ctx_seq(handle: Handle) -> u32 = [0] {
        let options = context(handle)?.options;
        Ok(if options.is_unified { options.n_ctx } else { options.n_ctx / options.n_seq_max.max(1) })
    }

    /// Return the logical batch size.
    fn llama_n_batch(handle: Handle) -> u32 = [0] {
        Ok(context(handle)?.options.n_batch)
    }

    /// Return the physical batch size.
    fn llama_n_ubatch(handle: Handle) -> u32 = [0] {
        Ok(context(handle)?.options.n_ubatch)
    }

    /// Return the number of sequences.
    fn llama_n_seq_max(handle: Handle) -> u32 = [0] {
        Ok(context(handle)?.options.n_seq_max)
    }

    /// Return the number of snapshots of recurrent states that the program asked for: none, because
    /// every position can be reached without.
    fn llama_n_rs_seq(handle: Handle) -> u32 = [0] {
        context(handle).map(|_| 0)
    }

    /// Return the model of a context.
    fn llama_get_model(handle: Handle) -> Handle = [Handle::NULL] {
        Ok(context(handle)?.model_handle)
    }

    /// Return the memory of a context, which lives as long as it.
    fn llama_get_memory(handle: Handle) -> Handle = [Handle::NULL] {
        context(handle)?;
        Ok(sibling(handle, Kind::Memory))
    }

    /// Return the number of the pooling.
    fn llama_pooling_type(handle: Handle) -> i32 = [-1] {
        Ok(match context(handle)?.options.pooling {
            Pooled::Default => -1,
            Pooled::By(Pooling::None) => 0,
            Pooled::By(Pooling::Mean) => 1,
            Pooled::By(Pooling::Cls) => 2,
            Pooled::By(Pooling::Last) => 3,
            Pooled::Unknown(number) => number,
        })
    }

    /// Note thread counts. The pool keeps those that the context was made with; results do not
    /// depend on them.
    fn llama_set_n_threads(handle: Handle, n_threads: i32, n_threads_batch: i32) {
        context(handle)?.live()?.n_threads = [n_threads, n_threads_batch];
        Ok(())
    }

    /// Return the thread count for single tokens that was set last.
    fn llama_n_threads(handle: Handle) -> i32 = [0] {
        Ok(context(handle)?.live()?.n_threads[0])
    }

    /// Return the thread count for prompts that was set last.
    fn llama_n_threads_batch(handle: Handle) -> i32 = [0] {
        Ok(context(handle)?.live()?.n_threads[1])
    }

    /// Make batches yield embeddings, or logits alone.
    fn llama_set_embeddings(handle: Handle, embeddings: Flag) {
        context(handle)?.live()?.embeddings = embeddings != 0;
        Ok(())
    }

    /// Set the callback that aborts computations, or none.
    fn llama_set_abort_callback(handle: Handle, callback: AbortCallback, data: *mut c_void) {
        let (entry, cancel) = (context(handle)?, cancel_of(callback, data as usize));
        if let Some(context) = entry.live()?.context.as_mut() {
            context.set_cancel(cancel);
        }
        Ok(())
    }

    /// Wait for the context, which never computes after a call has returned.
    fn llama_synchronize(handle: Handle) {
        context(handle).map(drop)
    }
}
