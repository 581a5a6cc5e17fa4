//! A count of the program's allocations, with which `bench` reports how many a token takes.
//!
//! Generating a token allocates nothing; a benchmark that shows another figure shows a bug.
#![allow(unsafe_code)] // A global allocator is an unsafe trait; this is the program's only use of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Return the number of allocations and reallocations of all threads since the program started.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// The system's allocator with a counter before it. The counter is one relaxed addition, which no
/// measurement shows.
struct Counting;

// SAFETY: every method hands its arguments unchanged to the system's allocator and its answer back;
// counting touches no memory the allocator manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller promises a layout of non-zero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller promises that `at` came from here, hence from the system, with
        // `layout`, and that `size` is not zero.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that `at` came from here, hence from the system, with
        // `layout`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_counted() {
        let before = count();
        drop(std::hint::black_box(Box::new(1)));
        assert!(count() > before);
    }
}
