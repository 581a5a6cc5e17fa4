//! Rows as they lie in a file, and their way into panels.

use super::kind::{PackedType, packed_bytes};
use super::panel;
use crate::dtype::DType;
use crate::error::Error;
use crate::format::layout::{ALIGN, PANEL};

/// A matrix in rows, as files hold it; at any alignment.
///
/// The shape, the type and the length of the bytes have been checked against each other.
///
/// Mapped files give rows at any address; nothing is read before [`pack`] takes the rows of a
/// panel.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    dtype: DType,
    kind: PackedType,
    n_rows: usize,
    n_cols: usize,
    row_bytes: usize,
    panel_bytes: usize,
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    /// Return a view of `n_rows` rows of `n_cols` elements of type `dtype`, one after the other.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for types that hold no weights, [`Error::Ragged`] if rows are no
    /// whole blocks, [`Error::Length`] if `bytes` is not of that shape or no machine could hold the
    /// panels.
    pub fn new(dtype: DType, n_rows: usize, n_cols: usize, bytes: &'a [u8]) -> Result<Self, Error> {
        let kind = PackedType::of(dtype).ok_or(Error::Unsupported { op: "packing", dtype: dtype.name() })?;
        let ragged = Error::Ragged { what: "columns of weights", found: n_cols, block: dtype.block_len() };
        let row_bytes = dtype.row_bytes(n_cols).ok_or(ragged)?;
        let wanted = row_bytes.saturating_mul(n_rows);
        if bytes.len() != wanted {
            return Err(Error::Length { what: "weights", found: bytes.len(), wanted });
        }
        packed_bytes(kind, n_rows, n_cols)?;
        let panel_bytes = kind.panel_bytes(n_cols)?;
        Ok(Self { dtype, kind, n_rows, n_cols, row_bytes, panel_bytes, bytes })
    }

    /// Return the type that it is packed as.
    pub fn kind(&self) -> PackedType {
        self.kind
    }

    /// Return the bytes of one panel.
    pub fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// Return the number of panels.
    pub fn n_panels(&self) -> usize {
        self.n_rows.div_ceil(PANEL)
    }

    /// Return the rows of panel `panel`; rows that the matrix lacks are empty.
    fn rows(&self, panel: usize) -> [&'a [u8]; PANEL] {
        core::array::from_fn(|i| match panel * PANEL + i {
            row if row < self.n_rows => &self.bytes[row * self.row_bytes..][..self.row_bytes],
            _ => &[],
        })
    }
}

