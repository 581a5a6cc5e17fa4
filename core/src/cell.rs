//! The bytes of a KV cache: how keys and values of [`BLOCK_CELLS`] tokens lie in one block of one layer.
//!
//! One layer's cache is one buffer, `[n_blocks][n_head_kv][K | V]`:
//!
//! | part | shape | element `(d, cell)` at | read by |
//! |---|---|---|---|
//! | K | `[d_k, 32 cells]`, dimension-major | `d * 32 + cell` | scores: cells in lanes, a loop over dimensions |
//! | V | `[32 cells, d_v]`, cell-major | `cell * d_v + d` | weighted values: dimensions in lanes, a loop over cells |
//!
//! A part has 32 times some number of elements of at least two bytes, so every head's K and V start at a multiple of
//! 64 bytes without padding, provided that the buffer does. Elements are little-endian. The heads of
//! one block lie together, so that grouped query heads share each load.
//!
//! Quantised cells have the numbers of GGUF's blocks: 32 neighbouring dimensions of one head and cell share a scale `s` of half
//! precision, and an element is `s * q`, which is exact in single precision. They are made by [`crate::block`]'s encoders. A part has its quants
//! first, then its scales, `[d / 32, 32 cells]`:
//!
//! | | quants of K | quants of V |
//! |---|---|---|
//! | Q8_0 | a byte an element, at `d * 32 + cell` | at `cell * d_v + d` |
//! | Q4_0 | byte `j` of 32-block `b`, elements `j` (low half) and `j + 16`, at `(16 b + j) * 32 + cell` | at `cell * d_v / 2 + 16 b + j` |
//!
//! A sequence is a table of [`Extent`]s indexed by `slot / 32`; the cell inside the block is `slot % 32`. Attention
//! walks slots in ascending order, in spans of [`SPAN_CELLS`] slots that start at multiples of [`SPAN_CELLS`], which
//! makes its sums independent of where blocks were placed. A cell whose bit in [`Extent::live`] is clear does not
//! belong to the sequence and holds arbitrary bytes, NaN included: it must be skipped, not multiplied by zero.

mod quantised;

use crate::block::{q4_0, q8_0};
use crate::error::Error;
use core::ops::Range;
use half::{bf16, f16};
use quantised::Order;

/// Cells of one block.
pub const BLOCK_CELLS: usize = 32;

/// Slots that attention sums before it rescales; spans start at multiples of this.
pub const SPAN_CELLS: usize = 256;

/// The type of stored elements of K or V.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CellType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// 8 bits, and a scale for 32 dimensions.
    Q8_0,
    /// 4 bits, and a scale for 32 dimensions.
    Q4_0,
}

impl CellType {
    /// All types.
    pub const ALL: [CellType; 5] =
        [CellType::F32, CellType::F16, CellType::BF16, CellType::Q8_0, CellType::Q4_0];

    /// Elements that are stored as one: 1, or the 32 that share a scale. The dimensions of a head are a multiple of it.
    pub const fn unit(self) -> usize {
        match self {
            CellType::F32 | CellType::F16 | CellType::BF16 => 1,
            CellType::Q8_0 | CellType::Q4_0 => 32,
        }
    }

    /// Bytes of as many elements as [`CellType::unit`] says.
    pub const fn unit_bytes(self) -> usize {
        match self {
            CellType::F32 => 4,
            CellType::F16 | CellType::BF16 => 2,
            CellType::Q8_0 => 34,
            CellType::Q4_0 => 18,
        }
    }

    /// Bytes of `n` elements, a multiple of [`CellType::unit`].
    pub const fn row_bytes(self, n: usize) -> usize {
        n / self.unit() * self.unit_bytes()
    }

    /// The name that command lines and GGUF tools use.
    pub const fn name(self) -> &'static str {
        match self {
            CellType::F32 => "f32",
            CellType::F16 => "f16",
            CellType::BF16 => "bf16",
            CellType::Q8_0 => "q8_0",
            CellType::Q4_0 => "q4_0",
        }
    }
}

/// A block of a sequence's table: which block holds these 32 slots, and which of its cells are the sequence's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the block in the layer's buffer; meaningless where `live` is 0.
    pub block: u32,
    /// Bit `i` is set where cell `i` belongs to the sequence.
    pub live: u32,
}

impl Extent {
    /// 32 slots without a block.
    pub const EMPTY: Extent = Extent { block: u32::MAX, live: 0 };
}

