//! Keys and values of one cell: floats to stored elements and back, and stored elements moved.
//!
//! These are the slow and plain ways, element by element, for single tokens, K-shifts and files.
//! Whole batches are stored by [`crate::attention::store`].

use super::layout::CellLayout;
use super::quantised::Order;
use super::types::{BLOCK_CELLS, CellType};
use crate::block::{q4_0, q8_0};
use half::{bf16, f16};

impl CellLayout {
    /// Store one token's keys `[n_head_kv, d_k]` into `cell` of a block's bytes
    /// ([`CellBlocksMut::get_mut`](super::CellBlocksMut::get_mut)), rounded to nearest even.
    ///
    /// The caller passes `block_bytes` bytes, `n_head_kv * d_k` keys and a cell below 32.
    pub fn store_k(&self, block: &mut [u8], cell: usize, row: &[f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_k);
        for (head, row) in row.chunks_exact(self.d_k.max(1)).enumerate() {
            let part = &mut block[self.k_range(head)];
            match self.k_type {
                CellType::F32 => scatter::<f32, 4>(part, cell, row),
                CellType::F16 => scatter::<f16, 2>(part, cell, row),
                CellType::BF16 => scatter::<bf16, 2>(part, cell, row),
                CellType::Q8_0 => Order::Keys.encode::<q8_0::Block>(part, cell, row),
                CellType::Q4_0 => Order::Keys.encode::<q4_0::Block>(part, cell, row),
            }
        }
    }

    /// Store one token's values `[n_head_kv, d_v]` into `cell` of a block's bytes, rounded to
    /// nearest even; the counterpart of [`CellLayout::store_k`].
    pub fn store_v(&self, block: &mut [u8], cell: usize, row: &[f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_v);
        for (head, row) in row.chunks_exact(self.d_v.max(1)).enumerate() {
            let part = &mut block[self.v_range(head)];
            match self.v_type {
                CellType::F32 => write_row::<f32, 4>(part, cell, row),
                CellType::F16 => write_row::<f16, 2>(part, cell, row),
                CellType::BF16 => write_row::<bf16, 2>(part, cell, row),
                CellType::Q8_0 => Order::Values.encode::<q8_0::Block>(part, cell, row),
                CellType::Q4_0 => Order::Values.encode::<q4_0::Block>(part, cell, row),
            }
        }
    }

    /// Read the keys `[n_head_kv, d_k]` of `cell` back from a block's bytes.
    pub fn load_k(&self, block: &[u8], cell: usize, row: &mut [f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_k);
        for (head, row) in row.chunks_exact_mut(self.d_k.max(1)).enumerate() {
            let part = &block[self.k_range(head)];
            match self.k_type {
                CellType::F32 => gather::<f32, 4>(part, cell, row),
                CellType::F16 => gather::<f16, 2>(part, cell, row),
                CellType::BF16 => gather::<bf16, 2>(part, cell, row),
                CellType::Q8_0 => Order::Keys.decode::<q8_0::Block>(part, cell, row),
                CellType::Q4_0 => Order::Keys.decode::<q4_0::Block>(part, cell, row),
            }
        }
    }

    /// Read the values `[n_head_kv, d_v]` of `cell` back from a block's bytes.
    pub fn load_v(&self, block: &[u8], cell: usize, row: &mut [f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_v);
        for (head, row) in row.chunks_exact_mut(self.d_v.max(1)).enumerate() {
            let part = &block[self.v_range(head)];
            match self.v_type {
                CellType::F32 => read_row::<f32, 4>(part, cell, row),
                CellType::F16 => read_row::<f16, 2>(part, cell, row),
                CellType::BF16 => read_row::<bf16, 2>(part, cell, row),
                CellType::Q8_0 => Order::Values.decode::<q8_0::Block>(part, cell, row),
                CellType::Q4_0 => Order::Values.decode::<q4_0::Block>(part, cell, row),
            }
        }
    }
}

/// Cells apart from their block, bit for bit: the form in which they are moved and saved.
impl CellLayout {
    /// Copy `cell` out of a block's bytes: its keys, then its values; rows of quantised elements
    /// become GGUF's blocks.
    ///
    /// The caller passes `block_bytes` bytes, a cell below 32, and `cell_bytes` bytes.
    pub fn take_cell(&self, block: &[u8], cell: usize, out: &mut [u8]) {
        debug_assert!(out.len() == self.cell_bytes());
        let (keys, values) = out.split_at_mut(self.cell_k_bytes());
        self.take_keys(block, cell, keys);
        self.take_values(block, cell, values);
    }

    /// Copy the keys of `cell` out of a block's bytes, as [`CellLayout::take_cell`];
    /// `cell_k_bytes` bytes.
    pub fn take_keys(&self, block: &[u8], cell: usize, out: &mut [u8]) {
        debug_assert!(block.len() == self.block_bytes() && out.len() == self.cell_k_bytes());
        let row_bytes = self.k_type.row_bytes(self.d_k);
        for (head, row) in out.chunks_exact_mut(row_bytes.max(1)).enumerate() {
            let part = &block[self.k_range(head)];
            match self.k_type {
                CellType::F32 => take_column::<4>(part, cell, row),
                CellType::F16 | CellType::BF16 => take_column::<2>(part, cell, row),
                CellType::Q8_0 | CellType::Q4_0 => {
                    Order::Keys.take(self.k_type.unit_bytes(), part, cell, row)
                }
            }
        }
    }

