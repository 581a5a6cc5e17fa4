//! Sets of adapters: what a sequence is evaluated with.

use super::error::AdapterError;
use super::{Adapter, ControlVector};
use crate::error::Error;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::storage::Fingerprint;
use core::fmt::{self, Write};
use core::ops::RangeInclusive;

/// The domain of the identities of sets.
const SET: &str = "Backstitch identity of a set of adapters, version 1";

/// The longest description of a set, in bytes.
const MAX_DESCRIPTION: usize = 240;

/// Adapters with a scale each, in the order in which they are added up; the default has none.
///
/// Adapters of scale 0 are left out: such a set has the identity and the bits of the empty one.
/// Clones share everything.
///
/// # Example
/// ```
/// use backstitch_models::adapter::AdapterSet;
///
/// let base = AdapterSet::default();
/// assert!(base.is_empty() && base.id().is_none());
/// assert_eq!(base.to_string(), "no adapters");
/// ```
#[derive(Clone, Debug, Default)]
pub struct AdapterSet(Option<Arc<Inner>>);

#[derive(Clone, Debug)]
struct Inner {
    loras: Vec<(Adapter, f32)>,
    controls: Vec<Control>,
    /// The sum of all directions of each layer, times their scales; empty without control vectors.
    directions: Vec<Option<Box<[f32]>>>,
    model: Fingerprint,
    id: Fingerprint,
}

/// A control vector as a set uses it.
#[derive(Clone, Debug)]
struct Control {
    vector: ControlVector,
    scale: f32,
    layers: RangeInclusive<usize>,
}

impl AdapterSet {
    /// The set without adapters.
    pub(crate) const EMPTY: Self = AdapterSet(None);

    /// Return the set with one more adapter; with the set as it is for scale 0.
    ///
    /// # Errors
    /// [`AdapterError::Scale`] if the scale is not finite, [`AdapterError::Model`] if the adapter
    /// was read for another model than the others.
    pub fn with(self, adapter: &Adapter, scale: f32) -> Result<Self, Error> {
        self.grown(adapter.0.model, scale, |inner| inner.loras.push((adapter.clone(), scale)))
    }

    /// Return the set with one more control vector, for some layers or for all that it has
    /// directions for; with the set as it is for scale 0.
    ///
    /// # Errors
    /// Those of [`AdapterSet::with`], and [`AdapterError::Layers`] if the range is none of layers
    /// from 1 on.
    pub fn with_control(
        self,
        vector: &ControlVector,
        scale: f32,
        layers: Option<RangeInclusive<usize>>,
    ) -> Result<Self, Error> {
        let layers = layers.unwrap_or(1..=vector.n_layer());
        let (&first, &last) = (layers.start(), layers.end());
        if first == 0 || first > last {
            return Err(AdapterError::Layers { first, last }.into());
        }
        self.grown(vector.model(), scale, |inner| {
            inner.directions.resize(inner.directions.len().max(vector.n_layer()), None);
            for layer in layers.clone().take(vector.n_layer()) {
                let (Some(direction), Some(sum)) = (vector.direction(layer), inner.directions.get_mut(layer))
                else {
                    continue;
                };
                let sum = sum.get_or_insert_with(|| alloc::vec![0.0; direction.len()].into());
                sum.iter_mut().zip(direction).for_each(|(sum, x)| *sum += x * scale);
            }
            inner.controls.push(Control { vector: vector.clone(), scale, layers });
        })
    }

    fn grown(self, model: Fingerprint, scale: f32, add: impl FnOnce(&mut Inner)) -> Result<Self, Error> {
        if !scale.is_finite() {
            return Err(AdapterError::Scale { found: scale }.into());
        }
        if let Some(wanted) = self.0.as_ref().map(|inner| inner.model).filter(|wanted| *wanted != model) {
            return Err(AdapterError::Model { found: model, wanted }.into());
        }
        if scale == 0.0 {
            return Ok(self);
        }
        let empty = || Inner {
            loras: Vec::new(),
            controls: Vec::new(),
            directions: Vec::new(),
            model,
            id: Fingerprint([0; 32]),
        };
        let mut inner = self.0.map_or_else(empty, Arc::unwrap_or_clone);
        add(&mut inner);
        inner.id = inner.identity();
        Ok(AdapterSet(Some(Arc::new(inner))))
    }

