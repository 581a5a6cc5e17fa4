//! The bytes that a model and a context take, read off the model's description.

use crate::adapter::AdapterSet;
use crate::graph::{Graph, WeightInfo, WeightShape};
use crate::hparams::Hparams;
use crate::params::Params;
use crate::runner;
use crate::weights::REACH;
use backstitch_core::packed::packed_bytes;
use core::fmt;

/// The bytes that a model and a context of it take, by their purpose; known before either is made.
///
/// Stacks of threads, the vocabulary, and lists of a few bytes for each block of a cache come on
/// top: together some MiB.
///
/// # Example
/// ```
/// use backstitch_models::{Budget, Model, Params, arch, gguf::Gguf};
///
/// let bytes = std::fs::read("../goldens/models/falcon_h1.gguf")?;
/// let (hparams, graph) = Model::describe(&Gguf::parse(&bytes)?, arch::ALL)?;
/// let small = Budget::new(&hparams, &graph, &Params::default().n_ctx(512));
/// let large = Budget::new(&hparams, &graph, &Params::default().n_ctx(4096));
/// assert!(large.caches > 7 * small.caches && large.weights == small.weights);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Weights, shared by all contexts of a model; of a packed file, what is mapped of it.
    pub weights: u64,
    /// Keys and values of attention layers, those included that checkpoints keep.
    pub caches: u64,
    /// Recurrent states, those included that checkpoints keep.
    pub states: u64,
    /// Inputs of the recurrences, journaled for going back.
    pub journal: u64,
    /// Activations of a ubatch, and partial results of attention.
    pub arena: u64,
    /// Logits of two batches that ask for one row. Batches that ask for more make it grow, to two
    /// times the rows of the largest.
    pub outputs: u64,
    /// The tokens of all sequences.
    pub tokens: u64,
    /// Adapters of sequences, and the buffers of their products.
    pub adapters: u64,
}

impl Budget {
    /// Return the bytes that the model of this description takes, with a context of these
    /// parameters and without adapters.
    pub fn new(hparams: &Hparams, graph: &Graph, params: &Params) -> Self {
        Self::with_adapters(hparams, graph, params, &[])
    }

    /// Return what [`Budget::new`] does for a context whose sequences have these sets of adapters.
    /// An adapter in several sets counts once, and so does a set of several sequences.
    pub fn with_adapters(hparams: &Hparams, graph: &Graph, params: &Params, sets: &[AdapterSet]) -> Self {
        let params = params.settled(hparams, graph);
        let memory = params.memory().bytes(graph.layers());
        let (n_arena, n_scratch) = runner::sizes(graph, &params, params.n_threads as usize);
        Budget {
            weights: graph.weights().iter().fold(0, |sum: u64, info| sum.saturating_add(weight(info))),
            caches: memory.caches,
            states: memory.states,
            journal: memory.journals,
            arena: (n_arena as u64).saturating_add(n_scratch as u64).saturating_mul(4),
            outputs: 2 * 4 * hparams.n_vocab as u64,
            tokens: 4 * u64::from(params.n_ctx) * u64::from(params.n_seq_max),
            adapters: runner::adapt::adapter_bytes(graph, params.n_ubatch as usize, sets),
        }
    }

    /// Return the bytes of everything together.
    pub fn total(&self) -> u64 {
        let Budget { weights, caches, states, journal, arena, outputs, tokens, adapters } = *self;
        let others = [caches, states, journal, arena, outputs, tokens, adapters];
        others.into_iter().fold(weights, u64::saturating_add)
    }
}

impl fmt::Display for Budget {
    /// Write the total and its purposes in MiB: "12.5 MiB: weights 10.0, caches 2.5". Purposes that
    /// take nothing are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Budget { weights, caches, states, journal, arena, outputs, tokens, adapters } = *self;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "{:.1} MiB", mib(self.total()))?;
        let all = [
            ("weights", weights),
            ("caches", caches),
            ("states", states),
            ("journal", journal),
            ("arena", arena),
            ("outputs", outputs),
            ("tokens", tokens),
            ("adapters", adapters),
        ];
        for (i, (name, bytes)) in all.into_iter().filter(|(_, bytes)| *bytes > 0).enumerate() {
            write!(f, "{} {name} {:.1}", if i == 0 { ":" } else { "," }, mib(bytes))?;
        }
        Ok(())
    }
}

/// Return the bytes of a weight in memory.
fn weight(info: &WeightInfo) -> u64 {
    let matrix = |kind, n_rows, n_cols| packed_bytes(kind, n_rows, n_cols).map_or(u64::MAX, |n| n as u64);
    let floats = |n: usize, each: usize| 4 * (n as u64).saturating_mul(each as u64);
    match &info.shape {
        WeightShape::Matrix { rows, n_cols, kind } => matrix(*kind, rows.len(), *n_cols),
        WeightShape::Stack { n_matrices, rows, n_cols, kind, .. } => {
            matrix(*kind, rows.len(), *n_cols).saturating_mul(*n_matrices as u64)
        }
        WeightShape::Columns { n_rows, n_cols } => floats(*n_rows, *n_cols),
        WeightShape::Distances { n_head, .. } => floats(*n_head, 2 * REACH + 1),
        WeightShape::Vector { len } => floats(*len, 1),
    }
}