    /// Copy the values of `cell` out of a block's bytes, as [`CellLayout::take_cell`];
    /// `cell_v_bytes` bytes.
    pub fn take_values(&self, block: &[u8], cell: usize, out: &mut [u8]) {
        debug_assert!(block.len() == self.block_bytes() && out.len() == self.cell_v_bytes());
        let row_bytes = self.v_type.row_bytes(self.d_v);
        for (head, row) in out.chunks_exact_mut(row_bytes.max(1)).enumerate() {
            let part = &block[self.v_range(head)];
            match self.v_type.unit() {
                1 => row.copy_from_slice(&part[cell * row.len()..(cell + 1) * row.len()]),
                _ => Order::Values.take(self.v_type.unit_bytes(), part, cell, row),
            }
        }
    }

    /// Copy into a block's bytes the cell that [`CellLayout::take_cell`] took out.
    pub fn put_cell(&self, block: &mut [u8], cell: usize, from: &[u8]) {
        debug_assert!(block.len() == self.block_bytes() && from.len() == self.cell_bytes());
        let (k_bytes, v_bytes) = (self.k_type.row_bytes(self.d_k), self.v_type.row_bytes(self.d_v));
        let (keys, values) = from.split_at(self.cell_k_bytes());
        for (head, row) in keys.chunks_exact(k_bytes.max(1)).enumerate() {
            let part = &mut block[self.k_range(head)];
            match self.k_type {
                CellType::F32 => put_column::<4>(part, cell, row),
                CellType::F16 | CellType::BF16 => put_column::<2>(part, cell, row),
                CellType::Q8_0 | CellType::Q4_0 => Order::Keys.put(self.k_type.unit_bytes(), part, cell, row),
            }
        }
        for (head, row) in values.chunks_exact(v_bytes.max(1)).enumerate() {
            let part = &mut block[self.v_range(head)];
            match self.v_type.unit() {
                1 => part[cell * row.len()..(cell + 1) * row.len()].copy_from_slice(row),
                _ => Order::Values.put(self.v_type.unit_bytes(), part, cell, row),
            }
        }
    }
}

/// Copy element `d * 32 + cell` to element `d` of `row`.
fn take_column<const N: usize>(part: &[u8], cell: usize, row: &mut [u8]) {
    let (elements, _) = part.as_chunks::<N>();
    let (row, _) = row.as_chunks_mut::<N>();
    for (column, element) in elements.chunks_exact(BLOCK_CELLS).zip(row) {
        *element = column[cell];
    }
}

/// Copy element `d` of `row` to element `d * 32 + cell`.
fn put_column<const N: usize>(part: &mut [u8], cell: usize, row: &[u8]) {
    let (elements, _) = part.as_chunks_mut::<N>();
    let (row, _) = row.as_chunks::<N>();
    for (column, element) in elements.chunks_exact_mut(BLOCK_CELLS).zip(row) {
        column[cell] = *element;
    }
}

/// A stored element of `N` bytes.
trait Element<const N: usize> {
    fn encode(x: f32) -> [u8; N];
    fn decode(bytes: [u8; N]) -> f32;
}

impl Element<4> for f32 {
    fn encode(x: f32) -> [u8; 4] {
        x.to_le_bytes()
    }
    fn decode(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
}

impl Element<2> for f16 {
    fn encode(x: f32) -> [u8; 2] {
        f16::from_f32(x).to_le_bytes()
    }
    fn decode(bytes: [u8; 2]) -> f32 {
        f16::from_le_bytes(bytes).to_f32()
    }
}

impl Element<2> for bf16 {
    fn encode(x: f32) -> [u8; 2] {
        bf16::from_f32(x).to_le_bytes()
    }
    fn decode(bytes: [u8; 2]) -> f32 {
        bf16::from_le_bytes(bytes).to_f32()
    }
}

/// Write `row[d]` to element `d * 32 + cell`.
fn scatter<E: Element<N>, const N: usize>(part: &mut [u8], cell: usize, row: &[f32]) {
    let (elements, _) = part.as_chunks_mut::<N>();
    for (column, &x) in elements.chunks_exact_mut(BLOCK_CELLS).zip(row) {
        column[cell] = E::encode(x);
    }
}

/// Read element `d * 32 + cell` into `row[d]`.
fn gather<E: Element<N>, const N: usize>(part: &[u8], cell: usize, row: &mut [f32]) {
    let (elements, _) = part.as_chunks::<N>();
    for (column, x) in elements.chunks_exact(BLOCK_CELLS).zip(row) {
        *x = E::decode(column[cell]);
    }
}

/// Write `row` to elements `cell * row.len()..`.
fn write_row<E: Element<N>, const N: usize>(part: &mut [u8], cell: usize, row: &[f32]) {
    let (elements, _) = part.as_chunks_mut::<N>();
    for (element, &x) in elements[cell * row.len()..].iter_mut().zip(row) {
        *element = E::encode(x);
    }
}

/// Read elements `cell * row.len()..` into `row`.
fn read_row<E: Element<N>, const N: usize>(part: &[u8], cell: usize, row: &mut [f32]) {
    let (elements, _) = part.as_chunks::<N>();
    for (&element, x) in elements[cell * row.len()..].iter().zip(row.iter_mut()) {
        *x = E::decode(element);
    }
}
