//! The model that a command works with, from a file or from inside the program, and the parameters
//! of a context for it.
//!
//! Here options become parameters of the library: this is the one place that knows what `-t 0` and
//! `-c 0` mean.

use crate::args::{CacheType, ContextArgs, EvaluationArgs, ModelArgs, SamplingArgs};
use crate::embedded;
use crate::error::Error;
use crate::memory::{self, Together};
use crate::output::note;
use crate::progress::Progress;
use backstitch_core::cell::CellType;
use backstitch_core::pool::MAX_THREADS;
use backstitch_kv::storage::Fingerprint;
use backstitch_models::gguf::{Access, Gguf, Source};
use backstitch_models::sampler::Settings;
use backstitch_models::vocab::Vocab;
use backstitch_models::{LoadParams, Model, Params, RollbackParams, Token, fingerprint};
use std::path::Path;

impl ModelArgs {
    /// Return the way to access the bytes of the file.
    pub fn access(&self) -> Access {
        if self.no_mmap { Access::Read } else { Access::Map }
    }
}

/// Load the model, and show a progress line.
///
/// # Errors
/// - [`Error::Engine`] if the file cannot be read, is damaged, or has an unknown architecture.
/// - [`Error::Refused`] if the file is a state, not a model.
pub fn open(args: &ModelArgs, n_threads: u32) -> Result<Model, Error> {
    let Some(path) = &args.model else { return Ok(Model::from_bytes(embedded::GGUF)?) };
    let progress = Progress::bytes("loading");
    let params = LoadParams::default().access(args.access()).n_threads(n_threads as usize);
    Model::open_with(path, params, |done, total| progress.set(done, total))
        .map_err(|error| Error::of_model(path, error))
}

/// Open a model file to inspect or to pack it. No weights are loaded.
///
/// # Errors
/// - [`Error::Engine`] if the file cannot be read.
/// - [`Error::Refused`] if the file is a state, not a model.
pub fn source(path: &Path, access: Access) -> Result<Source, Error> {
    Source::open(path, access).map_err(|error| Error::of_model(path, error))
}

/// Load only the vocabulary of a model, with the model's fingerprint.
///
/// # Errors
/// The errors of [`open`].
pub fn vocab(args: &ModelArgs) -> Result<(Vocab, Fingerprint), Error> {
    let Some(path) = &args.model else { return Ok(of_gguf(&Gguf::parse(embedded::GGUF)?)?) };
    let source = source(path, args.access())?;
    let loaded = source.gguf().and_then(|gguf| of_gguf(&gguf));
    loaded.map_err(|error| Error::of_model(path, error))
}

/// Read vocabulary and fingerprint from the header of a file.
fn of_gguf(gguf: &Gguf<'_>) -> Result<(Vocab, Fingerprint), backstitch_models::Error> {
    Ok((Vocab::from_gguf(gguf)?, fingerprint(gguf)))
}

/// Return the number of threads to work with: the wanted number, capped at [`MAX_THREADS`], or
/// [`n_cores`] if that is 0 or absent.
pub fn n_threads(wanted: Option<u32>) -> u32 {
    wanted.filter(|&n| n > 0).unwrap_or_else(n_cores).min(MAX_THREADS as u32)
}

/// Return the number of threads that this process may run at once: the cores of the machine, or
/// fewer if its affinity or a container's quota of processor time allow fewer; at least 1.
pub fn n_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Return the parameters of a context for one sequence.
pub fn params(args: &ContextArgs, model: &Model) -> Params {
    let ContextArgs { n_threads: wanted, evaluation: args, .. } = args;
    let n_ctx_train = model.hparams().n_ctx_train;
    let params = Params::default()
        .n_ubatch(args.n_ubatch)
        .n_batch(args.n_batch)
        .n_threads(n_threads(*wanted))
        .type_k(args.type_k.into())
        .type_v(args.type_v.into());
    let checkpoint_bytes = checkpoint_bytes(args, model, &params);
    let of_drafts = if args.has_draft_model { draft_share(checkpoint_bytes, 1) } else { 0 };
    let checkpoint_bytes = checkpoint_bytes - of_drafts;
    let rollback = RollbackParams::default().checkpoint_bytes(checkpoint_bytes);
    let params = params.rollback(rollback.spacing(args.spacing).journal(args.journal));
    params.n_ctx(match args.n_ctx {
        None => {
            let alone = Together { model, params: &params, n_seqs: 1, draft: None };
            memory::usual_context(alone, 0).n_ctx
        }
        Some(0) => n_ctx_train,
        Some(n) => n,
    })
}

