//! Bytes of the blocks of a cache.

use super::layer::Layer;
use crate::arena::Arena;
use crate::error::Error;
use crate::external::Home;
use backstitch_core::cell::{CellBlocks, CellBlocksMut};

/// Bytes of all blocks of a cache, `[n_blocks][layer][n_head_kv][K | V]`.
///
/// A block of all layers is one piece of memory. Copying it is one copy, and since blocks are taken
/// in order, they fill the system's large pages one after the other: a cache takes at most one page
/// more than its blocks, however many layers it has.
pub(crate) struct BlockBytes {
    arena: Arena,
    /// Bytes of a block in all layers.
    stride: usize,
}

/// Bytes before the first block. Without them all blocks would start where a page does, as the
/// bytes of many files do, and a processor delays loads from places with the last 12 bits of a
/// store.
const BEFORE: usize = 17 * 64;

impl BlockBytes {
    /// Allocate `n_blocks` blocks of these layers, or none if they are stored elsewhere.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(layers: &[Layer], n_blocks: u32, home: Home) -> Result<BlockBytes, Error> {
        let stride = layers.last().map_or(0, Layer::end);
        let bytes = home.len(u64::from(n_blocks).saturating_mul(stride as u64));
        let refused = Error::OutOfMemory { bytes };
        let len = usize::try_from(bytes).map_err(|_| refused)?.saturating_add(BEFORE);
        Ok(BlockBytes { arena: Arena::new(len).map_err(|_| refused)?, stride })
    }

    /// Return the bytes of all blocks.
    fn blocks(&self) -> &[u8] {
        &self.arena.bytes()[BEFORE..]
    }

    /// Return the bytes of all blocks, to be changed.
    fn blocks_mut(&mut self) -> &mut [u8] {
        &mut self.arena.bytes_mut()[BEFORE..]
    }

    /// Return the blocks of a layer; none if they are stored elsewhere.
    pub fn of(&self, layer: &Layer) -> CellBlocks<'_> {
        let bytes = self.blocks().get(layer.offset..).unwrap_or_default();
        CellBlocks::new(bytes, &layer.layout, self.stride)
    }

    /// Return the blocks of a layer, to be changed.
    pub fn of_mut(&mut self, layer: &Layer) -> CellBlocksMut<'_> {
        let stride = self.stride;
        let bytes = self.blocks_mut().get_mut(layer.offset..).unwrap_or_default();
        CellBlocksMut::new(bytes, &layer.layout, stride)
    }

    /// Iterate over all blocks, each with the bytes of all layers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let stride = self.stride.max(1);
        self.blocks_mut().chunks_exact_mut(stride)
    }

    /// Return the bytes of all blocks.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.blocks().len()
    }

    /// Copy the bytes of a block in all layers, if they are stored here.
    pub fn copy(&mut self, from: u32, to: u32) {
        let stride = self.stride;
        let bytes = self.blocks_mut();
        if !bytes.is_empty() {
            let from = from as usize * stride;
            bytes.copy_within(from..from + stride, to as usize * stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layer::layers;
    use super::*;
    use crate::layer::AttentionLayer;
    use crate::params::Params;
    use alloc::vec::Vec;

    /// Return two layers of different sizes.
    fn two() -> Vec<Layer> {
        let layer = |n_head_kv, d_k| AttentionLayer { n_head_kv, d_k, d_v: 8, ..AttentionLayer::default() };
        layers(&[layer(2, 16), layer(1, 4)], &Params::default())
    }

    #[test]
    fn layers_share_blocks_and_keep_apart() {
        let layers = two();
        let mut bytes = BlockBytes::new(&layers, 4, Home::Here).unwrap();
        assert_eq!(bytes.len(), 4 * layers[1].end());
        for (i, layer) in layers.iter().enumerate() {
            assert_eq!(bytes.of(layer).len(), 4);
            for number in 0..4 {
                let mut blocks = bytes.of_mut(layer);
                let block = blocks.get_mut(number).unwrap();
                assert_eq!((block.len(), block[0]), (layer.layout.block_bytes(), 0));
                block.fill(10 * i as u8 + number as u8 + 1);
            }
        }
        bytes.copy(2, 0);
        for (i, layer) in layers.iter().enumerate() {
            for (number, origin) in [(0, 3), (1, 2), (2, 3), (3, 4)] {
                let block = bytes.of(layer).get(number).unwrap();
                assert!(block.iter().all(|byte| *byte == 10 * i as u8 + origin));
            }
        }
        assert_eq!(bytes.iter_mut().count(), 4);
    }

    #[test]
    fn blocks_that_are_elsewhere_take_no_bytes() {
        let layers = two();
        let mut bytes = BlockBytes::new(&layers, u32::MAX, Home::Elsewhere).unwrap();
        bytes.copy(u32::MAX, 0);
        assert_eq!((bytes.len(), bytes.iter_mut().count()), (0, 0));
        assert!(
            layers.iter().all(|layer| bytes.of(layer).is_empty() && bytes.of_mut(layer).get_mut(0).is_none())
        );
    }
}
