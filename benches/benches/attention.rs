//! Attention over caches of every type, on one thread and on two: generation at depth, prompts, and
//! storing cells.
//!
//! The bytes of generation are those of keys and values. The operations of prompts are a product
//! and a sum for each dimension of K and of V, for each query row and each cell that it attends to.
//!
//! Generation goes from layer to layer of one KV cache, as a model does. At a
//! depth of 8,192 these are in memory, so the printed share, of the L3 cache's speed, is too low
//! there. The set `amx` is not timed, because its attention is that of `avx512`.
#![allow(missing_docs, reason = "criterion's macros make an undocumented main")]

use backstitch_benches::{Best, Cost};
use backstitch_core::KernelSet;
use backstitch_core::attention::{Attention, Seen, store};
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry, CellBlocks, CellBlocksMut, CellLayout, CellType};
use backstitch_core::pool::{Pool, ThreadPool};
use backstitch_kv::arena::Arena;
use backstitch_testing::Random;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A KV cache with several layers, as a model has it, so that a layer's bytes have left the L1 and
/// L2 cache when its turn comes again.
struct Layers {
    layout: CellLayout,
    n_head: usize,
    cache: Arena,
    n_layer: usize,
    table: Vec<BlockEntry>,
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
        let (len, stride) = (layout.block_bytes(), n_layer * layout.block_bytes());
        let mut cache = Arena::new(n_blocks * stride).unwrap();
        let (k, v) = (random.floats(n_slots * width), random.floats(n_slots * width));
        let cell = |i: usize| ((i / BLOCK_CELLS) as u32, (i % BLOCK_CELLS) as u32);
        let pool = ThreadPool::new(1).unwrap();
        for layer in 0..n_layer {
            let blocks = CellBlocksMut::new(&mut cache.bytes_mut()[layer * len..], &layout, stride);
            store(KernelSet::detect().unwrap(), &pool, &layout, &k, &v, &cell, blocks).unwrap();
        }
        Layers {
            layout,
            n_head,
            cache,
            n_layer,
            table: (0..n_blocks as u32).map(|block| BlockEntry { block, live: u32::MAX }).collect(),
            q: random.floats(n_tokens * n_head * 64),
            scratch: vec![0.0; 1 << 20],
            out: vec![0.0; n_tokens * n_head * 64],
            next: 0,
        }
    }

    /// Return the cost of one step.
    fn cost(&self, end: usize) -> Cost {
        let n_tokens = self.q.len() / self.n_head / 64;
        let seen: usize = (end - n_tokens + 1..=end).sum();
        let bytes = end / BLOCK_CELLS * self.layout.block_bytes();
        Cost { bytes, flops: seen * self.n_head * 4 * 64, ..Cost::default() }
    }

    /// Compute the attention of the last tokens of `end` slots in one layer, the next one.
    fn step(&mut self, set: &KernelSet, pool: &dyn Pool, end: usize) {
        let sinks = &[];
        let attention = Attention {
            n_head: self.n_head,
            scale: 0.125,
            soft_cap: 0.0,
            sinks,
            position_bias: None,
            layout: self.layout,
        };
        let n_tokens = self.q.len() / self.n_head / 64;
        let first = end - n_tokens;
        let seen = |i: usize| Seen { table: &self.table, slots: 0..(first + i) as u32 + 1 };
        self.next = (self.next + 1) % self.n_layer;
        let len = self.layout.block_bytes();
        let blocks =
            CellBlocks::new(&self.cache.bytes()[self.next * len..], &self.layout, self.n_layer * len);
        attention.run(set, pool, &self.q, blocks, &seen, &mut self.scratch, &mut self.out).unwrap();
        black_box(&self.out);
    }
}

/// SmolLM2-135M and a 1.1B model of the Llama family: name, query heads, KV heads, layers.
const MODELS: [(&str, usize, usize, usize); 2] = [("smollm2-135m", 9, 3, 30), ("llama-1.1b", 32, 4, 22)];

/// Iterate over the kernel sets whose attention is worth timing.
fn sets() -> impl Iterator<Item = &'static KernelSet> {
    KernelSet::available().filter(|set| !["scalar", "amx"].contains(&set.name()))
}

const DEPTHS: [usize; 3] = [512, 2048, 8192];

/// Time `work` and print the share of the machine's limits.
fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    n_threads: usize,
    cost: Cost,
    mut work: impl FnMut(),
) {
    let mut best = Best::new(cost, n_threads);
    group.bench_function(name, |b| b.iter_custom(|n| best.time(n, &mut work)));
}

/// Call `time` for every model, depth, type of cells, set and number of threads. Its first argument
/// is a name for the combination.
fn each(mut time: impl FnMut(&str, usize, CellType, (usize, usize, usize), &KernelSet, &ThreadPool)) {
    let pools = [1, 2].map(|n| ThreadPool::new(n).unwrap());
    for (model, n_head, n_head_kv, n_layer) in MODELS {
        for (depth, cells) in DEPTHS.into_iter().flat_map(|depth| CellType::ALL.map(|cells| (depth, cells))) {
            for (set, pool) in sets().flat_map(|set| pools.iter().map(move |pool| (set, pool))) {
                let name = format!(
                    "{model} to {depth} {} {} {} threads",
                    cells.name(),
                    set.name(),
                    pool.n_threads()
                );
                time(&name, depth, cells, (n_head, n_head_kv, n_layer), set, pool);
            }
        }
    }
}

fn generation(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention/generate");
    each(|name, depth, cells, shape, set, pool| {
        let mut layers = Layers::new(cells, shape, depth, 1);
        let cost = layers.cost(depth);
        bench(&mut group, name, pool.n_threads(), cost, || layers.step(set, pool, depth));
    });
}

fn prompt(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention/prompt of 512");
    each(|name, end, cells, (n_head, n_head_kv, _), set, pool| {
        let mut layers = Layers::new(cells, (n_head, n_head_kv, 1), end, 512);
        let cost = layers.cost(end);
        bench(&mut group, name, pool.n_threads(), cost, || layers.step(set, pool, end));
    });
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
        // F32 is read, F16 is written.
        let cost = Cost { bytes: n_tokens * 2 * 192 * (4 + 2), ..Cost::default() };
        for set in KernelSet::available() {
            let len = layout.block_bytes();
            bench(&mut group, &format!("{n_tokens} tokens {}", set.name()), 1, cost, || {
                let blocks = CellBlocksMut::new(bytemuck::cast_slice_mut(&mut cache), &layout, len);
                store(set, &pool, &layout, black_box(&rows), &rows, &cell, blocks).unwrap();
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(10);
    targets = generation, prompt, storing
}
criterion_main!(benches);
