//! Parameters of a context.

use super::Pooling;
use crate::error::Error;
use crate::graph::Graph;
use crate::hparams::Hparams;
use crate::setters::setters;
use backstitch_core::{KernelSet, cell::CellType};
use backstitch_kv::{AttentionSpec, LayerSpec, TimelineParams};

/// Sizes and choices of a context; all of its memory follows from them.
///
/// ```
/// use backstitch_models::Params;
///
/// let params = Params::default().n_ctx(4096).n_seq_max(4);
/// assert_eq!((params.n_ctx, params.n_ubatch), (4096, 512));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
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
    /// Threads, 1 to 512; without `std` there is always one. By default as many as this process may use: the processors that it may
    /// run on, and under Linux no more than its control group has a quota for.
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

/// The most sequences of a context.
pub(super) const MAX_SEQUENCES: u32 = 1 << 16;

setters!(Params {
    n_ctx: u32,
    n_ubatch: u32,
    n_batch: u32,
    n_seq_max: u32,
    n_threads: u32,
    type_k: CellType,
    type_v: CellType,
    timeline: TimelineParams,
    pooling: Option<Pooling>,
    kernels: Option<&'static KernelSet>,
});

impl Default for Params {
    /// The model's own context length, 512 tokens at once, 2048 planned, one sequence, all threads that the process may use, F16 caches, and the usual
    /// way back.
    fn default() -> Self {
        Params {
            n_ctx: 0,
            n_ubatch: 512,
            n_batch: 2048,
            n_seq_max: 1,
            n_threads: all_threads(),
            type_k: CellType::F16,
            type_v: CellType::F16,
            timeline: TimelineParams::default(),
            pooling: None,
            kernels: None,
        }
    }
}

/// As many threads as this process may use at once.
pub(crate) fn all_threads() -> u32 {
    #[cfg(feature = "std")]
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[cfg(not(feature = "std"))]
    let n_threads = 1;
    n_threads.min(backstitch_core::pool::MAX_THREADS) as u32
}

impl Params {
    /// The same with what they leave open decided, and no larger than makes sense.
    pub(crate) fn settled(self, hparams: &Hparams, graph: &Graph) -> Self {
        let n_ctx = if self.n_ctx == 0 { hparams.n_ctx_train } else { self.n_ctx };
        // What is not kept has to be seen in one piece.
        let is_uncached = |layer: &LayerSpec| matches!(layer.attention, AttentionSpec::Uncached { .. });
        let in_pieces = !graph.layers().iter().any(is_uncached);
        let n_batch = if in_pieces { self.n_batch.min(n_ctx) } else { n_ctx };
        Params { n_ctx, n_ubatch: self.n_ubatch.min(n_ctx), n_batch, ..self }
    }

    /// # Errors
    /// [`Error::Params`] for sizes of zero or beyond reason.
    pub(super) fn check(&self) -> Result<(), Error> {
        let bounds = [
            ("n_ctx", self.n_ctx, 1 << 30, "a number from 1 to 2^30"),
            ("n_ubatch", self.n_ubatch, 1 << 16, "a number from 1 to 65536"),
            ("n_batch", self.n_batch, 1 << 30, "a number from 1 to 2^30"),
            ("n_seq_max", self.n_seq_max, MAX_SEQUENCES, "a number from 1 to 65536"),
        ];
        match bounds.into_iter().find(|&(_, found, limit, _)| found == 0 || found > limit) {
            Some((what, found, _, wanted)) => Err(Error::Params { what, found: found.into(), wanted }),
            None => Ok(()),
        }
    }

    /// Sizes of the memory.
    pub(crate) fn memory(&self) -> backstitch_kv::Params {
        // One more than callers can have: a rollback keeps the old state there until the new one is sure.
        let n_seq_max = self.n_seq_max.saturating_add(1);
        backstitch_kv::Params::default()
            .n_ctx(self.n_ctx)
            .n_seq_max(n_seq_max)
            .n_batch(self.n_batch.min(self.n_ctx))
            .k_type(self.type_k)
            .v_type(self.type_v)
            .timeline(self.timeline)
    }
}