/// Return the bytes of all checkpoints, those of a draft model included.
fn checkpoint_bytes(args: &EvaluationArgs, model: &Model, params: &Params) -> u64 {
    match args.checkpoint_mib {
        None => memory::usual_checkpoint_bytes(model, params),
        Some(mib) => u64::from(mib) << 20,
    }
}

/// Return the bytes of checkpoints for each of `n_contexts` of a draft model, of those for all
/// contexts: together a quarter, because its states are smaller and it seldom goes back far.
fn draft_share(checkpoint_bytes: u64, n_contexts: u32) -> u64 {
    checkpoint_bytes / 4 / u64::from(n_contexts.max(1))
}

/// Return the parameters of each of `n_contexts` of a draft model beside `model`.
pub fn draft_params(args: &ContextArgs, model: &Model, draft: &Model, n_contexts: u32) -> Params {
    let params = params(args, draft);
    let all = checkpoint_bytes(&args.evaluation, model, &params);
    params.rollback(params.rollback.checkpoint_bytes(draft_share(all, n_contexts)))
}

/// Check that every token in `--logit-bias` exists.
///
/// # Errors
/// [`Error::Refused`] with the first token that does not.
pub fn check_biases(args: &SamplingArgs, model: &Model) -> Result<(), Error> {
    let logit_bias = args.logit_bias.iter().map(|&(token, bias)| (Token(token), bias)).collect();
    let settings = Settings::default().logit_bias(logit_bias);
    settings.check(model.hparams().n_vocab).map_err(|error| {
        Error::Refused(format!("--logit-bias: {error}; `backstitch tokenize` shows the tokens of a text"))
    })
}

/// Warn if more threads were asked for than there can be.
pub fn warn_beyond_threads(wanted: Option<u32>) {
    if let Some(wanted) = wanted.filter(|&n| n > MAX_THREADS as u32) {
        note("warning", format_args!("-t {wanted}: the limit is {MAX_THREADS} threads, which are used"));
    }
}

/// Return the size of a context, or the number of positions that the model has embeddings for if
/// that is less: a longer text would fail in its middle.
pub fn within_positions(n_ctx: u32, model: &Model) -> u32 {
    model.graph().n_positions().map_or(n_ctx, |n| n_ctx.min(n as u32))
}

/// Warn if the context is longer than the model allows, or than those that it was trained with.
pub fn warn_beyond_training(n_ctx: u32, model: &Model) {
    let n_ctx_train = model.hparams().n_ctx_train;
    if let Some(n) = model.graph().n_positions().filter(|&n| n_ctx as usize > n) {
        note("warning", format_args!("-c {n_ctx}: the model has {n} positions, which are used"));
    } else if n_ctx > n_ctx_train {
        note(
            "warning",
            format_args!("-c {n_ctx} goes beyond the {n_ctx_train} tokens this model was trained for"),
        );
    }
}

impl From<CacheType> for CellType {
    fn from(wanted: CacheType) -> Self {
        match wanted {
            CacheType::F32 => Self::F32,
            CacheType::F16 => Self::F16,
            CacheType::Bf16 => Self::BF16,
            CacheType::Q8_0 => Self::Q8_0,
            CacheType::Q4_0 => Self::Q4_0,
        }
    }
}
