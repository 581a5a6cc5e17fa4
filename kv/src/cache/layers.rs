//! Assignment of the layers of a model to caches.
//!
//! Layers with equal retention and window share a cache, and so its block pool and tables: the
//! bookkeeping is done once for all of them.

use super::kv::KvCache;
use crate::error::Error;
use crate::external::Home;
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Window};
use crate::params::{Params, Sizes};
use alloc::vec::Vec;

/// Place of a layer's cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellPlace {
    /// Number of the cache in [`Caches`](super::Caches).
    pub cache: usize,
    /// Number of the layer in the cache.
    pub layer: usize,
}

/// Caches of one layer of the model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LayerCaches {
    /// Place of the keys and values that the layer attends to.
    pub attention: Option<CellPlace>,
    /// True if the layer attends to keys and values that another layer stored.
    pub is_shared: bool,
    /// Number of the layer in the recurrent cache.
    pub recurrent: Option<usize>,
}

/// Cells that a KV cache retains; layers of equal value share a cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Retained {
    Batch { is_causal: bool },
    All,
    Window(Window),
}

impl Retained {
    /// Make a KV cache that retains these cells.
    pub fn cache(
        self,
        layers: &[AttentionLayer],
        params: &Params,
        sizes: &Sizes,
        home: Home,
    ) -> Result<KvCache, Error> {
        match self {
            Retained::Batch { is_causal } => KvCache::batch(layers, params, is_causal, home),
            Retained::All => KvCache::all(layers, params, home),
            Retained::Window(window) => KvCache::windowed(layers, params, window, sizes, home),
        }
    }
}

/// Layers of each cache with cells, in the order of the model.
#[derive(Default)]
pub(super) struct Assigned {
    /// Layers of each KV cache.
    pub kv: Vec<(Retained, Vec<AttentionLayer>)>,
    /// Layers of the cross-attention cache.
    pub cross: Vec<AttentionLayer>,
}

impl Assigned {
    /// Add a layer to the KV cache that retains `retained`, which is added if it is new.
    fn add(&mut self, retained: Retained, layer: &AttentionLayer) -> CellPlace {
        let known = self.kv.iter().position(|(other, _)| *other == retained);
        let cache = known.unwrap_or_else(|| {
            self.kv.push((retained, Vec::new()));
            self.kv.len() - 1
        });
        let layers = &mut self.kv[cache].1;
        layers.push(layer.clone());
        CellPlace { cache, layer: layers.len() - 1 }
    }
}

/// Assign the layers of a model to caches.
///
/// # Errors
/// [`Error::Layer`] if a layer shares the cells of a later layer, or of one that has none of its
/// own.
pub(super) fn assign(layers: &[LayerSpec], n_ctx: u32) -> Result<(Assigned, Vec<LayerCaches>), Error> {
    let mut assigned = Assigned::default();
    let mut places: Vec<LayerCaches> = Vec::with_capacity(layers.len());
    let mut n_recurrent = 0..;
    for (number, spec) in layers.iter().enumerate() {
        let attention = match &spec.attention {
            AttentionSpec::Absent => None,
            AttentionSpec::SharedWith(owner) => {
                let what = "shares the cache of a layer that comes later or has none of its own";
                let owner = places.get(*owner).filter(|owner| !owner.is_shared);
                let place = owner.and_then(|owner| owner.attention);
                Some(place.ok_or(Error::Layer { layer: number as u32, what })?)
            }
            AttentionSpec::Cached(own) => {
                let retained = own.released_by(n_ctx).map_or(Retained::All, Retained::Window);
                Some(assigned.add(retained, own))
            }
            AttentionSpec::BatchOnly { layer: own, causal } => {
                Some(assigned.add(Retained::Batch { is_causal: *causal }, own))
            }
            AttentionSpec::Cross(own) => {
                assigned.cross.push(own.clone());
                Some(CellPlace { cache: usize::MAX, layer: assigned.cross.len() - 1 })
            }
        };
        let is_shared = matches!(spec.attention, AttentionSpec::SharedWith(_));
        let recurrent = if spec.recurrent.is_empty() { None } else { n_recurrent.next() };
        places.push(LayerCaches { attention, is_shared, recurrent });
    }
    // The cross-attention cache comes after the KV caches, whose number is known now.
    for place in places.iter_mut().filter_map(|place| place.attention.as_mut()) {
        place.cache = place.cache.min(assigned.kv.len());
    }
    Ok((assigned, places))
}
