//! Comparison of a snapshot's layers with those of a memory.

use crate::error::Error;
use crate::memory::Memory;
use crate::snapshot::export::Place;
use crate::snapshot::{Group, Snapshot};
use alloc::vec::Vec;

/// Losses of an import: checkpoints, pins and journal rows left out, and values converted.
///
/// [`Import::fit`](super::Import::fit) and [`Import::commit`](super::Import::commit) return it.
/// Tokens are never left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// Checkpoints that the memory has no space or no use for.
    pub n_checkpoints_dropped: u32,
    /// Checkpoints that are no longer pinned because pins exceed the memory's budget.
    pub n_unpinned: u32,
    /// Journal rows that the memory has no space for.
    pub n_rows_dropped: u32,
    /// Statistics of the conversion of cells; `None` if none was necessary.
    pub conversion: Option<Conversion>,
}

/// Statistics of a conversion of keys and values to another element type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Conversion {
    /// Number of values converted.
    pub n_values: u64,
    /// Number of values that changed.
    pub n_changed: u64,
    /// Largest absolute difference.
    pub max_error: f32,
}

impl Memory {
    /// Return the groups of the memory, in the order of the snapshot's.
    pub(super) fn match_groups(&self, snapshot: &Snapshot, convert: bool) -> Result<Vec<Place>, Error> {
        let mut places = self.group_places();
        let groups = &snapshot.shape.groups;
        let (found, wanted) = (groups.len() as u64, places.len() as u64);
        if found != wanted {
            return Err(Error::Mismatch { what: "kinds of attention", index: 0, found, wanted });
        }
        let number = |place: &Place| groups.iter().position(|group| group.sees == place.group.sees);
        for place in &places {
            let index = place.group.layers.first().map_or(0, |layer| layer.layer);
            let missing = Error::Mismatch { what: "what is seen", index, found: 0, wanted: index.into() };
            compare(&groups[number(place).ok_or(missing)?], &place.group, convert)?;
        }
        places.sort_by_key(number);
        let (saved, own) = (&snapshot.shape, &self.shape());
        if saved.recurrent == own.recurrent {
            return Ok(places);
        }
        let mut layers = saved.recurrent.iter().zip(&own.recurrent);
        let index = layers.find(|(saved, own)| saved != own).map_or(0, |(_, own)| own.layer);
        let [found, wanted] = [saved, own].map(|shape| shape.pieces().map(|piece| piece.len as u64).sum());
        Err(Error::Mismatch { what: "numbers of recurrent states", index, found, wanted })
    }
}

/// Check that two groups have the same layers, sizes and, without conversion, element types.
fn compare(saved: &Group, own: &Group, convert: bool) -> Result<(), Error> {
    let first = own.layers.first().map_or(0, |layer| layer.layer);
    if saved.layers.len() != own.layers.len() {
        let (found, wanted) = (saved.layers.len() as u64, own.layers.len() as u64);
        return Err(Error::Mismatch { what: "layers of the kind", index: first, found, wanted });
    }
    for (a, b) in saved.layers.iter().zip(&own.layers) {
        let sizes = [
            ("number", a.layer, b.layer),
            ("n_head_kv", a.n_head_kv, b.n_head_kv),
            ("d_k", a.d_k, b.d_k),
            ("d_v", a.d_v, b.d_v),
        ];
        if let Some((what, found, wanted)) = sizes.into_iter().find(|(_, found, wanted)| found != wanted) {
            let (found, wanted) = (found.into(), wanted.into());
            return Err(Error::Mismatch { what, index: b.layer, found, wanted });
        }
    }
    let types = [(saved.k_type, own.k_type), (saved.v_type, own.v_type)];
    match types.into_iter().find(|(found, wanted)| found != wanted) {
        Some((found, wanted)) if !convert => Err(Error::CellType { layer: first, found, wanted }),
        _ => Ok(()),
    }
}
