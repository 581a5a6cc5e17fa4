//! The bytes of a KV cache: keys and values of [`BLOCK_CELLS`] tokens in one block of one layer.
//!
//! A *cell* is the keys and values of one token in one layer. Cells are allocated in *blocks* of
//! 32, and a sequence has a *block table* that lists its blocks, as in vLLM's paged attention. One
//! layer's block is `[n_head_kv][K | V]`, with
//!
//! | part | shape | element `(d, cell)` at | read by |
//! |---|---|---|---|
//! | K | `[d_k, 32 cells]`, dimension-major | `d * 32 + cell` | scores |
//! | V | `[32 cells, d_v]`, cell-major | `cell * d_v + d` | weighted values |
//!
//! Scores have cells in lanes and a loop over dimensions, weighted values have dimensions in lanes
//! and a loop over cells; both orders make the loads of a kernel contiguous, and neither needs a
//! sum across lanes.
//!
//! A part has 32 times some number of elements of at least two bytes, so every head's K and V start
//! at a multiple of 64 bytes without padding, provided that the block does. Elements are
//! little-endian. The heads of one block lie together, so that grouped query heads share each load.
//!
//! Quantised cells have the numbers of GGUF's blocks: 32 neighbouring dimensions of one head and
//! cell share a scale `s` of half precision, and an element is `s * q`, which is exact in single
//! precision. [`crate::block`]'s encoders make them. A part has its quants first, then its scales,
//! `[d / 32, 32 cells]`:
//!
//! | | quants of K | quants of V |
//! |---|---|---|
//! | Q8_0 | a byte an element, at `d * 32 + cell` | at `cell * d_v + d` |
//! | Q4_0 | byte `j` of 32-block `b` at `(16 b + j) * 32 + cell` | at `cell * d_v / 2 + 16 b + j` |
//!
//! Byte `j` of a 32-block of Q4_0 holds elements `j` (low half) and `j + 16`.
//!
//! A block table is a slice of [`BlockEntry`]s indexed by `slot / 32`; the cell inside the block is
//! `slot % 32`. A *slot* is a token's place in the order of appending. Attention walks slots in
//! ascending order, in spans of [`SPAN_CELLS`] slots that start at multiples of [`SPAN_CELLS`],
//! which makes its sums independent of where blocks were placed. A cell whose bit in
//! [`BlockEntry::live`] is clear does not belong to the sequence and holds arbitrary bytes, NaN
//! included: it must be skipped, not multiplied by zero.

mod blocks;
mod layout;
mod quantised;
mod rows;
mod types;

pub use blocks::{CellBlocks, CellBlocksMut};
pub use layout::CellLayout;
pub use types::{BLOCK_CELLS, BlockEntry, CellType, SPAN_CELLS};

#[cfg(test)]
mod tests;
