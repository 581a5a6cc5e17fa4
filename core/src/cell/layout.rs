//! Places in a block.

use super::types::{BLOCK_CELLS, CellType};
use crate::error::Error;
use core::ops::Range;

/// The shape and the types of one layer's cache; see the module for the order of elements.
///
/// Layers of one model may differ (sliding windows with fewer heads, for instance); each has its
/// own layout.
///
/// ```
/// use backstitch_core::cell::{CellLayout, CellType};
///
/// let (k_type, v_type) = (CellType::F16, CellType::Q8_0);
/// let layout = CellLayout { n_head_kv: 2, d_k: 64, d_v: 64, k_type, v_type };
/// assert_eq!(layout.k_bytes(), 32 * 64 * 2);
/// assert_eq!(layout.v_bytes(), 32 * 2 * 34); // two blocks of 32 values a cell
/// assert_eq!(layout.k_range(1).start, layout.head_bytes());
/// assert_eq!(layout.v_range(1).end, layout.block_bytes());
/// ```
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
    /// Check that a head's dimensions fill the units of its types: no kernel takes another layout.
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

    /// Return the bytes of one head's K in one block.
    pub const fn k_bytes(&self) -> usize {
        BLOCK_CELLS * self.k_type.row_bytes(self.d_k)
    }

    /// Return the bytes of one head's V in one block.
    pub const fn v_bytes(&self) -> usize {
        BLOCK_CELLS * self.v_type.row_bytes(self.d_v)
    }

    /// Return the bytes of one head (K and V) in one block, a multiple of 64.
    pub const fn head_bytes(&self) -> usize {
        self.k_bytes() + self.v_bytes()
    }

    /// Return the bytes of one block: all heads.
    pub const fn block_bytes(&self) -> usize {
        self.n_head_kv * self.head_bytes()
    }

    /// Return the range of the K of `head` in a block: `[d_k, 32]` elements.
    pub const fn k_range(&self, head: usize) -> Range<usize> {
        let start = head * self.head_bytes();
        start..start + self.k_bytes()
    }

    /// Return the range of the V of `head` in a block: `[32, d_v]` elements.
    pub const fn v_range(&self, head: usize) -> Range<usize> {
        let end = (head + 1) * self.head_bytes();
        end - self.v_bytes()..end
    }

    /// Return the bytes of the keys of one cell apart from its block, `[n_head_kv, d_k]`.
    pub const fn cell_k_bytes(&self) -> usize {
        self.n_head_kv * self.k_type.row_bytes(self.d_k)
    }

    /// Return the bytes of the values of one cell apart from its block, `[n_head_kv, d_v]`.
    pub const fn cell_v_bytes(&self) -> usize {
        self.n_head_kv * self.v_type.row_bytes(self.d_v)
    }

    /// Return the bytes of one cell apart from its block: its keys, then its values.
    pub const fn cell_bytes(&self) -> usize {
        self.cell_k_bytes() + self.cell_v_bytes()
    }
}
