//! Tensor descriptions: the rows of a file's tensor table.

use core::fmt;
use core::ops::Range;

use backstitch_core::packed::packed_bytes;
use backstitch_core::{DType, PackedType};

use crate::error::{Error, Region};

/// The most dimensions of a tensor.
pub(super) const MAX_RANK: usize = 4;

/// The dimensions of a tensor, outermost first (GGUF stores them innermost first), none of them
/// zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    rank: usize,
    dims: [usize; MAX_RANK],
}

impl Shape {
    /// Make a shape of dimensions, outermost first; `None` if there are none or more than
    /// [`MAX_RANK`].
    pub(super) fn new(outermost_first: &[usize]) -> Option<Self> {
        let rank = outermost_first.len();
        let mut dims = [1; MAX_RANK];
        dims.get_mut(..rank)?.copy_from_slice(outermost_first);
        (rank > 0).then_some(Self { rank, dims })
    }

    pub(super) fn as_slice(&self) -> &[usize] {
        self.dims.get(..self.rank).unwrap_or_default()
    }

    /// Return the rows and columns of each matrix: the last two dimensions.
    fn rows_and_cols(&self) -> (usize, usize) {
        let mut dims = self.as_slice().iter().rev().copied();
        let n_cols = dims.next().unwrap_or(1);
        (dims.next().unwrap_or(1), n_cols)
    }

    /// Return the number of bytes of a tensor of this shape; `offset` is that of its description.
    ///
    /// # Errors
    /// [`Error::ZeroDim`] for a dimension of zero, [`Error::PartialBlock`] if a row is not a whole
    /// number of blocks, [`Error::TensorTooLarge`] if the size overflows.
    pub(super) fn bytes(&self, tensor: &str, ty: TensorType, offset: u64) -> Result<usize, Error> {
        let dtype = ty.dtype;
        let tensor = || tensor.into();
        if self.as_slice().contains(&0) {
            return Err(Error::ZeroDim { tensor: tensor(), offset });
        }
        let too_large = || Error::TensorTooLarge { tensor: tensor(), offset };
        // The number of elements must fit too: users of the table multiply dimensions freely.
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

/// The version of the panel layout, one byte, in which packed matrices are read and written.
pub(super) const PACKED_VERSION: u32 = 2;

/// The high half (`BS`) of the type number of packed matrices. The low half holds the version of
/// the panel layout and the number of the original type.
const PACKED: u32 = 0x4253_0000;

/// The type of a tensor's elements, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorType {
    pub dtype: DType,
    /// The panel type that `dtype` is packed as; `None` if the data are rows.
    pub packed: Option<PackedType>,
}

impl TensorType {
    /// Return the type of a tensor in rows.
    pub const fn rows(dtype: DType) -> Self {
        Self { dtype, packed: None }
    }

    /// Return the type of a tensor in panels; `None` for types that cannot be weights.
    pub fn panels(dtype: DType) -> Option<Self> {
        Some(Self { dtype, packed: Some(PackedType::of(dtype)?) })
    }

    /// Return the type that GGUF files number `id`. `None` if this crate does not know it, or if it
    /// is packed in another version than [`PACKED_VERSION`].
    pub fn from_id(id: u32) -> Option<Self> {
        match Self::packed_version(id) {
            Some(PACKED_VERSION) => Self::panels(DType::from_gguf_id(id & 0xff)?),
            Some(_) => None,
            None => DType::from_gguf_id(id).map(Self::rows),
        }
    }

    /// Return the version of the panel layout if `id` is that of a packed tensor.
    pub const fn packed_version(id: u32) -> Option<u32> {
        if id & 0xffff_0000 == PACKED { Some(id >> 8 & 0xff) } else { None }
    }

    /// Return the number of the type in GGUF files.
    pub const fn id(self) -> u32 {
        match self.packed {
            None => self.dtype.gguf_id(),
            Some(_) => PACKED | PACKED_VERSION << 8 | self.dtype.gguf_id(),
        }
    }
}

/// A tensor of a file: name, shape, element type and data, all checked.
///
/// Dimensions are outermost first, as in most papers and in NumPy; GGUF files store them innermost
/// first. [`Gguf::tensor`](super::Gguf::tensor) and [`Gguf::tensors`](super::Gguf::tensors) make
/// it.
///
/// # Example
/// ```
/// use backstitch_models::gguf::Gguf;
///
/// let gguf = Gguf::parse(backstitch_demo::GGUF)?;
/// let norm = gguf.tensor("output_norm.weight").unwrap();
/// assert_eq!(norm.shape().len(), 1);
/// assert_eq!(norm.n_bytes(), 4 * norm.n_elements()); // norms are F32
/// assert!(norm.expect_shape(norm.shape()).is_ok());
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct TensorInfo<'a> {
    pub(super) name: &'a str,
    pub(super) shape: Shape,
    pub(super) ty: TensorType,
    pub(super) shard: usize,
    /// The byte offset of the data in its shard.
    pub(super) start: usize,
    pub(super) data: &'a [u8],
    /// The byte offset of the description in its shard, for errors.
    pub(super) described_at: u64,
}

impl<'a> TensorInfo<'a> {
    /// Return the name.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Return the dimensions, 1 to 4 of them, outermost first. None is zero, and their product does
    /// not overflow.
    pub fn shape(&self) -> &[usize] {
        self.shape.as_slice()
    }

    /// Return the type of the elements.
    pub const fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Return true if the data are panels, as `docs/packed-format.md` describes them, and not rows.
    /// Each matrix of the last two dimensions is packed on its own.
    pub const fn is_packed(&self) -> bool {
        self.ty.packed.is_some()
    }

    /// Return the number of the type in the file.
    pub const fn type_id(&self) -> u32 {
        self.ty.id()
    }

    /// Return the rows and columns of each matrix: the last two dimensions.
    pub(crate) fn rows_and_cols(&self) -> (usize, usize) {
        self.shape.rows_and_cols()
    }

    /// Return the number of elements.
    pub fn n_elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Return the number of bytes of the data.
    pub const fn n_bytes(&self) -> usize {
        self.data.len()
    }

    /// Return the index of the shard that holds the data, from 0; 0 for a model in one file.
    pub const fn shard(&self) -> usize {
        self.shard
    }

    /// Return the byte range of the data in that shard.
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start + self.data.len()
    }

    /// Check that the tensor has the shape `wanted`, outermost dimension first.
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
        Error::Duplicate { region: Region::Tensor, name: self.name.into(), offset: self.described_at }
    }
}

impl fmt::Debug for TensorInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {} at {}", self.name, self.shape(), self.dtype(), self.start)
    }
}
