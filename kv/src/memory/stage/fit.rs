//! Whether an image is of the layers that a memory has.

use crate::error::Error;
use crate::image::{Group, Image};
use crate::memory::Hybrid;
use crate::memory::snapshot::Place;
use alloc::vec::Vec;

/// How an image fitted a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// Checkpoints that the memory has no room for or no use of.
    pub n_checkpoints_dropped: u32,
    /// Checkpoints that are no longer pinned, because the memory's budget does not pay for more pins.
    pub n_unpinned: u32,
    /// Journaled tokens that it has no room for.
    pub n_rows_dropped: u32,
    /// What converting elements did, if it was necessary.
    pub conversion: Option<Conversion>,
}

/// What converting keys and values to another type did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Conversion {
    /// Numbers converted.
    pub n_values: u64,
    /// How many of them are no longer exactly what they were.
    pub n_changed: u64,
    /// The largest difference.
    pub max_error: f32,
}

/// A group of the memory's and the image's that it is.
pub(super) struct Matched {
    pub place: Place,
    /// Its number in the image.
    pub group: usize,
}

impl Hybrid {
    /// Finds the image's group for each of the memory's.
    pub(super) fn match_groups(&self, image: &Image, convert: bool) -> Result<Vec<Matched>, Error> {
        let shape = self.shape();
        let places = self.group_places();
        let (found, wanted) = (image.shape.groups.len() as u64, places.len() as u64);
        if found != wanted {
            return Err(Error::Mismatch { what: "kinds of attention", index: 0, found, wanted });
        }
        let mut matched = Vec::with_capacity(places.len());
        for place in places {
            let first = place.group.layers.first().map_or(0, |layer| layer.layer);
            let is_same = |group: &Group| group.sees == place.group.sees;
            let group = image.shape.groups.iter().position(is_same);
            let missing =
                Error::Mismatch { what: "what is seen", index: first, found: 0, wanted: u64::from(first) };
            let group = group.ok_or(missing)?;
            compare(&image.shape.groups[group], &place.group, convert)?;
            matched.push(Matched { place, group });
        }
        let (saved, own) = (&image.shape.recurrent, &shape.recurrent);
        if saved != own {
            let differs = saved.iter().zip(own).find(|(a, b)| a != b).map(|(_, own)| own.layer);
            let len = |layers: &[crate::image::StateLayer]| {
                layers.iter().flat_map(|l| &l.parts).map(|p| p.len as u64).sum()
            };
            let (found, wanted) = (len(saved), len(own));
            let index = differs.unwrap_or_default();
            return Err(Error::Mismatch { what: "numbers of recurrent states", index, found, wanted });
        }
        Ok(matched)
    }
}

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
