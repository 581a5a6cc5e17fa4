//! A global allocator that counts the allocations of a piece of code, and can refuse them.
//!
//! "Decoding allocates nothing" and "no allocation beyond what the file justifies" are promises, so
//! they need tests. A test binary installs [`Counting`] as its global allocator and passes it a
//! closure:
//!
//! ```
//! use backstitch_testing::Counting;
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting::new();
//!
//! fn main() {
//!     let (sum, tally) = ALLOCATOR.during(|| [1, 2, 3].iter().sum::<i32>());
//!     assert_eq!((sum, tally.allocations), (6, 0));
//!
//!     let refused = ALLOCATOR.refusing_after(0, || Vec::<u8>::new().try_reserve(100).is_err());
//!     assert!(refused);
//! }
//! ```
//!
//! [`Counting::during`] counts all threads, as a thread pool needs, and therefore also other tests
//! of the same binary: put such a test into its own file in `tests/`. [`Counting::during_here`] and
//! [`Counting::refusing_after`] count the calling thread only, and can run beside other tests.
#![allow(unsafe_code)] // A global allocator is an unsafe trait; this is the crate's only use of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The requests made of the allocator: `alloc`, `alloc_zeroed`, and `realloc` to a larger size.
/// Freeing and shrinking do not count, refused requests do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of requests.
    pub allocations: u64,
    /// Bytes requested in all; for a `realloc`, the bytes it grew by.
    pub bytes: u64,
}

impl Tally {
    const ZERO: Tally = Tally { allocations: 0, bytes: 0 };

    fn plus(self, bytes: u64) -> Tally {
        Tally { allocations: self.allocations.wrapping_add(1), bytes: self.bytes.wrapping_add(bytes) }
    }

    fn since(self, before: Tally) -> Tally {
        Tally {
            allocations: self.allocations.wrapping_sub(before.allocations),
            bytes: self.bytes.wrapping_sub(before.bytes),
        }
    }
}

// Constant initial values and no destructor: using these never allocates, which an allocator could
// not survive.
thread_local! {
    static HERE: Cell<Tally> = const { Cell::new(Tally::ZERO) };
    /// Bytes that this thread holds, counted from some start: those it got less those it gave back.
    static HELD: Cell<i64> = const { Cell::new(0) };
    /// The most that it held since that start.
    static PEAK: Cell<i64> = const { Cell::new(0) };
    /// The number of further requests that this thread is granted; `u64::MAX` means no limit.
    static GRANTED: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The largest request that this thread is granted.
    static LARGEST: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The system's allocator with counters. See the [module](self) for its installation.
#[derive(Debug, Default)]
pub struct Counting {
    allocations: AtomicU64,
    bytes: AtomicU64,
}

impl Counting {
    /// Make an allocator that has counted nothing and refuses nothing.
    pub const fn new() -> Counting {
        Counting { allocations: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Return the requests of all threads since the program began.
    pub fn total(&self) -> Tally {
        Tally {
            allocations: self.allocations.load(Ordering::SeqCst),
            bytes: self.bytes.load(Ordering::SeqCst),
        }
    }

    /// Run `work`, and return its result and the requests of all threads meanwhile.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> (R, Tally) {
        let before = self.total();
        let result = work();
        (result, self.total().since(before))
    }

    /// Run `work`, and return its result and the requests of this thread meanwhile.
    pub fn during_here<R>(&self, work: impl FnOnce() -> R) -> (R, Tally) {
        let before = HERE.get();
        let result = work();
        (result, HERE.get().since(before))
    }

    /// Run `work`, and return its result and the most bytes that this thread held at once
    /// meanwhile, beyond those that it held before. A list that is moved to a larger allocation
    /// counts twice while it moves.
    pub fn peak_here<R>(&self, work: impl FnOnce() -> R) -> (R, u64) {
        let before = HELD.get();
        PEAK.set(before);
        let result = work();
        (result, PEAK.get().wrapping_sub(before).unsigned_abs())
    }

    /// Run `work`, granting this thread's first `n` requests and refusing the others.
    ///
    /// Code that panics when an allocation fails (`Vec::push`) then ends the process, so `work` has
    /// to be code that reserves with `try_reserve`. Keep assertions, which allocate their message,
    /// outside. Freeing always works.
    pub fn refusing_after<R>(&self, n: u64, work: impl FnOnce() -> R) -> R {
        struct Restore(u64);
        impl Drop for Restore {
            fn drop(&mut self) {
                GRANTED.set(self.0);
            }
        }
        let _restore = Restore(GRANTED.replace(n));
        work()
    }

    /// Run `work`, refusing this thread's requests for more than `n` bytes: memory that grows with
    /// an input is refused, small requests are granted. As for [`Counting::refusing_after`], keep
    /// assertions outside.
    pub fn refusing_above<R>(&self, n: u64, work: impl FnOnce() -> R) -> R {
        struct Restore(u64);
        impl Drop for Restore {
            fn drop(&mut self) {
                LARGEST.set(self.0);
            }
        }
        let _restore = Restore(LARGEST.replace(n));
        work()
    }

    /// Count a request for `bytes` more. Return false if it is to be refused.
    fn admit(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        self.allocations.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        // `try_with`: a thread's last frees and allocations may come when its locals are gone.
        let _ = HERE.try_with(|here| here.set(here.get().plus(bytes)));
        let is_small = LARGEST.try_with(|largest| bytes <= largest.get()).unwrap_or(true);
        is_small && GRANTED.try_with(spend).unwrap_or(true)
    }
}

/// Record that this thread holds `change` bytes more, and `extra` for a moment.
fn hold(change: i64, extra: i64) {
    let held = HELD.try_with(|held| {
        let now = held.get().wrapping_add(change);
        held.set(now);
        now.wrapping_add(extra)
    });
    // A thread's last frees and allocations may come when its locals are gone.
    let _ = held.map(|held| PEAK.try_with(|peak| peak.set(peak.get().max(held))));
}

fn spend(granted: &Cell<u64>) -> bool {
    match granted.get() {
        0 => false,
        u64::MAX => true,
        n => {
            granted.set(n - 1);
            true
        }
    }
}

// SAFETY: every method passes its arguments unchanged to the system's allocator and returns its
// answer, or returns null, which the trait allows at any time. Counting touches no memory that the
// allocator manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.admit(layout.size()) {
            return std::ptr::null_mut();
        }
        hold(layout.size() as i64, 0);
        // SAFETY: the caller promises a layout of non-zero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !self.admit(layout.size()) {
            return std::ptr::null_mut();
        }
        hold(layout.size() as i64, 0);
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > layout.size() && !self.admit(size - layout.size()) {
            return std::ptr::null_mut();
        }
        hold(size as i64 - layout.size() as i64, if size > layout.size() { layout.size() as i64 } else { 0 });
        // SAFETY: the caller promises that `at` came from this allocator, hence from the system's,
        // with `layout`, and that `size` is not zero.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64), 0);
        // SAFETY: the caller promises that `at` came from this allocator, hence from the system's,
        // with `layout`.
        unsafe { System.dealloc(at, layout) }
    }
}