    /// Return true if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Return its identity: a hash of the contents, the scales and the order of its adapters. The
    /// empty set has none.
    pub fn id(&self) -> Option<Fingerprint> {
        self.0.as_ref().map(|inner| inner.id)
    }

    /// Return the LoRA adapters and their scales.
    pub fn loras(&self) -> &[(Adapter, f32)] {
        self.0.as_ref().map_or(&[], |inner| &inner.loras)
    }

    /// Return what is added behind a layer, if anything is.
    pub(crate) fn direction(&self, layer: usize) -> Option<&[f32]> {
        self.0.as_ref()?.directions.get(layer)?.as_deref()
    }

    /// Return the largest rank of its adapters.
    pub(crate) fn rank(&self) -> usize {
        self.loras().iter().map(|(adapter, _)| adapter.rank()).max().unwrap_or(0)
    }

    /// Return the bytes of sets and of their adapters, what they share counted once.
    pub(crate) fn bytes_of_all<'s>(sets: impl IntoIterator<Item = &'s Self>) -> u64 {
        let mut parts: BTreeMap<*const (), usize> = BTreeMap::new();
        for inner in sets.into_iter().filter_map(|set| set.0.as_ref()) {
            let floats = inner.directions.iter().flatten().map(|direction| direction.len());
            parts.insert(Arc::as_ptr(inner).cast(), 4 * floats.sum::<usize>());
            parts.extend(inner.loras.iter().map(|(lora, _)| (Arc::as_ptr(&lora.0).cast(), lora.n_bytes())));
            parts.extend(inner.controls.iter().map(|control| control.vector.place_and_bytes()));
        }
        parts.into_values().fold(0, |sum, n| sum.saturating_add(n as u64))
    }

    /// Check that its adapters were read for the model with this fingerprint.
    ///
    /// # Errors
    /// [`AdapterError::Model`].
    pub(crate) fn expect_model(&self, wanted: Fingerprint) -> Result<(), Error> {
        match self.0.as_ref().map(|inner| inner.model).filter(|found| *found != wanted) {
            Some(found) => Err(AdapterError::Model { found, wanted }.into()),
            None => Ok(()),
        }
    }

    /// Return its description, as [`Display`](fmt::Display) writes it, cut to a length that fits
    /// messages and files.
    pub(crate) fn description(&self) -> Box<str> {
        let mut text = String::new();
        let written = write!(text, "{self}");
        debug_assert!(written.is_ok(), "writing to a string");
        let end = (0..=text.len().min(MAX_DESCRIPTION)).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.into()
    }
}

impl PartialEq for AdapterSet {
    /// Compare identities.
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for AdapterSet {}

impl Inner {
    fn identity(&self) -> Fingerprint {
        let mut hasher = blake3::Hasher::new_derive_key(SET);
        hasher.update(&(self.loras.len() as u64).to_le_bytes());
        for (adapter, scale) in &self.loras {
            hasher.update(&adapter.0.hash).update(&scale.to_bits().to_le_bytes());
        }
        for Control { vector, scale, layers } in &self.controls {
            hasher.update(vector.hash()).update(&scale.to_bits().to_le_bytes());
            let last = (*layers.end()).min(vector.n_layer());
            for layer in [*layers.start(), last] {
                hasher.update(&(layer as u64).to_le_bytes());
            }
        }
        Fingerprint(*hasher.finalize().as_bytes())
    }
}

impl fmt::Display for AdapterSet {
    /// Write names and scales: "medicine x 1, law x 0.5".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(inner) = &self.0 else { return f.write_str("no adapters") };
        let loras = inner.loras.iter().map(|(adapter, scale)| (adapter.name(), *scale));
        let controls = inner.controls.iter().map(|control| (control.vector.name(), control.scale));
        for (i, (name, scale)) in loras.chain(controls).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} x {scale}", name.escape_debug())?;
        }
        Ok(())
    }
}
