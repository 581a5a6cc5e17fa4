//! The primitives of the thread pool: those of the standard library or, in the tests that explore
//! its interleavings, loom's imitations of them. The explored code is the code that runs.

#[cfg(all(test, loom))]
pub(super) use loom::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle, park},
    thread_local,
};
#[cfg(not(all(test, loom)))]
pub(super) use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle, park},
    thread_local,
};

/// Lock, also after a panic: nothing that these locks guard can be left half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
