//! Storage of an engine under test, and a simple implementation in blocks of bytes.

use super::Rows;
use crate::cache::shift_cells;
use crate::cache::view::Cell;
use crate::external::{CacheShape, CellCopy, KeyShift, StateCopy, Storage};
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec};
use crate::memory::Memory;
use crate::params::Params;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::CellLayout;
use core::convert::Infallible;

/// Storage that a [`Machine`](super::Machine) tests.
///
/// It stores what ubatches tell it to and follows the changes that the memory lists; the machine
/// checks that it agrees with the oracle at any time. Layers are numbered as in the model. Keys and
/// values come back as rounded by the types of the machine; test an engine that does not round with
/// F32.
pub trait Engine: Storage<Error = Infallible> + Sized {
    /// Return empty storage for a memory of these layers.
    fn new(memory: &Memory, layers: &[LayerSpec], params: &Params) -> Self;

    /// Store the key and value of a token.
    fn put(&mut self, layer: usize, cell: Cell, key: &[f32], value: &[f32]);

    /// Return the key and value of a cell.
    fn get(&self, layer: usize, cell: Cell) -> Rows;

    /// Store an imported block: 32 cells in the [`CellLayout`] of the layer.
    fn fill_block(&mut self, layer: usize, block: u32, bytes: &[u8]);

    /// Store a layer's recurrent state.
    fn put_state(&mut self, layer: usize, slot: u32, state: &[f32]);

    /// Return the recurrent state of a layer.
    fn state(&self, layer: usize, slot: u32) -> Vec<f32>;
}

/// Blocks of one layer.
struct Layer {
    spec: AttentionLayer,
    layout: CellLayout,
    blocks: Vec<Vec<u8>>,
}

/// An engine that copies exactly the listed cells, in layouts of the memory.
///
/// It fills unused cells with a pattern that no token has, so that a missing copy is noticed.
pub struct Blocks {
    caches: Vec<CacheShape>,
    layers: Vec<Option<Layer>>,
    /// States per layer and slot.
    states: Vec<Vec<Vec<f32>>>,
}

impl Blocks {
    fn layers_of(&mut self, cache: u32) -> impl Iterator<Item = &mut Layer> {
        let own = &self.caches[cache as usize].layers;
        let layers = self.layers.iter_mut().enumerate();
        layers.filter(|(layer, _)| own.contains(&(*layer as u32))).filter_map(|(_, layer)| layer.as_mut())
    }

    fn layer(&self, layer: usize) -> &Layer {
        self.layers[layer].as_ref().expect("only layers with a cache store cells")
    }
}

impl Storage for Blocks {
    type Error = Infallible;

    fn copy_cells(&mut self, copy: CellCopy) -> Result<(), Infallible> {
        for Layer { layout, blocks, .. } in self.layers_of(copy.cache) {
            let mut cell = vec![0; layout.cell_bytes()];
            for i in crate::cache::table::bits(copy.cells) {
                layout.take_cell(&blocks[copy.from as usize], i as usize, &mut cell);
                layout.put_cell(&mut blocks[copy.to as usize], i as usize, &cell);
            }
        }
        Ok(())
    }

    fn shift_keys(&mut self, shift: KeyShift) -> Result<(), Infallible> {
        for Layer { spec, layout, blocks } in self.layers_of(shift.cache) {
            let Some(rotation) = &spec.rope else { continue };
            let mut scratch = vec![0.0; rotation.rope.row_len() + layout.n_head_kv * layout.d_k];
            let block = &mut blocks[shift.block as usize];
            shift_cells(rotation, layout, block, shift.cells, shift.delta, &mut scratch);
        }
        Ok(())
    }

    fn copy_state(&mut self, layer: usize, copy: StateCopy) -> Result<(), Infallible> {
        let states = &mut self.states[layer];
        let len = states.first().map_or(0, Vec::len);
        states[copy.to as usize] = copy.from.map_or(vec![0.0; len], |from| states[from as usize].clone());
        Ok(())
    }
}

impl Engine for Blocks {
    fn new(memory: &Memory, layers: &[LayerSpec], params: &Params) -> Blocks {
        let shape = memory.storage_shape();
        let own = |(number, spec): (usize, &LayerSpec)| {
            let AttentionSpec::Cached(spec) = &spec.attention else { return None };
            let cache = shape.caches.iter().find(|cache| cache.layers.contains(&(number as u32)))?;
            let layout = spec.layout(params.k_type, params.v_type);
            // A pattern that no token has.
            let blocks = vec![vec![0xa5; layout.block_bytes()]; cache.n_blocks as usize];
            Some(Layer { spec: spec.clone(), layout, blocks })
        };
        let len = |spec: &LayerSpec| spec.recurrent.first().map_or(0, |part| part.len);
        let states = layers.iter().map(|spec| vec![vec![f32::NAN; len(spec)]; shape.n_states as usize]);
        Blocks {
            layers: layers.iter().enumerate().map(own).collect(),
            states: states.collect(),
            caches: shape.caches,
        }
    }

    fn put(&mut self, layer: usize, cell: Cell, key: &[f32], value: &[f32]) {
        let Some(Layer { layout, blocks, .. }) = &mut self.layers[layer] else { return };
        let block = &mut blocks[cell.block as usize];
        layout.store_k(block, cell.cell as usize, key);
        layout.store_v(block, cell.cell as usize, value);
    }

    fn get(&self, layer: usize, cell: Cell) -> Rows {
        let Layer { layout, blocks, .. } = self.layer(layer);
        let block = &blocks[cell.block as usize];
        let mut rows = (vec![0.0; layout.n_head_kv * layout.d_k], vec![0.0; layout.n_head_kv * layout.d_v]);
        layout.load_k(block, cell.cell as usize, &mut rows.0);
        layout.load_v(block, cell.cell as usize, &mut rows.1);
        rows
    }

    fn fill_block(&mut self, layer: usize, block: u32, from: &[u8]) {
        let Some(Layer { blocks, .. }) = &mut self.layers[layer] else { return };
        blocks[block as usize].copy_from_slice(from);
    }

    fn put_state(&mut self, layer: usize, slot: u32, state: &[f32]) {
        self.states[layer][slot as usize] = state.to_vec();
    }

    fn state(&self, layer: usize, slot: u32) -> Vec<f32> {
        self.states[layer][slot as usize].clone()
    }
}
