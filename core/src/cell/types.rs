//! Element types of cells, and entries of a block table.

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

    /// Return the number of elements that are stored as one: 1, or the 32 that share a scale. The
    /// dimensions of a head are a multiple of it.
    pub const fn unit(self) -> usize {
        match self {
            CellType::F32 | CellType::F16 | CellType::BF16 => 1,
            CellType::Q8_0 | CellType::Q4_0 => 32,
        }
    }

    /// Return the bytes of one unit of elements, see [`CellType::unit`].
    pub const fn unit_bytes(self) -> usize {
        match self {
            CellType::F32 => 4,
            CellType::F16 | CellType::BF16 => 2,
            CellType::Q8_0 => 34,
            CellType::Q4_0 => 18,
        }
    }

    /// Return the bytes of `n` elements, a multiple of [`CellType::unit`].
    pub const fn row_bytes(self, n: usize) -> usize {
        n / self.unit() * self.unit_bytes()
    }

    /// Return the name that command lines and GGUF tools use.
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

/// An entry of a block table: the block that holds 32 slots of a sequence, and the cells of it that
/// belong to the sequence.
///
/// Two sequences may have the same block in their tables, each with its own cells marked live:
/// forks share blocks until one of them appends.
///
/// ```
/// use backstitch_core::cell::BlockEntry;
///
/// // Forty tokens: a full block, and eight cells of another.
/// let table = [BlockEntry { block: 7, live: u32::MAX }, BlockEntry { block: 2, live: 0xff }];
/// let n_cells: u32 = table.iter().map(|entry| entry.live.count_ones()).sum();
/// assert_eq!(n_cells, 40);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Index of the block among those of the layer; meaningless if `live` is 0.
    pub block: u32,
    /// Bit `i` is set if cell `i` belongs to the sequence.
    pub live: u32,
}

impl BlockEntry {
    /// An entry without a block.
    pub const EMPTY: BlockEntry = BlockEntry { block: u32::MAX, live: 0 };
}
