//! Shared parts of the benchmarks in `benches/`: the measured limits of the machine, and the share
//! of them that a kernel reaches.

pub mod limits;

use limits::Limits;
use std::time::{Duration, Instant};

/// The bytes that one call of a kernel moves, and the operations that it computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Bytes read and written.
    pub bytes: usize,
    /// Additions and multiplications of floats; a fused one is two.
    pub flops: usize,
    /// Additions and multiplications of bytes.
    pub byte_ops: usize,
}

/// The fastest sample of a kernel. When it is dropped, it prints the share of the machine's limit
/// that this sample reached.
///
/// The limit is the least time to move the kernel's bytes or to compute its operations, whichever
/// is longer, on as many threads.
#[derive(Debug)]
pub struct Best {
    cost: Cost,
    n_threads: usize,
    seconds: f64,
}

impl Best {
    /// Start without a sample, for calls of `cost` on `n_threads`, one or two.
    pub fn new(cost: Cost, n_threads: usize) -> Self {
        Self { cost, n_threads, seconds: f64::INFINITY }
    }

    /// Return the time of `n` calls of `work`, and keep it if it is the fastest.
    pub fn time(&mut self, n: u64, mut work: impl FnMut()) -> Duration {
        let start = Instant::now();
        (0..n).for_each(|_| work());
        let time = start.elapsed();
        self.seconds = self.seconds.min(time.as_secs_f64() / n as f64);
        time
    }

    fn line(&self, limits: &Limits) -> String {
        let per_second = |n: usize| n as f64 / self.seconds / 1e9;
        let (share, what) = limits.share(self.cost, self.seconds);
        let (gb, gop) = (per_second(self.cost.bytes), per_second(self.cost.flops + self.cost.byte_ops));
        format!("best {gb:.1} GB/s, {gop:.1} GOP/s: {:.0} % of what {what} allows", 100.0 * share)
    }
}

impl Drop for Best {
    fn drop(&mut self) {
        // Nothing ran if the command line names another benchmark.
        if self.seconds.is_finite() {
            println!("{:24}{}", "", self.line(Limits::of(self.n_threads)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fastest_sample_counts() {
        let mut best = Best::new(Cost { bytes: 100, ..Cost::default() }, 1);
        let short = best.time(1000, || ());
        let seconds = best.seconds;
        assert!(best.time(1, || std::thread::sleep(Duration::from_millis(2))) > short);
        assert_eq!(best.seconds, seconds);
        // Keep it from printing.
        best.seconds = f64::INFINITY;
    }
}
