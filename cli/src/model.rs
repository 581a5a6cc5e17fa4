//! The model a command works with: from a file, or the one inside the program.

use crate::args::{CacheType, ContextArgs, ModelArgs, SamplingArgs};
use crate::embedded;
use crate::error::Error;
use crate::output::note;
use crate::progress::Progress;
use backstitch_core::cell::CellType;
use backstitch_core::pool::MAX_THREADS;
use backstitch_kv::state::Fingerprint;
use backstitch_models::gguf::{Access, Gguf, Source};
use backstitch_models::sampler::Settings;
use backstitch_models::vocab::Vocab;
use backstitch_models::{LoadParams, Model, Params, TimelineParams, Token, fingerprint};
use std::path::Path;

/// Tokens a context holds unless the user or the model says otherwise.
const DEFAULT_N_CTX: u32 = 4096;

impl ModelArgs {
    /// How to get at the bytes of the file.
    pub fn access(&self) -> Access {
        if self.no_mmap { Access::Read } else { Access::Map }
    }
}

/// Loads the model, behind a progress bar.
///
/// # Errors
/// If the file cannot be read, is damaged or not known.
pub fn open(args: &ModelArgs, n_threads: u32) -> Result<Model, Error> {
    let Some(path) = &args.model else { return Ok(Model::from_bytes(embedded::GGUF)?) };
    let progress = Progress::bytes("loading");
    let params = LoadParams::default().access(args.access()).n_threads(n_threads as usize);
    Model::open_with(path, params, |done, total| progress.set(done, total))
        .map_err(|error| Error::of_model(path, error))
}

/// Opens a model file to look at, or to pack.
///
/// # Errors
/// If the file cannot be read.
pub fn source(path: &Path, access: Access) -> Result<Source, Error> {
    Source::open(path, access).map_err(|error| Error::of_model(path, error))
}

/// Loads the vocabulary alone, with the fingerprint of its model.
///
/// # Errors
/// As [`open`].
pub fn vocab(args: &ModelArgs) -> Result<(Vocab, Fingerprint), Error> {
    let Some(path) = &args.model else { return Ok(of_gguf(&Gguf::parse(embedded::GGUF)?)?) };
    let source = source(path, args.access())?;
    let loaded = source.gguf().and_then(|gguf| of_gguf(&gguf));
    loaded.map_err(|error| Error::of_model(path, error))
}

fn of_gguf(gguf: &Gguf<'_>) -> Result<(Vocab, Fingerprint), backstitch_models::Error> {
    Ok((Vocab::from_gguf(gguf)?, fingerprint(gguf)))
}

/// Threads to work with: what the user says, at most [`MAX_THREADS`]; for 0 or nothing, [`n_cores`].
pub fn n_threads(wanted: Option<u32>) -> u32 {
    wanted.filter(|&n| n > 0).unwrap_or_else(n_cores).min(MAX_THREADS as u32)
}

/// How many threads this process may run at once: cores, fewer where its affinity or a container's quota of
/// processor time allow fewer; at least 1.
pub fn n_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// The parameters of a context of one sequence.
pub fn params(args: &ContextArgs, model: &Model) -> Params {
    let ContextArgs { n_threads: wanted, evaluation: args } = args;
    let n_ctx_train = model.hparams().n_ctx_train;
    Params::default()
        .n_ctx(match args.n_ctx {
            None => n_ctx_train.min(DEFAULT_N_CTX),
            Some(0) => n_ctx_train,
            Some(n) => n,
        })
        .n_ubatch(args.n_ubatch)
        .n_batch(args.n_batch)
        .n_threads(n_threads(*wanted))
        .type_k(args.type_k.into())
        .type_v(args.type_v.into())
        .timeline(
            TimelineParams::default()
                .checkpoint_bytes(u64::from(args.checkpoint_mib) << 20)
                .spacing(args.spacing)
                .journal(args.journal),
        )
}

/// Refuses biases of tokens that the model does not have.
///
/// # Errors
/// [`Error::Refused`] with the first of them.
pub fn check_biases(args: &SamplingArgs, model: &Model) -> Result<(), Error> {
    let logit_bias = args.logit_bias.iter().map(|&(token, bias)| (Token(token), bias)).collect();
    let settings = Settings::default().logit_bias(logit_bias);
    settings.check(model.hparams().n_vocab).map_err(|error| {
        Error::Refused(format!("--logit-bias: {error}; `backstitch tokenize` shows the tokens of a text"))
    })
}

/// Tells the user if they want more threads than there can be.
pub fn warn_beyond_threads(wanted: Option<u32>) {
    if let Some(wanted) = wanted.filter(|&n| n > MAX_THREADS as u32) {
        note(
            "warning",
            format_args!(
                "-t {wanted}: more than {MAX_THREADS} threads there cannot be; {MAX_THREADS} are used"
            ),
        );
    }
}

/// Tells the user if they asked for more than the model was trained for.
pub fn warn_beyond_training(n_ctx: u32, model: &Model) {
    let n_ctx_train = model.hparams().n_ctx_train;
    if n_ctx > n_ctx_train {
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
