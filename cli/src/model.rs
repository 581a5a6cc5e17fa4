//! The model a command works with: from a file, or the one inside the program.

use crate::args::{CacheType, ContextArgs, ModelArgs};
use crate::embedded;
use crate::error::Error;
use crate::output::note;
use crate::progress::Progress;
use backstitch_core::cell::CellType;
use backstitch_core::pool::MAX_THREADS;
use backstitch_models::gguf::{Access, Gguf, Source};
use backstitch_models::vocab::Vocab;
use backstitch_models::{LoadParams, Model, Params, TimelineParams};

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
    let progress = Progress::new("loading");
    let params = LoadParams { access: args.access(), n_threads: n_threads as usize };
    Ok(Model::open_with(path, params, |done, total| progress.set(done, total))?)
}

/// Loads the vocabulary alone.
///
/// # Errors
/// As [`open`].
pub fn vocab(args: &ModelArgs) -> Result<Vocab, Error> {
    match &args.model {
        Some(path) => Ok(Vocab::from_gguf(&Source::open(path, args.access())?.gguf()?)?),
        None => Ok(Vocab::from_gguf(&Gguf::parse(embedded::GGUF)?)?),
    }
}

/// Threads to work with: what the user says, at most [`MAX_THREADS`]; for 0 or nothing, [`n_cores`].
pub fn n_threads(wanted: Option<u32>) -> u32 {
    wanted.filter(|&n| n > 0).unwrap_or_else(n_cores).min(MAX_THREADS as u32)
}

/// How many threads this process may run at once: cores, fewer where its affinity or a container's quota of processor
/// time allow fewer; at least 1.
pub fn n_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// The parameters of a context of one sequence.
pub fn params(args: &ContextArgs, model: &Model) -> Params {
    let n_ctx_train = model.hparams().n_ctx_train;
    Params {
        n_ctx: match args.n_ctx {
            None => n_ctx_train.min(DEFAULT_N_CTX),
            Some(0) => n_ctx_train,
            Some(n) => n,
        },
        n_ubatch: args.n_ubatch,
        n_batch: args.n_batch,
        n_threads: n_threads(args.n_threads),
        type_k: args.type_k.into(),
        type_v: args.type_v.into(),
        timeline: TimelineParams {
            checkpoint_bytes: u64::from(args.checkpoint_mib) << 20,
            spacing: args.spacing,
            journal: args.journal,
            ..TimelineParams::default()
        },
        ..Params::default()
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
