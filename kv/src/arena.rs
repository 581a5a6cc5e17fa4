//! Memory in one piece, for much that is read often.

use crate::error::Error;
use alloc::vec::Vec;
use core::fmt;

/// Zeroed bytes in one piece; the first one lies at a multiple of 64.
///
/// From 2 MiB on they lie in large pages where the system has them (Linux, with `std`), so that the
/// processor finds them with fewer look-ups. A page is taken when one of its bytes is first
/// written, by the thread that does.
///
/// ```
/// use backstitch_kv::arena::Arena;
///
/// let mut arena = Arena::new(100)?;
/// arena.bytes_mut()[7] = 1;
/// assert_eq!(arena.bytes().iter().sum::<u8>(), 1);
/// # Ok::<(), backstitch_kv::Error>(())
/// ```
pub struct Arena {
    pages: Pages,
    start: usize,
    len: usize,
}

/// Pages of the allocator, or of the system.
enum Pages {
    // Bytes, because with a larger alignment the allocator would write zeros to all pages at once.
    Allocated(Vec<u8>),
    #[cfg(all(feature = "std", target_os = "linux"))]
    Mapped(memmap2::MmapMut),
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes of the system's large pages where there are any: on x86-64, and on most others.
const HUGE: usize = 2 << 20;

impl Pages {
    /// Return at least `len` zeros behind the first multiple of `align`.
    fn new(len: usize, align: usize) -> Option<Self> {
        let padded = len.checked_add(align)?;
        #[cfg(all(feature = "std", target_os = "linux"))]
        if align == HUGE {
            let map = memmap2::MmapMut::map_anon(padded).ok()?;
            // Advice that is not taken costs time, not correctness.
            drop(map.advise(memmap2::Advice::HugePage));
            return Some(Self::Mapped(map));
        }
        bytemuck::allocation::try_zeroed_vec(padded).ok().map(Self::Allocated)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Allocated(bytes) => bytes,
            #[cfg(all(feature = "std", target_os = "linux"))]
            Self::Mapped(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Allocated(bytes) => bytes,
            #[cfg(all(feature = "std", target_os = "linux"))]
            Self::Mapped(map) => map,
        }
    }
}

/// Return the alignment of `len` bytes: that of the pages that they get.
fn alignment(len: usize) -> usize {
    if cfg!(all(feature = "std", target_os = "linux")) && len >= HUGE { HUGE } else { LINE }
}

impl Arena {
    /// Return `len` zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has no room.
    pub fn new(len: usize) -> Result<Self, Error> {
        let align = alignment(len);
        let pages = Pages::new(len, align).ok_or(Error::OutOfMemory { bytes: len as u64 })?;
        let start = pages.bytes().as_ptr().align_offset(align).min(align);
        Ok(Self { pages, start, len })
    }

    /// Return all bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.pages.bytes()[self.start..self.start + self.len]
    }

    /// Return all bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[self.start..self.start + self.len]
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_are_zeroed_aligned_and_as_long_as_asked_for() {
        for len in [0, 1, 4096, HUGE - 1, HUGE, 3 * HUGE + 5] {
            let mut arena = Arena::new(len).unwrap();
            assert!(arena.bytes().iter().all(|byte| *byte == 0));
            assert_eq!((arena.bytes().len(), arena.bytes().as_ptr().addr() % alignment(len)), (len, 0));
            arena.bytes_mut().fill(7);
            assert!(arena.bytes().iter().all(|byte| *byte == 7));
        }
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - HUGE] {
            assert_eq!(Arena::new(len).unwrap_err(), Error::OutOfMemory { bytes: len as u64 });
        }
    }
}
