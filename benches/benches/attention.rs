//! Attention over caches of F16 and quantised cells: generation at depth (GB/s of keys and values read) and prompts (products a
//! second: two multiply-adds for each dimension, query row and cell seen), on one thread and on all; and storing.

use backstitch_core::KernelSet;
use backstitch_core::attention::{Attention, Seen, store};
use backstitch_core::cell::{BLOCK_CELLS, CellLayout, CellType, Extent};
use backstitch_core::pool::{Pool, ThreadPool};
use backstitch_testing::Random;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Layers with caches of their own, so that a layer's bytes have left the nearest caches when it comes round again.
struct Layers {
    layout: CellLayout,
    n_head: usize,
    caches: Vec<Vec<Line>>,
    table: Vec<Extent>,
    q: Vec<f32>,
    scratch: Vec<f32>,
    out: Vec<f32>,
    next: usize,
}

impl Layers {
    fn new(
        cells: CellType,
        (n_head, n_head_kv, n_layer): (usize, usize, usize),
        n_slots: usize,
        n_tokens: usize,
    ) -> Self {
        let layout = CellLayout { n_head_kv, d_k: 64, d_v: 64, k_type: cells, v_type: cells };
        let mut random = Random::new(1);
        let width = n_head_kv * 64;
        let n_blocks = n_slots.div_ceil(BLOCK_CELLS);
        let mut cache = vec![Line([0; 64]); n_blocks * layout.block_bytes() / 64];
        let (k, v) = (random.floats(n_slots * width), random.floats(n_slots * width));
        let cell = |i: usize| ((i / BLOCK_CELLS) as u32, (i % BLOCK_CELLS) as u32);
        let pool = ThreadPool::new(1).unwrap();
        let bytes = bytemuck::cast_slice_mut(&mut cache);
        store(KernelSet::detect().unwrap(), &pool, &layout, &k, &v, &cell, bytes).unwrap();
        Layers {
            layout,
            n_head,
            caches: vec![cache; n_layer],
            table: (0..n_blocks as u32).map(|block| Extent { block, live: u32::MAX }).collect(),
            q: random.floats(n_tokens * n_head * 64),
            scratch: vec![0.0; 1 << 20],
            out: vec![0.0; n_tokens * n_head * 64],
            next: 0,
        }
    }

    /// One layer: the last tokens of `end` slots.
    fn step(&mut self, set: &KernelSet, pool: &dyn Pool, end: usize) {
        let sinks = &[];
        let attention = Attention {
            n_head: self.n_head,
            scale: 0.125,
            soft_cap: 0.0,
            sinks,
            relative: None,
            layout: self.layout,
        };
        let n_tokens = self.q.len() / self.n_head / 64;
        let first = end - n_tokens;
        let seen = |i: usize| Seen { extents: &self.table, slots: 0..(first + i) as u32 + 1 };
        self.next = (self.next + 1) % self.caches.len();
        let cache = bytemuck::cast_slice(&self.caches[self.next]);
        attention.run(set, pool, &self.q, cache, &seen, &mut self.scratch, &mut self.out).unwrap();
        black_box(&self.out);
    }
}

/// SmolLM2-135M and a 1.1B model of the Llama family: name, query heads, key heads, layers.
const MODELS: [(&str, usize, usize, usize); 2] = [("smollm2-135m", 9, 3, 30), ("llama-1.1b", 32, 4, 22)];

fn threads() -> Vec<ThreadPool> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, all];
    counts.dedup();
    counts.into_iter().map(|n| ThreadPool::new(n).unwrap()).collect()
}

const CELLS: [CellType; 3] = [CellType::F16, CellType::Q8_0, CellType::Q4_0];

/// The sets worth timing.
fn sets() -> impl Iterator<Item = &'static KernelSet> {
    KernelSet::available().filter(|set| set.name() != "scalar")
}

fn generation(c: &mut Criterion) {
    for depth in [2048, 8192] {
        let mut group = c.benchmark_group(format!("attention/generate at {depth}"));
        for (name, n_head, n_head_kv, n_layer) in MODELS {
            for cells in CELLS {
                let mut layers = Layers::new(cells, (n_head, n_head_kv, n_layer), depth, 1);
                let bytes = depth / BLOCK_CELLS * layers.layout.block_bytes();
                group.throughput(Throughput::Bytes(bytes as u64));
                for set in sets() {
                    for pool in threads() {
                        let id = format!("{} {} {} threads", cells.name(), set.name(), pool.n_threads());
                        group.bench_function(BenchmarkId::new(name, id), |b| {
                            b.iter(|| layers.step(set, &pool, depth))
                        });
                    }
                }
            }
        }
    }
}

fn prompt(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention/prompt of 512");
    group.sample_size(10);
    for (name, n_head, n_head_kv, _) in MODELS {
        for (end, cells) in [512, 8192].into_iter().flat_map(|end| CELLS.map(|cells| (end, cells))) {
            let mut layers = Layers::new(cells, (n_head, n_head_kv, 1), end, 512);
            let seen: usize = (end - 511..=end).sum();
            group.throughput(Throughput::Elements((seen * n_head * 4 * 64) as u64));
            for set in sets() {
                for pool in threads() {
                    let id = format!("to {end} {} {} {} threads", cells.name(), set.name(), pool.n_threads());
                    group.bench_function(BenchmarkId::new(name, id), |b| {
                        b.iter(|| layers.step(set, &pool, end))
                    });
                }
            }
        }
    }
}

fn storing(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention/store");
    for n_tokens in [1, 512] {
        let (k_type, v_type) = (CellType::F16, CellType::F16);
        let layout = CellLayout { n_head_kv: 3, d_k: 64, d_v: 64, k_type, v_type };
        let rows = Random::new(1).floats(n_tokens * 192);
        let mut cache = vec![Line([0; 64]); 16 * layout.block_bytes() / 64];
        let cell = |i: usize| ((i / BLOCK_CELLS) as u32, (i % BLOCK_CELLS) as u32);
        let pool = ThreadPool::new(1).unwrap();
        group.throughput(Throughput::Elements(n_tokens as u64));
        for set in KernelSet::available() {
            group.bench_function(BenchmarkId::new(set.name(), n_tokens), |b| {
                let bytes = bytemuck::cast_slice_mut(&mut cache);
                b.iter(|| store(set, &pool, &layout, black_box(&rows), &rows, &cell, bytes).unwrap());
            });
        }
    }
}

criterion_group!(benches, generation, prompt, storing);
criterion_main!(benches);
