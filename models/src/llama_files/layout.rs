//! Knowledge about a model that its files do not hold.

use super::Error;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_kv::snapshot::{Group, Sees, Shape};

/// Places of the parts of a model's memory in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The architecture's name, as sessions state it.
    pub architecture: String,
    /// The shape that the layers keep. The types of cells are those of a file that holds none;
    /// otherwise the file's own count.
    pub shape: Shape,
    /// The caches in the order of the file: which group of the shape each holds. `None`: one of no
    /// layers, of which a file nevertheless lists the cells.
    pub caches: Vec<Option<usize>>,
    /// The recurrent layers, if there are any.
    pub recurrent: Option<Recurrent>,
    /// True if positions have axes: cells then have two more coordinates, and their token.
    pub axes: bool,
}

/// Places of recurrent states in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// All layers of the model, recurrent or not.
    pub n_layer: u32,
    /// For each recurrent layer of the shape, for each of its pieces.
    pub pieces: Vec<Vec<Piece>>,
}

/// Place of a piece of a state. Pieces of one row follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The row of the layer that holds it.
    pub row: Row,
    /// Order of its numbers there.
    pub order: Order,
}

/// A row of numbers that a file has for each recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// R: inputs that convolutions and token shifts carry.
    R,
    /// S: states that scans carry.
    S,
}

/// Order of a piece's numbers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They are the same.
    Same,
    /// Ours is a list of matrices `[rows, cols]`, the last maybe narrower, each of which the file
    /// has as `[cols, rows]`.
    Transposed {
        /// Rows of ours.
        rows: usize,
        /// Columns of ours.
        cols: usize,
    },
}

impl Order {
    fn fits(self, len: usize) -> bool {
        match self {
            Order::Same => true,
            Order::Transposed { rows, cols } => {
                rows > 0 && cols > 0 && rows.checked_mul(cols).is_some() && len.is_multiple_of(rows)
            }
        }
    }
}

impl Layout {
    /// Check that the parts fit each other.
    ///
    /// # Errors
    /// [`Error::Layout`], and [`Error::Unsupported`] for a memory that llama.cpp keeps in no file.
    pub(super) fn check(&self) -> Result<(), Error> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(Error::Layout { what }) };
        if self.caches.is_empty() && self.recurrent.is_none() {
            return Err(Error::Unsupported { what: "models that keep nothing" });
        }
        ensure(self.caches.len() <= usize::from(u8::MAX), "caches")?;
        let mut seen = vec![false; self.shape.groups.len()];
        for &group in self.caches.iter().flatten() {
            let slot = seen.get_mut(group).filter(|seen| !**seen);
            *slot.ok_or(Error::Layout { what: "caches and groups" })? = true;
        }
        ensure(!seen.contains(&false), "caches and groups")?;
        self.shape.groups.iter().try_for_each(check_group)?;
        let pieces = self.recurrent.as_ref().map_or(&[][..], |recurrent| &recurrent.pieces);
        ensure(pieces.len() == self.shape.recurrent.len(), "recurrent layers")?;
        ensure(self.recurrent.as_ref().is_none_or(|r| !r.pieces.is_empty()), "recurrent layers")?;
        for (pieces, layer) in pieces.iter().zip(&self.shape.recurrent) {
            ensure(pieces.len() == layer.parts.len(), "pieces of states")?;
            let fits = pieces.iter().zip(&layer.parts).all(|(piece, part)| {
                piece.order.fits(part.len) && part.len as u64 <= u64::from(u32::MAX) / 4
            });
            ensure(fits, "pieces of states")?;
        }
        Ok(())
    }

    /// Numbers of a row of the recurrent layer `index` of the shape.
    pub(super) fn row_len(&self, index: usize, row: Row) -> u64 {
        self.pieces(index).filter(|(piece, _)| piece.row == row).map(|(_, len)| len as u64).sum()
    }

    /// Return the pieces of the recurrent layer `index` of the shape, with their lengths.
    pub(super) fn pieces(&self, index: usize) -> impl Iterator<Item = (Piece, usize)> + '_ {
        let pieces = self.recurrent.iter().filter_map(move |recurrent| recurrent.pieces.get(index));
        let parts = self.shape.recurrent.get(index).map_or(&[][..], |layer| &layer.parts);
        pieces.flatten().copied().zip(parts.iter().map(|part| part.len))
    }
}

/// Check that llama.cpp keeps cells of such layers in files.
pub(super) fn check_group(group: &Group) -> Result<(), Error> {
    if group.sees == Sees::EncoderOutput {
        return Err(Error::Unsupported { what: "encoder-decoders" });
    }
    if group.k_type.unit() > 1 || group.v_type.unit() > 1 {
        return Err(Error::Unsupported { what: "quantised caches" });
    }
    for layer in &group.layers {
        let width = u64::from(layer.n_head_kv) * (u64::from(layer.d_k) + u64::from(layer.d_v));
        if !(1..=u64::from(u32::MAX) / 1024).contains(&width) {
            return Err(Error::Layout { what: "sizes of keys and values" });
        }
    }
    Ok(())
}

/// Return the number that stands for a type in files; other numbers are types that no memory here
/// keeps.
pub(super) fn type_number(kind: CellType) -> u32 {
    match kind {
        CellType::F32 => 0,
        CellType::F16 => 1,
        CellType::BF16 => 30,
        CellType::Q8_0 => 8,
        CellType::Q4_0 => 2,
        // Of a type that came later nothing is known here; no reader takes this number.
        _ => u32::MAX,
    }
}

/// Return the type with a number, of those that can be read.
pub(super) fn type_of(number: u32) -> Option<CellType> {
    [CellType::F32, CellType::F16, CellType::BF16].into_iter().find(|&kind| type_number(kind) == number)
}
