//! The bytes of a layer's blocks, and what is done to keys that are stored already.

use crate::block::BlockPool;
use crate::error::Error;
use crate::extent::bits;
use crate::ids::Pos;
use crate::layer::{AttentionLayer, Params, Rotation};
use crate::memory::Op;
use crate::storage::Home;
use alloc::vec::Vec;
use backstitch_core::KernelSet;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};

/// Where blocks begin, so that vectors load from whole cache lines.
const ALIGNMENT: usize = 64;

/// One layer's blocks.
pub(crate) struct Layer {
    pub layout: CellLayout,
    /// Which of the part's views it has.
    pub view: usize,
    rope: Option<Rotation>,
    /// Blocks, from the first aligned byte on. The allocator is asked for bytes and not for aligned ones, because only then does it
    /// hand out pages that the system zeroes when they are first touched.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Layer {
    pub fn new(
        spec: &AttentionLayer,
        params: &Params,
        view: usize,
        n_blocks: u32,
        home: Home,
    ) -> Result<Layer, Error> {
        let layout = spec.layout(params.k_type, params.v_type);
        let bytes = home.len(u64::from(n_blocks) * layout.block_bytes() as u64);
        let out_of_memory = Error::OutOfMemory { bytes };
        let len = usize::try_from(bytes).map_err(|_| out_of_memory)?;
        let padded = len.checked_add(ALIGNMENT).ok_or(out_of_memory)?;
        let bytes: Vec<u8> = bytemuck::allocation::try_zeroed_vec(padded).map_err(|()| out_of_memory)?;
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(Layer { layout, bytes, start, len, rope: spec.rope.clone(), view })
    }

    /// The bytes of all blocks; none if they are elsewhere.
    pub fn storage(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub fn storage_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// Return true if keys carry a rotation.
    pub fn turns(&self) -> bool {
        self.rope.is_some()
    }

    /// Turns the keys of cells that move: entries of a table, with blocks that nobody else uses.
    pub fn turn_keys(&mut self, pool: &BlockPool, moving: &[(usize, u32, u32)], op: &Op) {
        let layout = self.layout;
        let Some(rotation) = self.rope.take() else { return };
        let mut scratch = alloc::vec![0.0; rotation.rope.row_len() + layout.n_head_kv * layout.d_k];
        for &(_, block, live) in moving {
            let Some(bytes) = self.storage_mut().get_mut(layout.block_range(block as usize)) else { break };
            by_distance(pool.pos(block), live, op, |cells, delta| {
                turn_cells(&rotation, &layout, bytes, cells, delta, &mut scratch);
            });
        }
        self.rope = Some(rotation);
    }
}

/// Calls `f` for the cells of each distance that `op` moves some of `live` by.
pub(super) fn by_distance(pos: &[Pos; BLOCK_CELLS], live: u32, op: &Op, mut f: impl FnMut(u32, i32)) {
    // Positions are never negative, so that their differences fit.
    let distance = |cell: u32| (op.moved(pos[cell as usize]) - i64::from(pos[cell as usize].0)) as i32;
    let mut left = live;
    while left != 0 {
        let delta = distance(left.trailing_zeros());
        let same =
            bits(left).filter(|&cell| distance(cell) == delta).fold(0, |cells, cell| cells | 1 << cell);
        f(same, delta);
        left &= !same;
    }
}

/// Turns the keys of some cells of a block. All kernel sets give the same bits, so the one that is always there does.
pub(crate) fn turn_cells(
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

/// Copies the bytes of a block in all layers, where they are here.
pub(super) fn copy_bytes(layers: &mut [Layer], from: u32, to: u32) {
    for layer in layers.iter_mut().filter(|layer| layer.len > 0) {
        let source = layer.layout.block_range(from as usize);
        let target = layer.layout.block_range(to as usize).start;
        layer.storage_mut().copy_within(source, target);
    }
}
