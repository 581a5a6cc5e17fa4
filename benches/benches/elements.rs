//! Work on each number of a row: functions, sums, rounding to other types. Bytes are those read and
//! written. Operations are not counted, because moving the rows is the limit.
#![allow(missing_docs, reason = "criterion's macros make an undocumented main")]

use backstitch_benches::{Best, Cost};
use backstitch_core::pool::Inline;
use backstitch_core::quantized::quantized_row_bytes;
use backstitch_core::{KernelSet, quantize};
use backstitch_testing::Random;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

/// Widths of the feed-forward networks of a small and a large model.
const WIDTHS: [usize; 2] = [1536, 11_264];
/// Size of the vocabulary of a small model.
const VOCABULARY: usize = 49_152;

/// Iterate over the kernel sets whose kernels for elements differ.
fn sets() -> impl Iterator<Item = &'static KernelSet> {
    KernelSet::available().filter(|set| set.name() != "amx")
}

/// Time `work`, which moves `bytes`, on each kernel set.
fn time(c: &mut Criterion, name: &str, bytes: usize, mut work: impl FnMut(&'static KernelSet)) {
    let mut group = c.benchmark_group(name);
    for set in sets() {
        let mut best = Best::new(Cost { bytes, ..Cost::default() }, 1);
        group.bench_function(set.name(), |b| b.iter_custom(|n| best.time(n, || work(set))));
    }
}

fn rounding(c: &mut Criterion) {
    for n in WIDTHS {
        let x = Random::new(1).floats(n);
        let n_bytes = quantized_row_bytes(n).expect("whole blocks");
        let mut room = vec![0u32; n_bytes / 4];
        time(c, &format!("quantise {n}"), 4 * n + n_bytes, |set| {
            let room = bytemuck::cast_slice_mut(&mut room);
            black_box(quantize(set, &Inline, &x, n, room).expect("room"));
        });
        let mut halves = vec![0; n];
        time(c, &format!("to f16 {n}"), 6 * n, |set| (set.encode_f16)(black_box(&x), &mut halves));
        time(c, &format!("to bf16 {n}"), 6 * n, |set| (set.encode_bf16)(black_box(&x), &mut halves));
    }
}

fn functions(c: &mut Criterion) {
    type Function = (&'static str, fn(&KernelSet) -> fn(&mut [f32]));
    let functions: [Function; 7] = [
        ("exp", |set| set.exp_in_place),
        ("tanh", |set| set.tanh_in_place),
        ("sigmoid", |set| set.sigmoid_in_place),
        ("silu", |set| set.silu_in_place),
        ("gelu", |set| set.gelu_in_place),
        ("softplus", |set| set.softplus_in_place),
        ("squared relu", |set| set.squared_relu_in_place),
    ];
    let n = WIDTHS[0];
    let (start, mut x) = (Random::new(1).floats(n), vec![0.0; n]);
    for (name, function) in functions {
        // Start from the same numbers each time, or they would drift to infinity.
        time(c, name, 16 * n, |set| {
            x.copy_from_slice(&start);
            function(set)(black_box(&mut x));
        });
    }
    let (y, factor) = (Random::new(2).floats(n), 0.5);
    time(c, "add", 12 * n, |set| (set.add)(black_box(&mut x), &y));
    time(c, "add scaled", 12 * n, |set| (set.add_scaled)(black_box(&mut x), &y, factor));
    time(c, "mul", 12 * n, |set| (set.mul)(black_box(&mut x), &start));
}

fn vocabulary(c: &mut Criterion) {
    let mut x = Random::new(1).floats(VOCABULARY);
    time(c, "softmax", 8 * VOCABULARY, |set| (set.softmax_in_place)(black_box(&mut x)));
    time(c, "argmax", 4 * VOCABULARY, |set| _ = black_box((set.argmax)(black_box(&x))));
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20);
    targets = rounding, functions, vocabulary
}
criterion_main!(benches);
