//! What the benchmarks in `benches/` share: the measured limits of the machine, and how near to them a kernel comes.

pub mod limits;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Throughput};
use limits::Limits;
use std::time::{Duration, Instant};

/// What one call of a kernel moves and computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Bytes read and written.
    pub bytes: usize,
    /// Additions and multiplications of floats; a fused one is two.
    pub flops: usize,
    /// The same of bytes.
    pub byte_ops: usize,
}

/// Times `work` as `group/name` on `n_threads`, and prints GB/s, GOP/s and the share of this machine's limit that was reached.
///
/// The limit is the time that moving its bytes or computing its operations takes at least, whichever is longer, on as many threads.
pub fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    n_threads: usize,
    cost: Cost,
    mut work: impl FnMut(),
) {
    let mut least = f64::INFINITY;
    group.throughput(Throughput::Bytes(cost.bytes as u64));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|n| {
            let start = Instant::now();
            (0..n).for_each(|_| work());
            let time = start.elapsed();
            least = least.min(time.as_secs_f64() / n as f64);
            time
        });
    });
    // Nothing was run if another name was asked for.
    if least.is_finite() {
        println!("{}", line(cost, least, Limits::of(n_threads)));
    }
}

/// What is printed of the fastest sample, `seconds` a call.
fn line(cost: Cost, seconds: f64, limits: &Limits) -> String {
    let per_second = |n: usize| n as f64 / seconds / 1e9;
    let (share, what) = limits.share(cost, seconds);
    let gops = per_second(cost.flops + cost.byte_ops);
    format!(
        "{:25}best {:.1} GB/s, {gops:.1} GOP/s: {:.0} % of what {what} allows",
        "",
        per_second(cost.bytes),
        100.0 * share
    )
}

/// How long criterion warms up and measures: there are many kernels.
pub fn quick() -> criterion::Criterion {
    criterion::Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20)
        .without_plots()
}
