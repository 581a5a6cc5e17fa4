//! What each layer of a model asks of its memory.

use crate::error::Error;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout, CellType};
use backstitch_core::rope::Rope;

/// What one layer of a model keeps; a layer may have attention, a recurrent state, both (falcon-h1) or neither.
#[derive(Clone, Debug, Default)]
pub struct LayerSpec {
    /// Its keys and values.
    pub attention: AttentionSpec,
    /// The pieces of its recurrent state, one for each operation that carries something from token to token; none if it
    /// is not recurrent.
    pub recurrent: Vec<StatePart>,
}

/// How a layer attends.
#[derive(Clone, Debug, Default)]
pub enum AttentionSpec {
    /// Not at all.
    #[default]
    Absent,
    /// To all earlier tokens of the sequence, kept in a cache.
    Cached(AttentionLayer),
    /// To the tokens of the same batch only; nothing is kept (encoders).
    Uncached {
        /// Shape of the keys and values.
        layer: AttentionLayer,
        /// Whether a token sees those before it (and itself) only, or all of its sequence.
        causal: bool,
    },
    /// To the keys and values that an earlier layer stored; the layer stores none itself.
    SharedWith(usize),
}

/// Shape of one layer's keys and values.
#[derive(Clone, Debug, Default)]
pub struct AttentionLayer {
    /// Heads of K and V.
    pub n_head_kv: usize,
    /// Elements of one head's key.
    pub d_k: usize,
    /// Elements of one head's value.
    pub d_v: usize,
    /// A token sees keys less than so many positions back, its own included; `None`: all.
    pub window: Option<u32>,
    /// How positions were put into the keys, so that a shift can move them; `None`: they hold no position.
    pub rope: Option<Rotation>,
}

impl AttentionLayer {
    pub(crate) fn layout(&self, k_type: CellType, v_type: CellType) -> CellLayout {
        CellLayout { n_head_kv: self.n_head_kv, d_k: self.d_k, d_v: self.d_v, k_type, v_type }
    }
}

/// A rotation by position that keys carry, with the angle of each pair of dimensions for one step of position as
/// [`Rope::frequencies`] gives them.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Which dimensions turn.
    pub rope: Rope,
    /// Radians a position, `[n_rot / 2]`.
    pub frequencies: Vec<f64>,
}

/// A piece of a layer's recurrent state: what one operation carries from token to token. Sizes are in numbers (f32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatePart {
    /// Of the state, a sequence.
    pub len: usize,
    /// Of what enters it with a token: given the state before, this decides the state after.
    pub input: usize,
}

/// Numbers of a layer's state, all pieces together.
pub(crate) fn state_len(parts: &[StatePart]) -> usize {
    parts.iter().map(|part| part.len).sum()
}

/// Sizes of a memory; all of it is allocated when the memory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The most tokens one sequence, or all of them together, can hold.
    pub n_ctx: u32,
    /// How many sequences there are.
    pub n_seq_max: u32,
    /// The most tokens of one batch.
    pub n_batch: u32,
    /// Element type of stored keys.
    pub k_type: CellType,
    /// Element type of stored values.
    pub v_type: CellType,
}

impl Params {
    /// Blocks of the cache: enough for `n_ctx` cells plus, for each further sequence, a partly filled block at its
    /// end and one where it left another.
    pub fn n_blocks(&self) -> u32 {
        let whole = u64::from(self.n_ctx).div_ceil(BLOCK_CELLS as u64);
        let partial = u64::from(self.n_seq_max.saturating_sub(1)) * 2;
        (whole + partial).min(u64::from(u32::MAX / 64)) as u32
    }

    /// Blocks that hold one batch, for layers that keep nothing.
    pub(crate) fn n_blocks_uncached(&self) -> u32 {
        let whole = u64::from(self.n_batch).div_ceil(BLOCK_CELLS as u64);
        (whole + u64::from(self.n_seq_max)).min(u64::from(u32::MAX / 64)) as u32
    }

    /// States of each recurrent layer: one a sequence, and one that a batch writes while the other is kept.
    pub fn n_states(&self) -> u32 {
        self.n_seq_max.saturating_mul(2)
    }

    /// Bytes that caches and states of these layers take.
    pub fn bytes(&self, layers: &[LayerSpec]) -> u64 {
        layers.iter().map(|layer| self.layer_bytes(layer)).sum()
    }

    fn layer_bytes(&self, layer: &LayerSpec) -> u64 {
        let block = |l: &AttentionLayer| l.layout(self.k_type, self.v_type).block_bytes() as u64;
        let attention = match &layer.attention {
            AttentionSpec::Absent | AttentionSpec::SharedWith(_) => 0,
            AttentionSpec::Cached(l) => u64::from(self.n_blocks()) * block(l),
            AttentionSpec::Uncached { layer, .. } => u64::from(self.n_blocks_uncached()) * block(layer),
        };
        let state = u64::from(self.n_states()) * state_len(&layer.recurrent) as u64 * 4;
        attention + state
    }
}

/// Checks that sizes are possible on this machine.
pub(crate) fn check_layers(layers: &[LayerSpec]) -> Result<(), Error> {
    for (i, spec) in layers.iter().enumerate() {
        let bad = |what| Err(Error::Layer { layer: i as u32, what });
        let own = match &spec.attention {
            AttentionSpec::Cached(layer) | AttentionSpec::Uncached { layer, .. } => Some(layer),
            _ => None,
        };
        if let Some(layer) = own {
            let width = layer.d_k.checked_add(layer.d_v).and_then(|d| d.checked_mul(layer.n_head_kv));
            let bytes = width.and_then(|w| w.checked_mul(BLOCK_CELLS * 4));
            if width.is_none_or(|w| w == 0) || bytes.is_none_or(|b| b > u32::MAX as usize) {
                return bad("sizes of keys and values are zero or impossibly large");
            }
            let turns = |r: &Rotation| r.rope.n_rot <= layer.d_k && r.frequencies.len() * 2 == r.rope.n_rot;
            if layer.rope.as_ref().is_some_and(|rotation| !turns(rotation)) {
                return bad("its rotation does not fit its keys");
            }
            if layer.window == Some(0) {
                return bad("a window of no positions");
            }
        }
        let sum = |sum: usize, part: &StatePart| sum.checked_add(part.len)?.checked_add(part.input);
        let len = spec.recurrent.iter().try_fold(0, sum);
        if len.is_none_or(|len| len > u32::MAX as usize / 4) {
            return bad("the recurrent state is impossibly large");
        }
    }
    Ok(())
}
