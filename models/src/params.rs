//! Parameters of a context.

use crate::error::Error;
use crate::graph::Graph;
use crate::hparams::{Hparams, Pooling};
use crate::setters::setters;
use backstitch_core::{KernelSet, cell::CellType};
use backstitch_kv::{AttentionSpec, LayerSpec, RollbackParams};

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
    /// Maximum number of tokens of one sequence, or of all together; 0 for the context length of
    /// the model. If no layer retains all tokens, because all have a window or a recurrent state,
    /// sequences can become longer, and their lists of tokens grow beyond this size.
    pub n_ctx: u32,
    /// Length of the longest sequence, by which models that rotate keys otherwise in long contexts
    /// choose the rotation; 0 for `n_ctx`. It is shorter where several sequences share the cells.
    pub n_ctx_seq: u32,
    /// Physical batch size: maximum number of tokens computed in one pass. Larger values need more
    /// memory and, up to a point, make prompts faster.
    pub n_ubatch: u32,
    /// Logical batch size: maximum number of tokens planned together. Longer batches are planned in
    /// pieces and still succeed or fail as a whole. Layers with a window need cells for this many.
    pub n_batch: u32,
    /// Number of sequences.
    pub n_seq_max: u32,
    /// Number of threads, 1 to 512; always 1 without `std`. The default is the number of processors
    /// that the process may use, on Linux limited by the quota of its control group.
    pub n_threads: u32,
    /// Element type of cached keys.
    pub type_k: CellType,
    /// Element type of cached values.
    pub type_v: CellType,
    /// Checkpoints and journals to keep for rollback.
    pub rollback: RollbackParams,
    /// Pooling of embeddings; `None` for the method of the model.
    pub pooling: Option<Pooling>,
    /// Kernels to use; `None` for the fastest of this processor, or those that `BACKSTITCH_ISA`
    /// names.
    pub kernels: Option<&'static KernelSet>,
}

/// Maximum number of sequences of a context.
pub(crate) const MAX_SEQUENCES: u32 = 1 << 16;

setters!(Params {
    n_ctx: u32,
    n_ctx_seq: u32,
    n_ubatch: u32,
    n_batch: u32,
    n_seq_max: u32,
    n_threads: u32,
    type_k: CellType,
    type_v: CellType,
    rollback: RollbackParams,
    pooling: Option<Pooling>,
    kernels: Option<&'static KernelSet>,
});

impl Default for Params {
    /// Return the context length of the model, physical batches of 512 tokens, logical ones of
    /// 2048, one sequence, all threads of the process, F16 caches, and default rollback.
    fn default() -> Self {
        Params {
            n_ctx: 0,
            n_ctx_seq: 0,
            n_ubatch: 512,
            n_batch: 2048,
            n_seq_max: 1,
            n_threads: all_threads(),
            type_k: CellType::F16,
            type_v: CellType::F16,
            rollback: RollbackParams::default(),
            pooling: None,
            kernels: None,
        }
    }
}

/// Return the number of threads that this process may use.
pub(crate) fn all_threads() -> u32 {
    #[cfg(feature = "std")]
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    #[cfg(not(feature = "std"))]
    let n_threads = 1;
    n_threads.min(backstitch_core::pool::MAX_THREADS) as u32
}

impl Params {
    /// Fill in defaults, and limit sizes to useful ones.
    pub(crate) fn settled(self, hparams: &Hparams, graph: &Graph) -> Self {
        let n_ctx = if self.n_ctx == 0 { hparams.n_ctx_train } else { self.n_ctx };
        let n_ctx_seq = if self.n_ctx_seq == 0 { n_ctx } else { self.n_ctx_seq };
        // A layer without a cache has to see all tokens in one batch.
        let is_batch_only = |layer: &LayerSpec| matches!(layer.attention, AttentionSpec::BatchOnly { .. });
        let in_pieces = !graph.layers().iter().any(is_batch_only);
        let n_batch = if in_pieces { self.n_batch.min(n_ctx) } else { n_ctx };
        Params { n_ctx, n_ctx_seq, n_ubatch: self.n_ubatch.min(n_ctx), n_batch, ..self }
    }

    /// # Errors
    /// [`Error::Params`] for sizes of zero or beyond reason.
    pub(crate) fn check(&self) -> Result<(), Error> {
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

    /// Return the parameters of the memory.
    pub(crate) fn memory(&self) -> backstitch_kv::Params {
        backstitch_kv::Params::default()
            .n_ctx(self.n_ctx)
            .n_seq_max(self.n_seq_max)
            .n_batch(self.n_batch.min(self.n_ctx))
            .k_type(self.type_k)
            .v_type(self.type_v)
            .rollback(self.rollback)
    }
}