/// Shape and types of one layer's cache; see the module for the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellLayout {
    /// Heads of K and V.
    pub n_head_kv: usize,
    /// Elements of one head's key.
    pub d_k: usize,
    /// Elements of one head's value.
    pub d_v: usize,
    /// Element type of K.
    pub k_type: CellType,
    /// Element type of V.
    pub v_type: CellType,
}

impl CellLayout {
    /// Whether a head's dimensions fill the units of the types: without that no kernel takes the layout.
    ///
    /// # Errors
    /// [`Error::Ragged`] if they do not.
    pub const fn check(&self) -> Result<(), Error> {
        if !self.d_k.is_multiple_of(self.k_type.unit()) {
            return Err(Error::Ragged {
                what: "dimensions of a key",
                found: self.d_k,
                block: self.k_type.unit(),
            });
        }
        if !self.d_v.is_multiple_of(self.v_type.unit()) {
            return Err(Error::Ragged {
                what: "dimensions of a value",
                found: self.d_v,
                block: self.v_type.unit(),
            });
        }
        Ok(())
    }

    /// Bytes of one head's K in one block.
    pub const fn k_bytes(&self) -> usize {
        BLOCK_CELLS * self.k_type.row_bytes(self.d_k)
    }

    /// Bytes of one head's V in one block.
    pub const fn v_bytes(&self) -> usize {
        BLOCK_CELLS * self.v_type.row_bytes(self.d_v)
    }

    /// Bytes of one head (K and V) in one block, a multiple of 64.
    pub const fn head_bytes(&self) -> usize {
        self.k_bytes() + self.v_bytes()
    }

    /// Bytes of one block: all heads.
    pub const fn block_bytes(&self) -> usize {
        self.n_head_kv * self.head_bytes()
    }

    /// Where `block` lies in the layer's buffer.
    pub const fn block_range(&self, block: usize) -> Range<usize> {
        block * self.block_bytes()..(block + 1) * self.block_bytes()
    }

    /// Where the K of `head` in `block` lies in the layer's buffer: `[d_k, 32]` elements.
    pub const fn k_range(&self, block: usize, head: usize) -> Range<usize> {
        let start = block * self.block_bytes() + head * self.head_bytes();
        start..start + self.k_bytes()
    }

    /// Where the V of `head` in `block` lies in the layer's buffer: `[32, d_v]` elements.
    pub const fn v_range(&self, block: usize, head: usize) -> Range<usize> {
        let end = block * self.block_bytes() + (head + 1) * self.head_bytes();
        end - self.v_bytes()..end
    }

    /// Stores one token's keys `[n_head_kv, d_k]` into `cell` of a block's bytes ([`CellLayout::block_range`]),
    /// rounded to nearest even.
    ///
    /// The caller passes `block_bytes` bytes, `n_head_kv * d_k` keys and a cell below 32.
    pub fn store_k(&self, block: &mut [u8], cell: usize, row: &[f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_k);
        for (head, row) in row.chunks_exact(self.d_k.max(1)).enumerate() {
            let part = &mut block[self.k_range(0, head)];
            match self.k_type {
                CellType::F32 => scatter::<f32, 4>(part, cell, row),
                CellType::F16 => scatter::<f16, 2>(part, cell, row),
                CellType::BF16 => scatter::<bf16, 2>(part, cell, row),
                CellType::Q8_0 => Order::Keys.encode::<q8_0::Block>(part, cell, row),
                CellType::Q4_0 => Order::Keys.encode::<q4_0::Block>(part, cell, row),
            }
        }
    }

    /// Stores one token's values `[n_head_kv, d_v]` into `cell` of a block's bytes, rounded to nearest even; the
    /// counterpart of [`CellLayout::store_k`].
    pub fn store_v(&self, block: &mut [u8], cell: usize, row: &[f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_v);
        for (head, row) in row.chunks_exact(self.d_v.max(1)).enumerate() {
            let part = &mut block[self.v_range(0, head)];
            match self.v_type {
                CellType::F32 => write_row::<f32, 4>(part, cell, row),
                CellType::F16 => write_row::<f16, 2>(part, cell, row),
                CellType::BF16 => write_row::<bf16, 2>(part, cell, row),
                CellType::Q8_0 => Order::Values.encode::<q8_0::Block>(part, cell, row),
                CellType::Q4_0 => Order::Values.encode::<q4_0::Block>(part, cell, row),
            }
        }
    }

