//! Weight matrices in the order in which the matmul kernels read them.
//!
//! Sixteen rows at a time make a *panel*, in which lanes are rows: a kernel loads sixteen rows' weights with one
//! instruction, walks K in order, and needs no reduction at the end. That is what makes results the same bits on
//! every instruction set and for any number of tokens.
//!
//! A panel is contiguous and takes a multiple of 64 bytes; rows that the matrix lacks are zeros. In memory order:
//!
//! | type | panel of K columns |
//! |---|---|
//! | `F32`, `F16`, `BF16` | `[K][16 rows]` elements |
//! | `Q8_0` | scales `[K/32][16 rows]` f16, then quants `[K/32][8][16 rows][4]`: in group g, four columns from 4g; stored plus 128 |
//! | `Q4_0` | scales as `Q8_0`, then `[K/32][4][16 rows][4]` bytes: the low nibbles of group g are four columns from 4g, the high nibbles those from 16 + 4g |
//! | `Q4_1` | `[K/32]` of `[16 rows]` f16 scales and `[16 rows]` f16 minima, then nibbles as `Q4_0` |
//!
//! Scales and the whole panel are padded with zeros to 64 bytes. Numbers are in the machine's byte order: packed bytes
//! are made when a model is loaded and never leave the process.

mod pack;
mod row;

pub use pack::{Source, pack};

use crate::{DType, Error};
use bytemuck::{Pod, Zeroable};

/// Rows in a panel: one a lane.
pub const PANEL: usize = 16;
/// Columns that share a scale in the quantised types.
pub const BLOCK: usize = 32;
/// Packed bytes start at a multiple of this: a cache line, and the widest load.
pub const ALIGN: usize = 64;

/// Sixty-four aligned bytes: allocate these to get memory that [`Packed`] accepts, and cast with `bytemuck`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u8; ALIGN]);

/// The element types that kernels multiply by. All other types are unpacked to `F32` panels.
#[expect(missing_docs, reason = "the names of the element types, see DType")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackedType {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
}

impl PackedType {
    /// What weights of type `dtype` are packed as; none for types that hold no weights.
    pub const fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::BF16),
            DType::Q8_0 => Some(Self::Q8_0),
            DType::Q4_0 => Some(Self::Q4_0),
            DType::Q4_1 => Some(Self::Q4_1),
            other if other.info().decode.is_some() => Some(Self::F32),
            _ => None,
        }
    }

    /// Whether products with it take activations as 8-bit integers ([`Quantized`](crate::Quantized)) or as floats.
    pub const fn takes_quantized(self) -> bool {
        matches!(self, Self::Q8_0 | Self::Q4_0 | Self::Q4_1)
    }

    /// Bytes of scales, and of elements, that 32 columns of a panel take.
    const fn block_bytes(self) -> (usize, usize) {
        match self {
            Self::F32 => (0, PANEL * BLOCK * 4),
            Self::F16 | Self::BF16 => (0, PANEL * BLOCK * 2),
            Self::Q8_0 => (PANEL * 2, PANEL * BLOCK),
            Self::Q4_0 => (PANEL * 2, PANEL * BLOCK / 2),
            Self::Q4_1 => (PANEL * 4, PANEL * BLOCK / 2),
        }
    }

    /// Where in a panel of `n_cols` columns the elements start, behind the scales.
    pub(crate) const fn scale_bytes(self, n_cols: usize) -> usize {
        (n_cols / BLOCK * self.block_bytes().0).next_multiple_of(ALIGN)
    }

    /// Bytes of one panel of `n_cols` columns.
    ///
    /// # Errors
    /// [`Error::Ragged`] if the type is quantised and `n_cols` no multiple of 32, [`Error::Length`] if no machine could
    /// hold the panel.
    pub fn panel_bytes(self, n_cols: usize) -> Result<usize, Error> {
        if self.takes_quantized() && !n_cols.is_multiple_of(BLOCK) {
            return Err(Error::Ragged { what: "columns of packed weights", found: n_cols, block: BLOCK });
        }
        // No type takes more than 64 bytes a column.
        if n_cols > isize::MAX as usize / (2 * ALIGN) {
            let wanted = isize::MAX as usize / (2 * ALIGN);
            return Err(Error::Length { what: "columns of packed weights", found: n_cols, wanted });
        }
        let elements = n_cols * self.block_bytes().1 / BLOCK;
        Ok(self.scale_bytes(n_cols) + elements.next_multiple_of(ALIGN))
    }
}

