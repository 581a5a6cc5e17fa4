//! Sizes of a memory: its parameters, and the bytes, blocks, checkpoints and journals that follow
//! from them.
//!
//! Nothing here allocates. [`Params::bytes`] and the constructors of the caches use the same
//! functions, so the reported bytes are the allocated ones.

mod rollback;

pub use rollback::RollbackParams;

use crate::error::Error;
use crate::layer::{LayerSpec, Retained, Rotation, StateTensor, Window};
use crate::setters::setters;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellType};

/// Parameters of a memory. All of the memory is allocated when it is made, so these sizes are also
/// its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Params {
    /// Most tokens that one sequence, or all sequences together, can hold in caches that retain all
    /// cells.
    pub n_ctx: u32,
    /// Number of sequences.
    pub n_seq_max: u32,
    /// Most tokens of one batch (logical batch size).
    pub n_batch: u32,
    /// Element type of stored keys.
    pub k_type: CellType,
    /// Element type of stored values.
    pub v_type: CellType,
    /// Memory reserved for rollbacks.
    pub rollback: RollbackParams,
}

/// Return the number of blocks that `n_cells` cells fill.
fn blocks(n_cells: u64) -> u64 {
    n_cells.div_ceil(BLOCK_CELLS as u64)
}

/// Return the most blocks that the cells of a window touch.
fn window_blocks(window: Window) -> u64 {
    blocks(window.size().into()) + 1
}

impl Default for Params {
    /// Return the usual parameters: 4096 tokens in one sequence, 2048 of them in a batch, F16
    /// cells, and the default rollback parameters.
    fn default() -> Self {
        Params {
            n_ctx: 4096,
            n_seq_max: 1,
            n_batch: 2048,
            k_type: CellType::F16,
            v_type: CellType::F16,
            rollback: RollbackParams::default(),
        }
    }
}

setters!(Params {
    n_ctx: u32,
    n_seq_max: u32,
    n_batch: u32,
    k_type: CellType,
    v_type: CellType,
    rollback: RollbackParams,
});

impl Params {
    /// Return the number of blocks of a cache.
    ///
    /// - All cells: `n_ctx` cells, and for each further sequence two blocks that may be partly
    ///   filled: the one at its end, and the one at which it left the sequence that it was forked
    ///   from.
    /// - A window: the window and margin of each sequence, the budget of checkpoints, a window for
    ///   each checkpoint beside it, and one batch. A savepoint retains the cells at the former end
    ///   of a sequence, margin included, while a batch is computed.
    /// - A batch: its cells, and a partly filled block for each sequence.
    /// - Encoder output: `n_ctx` cells twice, because the former output stays until the new one is
    ///   committed, and a partly filled block for each further sequence.
    pub(crate) fn n_blocks(&self, retained: Retained, sizes: &Sizes) -> u32 {
        let blocks_of = |n_cells: u32| blocks(n_cells.into());
        let n_seq_max = u64::from(self.n_seq_max);
        let n_others = n_seq_max.saturating_sub(1);
        let n_blocks = match retained {
            Retained::All => blocks_of(self.n_ctx) + 2 * n_others,
            Retained::Window(window) => {
                let live = blocks(u64::from(window.size()) + u64::from(self.rollback.margin)) + 2;
                let n_unpaid = u64::from(sizes.n_checkpoints - sizes.n_paid);
                let held = self.paid_blocks(window, sizes) + n_unpaid * window_blocks(window);
                2 * live * n_seq_max + blocks_of(self.n_batch) + n_seq_max + held
            }
            Retained::Batch { .. } => blocks_of(self.n_batch) + n_seq_max,
            Retained::EncoderOutput => 2 * blocks_of(self.n_ctx) + n_others,
        };
        // The cap lets 32 bits number all cells.
        n_blocks.min(u64::from(u32::MAX / 64)) as u32
    }

    /// Return the number of blocks of a windowed cache that the budget of checkpoints pays for: a
    /// whole window for one checkpoint, and for each further one the blocks that it does not share
    /// with its neighbour. Checkpoints that lie closer together, and so share more, can be more.
    pub(crate) fn paid_blocks(&self, window: Window, sizes: &Sizes) -> u64 {
        match u64::from(sizes.n_apart) {
            0 => 0,
            n => window_blocks(window) + (n - 1) * self.own_blocks(window),
        }
    }

    /// Return the number of blocks of a window that a checkpoint does not share with one that lies
    /// `spacing` tokens before it.
    fn own_blocks(&self, window: Window) -> u64 {
        (blocks(self.rollback.spacing.into()) + 1).min(window_blocks(window))
    }

