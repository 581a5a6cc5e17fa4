//! Specification of the memory that each layer of a model needs.
//!
//! A model describes its layers with one [`LayerSpec`] each; [`Memory::new`](crate::Memory::new)
//! assigns them to caches.

use crate::ids::Pos;
use crate::kind::{Kind, Retention};
use alloc::vec::Vec;
use backstitch_core::cell::{CellLayout, CellType};
use backstitch_core::rope::Rope;

/// Memory of one layer of a model.
///
/// A layer may have attention, a recurrent state, both (falcon-h1) or neither (the default).
///
/// ```
/// use backstitch_kv::{AttentionLayer, AttentionSpec, LayerSpec, Window};
///
/// let layer = AttentionLayer {
///     n_head_kv: 8,
///     d_k: 128,
///     d_v: 128,
///     window: Some(Window::Sliding(4096)),
///     rope: None,
/// };
/// let spec = LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() };
/// assert!(spec.recurrent.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct LayerSpec {
    /// Keys and values of the layer.
    pub attention: AttentionSpec,
    /// State tensors, one for each operation that carries something from token to token; empty if
    /// the layer is not recurrent.
    pub recurrent: Vec<StateTensor>,
}

/// Attention of a layer: the keys and values that it stores, and the tokens that see them.
#[derive(Clone, Debug, Default)]
pub enum AttentionSpec {
    /// No attention.
    #[default]
    Absent,
    /// Attention to earlier tokens of the sequence, whose keys and values stay in a KV cache.
    Cached(AttentionLayer),
    /// Attention to the tokens of the same batch only, as in encoders; nothing outlives the batch.
    BatchOnly {
        /// Shape of the keys and values.
        layer: AttentionLayer,
        /// True if a token sees only itself and the tokens before it; false if it sees its whole
        /// sequence.
        causal: bool,
    },
    /// Attention of a decoder to the whole encoder output of its sequence. Encoding stores it,
    /// decoding only reads it.
    Cross(AttentionLayer),
    /// Attention to the keys and values that an earlier layer stored; the layer stores none itself.
    SharedWith(usize),
}

/// Shape of the keys and values of one layer.
#[derive(Clone, Debug, Default)]
pub struct AttentionLayer {
    /// Number of heads of K and V.
    pub n_head_kv: usize,
    /// Elements of the key of one head.
    pub d_k: usize,
    /// Elements of the value of one head.
    pub d_v: usize,
    /// Window through which a token sees its sequence; `None` if it sees all of it.
    pub window: Option<Window>,
    /// Rotation by position that stored keys carry, which a K-shift needs; `None` if keys hold no
    /// position.
    pub rope: Option<Rotation>,
}

/// Window of attention: how far back a token sees, its own position included.
///
/// ```
/// use backstitch_kv::{Pos, Window};
///
/// assert_eq!(Window::Sliding(4).first(Pos(9)), Pos(6));
/// assert_eq!(Window::Chunked(4).first(Pos(9)), Pos(8));
/// assert_eq!(Window::Symmetric(4).last(Pos(9)), Some(Pos(11)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Sliding window of this many positions that ends at the token.
    Sliding(u32),
    /// Chunk of this many positions that the token lies in; chunks start at multiples of their
    /// length.
    Chunked(u32),
    /// Half of this many positions before the token, and as many behind it where attention is not
    /// causal.
    Symmetric(u32),
}

impl Window {
    /// Return the first position that a token at `pos` sees.
    pub fn first(self, pos: Pos) -> Pos {
        let first = match self {
            Window::Sliding(size) => i64::from(pos.0) - i64::from(size) + 1,
            Window::Chunked(size) => i64::from(pos.0) / i64::from(size.max(1)) * i64::from(size),
            Window::Symmetric(size) => i64::from(pos.0) - i64::from(size / 2),
        };
        Pos(first.clamp(0, i64::from(pos.0.max(0))) as i32)
    }

    /// Return the last position that a token at `pos` sees where attention is not causal; none: it
    /// sees the whole rest.
    pub fn last(self, pos: Pos) -> Option<Pos> {
        match self {
            Window::Sliding(_) | Window::Chunked(_) => None,
            Window::Symmetric(size) => Some(Pos(pos.0.saturating_add_unsigned(size / 2))),
        }
    }

