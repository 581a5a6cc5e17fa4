//! What each layer of a model asks of its memory.

use crate::error::Error;
use crate::ids::Pos;
use crate::timeline::TimelineParams;
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
    /// To all of the text that an encoder made keys and values of, which decoding reads only.
    Cross(AttentionLayer),
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
    /// How far back a token sees; `None`: all of its sequence.
    pub window: Option<Window>,
    /// How positions were put into the keys, so that a shift can move them; `None`: they hold no position.
    pub rope: Option<Rotation>,
}

/// How far back a token sees, its own position included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Keys less than so many positions back.
    Sliding(u32),
    /// Keys of its own chunk; chunks are so long and start at multiples of that.
    Chunked(u32),
}

impl Window {
    /// The first position that a token at `pos` sees.
    pub fn first(self, pos: Pos) -> Pos {
        let first = match self {
            Window::Sliding(size) => i64::from(pos.0) - i64::from(size) + 1,
            Window::Chunked(size) => i64::from(pos.0) / i64::from(size.max(1)) * i64::from(size),
        };
        Pos(first.clamp(0, i64::from(pos.0.max(0))) as i32)
    }

    /// The most positions that a token sees.
    pub fn size(self) -> u32 {
        match self {
            Window::Sliding(size) | Window::Chunked(size) => size,
        }
    }
}

impl AttentionLayer {
    pub(crate) fn layout(&self, k_type: CellType, v_type: CellType) -> CellLayout {
        CellLayout { n_head_kv: self.n_head_kv, d_k: self.d_k, d_v: self.d_v, k_type, v_type }
    }

    /// The window by which cells are let go; none where it is as wide as the context, for then nothing falls out of it
    /// and a cache of `n_ctx` cells is the smaller one.
    pub(crate) fn recycled(&self, n_ctx: u32) -> Option<Window> {
        self.window.filter(|window| window.size() < n_ctx)
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
///
/// ```
/// use backstitch_kv::{Params, TimelineParams};
///
/// let params = Params::default().n_ctx(8192).timeline(TimelineParams::OFF);
/// assert_eq!((params.n_ctx, params.n_seq_max, params.n_batch), (8192, 1, 2048));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Params {
    /// The most tokens one sequence, or all of them together, can hold where all of them are kept.
    pub n_ctx: u32,
    /// How many sequences there are.
    pub n_seq_max: u32,
    /// The most tokens of one batch.
    pub n_batch: u32,
    /// Element type of stored keys.
    pub k_type: CellType,
    /// Element type of stored values.
    pub v_type: CellType,
    /// What is kept for going back.
    pub timeline: TimelineParams,
}

/// Blocks that hold `n_cells` cells.
fn blocks(n_cells: u64) -> u64 {
    n_cells.div_ceil(BLOCK_CELLS as u64)
}

/// Keeps a number of blocks to what 32 bits and a table of extents can count.
fn capped(n_blocks: u64) -> u32 {
    n_blocks.min(u64::from(u32::MAX / 64)) as u32
}

impl Default for Params {
    /// 4096 tokens in one sequence, 2048 of them in a batch, F16 cells, and the usual ways back.
    fn default() -> Self {
        Params {
            n_ctx: 4096,
            n_seq_max: 1,
            n_batch: 2048,
            k_type: CellType::F16,
            v_type: CellType::F16,
            timeline: TimelineParams::default(),
        }
    }
}

impl Params {
    /// Return the same with another [`n_ctx`](#structfield.n_ctx).
    #[must_use]
    pub fn n_ctx(self, n_ctx: u32) -> Self {
        Params { n_ctx, ..self }
    }

    /// Return the same with another [`n_seq_max`](#structfield.n_seq_max).
    #[must_use]
    pub fn n_seq_max(self, n_seq_max: u32) -> Self {
        Params { n_seq_max, ..self }
    }

    /// Return the same with another [`n_batch`](#structfield.n_batch).
    #[must_use]
    pub fn n_batch(self, n_batch: u32) -> Self {
        Params { n_batch, ..self }
    }

    /// Return the same with another [`k_type`](#structfield.k_type).
    #[must_use]
    pub fn k_type(self, k_type: CellType) -> Self {
        Params { k_type, ..self }
    }

    /// Return the same with another [`v_type`](#structfield.v_type).
    #[must_use]
    pub fn v_type(self, v_type: CellType) -> Self {
        Params { v_type, ..self }
    }

