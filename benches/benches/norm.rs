//! Norms, gates and rotations of rows as wide as those of models.
//!
//! Bytes are those read and written. Operations are not counted, because moving the rows is the
//! limit.
#![allow(missing_docs, reason = "criterion's macros make an undocumented main")]

use backstitch_benches::{Best, Cost};
use backstitch_core::KernelSet;
use backstitch_core::rope::{Pairs, Rope};
use backstitch_testing::Random;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

/// Iterate over the kernel sets whose kernels for rows differ.
fn sets() -> impl Iterator<Item = &'static KernelSet> {
    KernelSet::available().filter(|set| set.name() != "amx")
}

/// Time `work`, which moves `n` floats.
fn time(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, n: usize, mut work: impl FnMut()) {
    let mut best = Best::new(Cost { bytes: 4 * n, ..Cost::default() }, 1);
    group.bench_function(name, |b| b.iter_custom(|n| best.time(n, &mut work)));
}

fn norms(c: &mut Criterion) {
    let mut group = c.benchmark_group("norm");
    for n in [576, 2048] {
        let mut random = Random::new(1);
        let (x, weight) = (random.floats(n), random.floats(n));
        let mut out = vec![0.0; n];
        for set in sets() {
            time(&mut group, &format!("rms {n} {}", set.name()), 3 * n, || {
                (set.rms_norm)(black_box(&x), n, &weight, 1e-5, &mut out);
            });
            time(&mut group, &format!("layer {n} {}", set.name()), 4 * n, || {
                (set.layer_norm_in_place)(black_box(&mut out), n, &weight, &weight, 1e-5);
            });
        }
    }
}

fn gates(c: &mut Criterion) {
    let mut group = c.benchmark_group("gate");
    let n = 1536;
    let (mut x, up) = (Random::new(1).floats(n), Random::new(2).floats(n));
    for set in sets() {
        time(&mut group, &format!("silu {}", set.name()), 3 * n, || {
            (set.silu_mul)(black_box(&mut x), &up);
        });
        time(&mut group, &format!("gelu {}", set.name()), 3 * n, || {
            (set.gelu_mul)(black_box(&mut x), &up);
        });
    }
}

fn rotations(c: &mut Criterion) {
    let mut group = c.benchmark_group("rope");
    for pairs in [Pairs::Adjacent, Pairs::Split] {
        let (freq_base, freq_scale, attn_factor) = (10_000.0, 1.0, 1.0);
        let rope = Rope { n_rot: 64, pairs, freq_base, freq_scale, attn_factor, yarn: None };
        let (mut frequencies, mut row) = (vec![0.0; 32], vec![0.0; 128]);
        rope.frequencies(&[], &mut frequencies).unwrap();
        time(&mut group, &format!("angles of a token, {pairs:?}"), 32 + 128, || {
            rope.angles(&frequencies, black_box(2047), &mut row).unwrap();
        });
        let mut x = Random::new(1).floats(12 * 64);
        for set in sets() {
            time(&mut group, &format!("twelve heads, {pairs:?}, {}", set.name()), 2 * 768, || {
                (set.rotate)(black_box(&mut x), 64, pairs, &row);
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20);
    targets = norms, gates, rotations
}
criterion_main!(benches);
