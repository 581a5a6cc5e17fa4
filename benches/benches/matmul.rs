//! Products of packed weights: multiply-adds for prompts, bytes of weights read for single tokens.
//!
//! `cargo bench -p backstitch-benches --bench matmul -- Q8_0/1` picks by name: `kind/threads/case`. Throughput is printed in
//! elements a second, where an element is one operation (a multiply or an add) for `prompt`, and in bytes of weights
//! a second for the others.
#![allow(missing_docs, reason = "criterion's macros make an undocumented main")]

use backstitch_core::packed::{Line, PackedType, packed_bytes};
use backstitch_core::pool::{Pool, ThreadPool};
use backstitch_core::quantized::quantized_row_bytes;
use backstitch_core::{DType, Input, KernelSet, Packed, Product, Write, matmul, quantize};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;

/// All types that weights have.
fn kinds() -> impl Iterator<Item = PackedType> {
    DType::table().iter().filter_map(|info| PackedType::of(info.dtype))
}

/// `[n_rows, n_cols]` weights, tokens: near ones stay in the second cache, far ones in none. Types that come in super-blocks
/// have 768 columns for 576.
const CASES: [(&str, usize, usize, usize); 7] = [
    ("near", 1536, 576, 1),
    ("near by 8", 1536, 576, 8),
    ("far", 65_536, 2048, 1),
    ("far by 8", 65_536, 2048, 8),
    ("prompt up", 1536, 576, 512),
    ("prompt down", 576, 1536, 512),
    ("prompt square", 2048, 2048, 512),
];

/// Packed bytes that are small weights in every type.
fn weights(kind: PackedType, n_rows: usize, n_cols: usize) -> Vec<Line> {
    let n = packed_bytes(kind, n_rows, n_cols).expect("whole blocks") / size_of::<Line>();
    (0..n).map(|i| Line(core::array::from_fn(|j| ((i * 7 + j * 13) % 31) as u8))).collect()
}

fn products(criterion: &mut Criterion) {
    let set = KernelSet::detect().expect("a kernel set");
    let pools = [1, 2].map(|n| ThreadPool::new(n).expect("threads"));
    for kind in kinds() {
        for (name, n_rows, n_cols, n_tokens) in CASES {
            let whole = packed_bytes(kind, n_rows, n_cols).is_ok();
            let n_cols = if whole { n_cols } else { n_cols.next_multiple_of(256) };
            let lines = weights(kind, n_rows, n_cols);
            let data: &[u8] = bytemuck::cast_slice(&lines);
            let weights = Packed::new(kind, n_rows, n_cols, data).expect("the packed size");
            let x: Vec<f32> = (0..n_tokens * n_cols).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
            let mut room = vec![0u32; n_tokens * quantized_row_bytes(n_cols).expect("whole blocks") / 4];
            let room = bytemuck::cast_slice_mut(&mut room);
            let quantized = quantize(set, &pools[0], &x, n_cols, room).expect("room");
            let input = Input::both(&x, quantized).expect("one shape");
            let mut out = vec![0.0; n_tokens * n_rows];
            for pool in &pools {
                let mut group = criterion.benchmark_group(format!("{kind:?}/{}", pool.n_threads()));
                group.throughput(if name.starts_with("prompt") {
                    Throughput::Elements(2 * (n_rows * n_cols * n_tokens) as u64)
                } else {
                    Throughput::Bytes(data.len() as u64)
                });
                group.bench_function(name, |bencher| {
                    bencher.iter(|| {
                        let product = Product { weights, out: &mut out, write: Write::Store };
                        matmul(set, pool, input, &mut [product])
                    });
                });
            }
        }
    }
}

/// What handing out a run costs when nothing is to be done.
fn empty_runs(criterion: &mut Criterion) {
    for n in [1, 2] {
        let pool = ThreadPool::new(n).expect("threads");
        criterion.bench_function(&format!("empty run/{n}"), |bencher| bencher.iter(|| pool.run(n, &|_| ())));
    }
}

fn quantising(criterion: &mut Criterion) {
    let set = KernelSet::detect().expect("a kernel set");
    let pool = ThreadPool::new(1).expect("a thread");
    let x: Vec<f32> = (0..2048).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let mut room = vec![0u32; quantized_row_bytes(2048).expect("whole blocks") / 4];
    criterion.bench_function("quantise 2048", |bencher| {
        bencher.iter(|| quantize(set, &pool, &x, 2048, bytemuck::cast_slice_mut(&mut room)).is_ok());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(20);
    targets = empty_runs, quantising, products
}
criterion_main!(benches);