    /// Return the same with another [`timeline`](#structfield.timeline).
    #[must_use]
    pub fn timeline(self, timeline: TimelineParams) -> Self {
        Params { timeline, ..self }
    }

    /// Blocks of the cache: enough for `n_ctx` cells plus, for each further sequence, a partly filled block at its
    /// end and one where it left another.
    pub(crate) fn n_blocks(&self) -> u32 {
        capped(blocks(self.n_ctx.into()) + u64::from(self.n_seq_max.saturating_sub(1)) * 2)
    }

    /// Blocks of a cache of layers with this window: for each sequence what it keeps, for each checkpoint a window,
    /// and room for a batch.
    pub(crate) fn n_blocks_windowed(&self, window: Window, n_checkpoints: u32) -> u32 {
        let window = u64::from(window.size());
        let live = blocks(window + u64::from(self.timeline.margin)) + 2;
        let batch = blocks(self.n_batch.into()) + u64::from(self.n_seq_max);
        let held = u64::from(n_checkpoints) * (blocks(window) + 1);
        // An end that is held while a long batch is computed keeps its margin too.
        capped(2 * live * u64::from(self.n_seq_max) + batch + held)
    }

    /// Blocks that hold one batch, for layers that keep nothing.
    pub(crate) fn n_blocks_uncached(&self) -> u32 {
        capped(blocks(self.n_batch.into()) + u64::from(self.n_seq_max))
    }

    /// Blocks of encoded texts: enough for `n_ctx` cells twice, for the old ones stay until the new ones are there, plus a partly
    /// filled block for each sequence.
    pub(crate) fn n_blocks_cross(&self) -> u32 {
        capped(2 * blocks(self.n_ctx.into()) + u64::from(self.n_seq_max))
    }

    /// States of each recurrent layer: one a sequence, one that a batch writes while the other is kept, and one for
    /// each checkpoint.
    pub(crate) fn n_states(&self, n_checkpoints: u32) -> u32 {
        self.n_seq_max.saturating_mul(2).saturating_add(n_checkpoints)
    }

    /// The bytes that a memory for these layers takes.
    pub fn bytes(&self, layers: &[LayerSpec]) -> MemoryBytes {
        let params = self.settled();
        let sizes = Sizes::new(layers, &params);
        let floats = |len: fn(&[StatePart]) -> usize| {
            layers.iter().map(|layer| 4 * len(&layer.recurrent) as u64).sum::<u64>()
        };
        let n_rows = u64::from(sizes.n_journals) * u64::from(params.timeline.journal);
        MemoryBytes {
            caches: params.caches_bytes(layers, &sizes),
            states: u64::from(params.n_states(sizes.n_checkpoints)).saturating_mul(floats(state_len)),
            journals: n_rows.saturating_mul(floats(input_len)),
        }
    }

    /// The same with what the timeline's fields promise about each other made true.
    pub(crate) fn settled(&self) -> Params {
        Params { timeline: self.timeline.settled(), ..*self }
    }

    /// Cells of all layers, and the lists of those that share theirs.
    fn caches_bytes(&self, layers: &[LayerSpec], sizes: &Sizes) -> u64 {
        let mut listed = Vec::new();
        let mut sum = 0u64;
        for layer in layers {
            let Some((shape, cache)) = self.cache_of(layer) else { continue };
            let n_blocks = match cache {
                Cache::All => self.n_blocks(),
                Cache::Window(window) => self.n_blocks_windowed(window, sizes.n_checkpoints),
                Cache::Batch { .. } => self.n_blocks_uncached(),
                Cache::Text => self.n_blocks_cross(),
            };
            let block_bytes = shape.layout(self.k_type, self.v_type).block_bytes() as u64;
            sum = sum.saturating_add(u64::from(n_blocks).saturating_mul(block_bytes));
            if !listed.contains(&cache) {
                sum = sum.saturating_add(u64::from(n_blocks) * LISTED_BYTES);
                listed.push(cache);
            }
        }
        sum
    }

    /// In which cache a layer's cells lie, if it has any of its own.
    fn cache_of<'l>(&self, layer: &'l LayerSpec) -> Option<(&'l AttentionLayer, Cache)> {
        Some(match &layer.attention {
            AttentionSpec::Absent | AttentionSpec::SharedWith(_) => return None,
            AttentionSpec::Cached(layer) => {
                (layer, layer.recycled(self.n_ctx).map_or(Cache::All, Cache::Window))
            }
            AttentionSpec::Uncached { layer, causal } => (layer, Cache::Batch { causal: *causal }),
            AttentionSpec::Cross(layer) => (layer, Cache::Text),
        })
    }
}

