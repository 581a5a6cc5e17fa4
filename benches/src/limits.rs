//! The limits of this machine: reading from caches and memory, and multiplying and adding in
//! registers. They are measured when they are first asked for.

use crate::Cost;
use backstitch_core::KernelSet;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Number of rounds. The fastest counts, because other processes can only slow a round down.
const ROUNDS: usize = 7;
/// Iterations of the loops that multiply, which take some milliseconds.
const N_ROUNDS: usize = 1 << 20;

/// Bytes that are read again and again: they fit the L1 cache, the L2 cache, the L3 cache of most
/// machines, and none.
const SIZES: [usize; 4] = [24 << 10, 1 << 20, 24 << 20, 512 << 20];

/// Rates of all threads together, in 10^9 per second.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes read, with each of [`SIZES`] per thread.
    read: [f64; SIZES.len()],
    /// Operations on floats, two for a fused multiplication and addition.
    flops: f64,
    /// Operations on bytes.
    byte_ops: f64,
}

impl Limits {
    /// Return the limits of one thread, or of two.
    pub fn of(n_threads: usize) -> &'static Self {
        static ONE: OnceLock<Limits> = OnceLock::new();
        static TWO: OnceLock<Limits> = OnceLock::new();
        if n_threads < 2 {
            ONE.get_or_init(|| Self::measure(1))
        } else {
            TWO.get_or_init(|| Self::measure(2))
        }
    }

    fn measure(n_threads: usize) -> Self {
        // The fastest set, whichever one the kernels are timed with: the limit is the machine's.
        let kernels = KernelSet::available().next().unwrap_or(KernelSet::scalar());
        let floats: Vec<f32> = vec![1.0; SIZES[SIZES.len() - 1] / size_of::<f32>() / n_threads];
        let read = SIZES.map(|bytes| {
            let floats = &floats[..floats.len().min(bytes / size_of::<f32>())];
            let times = (16 << 20) / size_of_val(floats) + 1;
            rate(n_threads, || {
                (0..times).for_each(|_| _ = black_box((kernels.read)(black_box(floats))));
                (times * size_of_val(floats)) as u64
            })
        });
        let flops = rate(n_threads, || (kernels.multiply_floats_at_peak)(N_ROUNDS));
        let byte_ops = rate(n_threads, || (kernels.multiply_bytes_at_peak)(N_ROUNDS));
        let limits = Self { read, flops, byte_ops };
        println!("limits of {n_threads} threads: {limits}");
        limits
    }

    /// Return the share of its limit that a call of `cost` reaches if it takes `seconds`, and the
    /// name of that limit.
    pub fn share(&self, cost: Cost, seconds: f64) -> (f64, &'static str) {
        let size = SIZES.iter().position(|&size| cost.bytes <= size).unwrap_or(SIZES.len() - 1);
        let least = [
            (cost.bytes as f64 / self.read[size], "reading"),
            (cost.flops as f64 / self.flops, "multiplying floats"),
            (cost.byte_ops as f64 / self.byte_ops, "multiplying bytes"),
        ];
        let (least, what) = least.into_iter().fold((0.0, ""), |a, b| if b.0 > a.0 { b } else { a });
        (least / 1e9 / seconds, what)
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { read, flops, byte_ops } = self;
        for (size, rate) in SIZES.iter().zip(read) {
            write!(f, "{rate:.0} GB/s of {} KiB, ", size >> 10)?;
        }
        write!(f, "{flops:.0} GFLOP/s, {byte_ops:.0} GOP/s of bytes")
    }
}

/// Return the amount of `work` that all threads together do in a nanosecond. Each call of `work`
/// returns its amount.
fn rate(n_threads: usize, work: impl Fn() -> u64 + Sync) -> f64 {
    let round = || {
        let start = Instant::now();
        let n = std::thread::scope(|scope| {
            (1..n_threads).for_each(|_| _ = scope.spawn(&work));
            work()
        });
        n as f64 / start.elapsed().as_secs_f64()
    };
    let fastest = (0..ROUNDS).map(|_| round()).fold(0.0, f64::max);
    n_threads as f64 * fastest / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_tightest_limit() {
        let limits = Limits { read: [100.0, 50.0, 25.0, 10.0], flops: 200.0, byte_ops: 800.0 };
        let second = |bytes, flops, byte_ops| limits.share(Cost { bytes, flops, byte_ops }, 1.0);
        assert_eq!(second(1000, 0, 0), (1e-8, "reading"));
        assert_eq!(second(1 << 30, 0, 0), ((1u64 << 30) as f64 / 1e10, "reading"));
        assert_eq!(second(1000, 4000, 8000), (2e-8, "multiplying floats"));
        assert_eq!(second(1000, 0, 40_000), (5e-8, "multiplying bytes"));
    }
}
