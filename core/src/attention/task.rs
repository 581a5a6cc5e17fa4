//! The parameters of attention, and one call with its inputs.

use super::position_bias::PositionBias;
use super::seen::Seen;
use crate::cell::{CellBlocks, CellLayout};
use crate::kernel_set::KernelSet;

/// One layer's attention: its heads, and the shaping of its scores.
///
/// Grouped-query attention, soft caps, sinks and relative position bias are parameters; causality
/// and windows are in what each token sees ([`Seen`]).
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::attention::{Attention, Seen, store};
/// use backstitch_core::cell::{BlockEntry, CellBlocks, CellBlocksMut, CellLayout, CellType};
/// use backstitch_core::packed::Line;
/// use backstitch_core::pool::Inline;
///
/// let (k_type, v_type) = (CellType::F32, CellType::F32);
/// let layout = CellLayout { n_head_kv: 1, d_k: 2, d_v: 2, k_type, v_type };
/// let mut cache = vec![Line([0; 64]); layout.block_bytes() / 64];
/// let cache: &mut [u8] = bytemuck::cast_slice_mut(&mut cache);
/// let stride = layout.block_bytes();
///
/// // Keys and values of two tokens go to the first two cells of block 0.
/// let (k, v) = ([1.0, 0.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0]);
/// let set = KernelSet::scalar();
/// let blocks = CellBlocksMut::new(cache, &layout, stride);
/// store(set, &Inline, &layout, &k, &v, &|token| (0, token as u32), blocks)?;
///
/// // A query that both keys are equally near to gets the mean of their values.
/// let table = [BlockEntry { block: 0, live: 0b11 }];
/// let attention = Attention {
///     n_head: 1,
///     scale: 1.0,
///     soft_cap: 0.0,
///     sinks: &[],
///     position_bias: None,
///     layout,
/// };
/// let mut out = [0.0; 2];
/// let seen = |_: usize| Seen { table: &table, slots: 0..2 };
/// let blocks = CellBlocks::new(cache, &layout, stride);
/// attention.run(set, &Inline, &[1.0, 1.0], blocks, &seen, &mut [], &mut out)?;
/// assert_eq!(out, [2.0, 3.0]);
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Query heads; a multiple of the layout's `n_head_kv`. Query head h uses key head `h / (n_head
    /// / n_head_kv)`.
    pub n_head: usize,
    /// Factor of the scores, usually `1 / sqrt(d_k)`.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`; 0 for none.
    pub soft_cap: f32,
    /// One more score a head in the softmax, without a value: `[n_head]`, or empty for none.
    pub sinks: &'a [f32],
    /// Relative position bias; none for most models.
    pub position_bias: Option<PositionBias<'a>>,
    /// Shape and types of keys and values.
    pub layout: CellLayout,
}

impl Attention<'_> {
    /// Return the floats of one row and span: weighted values, maximum and sum.
    pub(super) const fn part_len(&self) -> usize {
        self.layout.d_v + 2
    }

    /// Return the number of query heads that share a key head.
    pub(super) fn group(&self) -> usize {
        self.n_head / self.layout.n_head_kv.max(1)
    }
}

/// One call of [`Attention::run`].
#[derive(Clone, Copy)]
pub(super) struct Task<'t, 's> {
    pub(super) attention: &'t Attention<'t>,
    pub(super) set: &'t KernelSet,
    pub(super) q: &'t [f32],
    pub(super) blocks: CellBlocks<'t>,
    pub(super) seen: &'t (dyn Fn(usize) -> Seen<'s> + Sync),
}
