//! Packing a model once and for all: a GGUF file whose matrices are in panels already, so that
//! loading it only maps it.
//!
//! `docs/packed-format.md` describes the file.

use crate::arch;
use crate::cancel::{Cancel, Stoppable};
use crate::error::Error;
use crate::fingerprint::{ORIGINAL, fingerprint};
use crate::gguf::{Gguf, TensorInfo, Writer};
use crate::graph::Graph;
use crate::model::Model;
use crate::weights::{arena, is_packable, pack_in_parallel};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use backstitch_core::packed::{Source, packed_bytes};
use backstitch_core::{PackedType, Pool};
use backstitch_kv::arena::Arena;
use core::ops::Range;

/// The matrices of a model in panels, ready to be written as a packed file.
///
/// A tensor is packed if the model uses it as a matrix alone. All other tensors and the metadata
/// are taken over as they are; the file also bears the fingerprint of the one that it was packed
/// from.
///
/// # Example
/// ```
/// use backstitch_core::pool::Inline;
/// use backstitch_models::{Model, PackedModel, gguf::Gguf};
///
/// let gguf = Gguf::parse(backstitch_demo::GGUF)?;
/// let packed = PackedModel::new(&gguf, &Inline, None, |_| {})?.writer()?.to_bytes();
/// let original = Model::from_bytes(backstitch_demo::GGUF)?;
/// assert_eq!(Model::from_bytes(&packed)?.fingerprint(), original.fingerprint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PackedModel<'a> {
    gguf: &'a Gguf<'a>,
    /// For each tensor the place of its panels in the arena, if it is packed.
    places: Vec<Option<Range<usize>>>,
    arena: Arena,
    fingerprint: String,
}

impl<'a> PackedModel<'a> {
    /// Pack all tensors that the model uses as matrices alone; `done` gets each tensor, packed or
    /// not.
    ///
    /// # Errors
    /// Those of `Model::describe`; [`Error::NotWeights`] if a tensor cannot be packed;
    /// [`Error::OutOfMemory`]; [`Error::Cancelled`] if `cancel` asks to stop.
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
            let place = n_bytes.map(|n| end..end.saturating_add(n));
            end = place.as_ref().map_or(end, |place| place.end);
            places.push(place);
        }
        let mut arena = arena(end)?;
        let work = Stoppable::new(pool, cancel);
        for (tensor, place) in gguf.tensors().iter().zip(&places) {
            if let Some(room) = place.clone().and_then(|place| arena.bytes_mut().get_mut(place)) {
                pack_tensor(tensor, gguf.tensor_data(tensor), room, &work)?;
            }
            done(tensor);
        }
        Ok(Self { gguf, places, arena, fingerprint: fingerprint(gguf).to_string() })
    }

    /// Return the file, ready to be written.
    ///
    /// # Errors
    /// Those of [`Writer`]; a file that was read causes none.
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
                Some(place) => {
                    let refused =
                        || Error::TensorBytes { tensor: name.into(), found: 0, wanted: place.len() as u64 };
                    let panels = self.arena.bytes().get(place.clone()).ok_or_else(refused)?;
                    writer.packed_tensor(name, shape, dtype, panels)?
                }
                None if tensor.is_packed() => {
                    writer.packed_tensor(name, shape, dtype, self.gguf.tensor_data(tensor))?
                }
                None => writer.tensor(name, shape, dtype, self.gguf.tensor_data(tensor))?,
            };
        }
        Ok(writer)
    }

    /// Return the number of tensors that were packed.
    pub fn n_packed(&self) -> usize {
        self.places.iter().flatten().count()
    }
}

/// Return true if a model only multiplies by a tensor, panel by panel.
fn wants_panels(tensor: &TensorInfo<'_>, graph: &Graph) -> bool {
    let mut uses = graph.weights().iter().filter(|weight| weight.tensor == tensor.name()).peekable();
    !tensor.is_packed() && uses.peek().is_some() && uses.all(|weight| is_packable(tensor, &weight.shape))
}

/// Return the bytes of a tensor's panels; none if it cannot have any.
fn panel_bytes(tensor: &TensorInfo<'_>) -> Result<Option<usize>, Error> {
    let Some(kind) = PackedType::of(tensor.dtype()) else { return Ok(None) };
    let (n_rows, n_cols) = tensor.rows_and_cols();
    let n_matrices = tensor.n_elements() / n_rows / n_cols;
    Ok(packed_bytes(kind, n_rows, n_cols)?.checked_mul(n_matrices))
}

/// Pack each matrix of a tensor.
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