/// Write the panels from `first_panel` on to `out`, as many as it has room for.
///
/// Several callers can pack a matrix at once, each its own part. Allocates nothing.
///
/// # Errors
/// [`Error::Ragged`] if `out` is not a whole number of panels, [`Error::Length`] if that is more
/// than there are left, [`Error::Alignment`] unless it starts at a multiple of [`ALIGN`].
pub fn pack(source: &Source<'_>, first_panel: usize, out: &mut [u8]) -> Result<(), Error> {
    let size = source.panel_bytes();
    if out.is_empty() {
        return Ok(());
    }
    if size == 0 || !out.len().is_multiple_of(size) {
        return Err(Error::Ragged { what: "room for packed weights", found: out.len(), block: size });
    }
    let n_left = source.n_panels().saturating_sub(first_panel);
    if out.len() / size > n_left {
        return Err(Error::Length {
            what: "room for packed weights",
            found: out.len(),
            wanted: n_left * size,
        });
    }
    if !out.as_ptr().addr().is_multiple_of(ALIGN) {
        return Err(Error::Alignment { what: "room for packed weights", wanted: ALIGN });
    }
    for (i, out) in out.chunks_exact_mut(size).enumerate() {
        panel::pack(source.dtype, &source.rows(first_panel + i), source.n_cols, out);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::{Line, Packed, packed_bytes};
    use backstitch_testing::{Random, assert_bits};

    fn types() -> impl Iterator<Item = DType> {
        DType::table().iter().map(|info| info.dtype).filter(|dtype| PackedType::of(*dtype).is_some())
    }

    fn encoded(dtype: DType, n_rows: usize, n_cols: usize) -> Vec<u8> {
        let mut bytes = vec![0; dtype.row_bytes(n_cols).unwrap() * n_rows];
        let floats = Random::new(n_cols as u64).floats(n_rows * n_cols);
        dtype.encode_important(&floats, &vec![1.0; n_cols], &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_row_read_back_is_the_row_decoded() {
        for dtype in types() {
            for (n_rows, cols) in [(1, 1), (16, 2), (17, 3), (40, 4)] {
                let n_cols = cols * dtype.block_len().max(if n_rows == 40 { 11 } else { 1 });
                let n_cols = n_cols.next_multiple_of(dtype.block_len());
                let bytes = encoded(dtype, n_rows, n_cols);
                let source = Source::new(dtype, n_rows, n_cols, &bytes).unwrap();
                let size = packed_bytes(source.kind(), n_rows, n_cols).unwrap();
                let mut lines = vec![Line([0xaa; 64]); size / 64];
                let out = bytemuck::cast_slice_mut(&mut lines);
                // In two parts, as two threads would.
                let (a, b) = out.split_at_mut(source.n_panels() / 2 * source.panel_bytes());
                pack(&source, 0, a).unwrap();
                pack(&source, source.n_panels() / 2, b).unwrap();
                let packed = Packed::new(source.kind(), n_rows, n_cols, out).unwrap();
                for (row, bytes) in bytes.chunks(dtype.row_bytes(n_cols).unwrap()).enumerate() {
                    let (mut got, mut wanted) = (vec![0.0; n_cols], vec![0.0; n_cols]);
                    packed.decode_row(row, &mut got).unwrap();
                    dtype.decode(bytes, &mut wanted).unwrap();
                    assert_bits(format_args!("{dtype} {n_rows}x{n_cols} row {row}"), &got, &wanted);
                }
                assert!(packed.decode_row(n_rows, &mut vec![0.0; n_cols]).is_err());
                assert!(packed.decode_row(0, &mut vec![0.0; n_cols + 1]).is_err());
            }
        }
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let bytes = encoded(DType::Q8_0, 20, 64);
        assert!(matches!(Source::new(DType::I32, 1, 1, &[0; 4]), Err(Error::Unsupported { .. })));
        assert!(matches!(Source::new(DType::Q8_0, 20, 63, &bytes), Err(Error::Ragged { .. })));
        assert!(matches!(Source::new(DType::Q8_0, 21, 64, &bytes), Err(Error::Length { .. })));
        assert!(matches!(
            Source::new(DType::F32, usize::MAX, usize::MAX, &bytes),
            Err(Error::Ragged { .. } | Error::Length { .. })
        ));
        let source = Source::new(DType::Q8_0, 20, 64, &bytes).unwrap();
        let mut lines = vec![Line([0; 64]); 3 * source.panel_bytes() / 64 + 1];
        let out = bytemuck::cast_slice_mut(&mut lines);
        let misaligned = &mut out[1..=source.panel_bytes()];
        assert!(matches!(pack(&source, 0, misaligned), Err(Error::Alignment { .. })));
        let out = &mut out[..3 * source.panel_bytes()];
        assert!(matches!(pack(&source, 0, out), Err(Error::Length { .. })));
        assert!(matches!(pack(&source, 2, &mut out[..source.panel_bytes()]), Err(Error::Length { .. })));
        assert!(matches!(pack(&source, 0, &mut out[1..]), Err(Error::Ragged { .. })));
        assert_eq!(pack(&source, 9, &mut []), Ok(()));
    }

    #[test]
    fn views_check_size_and_alignment() {
        let size = packed_bytes(PackedType::Q4_0, 17, 32).unwrap();
        let lines = vec![Line([0; 64]); size / 64 + 1];
        let bytes = bytemuck::cast_slice(&lines);
        assert!(Packed::new(PackedType::Q4_0, 17, 32, &bytes[..size]).is_ok());
        assert!(matches!(Packed::new(PackedType::Q4_0, 17, 32, bytes), Err(Error::Length { .. })));
        assert!(matches!(
            Packed::new(PackedType::Q4_0, 17, 32, &bytes[4..size + 4]),
            Err(Error::Alignment { .. })
        ));
        assert!(matches!(Packed::new(PackedType::Q4_0, 17, 33, bytes), Err(Error::Ragged { .. })));
        assert!(packed_bytes(PackedType::F32, usize::MAX, 1 << 20).is_err());
        assert!(packed_bytes(PackedType::F32, 1, usize::MAX).is_err());
    }
}
