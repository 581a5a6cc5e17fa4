//! One layer of a cache, and the changes to keys that are stored already (K-shift).

use crate::external::KeyShift;
use crate::layer::{AttentionLayer, Rotation, Window};
use crate::params::Params;
use alloc::vec::Vec;
use backstitch_core::KernelSet;
use backstitch_core::cell::{CellBlocksMut, CellLayout};

/// A layer of a cache.
pub(crate) struct Layer {
    /// Layout of a block.
    pub layout: CellLayout,
    /// Window of the layer; `None` if it sees the whole sequence.
    pub window: Option<Window>,
    /// Rotation that stored keys carry.
    pub rope: Option<Rotation>,
    /// Offset of its bytes in a block of all layers.
    pub offset: usize,
}

impl Layer {
    /// Return the offset of the layer behind it, in a block of all layers.
    pub fn end(&self) -> usize {
        self.offset.saturating_add(self.layout.block_bytes())
    }

    /// Rotate keys of blocks that have no other user; `blocks` are this layer's.
    pub fn shift_keys(&self, mut blocks: CellBlocksMut<'_>, shifts: &[KeyShift]) {
        let layout = self.layout;
        let Some(rotation) = &self.rope else { return };
        let mut scratch = alloc::vec![0.0; rotation.rope.row_len() + layout.n_head_kv * layout.d_k];
        for &KeyShift { block, cells, delta, .. } in shifts {
            let Some(bytes) = blocks.get_mut(block) else { break };
            shift_cells(rotation, &layout, bytes, cells, delta, &mut scratch);
        }
    }
}

/// Return the layers of a cache, one behind the other in each block.
pub(super) fn layers(specs: &[AttentionLayer], params: &Params) -> Vec<Layer> {
    let mut offset = 0;
    let layer = |spec: &AttentionLayer| {
        let layout = spec.layout(params.k_type, params.v_type);
        let layer = Layer { layout, window: spec.window, rope: spec.rope.clone(), offset };
        offset = layer.end();
        layer
    };
    specs.iter().map(layer).collect()
}

/// Rotate the keys of some cells of a block by `delta` positions.
///
/// The scalar kernels do it, since all kernel sets compute the same bits and K-shifts are rare.
pub(crate) fn shift_cells(
    rotation: &Rotation,
    layout: &CellLayout,
    block: &mut [u8],
    cells: u32,
    delta: i32,
    scratch: &mut [f32],
) {
    if delta == 0 {
        return;
    }
    let Rotation { rope, frequencies } = rotation;
    let done = rope.shift_keys(KernelSet::scalar(), frequencies, layout, block, cells, delta, scratch);
    debug_assert!(done.is_ok(), "shapes were checked when the memory was made: {done:?}");
}
