//! Layers: the one that a tensor belongs to, and the order in which tensors are visited.

use crate::Error;
use backstitch_models::gguf::{Gguf, TensorInfo};
use std::cmp::Ordering;

/// The layers of tensors of one kind. Without experts, layers are counted; with experts, several
/// tensors of a kind may stand in one layer, and their names tell it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layers {
    n_layer: u32,
    by_name: bool,
    n_seen: u32,
}

impl Layers {
    pub fn new(n_layer: u32, by_name: bool) -> Self {
        Self { n_layer, by_name, n_seen: 0 }
    }

    /// Return the number of tensors that were seen before, and count one.
    pub fn count(&mut self) -> u32 {
        self.n_seen += 1;
        self.n_seen - 1
    }

    /// Return the layer of the next tensor.
    pub fn next(&mut self, tensor: &str) -> Result<u32, Error> {
        let counted = self.count();
        if !self.by_name {
            return Ok(counted);
        }
        let named = layer(tensor).filter(|&layer| layer < self.n_layer);
        named.ok_or_else(|| Error::Layer { tensor: tensor.into() })
    }
}

/// Return true for the layers between the first eighth of `n` and the last.
pub(super) fn is_inner(i: u32, n: u32) -> bool {
    // Files state any number of layers.
    i >= n / 8 && u64::from(i) < 7 * u64::from(n) / 8
}

/// Return true for the layers to which the larger mixtures give more bits: the first and the last
/// eighth, and every third between.
pub(super) fn use_more_bits(i: u32, n: u32) -> bool {
    !is_inner(i, n) || (i - n / 8) % 3 == 2
}

/// Return the layer that the name of a tensor tells.
fn layer(tensor: &str) -> Option<u32> {
    tensor.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Return the tensors in llama.cpp's order: those of no layer first, then by layer, then by name.
pub fn in_order<'g, 'a>(gguf: &'g Gguf<'a>) -> Vec<&'g TensorInfo<'a>> {
    let mut tensors: Vec<_> = gguf.tensors().iter().collect();
    let by_layer = |a: &&TensorInfo<'_>, b: &&TensorInfo<'_>| -> Ordering {
        layer(a.name()).cmp(&layer(b.name())).then_with(|| a.name().cmp(b.name()))
    };
    tensors.sort_by(by_layer);
    tensors
}