/// Layers that have one share the lists of its blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    All,
    Window(Window),
    Batch { causal: bool },
    Text,
}

/// Bytes that are listed of each block: its users, the positions of its cells, and an extent of a sequence.
const LISTED_BYTES: u64 = 8 + 4 * BLOCK_CELLS as u64 + 8;

/// The bytes of a memory, all of which are allocated when it is made. Lists of a few bytes for each block and sequence come on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryBytes {
    /// Keys and values of attention layers, those included that checkpoints of windows keep.
    pub caches: u64,
    /// Recurrent states, those included that checkpoints keep.
    pub states: u64,
    /// Inputs of the recurrences, journaled for going back.
    pub journals: u64,
}

impl MemoryBytes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.caches.saturating_add(self.states).saturating_add(self.journals)
    }
}

/// Numbers that enter a layer's state with a token, all pieces together.
fn input_len(parts: &[StatePart]) -> usize {
    parts.iter().map(|part| part.input).sum()
}

/// How many checkpoints and journals a memory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Whether going back takes checkpoints at all.
    pub needed: bool,
    /// Checkpoints that the budget pays for.
    pub n_paid: u32,
    /// All checkpoints: those, the few at which the journals of each sequence begin, one to hold its end, and one where it was edited.
    pub n_checkpoints: u32,
    /// Journals, of `timeline.journal` tokens each.
    pub n_journals: u32,
}

impl Sizes {
    pub fn new(layers: &[LayerSpec], params: &Params) -> Sizes {
        let none = Sizes { needed: false, n_paid: 0, n_checkpoints: 0, n_journals: 0 };
        let windowed = |spec: &LayerSpec| match &spec.attention {
            AttentionSpec::Cached(layer) => layer.recycled(params.n_ctx).map(|window| {
                let block = layer.layout(params.k_type, params.v_type).block_bytes() as u64;
                (blocks(window.size().into()) + 1) * block
            }),
            _ => None,
        };
        let windows: u64 = layers.iter().filter_map(windowed).sum();
        let states: u64 = layers.iter().map(|spec| state_len(&spec.recurrent) as u64 * 4).sum();
        let is_recurrent = layers.iter().any(|spec| !spec.recurrent.is_empty());
        if windows == 0 && !is_recurrent {
            return none;
        }
        let TimelineParams { checkpoint_bytes, journal, .. } = params.timeline;
        let wanted = u64::from(params.n_seq_max) * u64::from(params.timeline.ladder_len(params.n_ctx));
        let n_paid = (checkpoint_bytes / (windows + states).max(1)).min(wanted).min(1 << 20) as u32;
        let n_journals = if is_recurrent && journal > 0 {
            // So that rows can be counted.
            params.n_seq_max.saturating_mul(3).min(u32::MAX / journal)
        } else {
            0
        };
        // Two more a sequence, to go back after half of a long batch and to where it was last edited.
        let n_checkpoints =
            n_paid.saturating_add(n_journals).saturating_add(params.n_seq_max.saturating_mul(2));
        Sizes { needed: true, n_paid, n_checkpoints, n_journals }
    }
}

/// Checks that sizes are possible on this machine, and with these types of cells.
pub(crate) fn check_layers(layers: &[LayerSpec], params: &Params) -> Result<(), Error> {
    for (i, spec) in layers.iter().enumerate() {
        let bad = |what| Err(Error::Layer { layer: i as u32, what });
        let own = match &spec.attention {
            AttentionSpec::Cached(layer)
            | AttentionSpec::Uncached { layer, .. }
            | AttentionSpec::Cross(layer) => Some(layer),
            AttentionSpec::Absent | AttentionSpec::SharedWith(_) => None,
        };
        if let Some(layer) = own {
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
        let sum = |sum: usize, part: &StatePart| sum.checked_add(part.len)?.checked_add(part.input);
        let len = spec.recurrent.iter().try_fold(0, sum);
        if len.is_none_or(|len| len > u32::MAX as usize / 4) {
            return bad("the recurrent state is impossibly large");
        }
    }
    Ok(())
}