    /// Return the most checkpoints that are of any use: the schedule of each sequence, and a pin in
    /// each block of the context.
    fn wanted_checkpoints(&self) -> u64 {
        let scheduled = u64::from(self.n_seq_max) * u64::from(self.rollback.schedule_len(self.n_ctx));
        (scheduled + blocks(self.n_ctx.into())).min(1 << 20)
    }

    /// Return the number of states of each recurrent layer: two a sequence, the current one and the
    /// one that a batch writes, and one for each checkpoint.
    pub(crate) fn n_states(&self, n_checkpoints: u32) -> u32 {
        self.n_seq_max.saturating_mul(2).saturating_sub(1).saturating_add(n_checkpoints)
    }

    /// Return the bytes that a memory for these layers allocates.
    ///
    /// ```
    /// use backstitch_kv::{AttentionLayer, AttentionSpec, LayerSpec, Params};
    ///
    /// let shape = AttentionLayer { n_head_kv: 8, d_k: 128, d_v: 128, ..Default::default() };
    /// let attention = AttentionSpec::Cached(shape);
    /// let spec = LayerSpec { attention, ..LayerSpec::default() };
    /// let bytes = Params::default().bytes(&[spec]);
    /// assert!(bytes.caches >= 4096 * 8 * (128 + 128) * 2);
    /// assert_eq!((bytes.states, bytes.journals), (0, 0));
    /// ```
    pub fn bytes(&self, layers: &[LayerSpec]) -> MemoryBytes {
        let params = self.settled();
        let sizes = Sizes::new(layers, &params);
        let n_rows = u64::from(sizes.n_journals) * u64::from(params.rollback.journal);
        MemoryBytes {
            caches: params.caches_bytes(layers, &sizes),
            states: u64::from(params.n_states(sizes.n_checkpoints))
                .saturating_mul(tensor_bytes(layers, |tensor| tensor.len)),
            journals: n_rows.saturating_mul(tensor_bytes(layers, |tensor| tensor.input)),
        }
    }

    /// Return the parameters by which a memory is sized: rollback parameters clamped to each other,
    /// and one sequence more, which savepoints use.
    pub(crate) fn settled(&self) -> Params {
        let n_seq_max = self.n_seq_max.saturating_add(1);
        Params { n_seq_max, rollback: self.rollback.settled(), ..*self }
    }

    /// Return the bytes of the cells of all layers, and of the tables of each cache.
    fn caches_bytes(&self, layers: &[LayerSpec], sizes: &Sizes) -> u64 {
        let mut listed = Vec::new();
        let mut sum = 0u64;
        for layer in layers {
            let Some((shape, retained)) = layer.cells(self.n_ctx) else { continue };
            let n_blocks = self.n_blocks(retained, sizes);
            let block_bytes = shape.layout(self.k_type, self.v_type).block_bytes() as u64;
            sum = sum.saturating_add(u64::from(n_blocks).saturating_mul(block_bytes));
            if !listed.contains(&retained) {
                let is_window = matches!(retained, Retained::Window(_));
                let listed_bytes = LISTED_BYTES + if is_window { CHARGED_BYTES } else { 0 };
                sum = sum.saturating_add(u64::from(n_blocks) * listed_bytes);
                listed.push(retained);
            }
        }
        sum
    }
}

/// Bytes of bookkeeping for each block: its reference count, the positions of its cells, and a
/// table entry.
const LISTED_BYTES: u64 = 8 + 4 * BLOCK_CELLS as u64 + 8;

/// Bytes of bookkeeping for each block of a windowed cache: the numbers of checkpoints and of pins
/// that are charged for it.
const CHARGED_BYTES: u64 = 8;

/// Bytes of a memory, all of which are allocated when it is made. Lists of a few bytes for each
/// sequence come on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryBytes {
    /// Bytes of keys and values, those that checkpoints retain included.
    pub caches: u64,
    /// Bytes of recurrent states, those that checkpoints retain included.
    pub states: u64,
    /// Bytes of journals: inputs of the recurrences, from which rollbacks replay.
    pub journals: u64,
}

impl MemoryBytes {
    /// Return the sum of all fields.
    pub fn total(&self) -> u64 {
        self.caches.saturating_add(self.states).saturating_add(self.journals)
    }
}

/// Return the bytes of `len` elements of each state tensor, all layers together.
fn tensor_bytes(layers: &[LayerSpec], len: fn(&StateTensor) -> usize) -> u64 {
    layers.iter().flat_map(|layer| &layer.recurrent).map(|tensor| 4 * len(tensor) as u64).sum()
}

