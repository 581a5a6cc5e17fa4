//! Packing a model once and for all: a GGUF file whose matrices are in panels already, to be used where they lie.
//!
//! `docs/packed-format.md` describes the file.

use crate::arch;
use crate::cancel::{Cancel, Stoppable};
use crate::error::Error;
use crate::fingerprint::{ORIGINAL, fingerprint};
use crate::gguf::{Gguf, TensorInfo, Writer};
use crate::graph::Graph;
use crate::model::Model;
use crate::weights::{Arena, is_packable, pack_in_parallel};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use backstitch_core::packed::{Source, packed_bytes};
use backstitch_core::{PackedType, Pool};
use core::ops::Range;

// Packed numbers are in this machine's order; the format's is the lowest byte first.
const _: () = assert!(cfg!(target_endian = "little"), "packed files need a little-endian machine");

/// The matrices of a model in panels.
#[derive(Debug)]
pub struct PackedModel<'a> {
    gguf: &'a Gguf<'a>,
    /// Of each tensor where its panels lie, if it has any.
    places: Vec<Option<Range<usize>>>,
    arena: Arena,
    fingerprint: String,
}

impl<'a> PackedModel<'a> {
    /// Packs all tensors that the model uses as matrices only; `done` gets each tensor, packed or not.
    ///
    /// # Errors
    /// As `Model::open`, for models that are not known; [`Error::OutOfMemory`]; [`Error::Cancelled`] if `cancel` asks to stop.
    ///
    /// # Example
    /// ```
    /// use backstitch_core::pool::Inline;
    /// use backstitch_models::{Model, PackedModel, gguf::Gguf};
    ///
    /// let bytes = backstitch_demo::GGUF;
    /// let packed = PackedModel::new(&Gguf::parse(bytes)?, &Inline, None, |_| {})?.writer()?.to_bytes();
    /// let (model, original) = (Model::from_bytes(&packed)?, Model::from_bytes(bytes)?);
    /// assert_eq!(model.fingerprint(), original.fingerprint());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        gguf: &'a Gguf<'a>,
        pool: &dyn Pool,
        cancel: Option<&Cancel>,
        mut done: impl FnMut(&TensorInfo<'a>),
    ) -> Result<Self, Error> {
        let (_, graph) = Model::describe(gguf, arch::ALL)?;
        let mut end = 0usize;
        let mut places = Vec::new();
        for tensor in gguf.tensors() {
            let n_bytes = if wants_panels(tensor, &graph) { panel_bytes(tensor)? } else { None };
            places.push(n_bytes.map(|n| end..end.saturating_add(n)));
            end = end.saturating_add(n_bytes.unwrap_or_default());
        }
        let mut arena = Arena::new(end)?;
        let work = Stoppable::new(pool, cancel);
        for (tensor, place) in gguf.tensors().iter().zip(&places) {
            if let Some(room) = place.clone().and_then(|place| arena.bytes_mut().get_mut(place)) {
                pack_tensor(tensor, gguf.tensor_data(tensor), room, &work)?;
            }
            done(tensor);
        }
        Ok(Self { gguf, places, arena, fingerprint: fingerprint(gguf).to_string() })
    }

    /// The file, ready to be written.
    ///
    /// # Errors
    /// None that a file which was read could cause; those of [`Writer`] all the same.
    pub fn writer(&self) -> Result<Writer<'_>, Error> {
        let mut writer = Writer::new();
        // All parts of a split model become one file.
        for entry in self.gguf.metadata().iter().filter(|entry| !entry.key.starts_with("split.")) {
            writer.set(entry.key, entry.value.clone())?;
        }
        writer.set(ORIGINAL, self.fingerprint.as_str())?;
        for (tensor, place) in self.gguf.tensors().iter().zip(&self.places) {
            let (name, shape, dtype) = (tensor.name(), tensor.shape(), tensor.dtype());
            match place {
                Some(place) => writer.packed_tensor(name, shape, dtype, self.arena.get(place.clone()))?,
                None if tensor.is_packed() => {
                    writer.packed_tensor(name, shape, dtype, self.gguf.tensor_data(tensor))?
                }
                None => writer.tensor(name, shape, dtype, self.gguf.tensor_data(tensor))?,
            };
        }
        Ok(writer)
    }

    /// Tensors that were packed.
    pub fn n_packed(&self) -> usize {
        self.places.iter().flatten().count()
    }
}

/// Whether all that a model does with a tensor is to multiply by it, panel by panel.
fn wants_panels(tensor: &TensorInfo<'_>, graph: &Graph) -> bool {
    let mut uses = graph.weights().iter().filter(|weight| weight.tensor == tensor.name()).peekable();
    !tensor.is_packed() && uses.peek().is_some() && uses.all(|weight| is_packable(tensor, &weight.shape))
}

/// Bytes of a tensor's panels; none if it cannot have any.
fn panel_bytes(tensor: &TensorInfo<'_>) -> Result<Option<usize>, Error> {
    let Some(kind) = PackedType::of(tensor.dtype()) else { return Ok(None) };
    let (n_rows, n_cols) = tensor.rows_and_cols();
    let n_matrices = tensor.n_elements() / n_rows / n_cols;
    Ok(packed_bytes(kind, n_rows, n_cols)?.checked_mul(n_matrices))
}

/// Packs each matrix of a tensor.
fn pack_tensor(
    tensor: &TensorInfo<'_>,
    data: &[u8],
    room: &mut [u8],
    work: &Stoppable<'_>,
) -> Result<(), Error> {
    let (n_rows, n_cols) = tensor.rows_and_cols();
    let n_matrices = (tensor.n_elements() / n_rows / n_cols).max(1);
    let (from, to) = ((data.len() / n_matrices).max(1), (room.len() / n_matrices).max(1));
    for (from, to) in data.chunks(from).zip(room.chunks_mut(to)) {
        pack_in_parallel(&Source::new(tensor.dtype(), n_rows, n_cols, from)?, to, work)?;
    }
    Ok(())
}
