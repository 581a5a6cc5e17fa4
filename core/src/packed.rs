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
//! | quantised | sections: the scales of some blocks of 32 columns, then their elements |
//! | quantised in super-blocks | units: heads, then sections |
//!
//! So a kernel reads one stream. Two of them, all scales of a panel and all its elements, were read at a third of the speed on
//! processors that guess by address what to fetch.
//!
//! Of 16 rows, in a section as many blocks as `blocks` says, and for each super-block of 256 columns a head:
//!
//! | type | head | blocks | scales of a block | elements of a block |
//! |---|---|---|---|---|
//! | `Q8_0` | | 2 | `[16]` f16 | `[8][16 rows][4]` bytes: in group g, four columns from 4g; stored plus 128 |
//! | `Q4_0`, `IQ4_NL` | | 2 | `[16]` f16 | `[4][16 rows][4]` bytes: the low nibbles of group g are four columns from 4g, the high nibbles those from 16 + 4g |
//! | `MXFP4` | | 2 | `[16]` bf16: half of the power of two | the same |
//! | `Q4_1` | | 1 | `[16]` f16 and `[16]` f16 minima | the same |
//! | `Q5_0`, `Q5_1` | | as `Q4_0`, `Q4_1` | as `Q4_0`, `Q4_1` | the lower four bits as `Q4_0`, then `[16 rows][4]` bytes: bit j is the fifth bit of four columns from 4j |
//! | `Q4_K` | `[16]` f16 twice, the second turned in sign | 2 | `[16]` scales and `[16]` minima in bytes | as `Q4_0` |
//! | `Q5_K` | as `Q4_K` | 2 | as `Q4_K` | as `Q5_0` |
//! | `Q6_K` | `[16]` f16 | 2 | `[2][16]` scales in signed bytes, each of 16 columns | the lower four bits as `Q4_0`, then `[2][16 rows][4]` bytes: the bits from 2j of group g are the upper two of four columns from 8j + 4g |
//! | `Q3_K` | as `Q6_K` | 2 | as `Q6_K` | the lower two bits as the upper ones of `Q6_K`, the third as the fifth of `Q5_0` |
//! | `Q2_K` | `[16]` f16 twice | 2 | `[2][16]` bytes: scale and minimum of 16 columns in the low and high nibble | as the upper two bits of `Q6_K` |
//! | `IQ4_XS` | `[16]` f16 | 4 | `[16]` scales in signed bytes | as `Q4_0` |
//! | `TQ2_0` | `[16]` f16 | 8 | | as the upper two bits of `Q6_K` |
//!
//! The heads of a unit fill 64 bytes: where one takes 32, a unit is two super-blocks, both heads first. What the last section and
//! the last unit lack are zeros at the places of scales and heads, and nothing at those of elements. Floats are padded with zeros
//! to 64 bytes.
//!
//! Numbers are in the machine's byte order when a model is loaded. Where it is little-endian these bytes are also the content of
//! packed files: `docs/packed-format.md` has their version, which a change to this table raises.

mod blocks;
pub(crate) mod layout;
mod pack;
mod row;

pub use pack::{Source, pack};

use crate::{DType, Error};
use bytemuck::{Pod, Zeroable};
use layout::Layout;

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

/// The element types that kernels multiply by: all that hold weights.
#[expect(non_camel_case_types, reason = "these are the names people know from GGUF files")]
#[expect(missing_docs, reason = "the names of the element types, see DType")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackedType {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    TQ2_0,
}

/// What panels of a type are made of.
#[derive(Clone, Copy)]
struct Shape {
    /// Columns that share scales: a row is a whole number of these.
    group_cols: usize,
    /// Bytes of a panel of so many columns, a whole number of groups.
    panel_bytes: fn(usize) -> usize,
}

impl Shape {
    const fn of<L: Layout>() -> Self {
        Self { group_cols: L::BLOCKS * BLOCK, panel_bytes: |n_cols| layout::panel_bytes::<L>(n_cols / BLOCK) }
    }

    const fn floats<const SIZE: usize>() -> Self {
        Self { group_cols: 1, panel_bytes: |n_cols| (n_cols * PANEL * SIZE).next_multiple_of(ALIGN) }
    }
}

impl PackedType {
    /// What weights of type `dtype` are packed as; none for types that hold no weights.
    pub const fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(Self::F32),
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::BF16),
            DType::Q8_0 => Some(Self::Q8_0),
            DType::Q4_0 => Some(Self::Q4_0),
            DType::Q4_1 => Some(Self::Q4_1),
            DType::Q5_0 => Some(Self::Q5_0),
            DType::Q5_1 => Some(Self::Q5_1),
            DType::Q2_K => Some(Self::Q2_K),
            DType::Q3_K => Some(Self::Q3_K),
            DType::Q4_K => Some(Self::Q4_K),
            DType::Q5_K => Some(Self::Q5_K),
            DType::Q6_K => Some(Self::Q6_K),
            DType::IQ4_NL => Some(Self::IQ4_NL),
            DType::IQ4_XS => Some(Self::IQ4_XS),
            DType::MXFP4 => Some(Self::MXFP4),
            DType::TQ2_0 => Some(Self::TQ2_0),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 => None,
        }
    }

    /// Whether products with it take activations as 8-bit integers ([`Quantized`](crate::Quantized)) or as floats.
    pub const fn takes_quantized(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    const fn shape(self) -> Shape {
        match self {
            Self::F32 => Shape::floats::<4>(),
            Self::F16 | Self::BF16 => Shape::floats::<2>(),
            Self::Q8_0 => Shape::of::<layout::Q8_0>(),
            Self::Q4_0 => Shape::of::<layout::Q4_0>(),
            Self::Q4_1 => Shape::of::<layout::Q4_1>(),
            Self::Q5_0 => Shape::of::<layout::Q5_0>(),
            Self::Q5_1 => Shape::of::<layout::Q5_1>(),
            Self::Q2_K => Shape::of::<layout::Q2_K>(),
            Self::Q3_K => Shape::of::<layout::Q3_K>(),
            Self::Q4_K => Shape::of::<layout::Q4_K>(),
            Self::Q5_K => Shape::of::<layout::Q5_K>(),
            Self::Q6_K => Shape::of::<layout::Q6_K>(),
            Self::IQ4_NL => Shape::of::<layout::IQ4_NL>(),
            Self::IQ4_XS => Shape::of::<layout::IQ4_XS>(),
            Self::MXFP4 => Shape::of::<layout::MXFP4>(),
            Self::TQ2_0 => Shape::of::<layout::TQ2_0>(),
        }
    }

    /// Bytes of one panel of `n_cols` columns.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `n_cols` is no multiple of the columns that share scales (32, or 256 in super-blocks),
    /// [`Error::Length`] if no machine could hold the panel.
    pub fn panel_bytes(self, n_cols: usize) -> Result<usize, Error> {
        let Shape { group_cols: block, panel_bytes } = self.shape();
        if !n_cols.is_multiple_of(block) {
            return Err(Error::Ragged { what: "columns of packed weights", found: n_cols, block });
        }
        // No type takes more than 64 bytes a column.
        if n_cols > isize::MAX as usize / (2 * ALIGN) {
            let wanted = isize::MAX as usize / (2 * ALIGN);
            return Err(Error::Length { what: "columns of packed weights", found: n_cols, wanted });
        }
        Ok(panel_bytes(n_cols))
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
