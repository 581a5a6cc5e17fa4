//! One row of the tensor table.

use core::fmt;
use core::ops::Range;

use backstitch_core::packed::packed_bytes;
use backstitch_core::{DType, PackedType};

use crate::error::{Error, Place};

/// The most dimensions a tensor can have.
pub const MAX_RANK: usize = 4;

/// The dimensions of a tensor, outermost first (GGUF stores them innermost first), none of them zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    rank: usize,
    dims: [usize; MAX_RANK],
}

impl Shape {
    /// A shape from its dimensions; none if there are none or more than [`MAX_RANK`].
    pub(super) fn new(outermost_first: &[usize]) -> Option<Self> {
        let rank = outermost_first.len();
        let mut dims = [1; MAX_RANK];
        dims.get_mut(..rank)?.copy_from_slice(outermost_first);
        (rank > 0).then_some(Self { rank, dims })
    }

    pub(super) fn as_slice(&self) -> &[usize] {
        self.dims.get(..self.rank).unwrap_or_default()
    }

    /// Rows and columns of each matrix that it holds.
    fn rows_and_cols(&self) -> (usize, usize) {
        let mut dims = self.as_slice().iter().rev().copied();
        let n_cols = dims.next().unwrap_or(1);
        (dims.next().unwrap_or(1), n_cols)
    }

    /// The bytes a tensor of this shape takes, or what is wrong with it; `offset` is where it is described.
    pub(super) fn bytes(&self, tensor: &str, ty: TensorType, offset: u64) -> Result<usize, Error> {
        let dtype = ty.dtype;
        let tensor = || tensor.into();
        if self.as_slice().contains(&0) {
            return Err(Error::ZeroDim { tensor: tensor(), offset });
        }
        let too_large = || Error::TensorTooLarge { tensor: tensor(), offset };
        // The number of elements must be countable too: users of the table multiply dimensions freely.
        let elements =
            self.as_slice().iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).ok_or_else(too_large)?;
        let row = self.as_slice().last().copied().unwrap_or(1);
        if !row.is_multiple_of(dtype.block_len()) {
            let (found, wanted) = (row as u64, dtype.block_len() as u64);
            return Err(Error::PartialBlock { tensor: tensor(), offset, found, wanted });
        }
        match ty.packed {
            None => dtype.row_bytes(elements).ok_or_else(too_large),
            Some(kind) => {
                let (n_rows, n_cols) = self.rows_and_cols();
                let matrix = packed_bytes(kind, n_rows, n_cols).map_err(|_| too_large())?;
                matrix.checked_mul(elements / n_cols / n_rows).ok_or_else(too_large)
            }
        }
    }
}

/// The version of the layout of panels, a byte, that packed matrices are read and written in.
pub(super) const PACKED_VERSION: u32 = 2;

/// What stands in place of a GGUF type for matrices in panels, `BS`; their version and the number of the original type are added.
const PACKED: u32 = 0x4253_0000;

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorType {
    pub dtype: DType,
    /// In panels of this type, which is what `dtype` is packed as; none if in rows.
    pub packed: Option<PackedType>,
}

impl TensorType {
    pub const fn rows(dtype: DType) -> Self {
        Self { dtype, packed: None }
    }

    /// In panels; none for types that hold no weights.
    pub fn panels(dtype: DType) -> Option<Self> {
        Some(Self { dtype, packed: Some(PackedType::of(dtype)?) })
    }

    /// The type that GGUF files number `id`; none if this crate does not know it, or not in the version that
    /// [`TensorType::packed_version`] tells.
    pub fn from_id(id: u32) -> Option<Self> {
        match Self::packed_version(id) {
            Some(PACKED_VERSION) => Self::panels(DType::from_gguf_id(id & 0xff)?),
            Some(_) => None,
            None => DType::from_gguf_id(id).map(Self::rows),
        }
    }

    /// The version of the panels' layout, if `id` stands for panels.
    pub const fn packed_version(id: u32) -> Option<u32> {
        if id & 0xffff_0000 == PACKED { Some(id >> 8 & 0xff) } else { None }
    }

    /// Its number in GGUF files.
    pub const fn id(self) -> u32 {
        match self.packed {
            None => self.dtype.gguf_id(),
            Some(_) => PACKED | PACKED_VERSION << 8 | self.dtype.gguf_id(),
        }
    }
}

/// A tensor of a file: name, shape, element type and data, all checked.
#[derive(Clone, Copy)]
pub struct TensorInfo<'a> {
    pub(super) name: &'a str,
    pub(super) shape: Shape,
    pub(super) ty: TensorType,
    pub(super) part: usize,
    /// Where the data starts in its part.
    pub(super) start: usize,
    pub(super) data: &'a [u8],
    /// Where the description starts in its part, for errors.
    pub(super) described_at: u64,
}

impl<'a> TensorInfo<'a> {
    /// Its name.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Its dimensions, 1 to 4 of them, outermost first, none zero; their product does not overflow.
    pub fn shape(&self) -> &[usize] {
        self.shape.as_slice()
    }

    /// The type of its elements.
    pub const fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Whether it was packed: its data are panels, as `docs/packed-format.md` describes them, and no rows. Each matrix of its last two dimensions
    /// stands alone.
    pub const fn is_packed(&self) -> bool {
        self.ty.packed.is_some()
    }

    /// The number of its type in the file.
    pub const fn type_id(&self) -> u32 {
        self.ty.id()
    }

    /// Rows and columns of each matrix that it holds: its last two dimensions.
    pub(crate) fn rows_and_cols(&self) -> (usize, usize) {
        self.shape.rows_and_cols()
    }

    /// The number of its elements.
    pub fn n_elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// The number of bytes of its data.
    pub const fn n_bytes(&self) -> usize {
        self.data.len()
    }

    /// The file of a split model that holds its data, from 0; 0 for a model in one file.
    pub const fn part(&self) -> usize {
        self.part
    }

    /// Where its data lies in that file.
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start + self.data.len()
    }

    /// Checks that it has the shape `wanted`, outermost dimension first.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has another.
    pub fn expect_shape(&self, wanted: &[usize]) -> Result<(), Error> {
        if self.shape() == wanted {
            return Ok(());
        }
        let shapes = crate::error::Shapes { found: self.shape().into(), wanted: wanted.into() };
        Err(Error::Shape { tensor: self.name.into(), shapes: shapes.into() })
    }

    pub(super) fn duplicate(&self) -> Error {
        Error::Duplicate { place: Place::Tensor, name: self.name.into(), offset: self.described_at }
    }
}

impl fmt::Debug for TensorInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {} at {}", self.name, self.shape(), self.dtype(), self.start)
    }
}
