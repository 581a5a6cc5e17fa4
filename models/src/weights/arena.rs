//! One piece of memory for all packed matrices, so that it lies in large pages.

use crate::error::Error;
use core::ops::Range;

/// Zeroed bytes, the first one at a multiple of 64.
#[derive(Debug)]
pub(crate) struct Arena {
    #[cfg(feature = "std")]
    pages: backstitch_kv::file::Buffer,
    #[cfg(not(feature = "std"))]
    lines: alloc::vec::Vec<backstitch_core::packed::Line>,
}

impl Arena {
    /// # Errors
    /// [`Error::OutOfMemory`].
    #[cfg(feature = "std")]
    pub fn new(n_bytes: usize) -> Result<Self, Error> {
        let refused = |_| Error::OutOfMemory { what: "weights", n_bytes: n_bytes as u64 };
        Ok(Self { pages: backstitch_kv::file::Buffer::zeroed(n_bytes).map_err(refused)? })
    }

    /// # Errors
    /// [`Error::OutOfMemory`].
    #[cfg(not(feature = "std"))]
    pub fn new(n_bytes: usize) -> Result<Self, Error> {
        let refused = |()| Error::OutOfMemory { what: "weights", n_bytes: n_bytes as u64 };
        let n_lines = n_bytes.div_ceil(backstitch_core::packed::ALIGN);
        Ok(Self { lines: bytemuck::allocation::try_zeroed_vec(n_lines).map_err(refused)? })
    }

    /// Return some of its bytes; none where there are not as many.
    pub fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        self.bytes().get(range)
    }

    fn bytes(&self) -> &[u8] {
        #[cfg(feature = "std")]
        return self.pages.bytes();
        #[cfg(not(feature = "std"))]
        bytemuck::cast_slice(&self.lines)
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        #[cfg(feature = "std")]
        return self.pages.bytes_mut();
        #[cfg(not(feature = "std"))]
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}