    /// Return the first position that a sequence which ends at `end` needs: what the next token
    /// sees, and at least the last token, from which the end of the sequence is known.
    pub(crate) fn needed_from(self, end: Pos) -> Pos {
        self.first(end).min(Pos(end.0 - 1)).max(Pos::ZERO)
    }

    /// Return the first end at which a sequence needs no position below `whole_from`.
    pub(crate) fn whole_after(self, whole_from: Pos) -> Pos {
        let (mut low, mut high) = (whole_from.0, (whole_from + self.size()).next().0);
        while low < high {
            let middle = low.midpoint(high);
            if self.needed_from(Pos(middle)) >= whole_from { high = middle } else { low = middle + 1 }
        }
        Pos(low)
    }

    /// Return the largest number of positions that a token sees.
    pub fn size(self) -> u32 {
        match self {
            Window::Sliding(size) | Window::Chunked(size) => size,
            Window::Symmetric(size) => (size / 2).saturating_mul(2).saturating_add(1),
        }
    }
}

impl AttentionLayer {
    /// Return the layout of the layer's blocks for these element types.
    pub(crate) fn layout(&self, k_type: CellType, v_type: CellType) -> CellLayout {
        CellLayout { n_head_kv: self.n_head_kv, d_k: self.d_k, d_v: self.d_v, k_type, v_type }
    }
}

/// Rotary position encoding of stored keys, with the frequencies that [`Rope::frequencies`] returns
/// for the model.
///
/// A K-shift rotates keys by the difference of two positions, so it needs the frequencies with
/// which they were stored.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Dimensions that rotate, and their pairing.
    pub rope: Rope,
    /// Angle of each pair of dimensions per position, in radians, `[n_rot / 2]`.
    pub frequencies: Vec<f64>,
}

/// State tensor: what one operation of a recurrent layer carries from token to token, as `f32`.
///
/// Examples are the last inputs of a short convolution and the matrix of a selective state space.
/// The journal stores the inputs of a tensor, so that a rollback can replay tokens without running
/// the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTensor {
    /// Number of elements of the state of one sequence.
    pub len: usize,
    /// Number of elements that enter the state with one token. They and the state before decide the
    /// state after.
    pub input: usize,
}

/// Cells that a cache retains. Layers of equal value share a cache, and so its blocks and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retained {
    /// Cells of all tokens.
    All,
    /// Cells in a window, and those that checkpoints need.
    Window(Window),
    /// Cells of one batch.
    Batch {
        /// True if a token sees only itself and the tokens before it; false if it sees its whole
        /// sequence.
        is_causal: bool,
    },
    /// Cells of the encoder output.
    EncoderOutput,
}

impl Retained {
    /// Return the kind of a cache that retains these cells.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Retained::All => Kind::Kv(Retention::All),
            Retained::Window(_) => Kind::Kv(Retention::Window),
            Retained::Batch { .. } => Kind::Kv(Retention::Batch),
            Retained::EncoderOutput => Kind::Cross,
        }
    }

    /// Return true if cells outlive the batch that stored them.
    pub(crate) fn keeps(self) -> bool {
        !matches!(self, Retained::Batch { .. })
    }

    /// Return true if a token sees no token after it.
    pub(crate) fn is_causal(self) -> bool {
        self != Retained::Batch { is_causal: false }
    }
}

impl LayerSpec {
    /// Return the shape of the layer's own cells and what their cache retains, in a context of
    /// `n_ctx` cells; `None` if the layer stores no cells.
    ///
    /// A window as wide as the context releases nothing: a cache of `n_ctx` cells is smaller than
    /// one with room for a margin and a batch.
    pub(crate) fn cells(&self, n_ctx: u32) -> Option<(&AttentionLayer, Retained)> {
        match &self.attention {
            AttentionSpec::Absent | AttentionSpec::SharedWith(_) => None,
            AttentionSpec::Cached(layer) => {
                let window = layer.window.filter(|window| window.size() < n_ctx);
                Some((layer, window.map_or(Retained::All, Retained::Window)))
            }
            AttentionSpec::BatchOnly { layer, causal } => {
                Some((layer, Retained::Batch { is_causal: *causal }))
            }
            AttentionSpec::Cross(layer) => Some((layer, Retained::EncoderOutput)),
        }
    }
}

/// Tokens that a group of layers sees, as snapshots describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// All earlier tokens of the sequence.
    All,
    /// Tokens in a window.
    Window(Window),
    /// Encoder output of the sequence.
    EncoderOutput,
}
