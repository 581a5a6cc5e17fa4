//! Weight matrices in the order in which the matmul kernels read them.
//!
//! Sixteen rows at a time make a *panel*, in which lanes are rows: a kernel loads the weights of
//! sixteen rows with one instruction, walks along K in order, and needs no reduction at the end. A
//! sum is never spread over lanes, so results are the same bits on every instruction set and for
//! any number of tokens. Other engines store rows as they are and let lanes be columns; they save
//! the packing and pay with sums whose order depends on the width of a register.
//!
//! ```text
//! lane:     0        1        2       ...   15
//! K = 0   w[0][0]  w[1][0]  w[2][0]   ...  w[15][0]     one vector
//! K = 1   w[0][1]  w[1][1]  w[2][1]   ...  w[15][1]     the next
//! ```
//!
//! A panel is contiguous and takes a multiple of 64 bytes; rows that the matrix lacks are zeros. In
//! memory order:
//!
//! | type | panel of K columns |
//! |---|---|
//! | `F32`, `F16`, `BF16` | `[K][16 rows]` elements |
//! | quantised | sections: the scales of some blocks of 32 columns, then their elements |
//! | quantised in super-blocks | units: heads, then sections |
//!
//! So a kernel reads one stream. Two of them, all scales of a panel and all its elements, were read
//! at a third of the speed on processors that guess by address what to fetch.
//!
//! The table gives, for 16 rows, the head of a super-block of 256 columns, the blocks in a section,
//! and the scales and elements of a block. *Fours*, *ones* and *twos* are planes of 4, 1 and 2 bits
//! an element, described below it.
//!
//! | type | head | blocks | scales of a block | elements of a block |
//! |---|---|---|---|---|
//! | `Q8_0` | | 2 | `[16]` f16 | `[8][16 rows][4]` bytes, stored plus 128 |
//! | `Q4_0`, `IQ4_NL` | | 2 | `[16]` f16 | fours |
//! | `MXFP4` | | 2 | `[16]` bf16: half of the power of two | fours |
//! | `Q4_1` | | 1 | `[16]` f16 and `[16]` f16 minima | fours |
//! | `Q5_0` | | 2 | `[16]` f16 | fours, then ones |
//! | `Q5_1` | | 1 | as `Q4_1` | fours, then ones |
//! | `Q4_K` | `[16]` f16 twice, see below | 2 | `[16]` scales, `[16]` minima: bytes | fours |
//! | `Q5_K` | as `Q4_K` | 2 | as `Q4_K` | fours, then ones |
//! | `Q6_K` | `[16]` f16 | 2 | `[2][16]` signed bytes, each for 16 columns | fours, then twos |
//! | `Q3_K` | `[16]` f16 | 2 | as `Q6_K` | twos, then ones |
//! | `Q2_K` | `[16]` f16 twice | 2 | `[2][16]` bytes, see below | twos |
//! | `IQ4_XS` | `[16]` f16 | 4 | `[16]` signed bytes | fours |
//! | `IQ3_XXS`, `IQ3_S` | `[16]` f16 | 2 | as `Q6_K` | fours: codes, see below |
//! | `IQ2_S`, `IQ1_M` | `[16]` f16 | 2 | as `Q6_K` | twos, then ones: codes |
//! | `NVFP4` | | 1 | `[2][16]` f16: half of the scales of 16 columns | fours |
//! | `TQ2_0` | `[16]` f16 | 8 | | twos |
//! | `Q2_0` | `[16]` f16 for 64 columns | 2 | | twos |
//!
//! `IQ2_XXS` and `IQ2_XS` are packed like `IQ2_S`, `IQ1_S` like `IQ1_M`, `TQ1_0` like `TQ2_0` and
//! `Q1_0` like `Q2_0`: their elements have the same values.
//!
//! - Bytes of `Q8_0`: group g holds four columns from 4g.
//! - Fours, `[4][16 rows][4]` bytes: the low nibbles of group g are four columns from 4g, the high
//!   nibbles those from 16 + 4g.
//! - Twos, `[2][16 rows][4]` bytes: the bits from 2j of group g are four columns from 8j + 4g.
//! - Ones, `[16 rows][4]` bytes: bit j is four columns from 4j.
//! - Codes choose from the values in the type's file under `block/`.
//! - Heads of `Q4_K`: `d`, then `dmin` turned in sign, since kernels add minima.
//! - Scales of `Q2_K`: scale and minimum of 16 columns in the low and the high nibble.
//!
//! The heads of a unit fill 64 bytes: where one takes 32, a unit is two super-blocks, both heads
//! first. The last section and the last unit have zeros in the places of scales and heads that they
//! lack, and nothing in those of elements. Floats are padded with zeros to 64 bytes.
//!
//! Numbers begin with their lowest byte. These bytes are also the content of packed files:
//! `docs/packed-format.md` has their version, which a change to this table raises.

