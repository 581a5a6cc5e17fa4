//! Assignment of the layers of a model to caches.
//!
//! Layers with equal retention and window share a cache, and so its block pool and tables: the
//! bookkeeping is done once for all of them.

use crate::error::Error;
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Retained};
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

/// Layers of each cache with cells, in the order of the model. The cross-attention cache is the
/// last one.
pub(super) type Assigned = Vec<(Retained, Vec<AttentionLayer>)>;

/// Assign the layers of a model to caches.
///
/// # Errors
/// [`Error::Layer`] if a layer shares the cells of a later layer, or of one that has none of its
/// own.
pub(super) fn assign(layers: &[LayerSpec], n_ctx: u32) -> Result<(Assigned, Vec<LayerCaches>), Error> {
    let mut assigned = Assigned::new();
    for (_, retained) in layers.iter().filter_map(|spec| spec.cells(n_ctx)) {
        if assigned.iter().all(|(known, _)| *known != retained) {
            assigned.push((retained, Vec::new()));
        }
    }
    assigned.sort_by_key(|(retained, _)| *retained == Retained::EncoderOutput);
    let mut places: Vec<LayerCaches> = Vec::with_capacity(layers.len());
    let mut n_recurrent = 0..;
    for (number, spec) in layers.iter().enumerate() {
        let mut shared = None;
        if let AttentionSpec::SharedWith(owner) = spec.attention {
            let what = "shares the cache of a layer that comes later or has none of its own";
            let owner = places.get(owner).filter(|owner| !owner.is_shared);
            let place = owner.and_then(|owner| owner.attention);
            shared = Some(place.ok_or(Error::Layer { layer: number as u32, what })?);
        }
        let own = spec.cells(n_ctx).and_then(|(layer, retained)| {
            let cache = assigned.iter().position(|(known, _)| *known == retained)?;
            let own = &mut assigned.get_mut(cache)?.1;
            own.push(layer.clone());
            Some(CellPlace { cache, layer: own.len() - 1 })
        });
        let (attention, is_shared) = (own.or(shared), shared.is_some());
        let recurrent = if spec.recurrent.is_empty() { None } else { n_recurrent.next() };
        places.push(LayerCaches { attention, is_shared, recurrent });
    }
    Ok((assigned, places))
}
