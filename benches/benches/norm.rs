//! Norms, gates and rotations: nanoseconds a row of the models' widths, in elements a second.

use backstitch_core::KernelSet;
use backstitch_core::rope::{Pairs, Rope};
use backstitch_testing::Random;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

fn norms(c: &mut Criterion) {
    let mut group = c.benchmark_group("norm");
    for n in [576, 2048] {
        let mut random = Random::new(1);
        let (x, weight) = (random.floats(n), random.floats(n));
        let mut out = vec![0.0; n];
        group.throughput(Throughput::Elements(n as u64));
        for set in KernelSet::available() {
            group.bench_function(BenchmarkId::new(format!("rms {}", set.name()), n), |b| {
                b.iter(|| (set.rms_norm)(black_box(&x), n, &weight, 1e-5, &mut out));
            });
            group.bench_function(BenchmarkId::new(format!("layer {}", set.name()), n), |b| {
                b.iter(|| (set.layer_norm_in_place)(black_box(&mut out), n, &weight, &weight, 1e-5));
            });
        }
    }
}

fn gates(c: &mut Criterion) {
    let mut group = c.benchmark_group("gate");
    let n = 1536;
    let (mut x, up) = (Random::new(1).floats(n), Random::new(2).floats(n));
    group.throughput(Throughput::Elements(n as u64));
    for set in KernelSet::available() {
        group.bench_function(BenchmarkId::new("silu", set.name()), |b| {
            b.iter(|| (set.silu_mul)(black_box(&mut x), &up));
        });
        group.bench_function(BenchmarkId::new("gelu", set.name()), |b| {
            b.iter(|| (set.gelu_mul)(black_box(&mut x), &up));
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
        group.bench_function(format!("angles of a token, {pairs:?}"), |b| {
            b.iter(|| rope.angles(&frequencies, black_box(2047), &mut row).unwrap());
        });
        let mut x = Random::new(1).floats(12 * 64);
        for set in KernelSet::available() {
            group.bench_function(format!("twelve heads, {pairs:?}, {}", set.name()), |b| {
                b.iter(|| (set.rotate)(black_box(&mut x), 64, pairs, &row));
            });
        }
    }
}

criterion_group!(benches, norms, gates, rotations);
criterion_main!(benches);
