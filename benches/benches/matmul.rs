//! Products of packed weights: bytes of weights that are read, and operations (a multiplication or
//! an addition) on bytes or floats.
//!
//! `cargo bench -p backstitch-benches --bench matmul -- Q8_0/1` selects by name:
//! `kind/threads/case`. Operations on bytes are compared with a loop of AVX-512 VNNI in registers,
//! which tiles of AMX could exceed.
#![allow(missing_docs, reason = "criterion's macros make an undocumented main")]

use backstitch_benches::{Best, Cost};
use backstitch_core::packed::{Line, PackedType, packed_bytes};
use backstitch_core::pool::{Pool, ThreadPool};
use backstitch_core::quantized::quantized_row_bytes;
use backstitch_core::{DType, Input, KernelSet, Packed, Product, Write, matmul, quantize};
use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;

/// Return the types of weights to measure.
fn kinds() -> impl Iterator<Item = PackedType> {
    DType::table().iter().filter_map(|info| PackedType::of(info.dtype))
}

/// Cases: name, `[n_rows, n_cols]` of the weights, tokens. Near weights fit the L2 cache, far ones
/// no cache. Types with super-blocks have 768 columns in place of 576.
const CASES: [(&str, usize, usize, usize); 7] = [
    ("near", 1536, 576, 1),
    ("near by 8", 1536, 576, 8),
    ("far", 65_536, 2048, 1),
    ("far by 8", 65_536, 2048, 8),
    ("prompt up", 1536, 576, 512),
    ("prompt down", 576, 1536, 512),
    ("prompt square", 2048, 2048, 512),
];

/// Return packed bytes that are small weights in every type.
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
                let n_threads = pool.n_threads();
                let mut group = criterion.benchmark_group(format!("{kind:?}/{n_threads}"));
                let operations = 2 * n_rows * n_cols * n_tokens;
                let (flops, byte_ops) =
                    if kind.takes_quantized() { (0, operations) } else { (operations, 0) };
                let mut best = Best::new(Cost { bytes: data.len(), flops, byte_ops }, n_threads);
                let mut multiply = || {
                    let product = Product { weights, out: &mut out, write: Write::Store };
                    matmul(set, pool, input, &mut [product]).expect("fits");
                };
                group.bench_function(name, |b| b.iter_custom(|n| best.time(n, &mut multiply)));
            }
        }
    }
}

/// Measure the cost of starting the pool when there is nothing to do.
fn empty_runs(criterion: &mut Criterion) {
    for n in [1, 2] {
        let pool = ThreadPool::new(n).expect("threads");
        criterion.bench_function(&format!("empty run/{n}"), |bencher| bencher.iter(|| pool.run(n, &|_| ())));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20);
    targets = empty_runs, products
}
criterion_main!(benches);
