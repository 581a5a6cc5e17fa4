//! The share of the memory's speed that a product with one token reaches: weights that fit no
//! processor cache, and a plain read of the same bytes in turn. A layout of panels that a
//! processor's prefetcher cannot follow shows here at once.
//!
//! `cargo bench -p backstitch-benches --bench layout -- Q8_0/1` selects by name:
//! `kind/threads/columns`.
#![allow(missing_docs, reason = "criterion's macros make an undocumented main")]

use backstitch_core::packed::{PackedType, packed_bytes};
use backstitch_core::pool::{Parts, Pool, ThreadPool};
use backstitch_core::quantized::quantized_row_bytes;
use backstitch_core::{DType, Input, KernelSet, Packed, Product, Write, matmul, quantize};
use backstitch_kv::arena::Arena;
use criterion::{Criterion, criterion_group, criterion_main};
use std::time::{Duration, Instant};

/// Lengths of rows, from those of the smallest models to those of the largest. Types with
/// super-blocks have 768 columns in place of 576.
const COLUMNS: [usize; 4] = [576, 2048, 5632, 16_384];

/// Bytes of weights: more than the largest cache of a desktop processor.
const BYTES: usize = 160 << 20;

/// Times of products and of plain reads, taken in turn.
struct Pairs {
    bytes: usize,
    products: Vec<f64>,
    reads: Vec<f64>,
}

impl Pairs {
    fn time(&mut self, n: u64, mut product: impl FnMut(), mut read: impl FnMut()) -> Duration {
        let mut total = Duration::ZERO;
        for _ in 0..n {
            let start = Instant::now();
            product();
            let time = start.elapsed();
            total += time;
            self.products.push(time.as_secs_f64());
            let start = Instant::now();
            read();
            self.reads.push(start.elapsed().as_secs_f64());
        }
        total
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        let rate = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).map(|time| self.bytes as f64 / time / 1e9)
        };
        let (mut products, mut reads) = (std::mem::take(&mut self.products), std::mem::take(&mut self.reads));
        // Nothing ran if the command line names another benchmark.
        if let (Some(product), Some(read)) = (rate(&mut products), rate(&mut reads)) {
            let share = 100.0 * product / read;
            println!("{:24}product {product:.1} GB/s, plain read {read:.1} GB/s: {share:.0} %", "");
        }
    }
}

fn layouts(criterion: &mut Criterion) {
    let set = KernelSet::detect().expect("a kernel set");
    let pools = [1, 2].map(|n| ThreadPool::new(n).expect("threads"));
    // Large pages where the system has them, like those of a model's weights.
    let mut pages = Arena::new(BYTES).expect("memory");
    // Bytes that are ordinary numbers in every type: products with subnormal numbers would take
    // several times as long.
    pages
        .bytes_mut()
        .iter_mut()
        .enumerate()
        .for_each(|(i, byte)| *byte = 60 + (i / 64 * 7 + i % 64 * 13) as u8 % 4);
    for kind in DType::table().iter().filter_map(|info| PackedType::of(info.dtype)) {
        for cols in COLUMNS {
            let cols = if packed_bytes(kind, 1, cols).is_ok() { cols } else { cols.next_multiple_of(256) };
            let panel = packed_bytes(kind, 16, cols).expect("whole blocks");
            let n_rows = BYTES / panel * 16;
            let data: &[u8] = &pages.bytes()[..BYTES / panel * panel];
            let weights = Packed::new(kind, n_rows, cols, data).expect("the packed size");
            let x: Vec<f32> = (0..cols).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
            let mut room = vec![0u32; quantized_row_bytes(cols).expect("whole blocks") / 4];
            let room = bytemuck::cast_slice_mut(&mut room);
            let quantized = quantize(set, &pools[0], &x, cols, room).expect("room");
            let input = Input::both(&x, quantized).expect("one shape");
            let mut out = vec![0.0; n_rows];
            for pool in &pools {
                let n_threads = pool.n_threads();
                let mut group = criterion.benchmark_group(format!("{kind:?}/{n_threads}"));
                let mut pairs = Pairs { bytes: data.len(), products: Vec::new(), reads: Vec::new() };
                let mut multiply = || {
                    let product = Product { weights, out: &mut out, write: Write::Store };
                    matmul(set, pool, input, &mut [product]).expect("fits");
                };
                let read = || {
                    let mut sums = vec![0; n_threads];
                    let parts = Parts::new(&mut sums, 1, n_threads);
                    let floats: &[f32] = bytemuck::cast_slice(data);
                    pool.run(n_threads, &|job| {
                        if let Some((i, sum)) = parts.take(job) {
                            let half = floats.chunks(floats.len().div_ceil(n_threads)).nth(i).unwrap_or(&[]);
                            sum[0] = (set.read)(half);
                        }
                    })
                    .expect("no panic");
                    std::hint::black_box(sums);
                };
                group.bench_function(cols.to_string(), |b| {
                    b.iter_custom(|n| pairs.time(n, &mut multiply, read));
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(300))
        .sample_size(10);
    targets = layouts
}
criterion_main!(benches);
