//! The limits of the machine, with which speeds are compared: plain reading of memory, and products
//! in registers, with a given number of threads.
//!
//! The loops come from the kernel set that the model was measured with, so the limit of a set
//! without wide vectors is that of narrow ones.

use super::traffic::Work;
use backstitch_core::KernelSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes to read: more than any processor cache holds.
const BYTES: usize = 512 << 20;
/// Number of rounds. The fastest counts, because other processes can only slow a round down.
const ROUNDS: usize = 5;
/// Least time of a round in registers, so that the start of a thread does not matter.
const LONG_ENOUGH: Duration = Duration::from_millis(4);

/// The limits of all threads together, in 10^9 per second.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes read from memory; none if there was too little memory to try. A model that fits a
    /// processor cache is read faster.
    pub read: Option<f64>,
    /// Multiplications and additions of bytes, in registers.
    pub byte_ops: f64,
    /// Multiplications and additions of floats, in registers.
    pub float_ops: f64,
}

impl Limits {
    /// Measure the limits with the instructions of a kernel set.
    pub fn measure(kernels: &KernelSet, n_threads: usize) -> Self {
        Self {
            read: read(kernels, n_threads),
            byte_ops: in_registers(kernels.multiply_bytes_at_peak, n_threads),
            float_ops: in_registers(kernels.multiply_floats_at_peak, n_threads),
        }
    }

    /// Return the limit of work that has operations of both kinds, in 10^9 per second.
    pub fn ops(&self, work: &Work) -> f64 {
        let seconds = work.byte_ops as f64 / self.byte_ops + work.float_ops as f64 / self.float_ops;
        if seconds > 0.0 { (work.byte_ops + work.float_ops) as f64 / seconds } else { self.byte_ops }
    }
}

/// Measure reading: each thread adds up a part of a large array.
fn read(kernels: &KernelSet, n_threads: usize) -> Option<f64> {
    let n = BYTES / size_of::<f32>();
    let mut floats: Vec<f32> = Vec::new();
    floats.try_reserve_exact(n).ok()?;
    // Pages that were never written may all be one page of zeros.
    floats.resize(n, 1.0);
    let part = n.div_ceil(n_threads.max(1));
    let round = || together(floats.chunks(part), |part| _ = black_box((kernels.read)(part)));
    (0..ROUNDS).map(|_| round()).min().map(|time| BYTES as f64 / time.as_secs_f64() / 1e9)
}

/// Measure `work`, which runs a number of rounds in registers and returns the number of operations.
fn in_registers(work: fn(usize) -> u64, n_threads: usize) -> f64 {
    let n_threads = n_threads.max(1);
    let mut n_rounds = 64;
    while together([n_rounds], |n| {
        work(n);
    }) < LONG_ENOUGH
        && n_rounds < 1 << 40
    {
        n_rounds *= 2;
    }
    let round = || {
        together((0..n_threads).map(|_| n_rounds), |n| {
            work(n);
        })
    };
    let n_ops = work(1) as f64 * n_rounds as f64 * n_threads as f64;
    (0..ROUNDS).map(|_| round()).min().map_or(0.0, |time| n_ops / time.as_secs_f64() / 1e9)
}

/// Return the time until `work` is done on all parts. Each part has a thread of its own, and the
/// caller works on the first.
fn together<T: Send>(parts: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) -> Duration {
    let start = Instant::now();
    let mut parts = parts.into_iter();
    let own = parts.next();
    std::thread::scope(|scope| {
        for part in parts {
            let work = &work;
            scope.spawn(move || work(part));
        }
        own.into_iter().for_each(&work);
    });
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_part_is_worked_on_once() {
        for n in 0..4 {
            let sum = AtomicUsize::new(0);
            together(1..=n, |i| _ = sum.fetch_add(i, Ordering::Relaxed));
            assert_eq!(sum.into_inner(), n * (n + 1) / 2);
        }
    }

    #[test]
    fn the_limit_of_mixed_work_lies_between() {
        let limits = Limits { read: None, byte_ops: 300.0, float_ops: 100.0 };
        let ops = |byte_ops, float_ops| limits.ops(&Work { bytes: 0, byte_ops, float_ops });
        assert_eq!([ops(0, 0), ops(9, 0), ops(0, 9)], [300.0, 300.0, 100.0]);
        assert_eq!(ops(300, 100), 200.0);
    }
}