mod kind;
mod pack;
mod panel;
mod row;

pub use crate::format::layout::{ALIGN, BLOCK, PANEL};
pub use kind::{PackedType, packed_bytes};
pub use pack::{Source, pack};

use crate::error::Error;
use bytemuck::{Pod, Zeroable};

/// Sixty-four aligned bytes: allocate these to get memory that [`Packed`] accepts, and cast with
/// `bytemuck`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u8; ALIGN]);

/// A packed weight matrix: `n_rows` outputs, `n_cols` inputs.
///
/// A view of bytes that [`pack`] wrote, or that a packed file holds. The bytes always have the size
/// and the alignment that the kernels rely on; their content may be anything.
///
/// ```
/// use backstitch_core::packed::{Line, Packed, Source, pack, packed_bytes};
/// use backstitch_core::DType;
///
/// let rows: Vec<u8> = (0..32 * 64).flat_map(|i: i32| (i as f32).to_le_bytes()).collect();
/// let source = Source::new(DType::F32, 32, 64, &rows)?;
/// let n_bytes = packed_bytes(source.kind(), 32, 64)?;
/// let mut lines = vec![Line([0; 64]); n_bytes / 64];
/// pack(&source, 0, bytemuck::cast_slice_mut(&mut lines))?;
///
/// let packed = Packed::new(source.kind(), 32, 64, bytemuck::cast_slice(&lines))?;
/// let mut row = [0.0; 64];
/// packed.decode_row(5, &mut row)?;
/// assert_eq!(row[3], (5 * 64 + 3) as f32);
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    kind: PackedType,
    n_rows: usize,
    n_cols: usize,
    panel_bytes: usize,
    data: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Return a view of packed bytes, as [`pack`] wrote them. Any bytes are safe to multiply by.
    ///
    /// # Errors
    /// [`Error::Length`] unless `data` has the [`packed_bytes`] of this shape, [`Error::Alignment`]
    /// unless it starts at a multiple of [`ALIGN`], and as [`packed_bytes`].
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

    /// Return the type of its elements.
    pub fn kind(&self) -> PackedType {
        self.kind
    }

    /// Return the number of rows: outputs of a product.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Return the number of columns: inputs of a product.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Return all bytes.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Return the bytes of one panel.
    pub(crate) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// Return the bytes of the panels that hold rows `rows`, whose start is a multiple of 16; empty
    /// where there are none.
    pub(crate) fn panels(&self, rows: core::ops::Range<usize>) -> &'a [u8] {
        if rows.is_empty() {
            return &[];
        }
        let (first, end) = (rows.start / PANEL, rows.end.div_ceil(PANEL));
        &self.data[first * self.panel_bytes..end * self.panel_bytes]
    }

    /// Write row `row` as floats to `y`: what decoding the row in its original type gives, bit for
    /// bit.
    ///
    /// # Errors
    /// [`Error::Length`] unless `y` has `n_cols` elements or when there is no such row; `y` is
    /// untouched then.
    pub fn decode_row(&self, row: usize, y: &mut [f32]) -> Result<(), Error> {
        if y.len() != self.n_cols {
            return Err(Error::Length { what: "decoded row", found: y.len(), wanted: self.n_cols });
        }
        if row >= self.n_rows {
            return Err(Error::Length {
                what: "rows of packed weights",
                found: self.n_rows,
                wanted: row.saturating_add(1),
            });
        }
        let panel = self.panels(row / PANEL * PANEL..row + 1);
        row::decode(self.kind, panel, row % PANEL, y);
        Ok(())
    }
}
