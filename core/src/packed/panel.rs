//! One panel from the rows of a file.
//!
//! Packing is a transposition: a row of a file becomes a lane of a panel. Rows are taken a block
//! (or a few columns) at a time, so that the lines of the panel that they are scattered to stay in
//! the nearest cache until all sixteen rows have written to them.

use super::kind::match_format_of;
use crate::block::every_type;
use crate::dtype::DType;
use crate::format::Format;
use crate::format::layout::{self, BLOCK, PANEL};
use bytemuck::Pod;

/// Pack sixteen rows of `n_cols` columns, each whole or empty, into the panel `out`.
///
/// Reads each source byte once, in order within a row.
pub(super) fn pack(dtype: DType, rows: &[&[u8]; PANEL], n_cols: usize, out: &mut [u8]) {
    match_format_of!(dtype, {
        DType::F32 => floats(rows, n_cols, out, |w| u32::from_le_bytes(*w)),
        DType::F16 | DType::BF16 => floats(rows, n_cols, out, |w| u16::from_le_bytes(*w)),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 => {}
    }, Q => blocks::<Q>(rows, n_cols, out));
}

/// Pack rows of blocks, a file's block at a time.
///
/// All rows of a panel write their first super-block before any writes its second.
fn blocks<Q: Format>(rows: &[&[u8]; PANEL], n_cols: usize, out: &mut [u8]) {
    let n_blocks = n_cols / BLOCK;
    let is_full = n_blocks.is_multiple_of(Q::SECTION.max(Q::HEADS * Q::BLOCKS));
    if rows[PANEL - 1].is_empty() || !is_full {
        out.fill(0);
    }
    for first in (0..n_blocks).step_by(Q::FILE_BLOCKS) {
        for (lane, row) in rows.iter().enumerate() {
            // A row that the matrix lacks is empty; its lane stays zero.
            let Some(bytes) = row.chunks_exact(size_of::<Q::Block>()).nth(first / Q::FILE_BLOCKS) else {
                continue;
            };
            // All fields are bytes, so blocks may lie at any address.
            let block: &Q::Block = bytemuck::from_bytes(bytes);
            for j in 0..Q::FILE_BLOCKS {
                let written = layout::write_block::<Q>(out, first + j, |head, scales, quants| {
                    if j % Q::BLOCKS == 0 {
                        Q::pack_head(block, lane, head);
                    }
                    Q::pack(block, j, lane, scales, quants);
                });
                debug_assert!(written.is_some(), "a panel has room for all its blocks");
            }
        }
    }
}

/// Columns that are packed together: the part of the panel that they are scattered to stays in the
/// nearest cache.
const CHUNK: usize = 64;

/// Pack rows of plain elements of `SIZE` bytes, column by column.
///
/// Chunks of columns at a time, all rows of a chunk before the next chunk.
fn floats<T: Pod, const SIZE: usize>(
    rows: &[&[u8]; PANEL],
    n_cols: usize,
    out: &mut [u8],
    read: impl Fn(&[u8; SIZE]) -> T,
) {
    if rows[PANEL - 1].is_empty() {
        out.fill(0);
    }
    let (out, padding) = out.split_at_mut(n_cols * PANEL * SIZE);
    padding.fill(0);
    for (i, out) in bytemuck::cast_slice_mut(out).chunks_mut(CHUNK * PANEL).enumerate() {
        for (lane, row) in rows.iter().enumerate() {
            let elements = row.as_chunks().0;
            for (w, column) in elements.iter().skip(i * CHUNK).zip(out.chunks_exact_mut(PANEL)) {
                column[lane] = read(w);
            }
        }
    }
}