/// Bytes of a packed matrix of `n_rows` rows (outputs) and `n_cols` columns (inputs): what [`Packed::new`] takes.
///
/// # Errors
/// As [`PackedType::panel_bytes`].
pub fn packed_bytes(kind: PackedType, n_rows: usize, n_cols: usize) -> Result<usize, Error> {
    let too_many = Error::Length { what: "packed weights", found: usize::MAX, wanted: isize::MAX as usize };
    let bytes = kind.panel_bytes(n_cols)?.checked_mul(n_rows.div_ceil(PANEL)).ok_or(too_many)?;
    if bytes <= isize::MAX as usize { Ok(bytes) } else { Err(too_many) }
}

/// A packed weight matrix: `n_rows` outputs, `n_cols` inputs.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    kind: PackedType,
    n_rows: usize,
    n_cols: usize,
    panel_bytes: usize,
    data: &'a [u8],
}

impl<'a> Packed<'a> {
    /// A view of packed bytes, as [`pack`] wrote them. Any bytes are safe to multiply by.
    ///
    /// # Errors
    /// [`Error::Length`] unless `data` has the [`packed_bytes`] of this shape, [`Error::Alignment`] unless it starts at a
    /// multiple of [`ALIGN`], and as [`packed_bytes`].
    pub fn new(kind: PackedType, n_rows: usize, n_cols: usize, data: &'a [u8]) -> Result<Self, Error> {
        let wanted = packed_bytes(kind, n_rows, n_cols)?;
        if data.len() != wanted {
            return Err(Error::Length { what: "packed weights", found: data.len(), wanted });
        }
        if !data.as_ptr().addr().is_multiple_of(ALIGN) {
            return Err(Error::Alignment { what: "packed weights", wanted: ALIGN });
        }
        Ok(Self { kind, n_rows, n_cols, panel_bytes: kind.panel_bytes(n_cols)?, data })
    }

    /// The type of its elements.
    pub fn kind(&self) -> PackedType {
        self.kind
    }

    /// Rows: outputs of a product.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Columns: inputs of a product.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// All its bytes.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes of one panel.
    pub(crate) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// The bytes of the panels that hold rows `rows`, whose start is a multiple of 16; empty where there are none.
    pub(crate) fn panels(&self, rows: core::ops::Range<usize>) -> &'a [u8] {
        let (first, end) = (rows.start / PANEL, rows.end.div_ceil(PANEL));
        self.data.get(first * self.panel_bytes..end * self.panel_bytes).unwrap_or(&[])
    }

    /// Writes row `row` as floats to `y`: what decoding the row in its original type gives, bit for bit.
    ///
    /// # Errors
    /// [`Error::Length`] unless `y` has `n_cols` elements or when there is no such row; `y` is untouched then.
    pub fn decode_row(&self, row: usize, y: &mut [f32]) -> Result<(), Error> {
        if y.len() != self.n_cols {
            return Err(Error::Length { what: "decoded row", found: y.len(), wanted: self.n_cols });
        }
        if row >= self.n_rows {
            return Err(Error::Length {
                what: "rows of packed weights",
                found: self.n_rows,
                wanted: row + 1,
            });
        }
        let panel = self.panels(row / PANEL * PANEL..row + 1);
        row::decode(self.kind, panel, row % PANEL, y);
        Ok(())
    }
}
