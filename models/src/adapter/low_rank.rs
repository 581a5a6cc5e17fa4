//! The matrices of a LoRA adapter in memory.

use super::error::AdapterError;
use crate::error::Error;
use crate::gguf::TensorInfo;
use alloc::{sync::Arc, vec::Vec};
use backstitch_core::DType;
use backstitch_core::packed::{Line, Packed, PackedType, Source, pack, packed_bytes};
use core::ops::Range;

/// Matrices of one size in panels: one, or one an expert or head.
#[derive(Debug)]
pub(super) struct Factor {
    kind: PackedType,
    n_rows: usize,
    n_cols: usize,
    /// Bytes of one matrix.
    size: usize,
    panels: Vec<Line>,
}

impl Factor {
    /// Pack `rows` of each matrix of a tensor, whose last two dimensions are theirs.
    ///
    /// Elements of F32, F16 and BF16 stay what they are; those of block formats become F32, so that
    /// an adapter's products are of floats whatever the model's are of.
    ///
    /// # Errors
    /// [`AdapterError::NotWeights`] or [`AdapterError::NotFinite`] for contents that are no
    /// weights; [`Error::OutOfMemory`].
    pub fn load(info: &TensorInfo<'_>, data: &[u8], rows: Range<usize>) -> Result<Self, Error> {
        let not_weights = || AdapterError::NotWeights { tensor: info.name().into() };
        let dtype = info.dtype();
        if info.is_packed() || PackedType::of(dtype).is_none() {
            return Err(not_weights().into());
        }
        let floats = decoded(info, data)?;
        let (all_rows, n_cols) = info.rows_and_cols();
        let stays = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        let (dtype, data) = if stays { (dtype, data) } else { (DType::F32, bytemuck::cast_slice(&floats)) };
        let kind = PackedType::of(dtype).ok_or_else(not_weights)?;
        let row_bytes = dtype.row_bytes(n_cols).ok_or_else(not_weights)?;
        let size = packed_bytes(kind, rows.len(), n_cols)?;
        let n_matrices = info.n_elements() / (all_rows * n_cols).max(1);
        let n_lines = size.saturating_mul(n_matrices) / size_of::<Line>();
        let refused = |()| Error::OutOfMemory { what: "an adapter", n_bytes: 64 * n_lines as u64 };
        let mut panels = bytemuck::allocation::try_zeroed_vec::<Line>(n_lines).map_err(refused)?;
        let room: &mut [u8] = bytemuck::cast_slice_mut(&mut panels);
        let matrices = data.chunks_exact((row_bytes * all_rows).max(1));
        for (matrix, room) in matrices.zip(room.chunks_exact_mut(size.max(1))) {
            let matrix = matrix.get(rows.start * row_bytes..rows.end * row_bytes).ok_or_else(not_weights)?;
            pack(&Source::new(dtype, rows.len(), n_cols, matrix)?, 0, room)?;
        }
        Ok(Factor { kind, n_rows: rows.len(), n_cols, size, panels })
    }

    /// Return matrix `index`.
    ///
    /// # Errors
    /// [`Error::NoExpert`] if there is none.
    pub fn matrix(&self, index: usize) -> Result<Packed<'_>, Error> {
        let all: &[u8] = bytemuck::cast_slice(&self.panels);
        let bytes = all.get(index * self.size..(index + 1) * self.size);
        let bytes = bytes.ok_or(Error::NoExpert { expert: index })?;
        Ok(Packed::new(self.kind, self.n_rows, self.n_cols, bytes)?)
    }

    pub fn n_bytes(&self) -> usize {
        size_of_val::<[Line]>(&self.panels)
    }
}

/// Return the elements of a tensor, all of which are finite.
///
/// # Errors
/// [`AdapterError::NotFinite`], [`AdapterError::NotWeights`], [`Error::OutOfMemory`].
pub(super) fn decoded(info: &TensorInfo<'_>, data: &[u8]) -> Result<Vec<f32>, Error> {
    let n = info.n_elements();
    let refused = |()| Error::OutOfMemory { what: "an adapter", n_bytes: 4 * n as u64 };
    let mut floats = bytemuck::allocation::try_zeroed_vec::<f32>(n).map_err(refused)?;
    let not_weights = |_| AdapterError::NotWeights { tensor: info.name().into() };
    info.dtype().decode(data, &mut floats).map_err(not_weights)?;
    match floats.iter().position(|x| !x.is_finite()) {
        Some(index) => Err(AdapterError::NotFinite { name: info.name().into(), index }.into()),
        None => Ok(floats),
    }
}

/// The change of one weight of a graph: the product of two thin matrices.
#[derive(Clone, Debug)]
pub(crate) struct LowRank {
    /// From inputs to the rank; of a table of embeddings a row for each token.
    pub(super) a: Arc<Factor>,
    /// From the rank to outputs.
    pub(super) b: Arc<Factor>,
    /// The matrix of the tensor that the weight is, if the tensor is a stack and the weight one of
    /// it.
    pub(super) first: usize,
    /// True if it changes the rows of a table of embeddings, and no product.
    pub(super) is_table: bool,
    /// Columns of the second matrix.
    pub(super) rank: usize,
    /// The numerator of the factor of the change, whose denominator is the rank; 0: the factor is
    /// 1.
    pub(super) alpha: f32,
}

impl LowRank {
    /// Return both matrices that change matrix `index` of the weight.
    ///
    /// # Errors
    /// [`Error::NoExpert`] if there is none.
    pub fn matrices(&self, index: usize) -> Result<[Packed<'_>; 2], Error> {
        let index = self.first + index;
        Ok([self.a.matrix(index)?, self.b.matrix(index)?])
    }

    pub fn is_table(&self) -> bool {
        self.is_table
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Return the factor of the change at `scale`.
    pub fn factor(&self, scale: f32) -> f32 {
        if self.alpha == 0.0 { scale } else { scale * self.alpha / self.rank as f32 }
    }
}