    /// Reads the keys `[n_head_kv, d_k]` of `cell` back from a block's bytes.
    pub fn load_k(&self, block: &[u8], cell: usize, row: &mut [f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_k);
        for (head, row) in row.chunks_exact_mut(self.d_k.max(1)).enumerate() {
            let part = &block[self.k_range(0, head)];
            match self.k_type {
                CellType::F32 => gather::<f32, 4>(part, cell, row),
                CellType::F16 => gather::<f16, 2>(part, cell, row),
                CellType::BF16 => gather::<bf16, 2>(part, cell, row),
                CellType::Q8_0 => Order::Keys.decode::<q8_0::Block>(part, cell, row),
                CellType::Q4_0 => Order::Keys.decode::<q4_0::Block>(part, cell, row),
            }
        }
    }

    /// Reads the values `[n_head_kv, d_v]` of `cell` back from a block's bytes.
    pub fn load_v(&self, block: &[u8], cell: usize, row: &mut [f32]) {
        debug_assert!(block.len() == self.block_bytes() && row.len() == self.n_head_kv * self.d_v);
        for (head, row) in row.chunks_exact_mut(self.d_v.max(1)).enumerate() {
            let part = &block[self.v_range(0, head)];
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

/// Cells apart from their block, bit for bit.
impl CellLayout {
    /// Bytes of one cell apart from its block: the keys of all heads, `[n_head_kv, d_k]`, then the values, `[n_head_kv, d_v]`.
    pub const fn cell_bytes(&self) -> usize {
        self.block_bytes() / BLOCK_CELLS
    }

    /// Copies `cell` out of a block's bytes; rows of quantised elements become GGUF's blocks. The caller passes `block_bytes` bytes, a cell below 32, and `cell_bytes` bytes.
    pub fn take_cell(&self, block: &[u8], cell: usize, out: &mut [u8]) {
        debug_assert!(block.len() == self.block_bytes() && out.len() == self.cell_bytes());
        let (k_bytes, v_bytes) = (self.k_type.row_bytes(self.d_k), self.v_type.row_bytes(self.d_v));
        let (keys, values) = out.split_at_mut(self.n_head_kv * k_bytes);
        for (head, row) in keys.chunks_exact_mut(k_bytes.max(1)).enumerate() {
            let part = &block[self.k_range(0, head)];
            match self.k_type {
                CellType::F32 => take_column::<4>(part, cell, row),
                CellType::F16 | CellType::BF16 => take_column::<2>(part, cell, row),
                CellType::Q8_0 | CellType::Q4_0 => {
                    Order::Keys.take(self.k_type.unit_bytes(), part, cell, row)
                }
            }
        }
        for (head, row) in values.chunks_exact_mut(v_bytes.max(1)).enumerate() {
            let part = &block[self.v_range(0, head)];
            match self.v_type.unit() {
                1 => row.copy_from_slice(&part[cell * row.len()..(cell + 1) * row.len()]),
                _ => Order::Values.take(self.v_type.unit_bytes(), part, cell, row),
            }
        }
    }

    /// Copies into a block's bytes what [`CellLayout::take_cell`] took out.
    pub fn put_cell(&self, block: &mut [u8], cell: usize, from: &[u8]) {
        debug_assert!(block.len() == self.block_bytes() && from.len() == self.cell_bytes());
        let (k_bytes, v_bytes) = (self.k_type.row_bytes(self.d_k), self.v_type.row_bytes(self.d_v));
        let (keys, values) = from.split_at(self.n_head_kv * k_bytes);
        for (head, row) in keys.chunks_exact(k_bytes.max(1)).enumerate() {
            let part = &mut block[self.k_range(0, head)];
            match self.k_type {
                CellType::F32 => put_column::<4>(part, cell, row),
                CellType::F16 | CellType::BF16 => put_column::<2>(part, cell, row),
                CellType::Q8_0 | CellType::Q4_0 => Order::Keys.put(self.k_type.unit_bytes(), part, cell, row),
            }
        }
        for (head, row) in values.chunks_exact(v_bytes.max(1)).enumerate() {
            let part = &mut block[self.v_range(0, head)];
            match self.v_type.unit() {
                1 => part[cell * row.len()..(cell + 1) * row.len()].copy_from_slice(row),
                _ => Order::Values.put(self.v_type.unit_bytes(), part, cell, row),
            }
        }
    }
}

/// Copies element `d * 32 + cell` to element `d` of `row`.
fn take_column<const N: usize>(part: &[u8], cell: usize, row: &mut [u8]) {
    let (elements, _) = part.as_chunks::<N>();
    let (row, _) = row.as_chunks_mut::<N>();
    for (column, element) in elements.chunks_exact(BLOCK_CELLS).zip(row) {
        *element = column[cell];
    }
}

/// Copies element `d` of `row` to element `d * 32 + cell`.
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

/// Writes `row[d]` to element `d * 32 + cell`.
fn scatter<E: Element<N>, const N: usize>(part: &mut [u8], cell: usize, row: &[f32]) {
    let (elements, _) = part.as_chunks_mut::<N>();
    for (column, &x) in elements.chunks_exact_mut(BLOCK_CELLS).zip(row) {
        column[cell] = E::encode(x);
    }
}

/// Reads element `d * 32 + cell` into `row[d]`.
fn gather<E: Element<N>, const N: usize>(part: &[u8], cell: usize, row: &mut [f32]) {
    let (elements, _) = part.as_chunks::<N>();
    for (column, x) in elements.chunks_exact(BLOCK_CELLS).zip(row) {
        *x = E::decode(column[cell]);
    }
}

/// Writes `row` to elements `cell * row.len()..`.
fn write_row<E: Element<N>, const N: usize>(part: &mut [u8], cell: usize, row: &[f32]) {
    let (elements, _) = part.as_chunks_mut::<N>();
    for (element, &x) in elements[cell * row.len()..].iter_mut().zip(row) {
        *element = E::encode(x);
    }
}

/// Reads elements `cell * row.len()..` into `row`.
fn read_row<E: Element<N>, const N: usize>(part: &[u8], cell: usize, row: &mut [f32]) {
    let (elements, _) = part.as_chunks::<N>();
    for (&element, x) in elements[cell * row.len()..].iter().zip(row.iter_mut()) {
        *x = E::decode(element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(k_type: CellType, v_type: CellType) -> CellLayout {
        CellLayout { n_head_kv: 3, d_k: 5, d_v: 7, k_type, v_type }
    }

    /// The same with dimensions that any type takes.
    fn wide(k_type: CellType, v_type: CellType) -> CellLayout {
        CellLayout { n_head_kv: 2, d_k: 64, d_v: 96, k_type, v_type }
    }

    #[test]
    fn parts_tile_the_buffer_and_start_at_multiples_of_64() {
        for k_type in CellType::ALL {
            for v_type in CellType::ALL {
                let layout = wide(k_type, v_type);
                assert_eq!(layout.check(), Ok(()));
                let mut end = 0;
                for block in 0..3 {
                    assert_eq!(layout.block_range(block).start, end);
                    for head in 0..layout.n_head_kv {
                        for part in [layout.k_range(block, head), layout.v_range(block, head)] {
                            assert_eq!((part.start, part.start % 64), (end, 0));
                            end = part.end;
                        }
                    }
                    assert_eq!(layout.block_range(block).end, end);
                }
            }
        }
    }

    #[test]
    fn a_cell_taken_out_and_put_elsewhere_is_the_same_bit_for_bit() {
        for (k_type, v_type) in [(CellType::F32, CellType::F16), (CellType::BF16, CellType::F32)] {
            let layout = layout(k_type, v_type);
            let (mut from, mut to) = ([0u8; 3 * 12 * 32 * 4], [0u8; 3 * 12 * 32 * 4]);
            // Not-a-numbers of all sorts among them.
            from.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 151 % 256) as u8);
            let (from, to) = (&from[..layout.block_bytes()], &mut to[..layout.block_bytes()]);
            let mut cell = [0; 3 * 12 * 4];
            let cell = &mut cell[..layout.cell_bytes()];
            for i in 0..BLOCK_CELLS {
                layout.take_cell(from, i, cell);
                layout.put_cell(to, i, cell);
            }
            assert_eq!(from, to);
            let (mut a, mut b) = ([0.0; 15], [0.0; 15]);
            layout.take_cell(from, 3, cell);
            layout.put_cell(to, 9, cell);
            layout.load_k(from, 3, &mut a);
            layout.load_k(to, 9, &mut b);
            assert_eq!(a.map(f32::to_bits), b.map(f32::to_bits));
        }
    }

    #[test]
    fn rows_come_back_rounded_to_nearest_even_and_leave_other_cells_alone() {
        type Rounded = fn(f32) -> f32;
        let cases: [(CellType, Rounded); 3] = [
            (CellType::F32, |x| x),
            (CellType::F16, |x| f16::from_f32(x).to_f32()),
            (CellType::BF16, |x| bf16::from_f32(x).to_f32()),
        ];
        for (ty, round) in cases {
            let layout = layout(ty, ty);
            let mut storage = [0xa5u8; 2 * 3 * 12 * 32 * 4];
            let storage = &mut storage[..2 * layout.block_bytes()];
            let value = |cell: usize, i: usize| 1.0 + (cell * 100 + i) as f32 / 7.0;
            for cell in 0..BLOCK_CELLS {
                let k: [f32; 15] = core::array::from_fn(|i| value(cell, i));
                let v: [f32; 21] = core::array::from_fn(|i| -value(cell, i));
                let block = &mut storage[layout.block_range(1)];
                layout.store_k(block, cell, &k);
                layout.store_v(block, cell, &v);
            }
            for cell in 0..BLOCK_CELLS {
                let (mut k, mut v) = ([0.0; 15], [0.0; 21]);
                let block = &storage[layout.block_range(1)];
                layout.load_k(block, cell, &mut k);
                layout.load_v(block, cell, &mut v);
                for (i, k) in k.iter().enumerate() {
                    assert_eq!(k.to_bits(), round(value(cell, i)).to_bits());
                }
                for (i, v) in v.iter().enumerate() {
                    assert_eq!(v.to_bits(), round(-value(cell, i)).to_bits());
                }
            }
            assert!(storage[layout.block_range(0)].iter().all(|&byte| byte == 0xa5));
        }
    }

    #[test]
    fn quantised_rows_come_back_as_ggufs_blocks_say_and_move_bit_for_bit() {
        use crate::block::Codec;
        for ty in [CellType::Q8_0, CellType::Q4_0] {
            let layout = wide(ty, ty);
            let mut storage = [0xa5u8; 2 * 2 * 160 * 34];
            let (from, to) = storage.split_at_mut(2 * 160 * 34);
            let (from, to) = (&mut from[..layout.block_bytes()], &mut to[..layout.block_bytes()]);
            let value = |cell: usize, i: usize| ((cell * 31 + i * 7) % 101) as f32 - 50.0;
            for cell in 0..BLOCK_CELLS {
                let k: [f32; 128] = core::array::from_fn(|i| value(cell, i));
                let v: [f32; 192] = core::array::from_fn(|i| -value(cell, i));
                layout.store_k(from, cell, &k);
                layout.store_v(from, cell, &v);
            }
            let mut apart = [0; 320 * 34 / 32];
            let apart = &mut apart[..layout.cell_bytes()];
            for cell in 0..BLOCK_CELLS {
                layout.take_cell(from, cell, apart);
                layout.put_cell(to, cell, apart);
                let (mut k, mut v, mut blocks) = ([0.0; 128], [0.0; 192], [0.0; 320]);
                layout.load_k(from, cell, &mut k);
                layout.load_v(from, cell, &mut v);
                match ty {
                    CellType::Q8_0 => q8_0::Block::decode(apart, &mut blocks).unwrap(),
                    _ => q4_0::Block::decode(apart, &mut blocks).unwrap(),
                }
                assert_eq!((&k[..], &v[..]), blocks.split_at(128));
                let error = if ty == CellType::Q8_0 { 0.21 } else { 6.3 };
                assert!((0..128).all(|i| (k[i] - value(cell, i)).abs() < error), "{ty:?} {cell}");
                assert!((0..192).all(|i| (v[i] + value(cell, i)).abs() < error), "{ty:?} {cell}");
            }
            assert!(from == to);
        }
        assert!(layout(CellType::F32, CellType::Q4_0).check().is_err());
    }

    #[test]
    fn keys_are_dimension_major_and_values_cell_major() {
        let layout = layout(CellType::F32, CellType::F32);
        let mut block = [0u8; 3 * 12 * 32 * 4];
        let k: [f32; 15] = core::array::from_fn(|i| i as f32);
        let v: [f32; 21] = core::array::from_fn(|i| i as f32);
        layout.store_k(&mut block, 9, &k);
        layout.store_v(&mut block, 9, &v);
        let at = |byte: usize| {
            f32::from_le_bytes([block[byte], block[byte + 1], block[byte + 2], block[byte + 3]])
        };
        // Head 1, dimension 2 of K; head 2, dimension 6 of V.
        assert_eq!(at(layout.k_range(0, 1).start + (2 * 32 + 9) * 4), 7.0);
        assert_eq!(at(layout.v_range(0, 2).start + (9 * 7 + 6) * 4), 20.0);
    }
}