/// Numbers of checkpoints and journals of a memory, computed once when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// True if rollbacks need checkpoints: some layer is recurrent or releases cells.
    pub needed: bool,
    /// Most checkpoints that the budget pays for: as many as there are states, or as there are
    /// blocks of windows.
    pub n_paid: u32,
    /// Number of checkpoints that the budget pays for if they lie `spacing` tokens apart, so that
    /// they share little of their windows.
    pub n_apart: u32,
    /// Number of all checkpoints: the paid ones, one for each journal, and two a sequence, for a
    /// savepoint at its end and for the position at which it was last edited.
    pub n_checkpoints: u32,
    /// Number of journals, of `rollback.journal` tokens each.
    pub n_journals: u32,
}

impl Sizes {
    /// Return the sizes for these layers; all zeros if no layer needs checkpoints.
    pub fn new(layers: &[LayerSpec], params: &Params) -> Sizes {
        let windowed = |spec: &LayerSpec| match spec.cells(params.n_ctx) {
            Some((layer, Retained::Window(window))) => {
                let bytes = layer.layout(params.k_type, params.v_type).block_bytes() as u64;
                Some((window, bytes))
            }
            _ => None,
        };
        let windows = || layers.iter().filter_map(windowed);
        let states = tensor_bytes(layers, |tensor| tensor.len);
        let is_recurrent = layers.iter().any(|spec| !spec.recurrent.is_empty());
        if windows().next().is_none() && !is_recurrent {
            return Sizes::default();
        }
        let bytes_of = |n_blocks: &dyn Fn(Window) -> u64| {
            let bytes = windows().map(|(window, bytes)| n_blocks(window).saturating_mul(bytes));
            bytes.fold(states, u64::saturating_add)
        };
        let first = bytes_of(&window_blocks);
        let further = bytes_of(&|window| params.own_blocks(window));
        let RollbackParams { checkpoint_bytes, journal, .. } = params.rollback;
        let wanted = params.wanted_checkpoints();
        let n_apart = match checkpoint_bytes.checked_sub(first) {
            Some(left) => (1 + left / further.max(1)).min(wanted),
            None => 0,
        };
        let mut sizes = Sizes { needed: true, n_apart: n_apart as u32, ..Sizes::default() };
        let n_blocks = windows().map(|(window, _)| params.paid_blocks(window, &sizes)).max();
        sizes.n_paid = match n_blocks {
            // Pins in one block share it, so there can be as many as blocks.
            Some(n_blocks) if !is_recurrent => n_blocks.min(wanted) as u32,
            _ => sizes.n_apart,
        };
        let n_journals = if is_recurrent && journal > 0 {
            // The cap keeps the numbers of all rows within 32 bits.
            params.n_seq_max.saturating_mul(3).min(u32::MAX / journal)
        } else {
            0
        };
        // Two more a sequence: one for the rollback floor and one for a savepoint.
        let n_checkpoints =
            sizes.n_paid.saturating_add(n_journals).saturating_add(params.n_seq_max.saturating_mul(2));
        Sizes { n_checkpoints, n_journals, ..sizes }
    }
}

/// Check that the sizes of all layers are possible on this machine and with these element types.
///
/// # Errors
/// [`Error::Layer`] names the first layer with an impossible size.
pub(crate) fn check_layers(layers: &[LayerSpec], params: &Params) -> Result<(), Error> {
    for (i, spec) in layers.iter().enumerate() {
        let bad = |what| Err(Error::Layer { layer: i as u32, what });
        if let Some((layer, _)) = spec.cells(params.n_ctx) {
            let width = layer.d_k.checked_add(layer.d_v).and_then(|d| d.checked_mul(layer.n_head_kv));
            let bytes = width.and_then(|w| w.checked_mul(BLOCK_CELLS * 4));
            if width.is_none_or(|w| w == 0) || bytes.is_none_or(|b| b > u32::MAX as usize) {
                return bad("sizes of keys and values are zero or impossibly large");
            }
            if layer.layout(params.k_type, params.v_type).check().is_err() {
                return bad("quantised cells need heads of a multiple of 32 dimensions; choose f16");
            }
            let turns = |r: &Rotation| r.rope.n_rot <= layer.d_k && r.frequencies.len() * 2 == r.rope.n_rot;
            if layer.rope.as_ref().is_some_and(|rotation| !turns(rotation)) {
                return bad("its rotation does not fit its keys");
            }
            if layer.window.is_some_and(|window| window.size() == 0) {
                return bad("a window of no positions");
            }
        }
        let sum = |sum: usize, tensor: &StateTensor| sum.checked_add(tensor.len)?.checked_add(tensor.input);
        let len = spec.recurrent.iter().try_fold(0, sum);
        if len.is_none_or(|len| len > u32::MAX as usize / 4) {
            return bad("the recurrent state is impossibly large");
        }
    }
    Ok(())
}
