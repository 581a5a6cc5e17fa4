//! Storage of one layer's blocks, and the changes to keys that are stored already (K-shift).

use crate::error::Error;
use crate::external::{Home, KeyShift};
use crate::layer::{AttentionLayer, Rotation, Window};
use crate::params::Params;
use alloc::vec::Vec;
use backstitch_core::KernelSet;
use backstitch_core::cell::CellLayout;

/// Alignment of the storage in bytes, so that vectors load from whole cache lines.
const ALIGNMENT: usize = 64;

/// Storage of the blocks of one layer of a cache.
pub(crate) struct Layer {
    /// Layout of a block.
    pub layout: CellLayout,
    /// Window of the layer; `None` if it sees the whole sequence.
    pub window: Option<Window>,
    /// Rotation that stored keys carry.
    pub rope: Option<Rotation>,
    /// Allocation of the blocks, which start at the first aligned byte. It is not allocated with an
    /// alignment, because only then does the allocator hand out pages that the system zeroes when
    /// they are first touched.
    bytes: Vec<u8>,
    /// Offset of the first block in `bytes`.
    start: usize,
    /// Bytes of all blocks; 0 if they are stored elsewhere.
    len: usize,
}

impl Layer {
    /// Allocate the blocks of a layer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(spec: &AttentionLayer, params: &Params, n_blocks: u32, home: Home) -> Result<Layer, Error> {
        let layout = spec.layout(params.k_type, params.v_type);
        let bytes = home.len(u64::from(n_blocks) * layout.block_bytes() as u64);
        let out_of_memory = Error::OutOfMemory { bytes };
        let len = usize::try_from(bytes).map_err(|_| out_of_memory)?;
        let padded = len.checked_add(ALIGNMENT).ok_or(out_of_memory)?;
        let bytes: Vec<u8> = bytemuck::allocation::try_zeroed_vec(padded).map_err(|()| out_of_memory)?;
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(Layer { layout, bytes, start, len, rope: spec.rope.clone(), window: spec.window })
    }

    /// Return the bytes of all blocks; empty if they are stored elsewhere.
    pub fn storage(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// Return the bytes of all blocks, to be changed.
    pub fn storage_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// Rotate keys of blocks that have no other user.
    pub fn shift_keys(&mut self, shifts: &[KeyShift]) {
        let layout = self.layout;
        let Some(rotation) = self.rope.take() else { return };
        let mut scratch = alloc::vec![0.0; rotation.rope.row_len() + layout.n_head_kv * layout.d_k];
        for &KeyShift { block, cells, delta, .. } in shifts {
            let Some(bytes) = self.storage_mut().get_mut(layout.block_range(block as usize)) else { break };
            shift_cells(&rotation, &layout, bytes, cells, delta, &mut scratch);
        }
        self.rope = Some(rotation);
    }
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

/// Copy the bytes of a block in all layers that store them here.
pub(super) fn copy_bytes(layers: &mut [Layer], from: u32, to: u32) {
    for layer in layers.iter_mut().filter(|layer| layer.len > 0) {
        let source = layer.layout.block_range(from as usize);
        let target = layer.layout.block_range(to as usize).start;
        layer.storage_mut().copy_within(source, target);
    }
}
