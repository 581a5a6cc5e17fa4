use super::*;
use crate::cell::CellType::{self, BF16, F16, F32, Q4_0, Q8_0};
use crate::cell::{BLOCK_CELLS, CellBlocksMut, CellLayout};
use crate::kernels::attention::{ASSUMED, MAX_ROWS, Running, SPAN_BLOCKS, Scores, Shaping};
use crate::pool::{Inline, ThreadPool, limited::Limited};
use backstitch_testing::{Random, assert_bits};
use core::ops::Range;
use std::{vec, vec::Vec};

/// A cache line, so that a vector of them is aligned as blocks must be.
#[derive(Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes between two blocks.
const GAP: usize = 128;

/// Return `cache` as the blocks of one layer.
fn blocks<'c>(layout: &CellLayout, cache: &'c [Line]) -> CellBlocks<'c> {
    CellBlocks::new(bytemuck::cast_slice(cache), layout, layout.block_bytes() + GAP)
}

/// Return `cache` as the blocks of one layer, to be changed.
fn blocks_mut<'c>(layout: &CellLayout, cache: &'c mut [Line]) -> CellBlocksMut<'c> {
    CellBlocksMut::new(bytemuck::cast_slice_mut(cache), layout, layout.block_bytes() + GAP)
}

/// Return a cache of `n_blocks` in which all numbers are NaN, the gaps between blocks too.
fn filled(layout: &CellLayout, n_blocks: usize) -> Vec<Line> {
    vec![Line([0xff; 64]); n_blocks * (layout.block_bytes() + GAP) / 64]
}

/// Keys and values of one sequence, and where they lie.
struct Fixture {
    layout: CellLayout,
    n_head: usize,
    scale: f32,
    soft_cap: f32,
    sinks: Vec<f32>,
    cache: Vec<Line>,
    table: Vec<BlockEntry>,
    k: Vec<f32>,
    v: Vec<f32>,
    q: Vec<f32>,
}

const LAYOUT: CellLayout = CellLayout { n_head_kv: 2, d_k: 20, d_v: 24, k_type: F32, v_type: F32 };

impl Fixture {
    /// `n_slots` slots, all live; the query of slot i is row i of `q`. The data depends on the seed
    /// alone.
    fn new(layout: CellLayout, group: usize, n_slots: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let n_head = group * layout.n_head_kv;
        let mut fixture = Self {
            layout,
            n_head,
            scale: 1.0 / (layout.d_k as f32).sqrt(),
            soft_cap: 0.0,
            sinks: Vec::new(),
            cache: Vec::new(),
            table: Vec::new(),
            k: random.floats(n_slots * layout.n_head_kv * layout.d_k),
            v: random.floats(n_slots * layout.n_head_kv * layout.d_v),
            q: random.floats(n_slots * n_head * layout.d_k).iter().map(|x| x * 4.0).collect(),
        };
        let n_blocks = n_slots.div_ceil(BLOCK_CELLS) as u32;
        fixture.place((0..n_blocks).collect());
        fixture
    }

    fn n_slots(&self) -> usize {
        self.q.len() / (self.n_head * self.layout.d_k)
    }

    /// Put the blocks of the table where `blocks` says, and fill all other bytes of the cache with
    /// NaN.
    fn place(&mut self, blocks: Vec<u32>) {
        let layout = self.layout;
        let n_blocks = blocks.iter().max().map_or(0, |&block| block as usize + 1);
        self.cache = filled(&layout, n_blocks);
        let n_slots = self.n_slots();
        let live =
            |i: usize| (0..BLOCK_CELLS.min(n_slots - i * BLOCK_CELLS)).fold(0, |live, c| live | 1 << c);
        let table = blocks.iter().enumerate();
        self.table = table.map(|(i, &block)| BlockEntry { block, live: live(i) }).collect();
        let (cells, table) = (0..n_slots, &self.table);
        let cell = |slot: usize| (table[slot / BLOCK_CELLS].block, (slot % BLOCK_CELLS) as u32);
        let blocks = blocks_mut(&layout, &mut self.cache);
        let set = KernelSet::detect().unwrap();
        store(set, &Inline, &layout, &self.k, &self.v, &|i| cell(cells.start + i), blocks).unwrap();
    }

    /// Remove slots from the sequence, and fill their bytes with NaN.
    fn kill(&mut self, slots: impl Iterator<Item = usize>) {
        let layout = self.layout;
        let (k, v) =
            (vec![f32::NAN; layout.n_head_kv * layout.d_k], vec![f32::NAN; layout.n_head_kv * layout.d_v]);
        for slot in slots {
            let entry = &mut self.table[slot / BLOCK_CELLS];
            entry.live &= !(1 << (slot % BLOCK_CELLS));
            let mut blocks = blocks_mut(&layout, &mut self.cache);
            let block = blocks.get_mut(entry.block).unwrap();
            layout.store_k(block, slot % BLOCK_CELLS, &k);
            layout.store_v(block, slot % BLOCK_CELLS, &v);
        }
    }

    fn attention(&self) -> Attention<'_> {
        let Self { n_head, scale, soft_cap, layout, .. } = *self;
        Attention { n_head, scale, soft_cap, sinks: &self.sinks, position_bias: None, layout }
    }

    /// Return the results of the tokens at `slots` when they see `window` slots at most.
    fn run(&self, set: &KernelSet, pool: &dyn Pool, slots: Range<usize>, window: usize) -> Vec<f32> {
        let width = self.n_head * self.layout.d_k;
        let seen = |i: usize| {
            let end = slots.start + i + 1;
            Seen { table: &self.table, slots: end.saturating_sub(window) as u32..end as u32 }
        };
        let attention = self.attention();
        let mut out = vec![f32::NAN; slots.len() * self.n_head * self.layout.d_v];
        let mut scratch = vec![f32::NAN; attention.scratch_len(self.n_slots(), slots.len())];
        let q = &self.q[slots.start * width..slots.end * width];
        let blocks = blocks(&self.layout, &self.cache);
        attention.run(set, pool, q, blocks, &seen, &mut scratch, &mut out).unwrap();
        out
    }

    /// Return the results by the textbook, in `f64`, from the stored keys and values.
    fn exact(&self, slots: Range<usize>, window: usize) -> Vec<f64> {
        let CellLayout { n_head_kv, d_k, d_v, .. } = self.layout;
        let mut out = Vec::new();
        let stored: Vec<_> = (0..slots.end).map(|slot| self.stored(slot)).collect();
        for (token, head) in slots.flat_map(|token| (0..self.n_head).map(move |head| (token, head))) {
            let head_kv = head / (self.n_head / n_head_kv);
            let seen = (token + 1).saturating_sub(window)..token + 1;
            let seen =
                seen.filter(|&slot| self.table[slot / BLOCK_CELLS].live >> (slot % BLOCK_CELLS) & 1 == 1);
            let cells: Vec<_> = seen.map(|slot| &stored[slot]).collect();
            let q = &self.q[(token * self.n_head + head) * d_k..][..d_k];
            let scores: Vec<f64> = cells.iter().map(|(k, _)| self.score(q, &k[head_kv * d_k..])).collect();
            let sink = self.sinks.get(head).map(|&sink| f64::from(sink));
            let max = scores.iter().copied().chain(sink).fold(f64::MIN, f64::max);
            let sum: f64 = scores.iter().copied().chain(sink).map(|score| (score - max).exp()).sum();
            out.extend((0..d_v).map(|d| {
                let weighted = scores.iter().zip(&cells);
                let weighted =
                    weighted.map(|(score, (_, v))| (score - max).exp() * f64::from(v[head_kv * d_v + d]));
                weighted.sum::<f64>() / if cells.is_empty() { 1.0 } else { sum }
            }));
        }
        out
    }

    fn stored(&self, slot: usize) -> (Vec<f32>, Vec<f32>) {
        let layout = self.layout;
        let block = blocks(&layout, &self.cache).get(self.table[slot / BLOCK_CELLS].block).unwrap();
        let mut cell = (vec![0.0; layout.n_head_kv * layout.d_k], vec![0.0; layout.n_head_kv * layout.d_v]);
        layout.load_k(block, slot % BLOCK_CELLS, &mut cell.0);
        layout.load_v(block, slot % BLOCK_CELLS, &mut cell.1);
        cell
    }

    fn score(&self, q: &[f32], k: &[f32]) -> f64 {
        let dot: f64 = q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
        let score = dot * f64::from(self.scale);
        let cap = f64::from(self.soft_cap);
        if cap == 0.0 { score } else { cap * (score / cap).tanh() }
    }

    fn assert_exact(&self, got: &[f32], slots: Range<usize>, window: usize) {
        for (i, (got, exact)) in got.iter().zip(self.exact(slots, window)).enumerate() {
            assert!((f64::from(*got) - exact).abs() < 3e-6, "at {i}: {got}, {exact} wanted");
        }
    }
}

#[test]
fn attention_is_what_the_textbook_says_with_every_type_and_shape() {
    let types = CellType::ALL;
    let pairs: Vec<(CellType, CellType)> = types.iter().flat_map(|&k| types.map(|v| (k, v))).collect();
    let shapes = [
        (1, 1, 1, 1),
        (1, 64, 64, 3),
        (2, 20, 24, 2),
        (1, 300, 40, 5),
        (3, 16, 33, 8),
        (1, 8, 80, 13),
        (2, 288, 96, 3),
        (1, 544, 32, 13),
    ];
    backstitch_testing::each(shapes, |&(n_head_kv, d_k, d_v, group)| {
        for &(k_type, v_type) in &pairs {
            let layout = CellLayout { n_head_kv, d_k, d_v, k_type, v_type };
            if layout.check().is_err() {
                continue;
            }
            let fixture = Fixture::new(layout, group, 300, 7);
            let expected = fixture.run(KernelSet::scalar(), &Inline, 294..300, usize::MAX);
            fixture.assert_exact(&expected, 294..300, usize::MAX);
            // The loops of all processors, whichever this one is, with tiles of every height. Sets
            // with few registers have one kind of loops alone.
            let both = |set: &KernelSet| (set.attention_rows)() == MAX_ROWS;
            let sets = KernelSet::available().flat_map(|set| [(set, false), (set, true)]);
            for (set, from_memory) in sets.filter(|(set, from_memory)| !from_memory || both(set)) {
                ASSUMED.set(Some(from_memory));
                for first in [294, 298, 299] {
                    let got = fixture.run(set, &Inline, first..300, usize::MAX);
                    let what = format_args!("{layout:?} {}, {first}, {from_memory}", set.name());
                    assert_bits(what, &got, &expected[(first - 294) * fixture.n_head * d_v..]);
                }
            }
            ASSUMED.set(None);
        }
    });
}

#[test]
fn chunks_and_threads_change_no_bit() {
    let pools = [1, 2, 3].map(|n| ThreadPool::new(n).unwrap());
    let n = 530;
    for (k_type, v_type, group, d_k, d_v) in [
        (F16, F16, 3, 4, 18),
        (F32, F32, 1, 4, 18),
        (BF16, BF16, 4, 4, 18),
        (Q8_0, Q8_0, 3, 32, 32),
        (Q4_0, Q4_0, 2, 32, 64),
        (Q8_0, F16, 1, 96, 32),
        (F16, Q4_0, 5, 160, 32),
    ] {
        let layout = CellLayout { n_head_kv: 2, d_k, d_v, k_type, v_type };
        let fixture = Fixture::new(layout, group, n, 3);
        for set in KernelSet::available() {
            let expected = fixture.run(set, &Inline, 0..n, usize::MAX);
            for pool in &pools {
                for chunks in [&[n][..], &[1, 7, 16, 200, n], &[255, 256, 257, 258, 259, 263, 265, n]] {
                    let mut got = Vec::new();
                    let starts = core::iter::once(0).chain(chunks.iter().copied());
                    for (start, &end) in starts.zip(chunks) {
                        got.extend(fixture.run(set, pool, start..end, usize::MAX));
                    }
                    let what = format_args!("{k_type:?} {} {:?} {chunks:?}", set.name(), pool.n_threads());
                    assert_bits(what, &got, &expected);
                }
            }
            let single = n - 3..n;
            let width = fixture.n_head * layout.d_v;
            for slot in single {
                let got = fixture.run(set, &pools[1], slot..slot + 1, usize::MAX);
                assert_bits("one by one", &got, &expected[slot * width..][..width]);
            }
        }
    }
}

#[test]
fn limits_of_jobs_are_kept_and_change_no_bit() {
    let layout = CellLayout { n_head_kv: 2, d_k: 8, d_v: 8, k_type: F16, v_type: F16 };
    let fixture = Fixture::new(layout, 1, 200, 3);
    let expected = fixture.run(KernelSet::scalar(), &Inline, 0..200, usize::MAX);
    // A token costs 200 cells of 16 numbers for two heads at most.
    for (n_tokens, n_jobs) in [(1, 200), (10, 20), (40, 5)] {
        let limited = Limited::new(n_tokens * 200 * 16 * 2);
        assert_bits(n_tokens, &fixture.run(KernelSet::scalar(), &limited, 0..200, usize::MAX), &expected);
        assert_eq!(limited.n_jobs(), n_jobs);
    }
}

#[test]
fn quantised_cells_are_f32_cells_of_their_values() {
    for (k_type, v_type) in [(Q8_0, Q8_0), (Q4_0, Q8_0), (Q8_0, Q4_0), (Q4_0, Q4_0)] {
        let layout = CellLayout { n_head_kv: 2, d_k: 96, d_v: 64, k_type, v_type };
        let mut quantised = Fixture::new(layout, 3, 300, 6);
        let mut floats = Fixture::new(CellLayout { k_type: F32, v_type: F32, ..layout }, 3, 300, 6);
        (floats.k, floats.v) = (0..300).map(|slot| quantised.stored(slot)).fold(
            (Vec::new(), Vec::new()),
            |(mut k, mut v), (new_k, new_v)| {
                k.extend(new_k);
                v.extend(new_v);
                (k, v)
            },
        );
        floats.place((0..10).collect());
        let dead = [3, 40, 255, 256];
        quantised.kill(dead.into_iter());
        floats.kill(dead.into_iter());
        let expected = floats.run(KernelSet::scalar(), &Inline, 250..300, usize::MAX);
        for set in KernelSet::available() {
            let got = quantised.run(set, &Inline, 250..300, usize::MAX);
            assert_bits(format_args!("{k_type:?} {v_type:?} {}", set.name()), &got, &expected);
        }
    }
}

#[test]
fn placement_and_bytes_of_others_change_no_bit() {
    for cells in [F16, BF16] {
        let mut fixture = Fixture::new(CellLayout { k_type: cells, v_type: cells, ..LAYOUT }, 3, 600, 4);
        let expected = fixture.run(KernelSet::detect().unwrap(), &Inline, 560..600, usize::MAX);
        fixture.assert_exact(&expected, 560..600, usize::MAX);
        let mut blocks: Vec<u32> = (0..19).map(|i| (i * 7 + 3) % 31).collect();
        blocks.reverse();
        fixture.place(blocks);
        for set in KernelSet::available() {
            let got = fixture.run(set, &Inline, 560..600, usize::MAX);
            assert_bits(format_args!("{cells:?} {}", set.name()), &got, &expected);
        }
    }
}

#[test]
fn dead_cells_and_windows_are_skipped_whatever_they_hold() {
    let two = ThreadPool::new(2).unwrap();
    for window in [1, 31, 300, usize::MAX] {
        let mut fixture = Fixture::new(LAYOUT, 2, 800, 5);
        // Holes, a dead block, a dead span.
        fixture.kill([0, 5, 33, 64, 790].into_iter().chain(96..128).chain(256..512));
        let expected = fixture.run(KernelSet::scalar(), &Inline, 740..800, window);
        fixture.assert_exact(&expected, 740..800, window);
        for set in KernelSet::available() {
            let got = fixture.run(set, &two, 740..800, window);
            assert_bits(format_args!("{} {window}", set.name()), &got, &expected);
            let width = fixture.n_head * LAYOUT.d_v;
            for slot in [740, 767, 768, 799] {
                let got = fixture.run(set, &two, slot..slot + 1, window);
                assert_bits(
                    format_args!("{} {slot}", set.name()),
                    &got,
                    &expected[(slot - 740) * width..][..width],
                );
            }
        }
    }
}

#[test]
fn sequences_in_one_batch_do_not_meet() {
    let (a, b) = (Fixture::new(LAYOUT, 3, 300, 8), Fixture::new(LAYOUT, 3, 300, 8));
    let n_blocks = a.table.len() as u32;
    let b_table: Vec<BlockEntry> =
        b.table.iter().map(|e| BlockEntry { block: e.block + n_blocks, ..*e }).collect();
    let cache: Vec<Line> = a.cache.iter().chain(&b.cache).copied().collect();
    let q_width = a.n_head * LAYOUT.d_k;
    // Interleaved, then two in a row of each.
    let order = [(0, 290), (1, 100), (0, 291), (1, 101), (1, 102), (0, 292), (0, 293)];
    let q: Vec<f32> = order.iter().flat_map(|(_, slot)| &a.q[slot * q_width..][..q_width]).copied().collect();
    let seen = |i: usize| {
        let (seq, slot) = order[i];
        Seen { table: [&a.table, &b_table][seq], slots: 0..slot as u32 + 1 }
    };
    for n_threads in [1, 2, 3] {
        let pool = ThreadPool::new(n_threads).unwrap();
        for set in KernelSet::available() {
            let attention = a.attention();
            let mut out = vec![0.0; order.len() * a.n_head * LAYOUT.d_v];
            let mut scratch = vec![0.0; attention.scratch_len(300, order.len())];
            let blocks = blocks(&LAYOUT, &cache);
            attention.run(set, &pool, &q, blocks, &seen, &mut scratch, &mut out).unwrap();
            let width = a.n_head * LAYOUT.d_v;
            for (out, (_, slot)) in out.chunks_exact(width).zip(order) {
                assert_bits(set.name(), out, &a.run(set, &Inline, slot..slot + 1, usize::MAX));
            }
        }
    }
}

#[test]
fn caps_and_sinks_are_part_of_the_softmax() {
    let two = ThreadPool::new(2).unwrap();
    let mut fixture = Fixture::new(LAYOUT, 2, 600, 9);
    fixture.soft_cap = 1.5;
    fixture.sinks = vec![0.3, -2.0, 50.0, f32::NEG_INFINITY];
    let expected = fixture.run(KernelSet::scalar(), &Inline, 590..600, usize::MAX);
    fixture.assert_exact(&expected, 590..600, usize::MAX);
    for set in KernelSet::available() {
        assert_bits(set.name(), &fixture.run(set, &two, 590..600, usize::MAX), &expected);
        let last = fixture.run(set, &two, 599..600, usize::MAX);
        assert_bits(set.name(), &last, &expected[9 * 4 * LAYOUT.d_v..]);
    }
}

#[test]
fn position_biases_are_added_to_scores_whatever_the_chunks_threads_and_places() {
    let (n, max_distance) = (600, 40);
    let mut fixture = Fixture::new(CellLayout { k_type: F16, v_type: F16, ..LAYOUT }, 3, n, 21);
    let mut blocks: Vec<u32> = (0..19).map(|i| (i * 7 + 3) % 31).collect();
    blocks.reverse();
    fixture.place(blocks.clone());
    let bias: Vec<f32> = Random::new(22).floats(fixture.n_head * (2 * max_distance + 1));
    // Positions leave some out.
    let pos = |slot: usize| (slot + slot / 100) as i32;
    let k_pos = |block: u32| {
        let i = blocks.iter().position(|&b| b == block).unwrap();
        core::array::from_fn(|c| pos(i * BLOCK_CELLS + c))
    };
    let run = |set: &KernelSet, pool: &dyn Pool, rule: BiasRule<'_>, slots: Range<usize>, ahead: usize| {
        let q_pos = |i: usize| pos(slots.start + i);
        let position_bias = PositionBias { rule, q_pos: &q_pos, k_pos: &k_pos };
        let attention = Attention { position_bias: Some(position_bias), ..fixture.attention() };
        let end = |i: usize| (slots.start + i + 1 + ahead).min(n) as u32;
        let seen = |i: usize| Seen { table: &fixture.table, slots: 0..end(i) };
        let width = fixture.n_head * LAYOUT.d_k;
        let q = &fixture.q[slots.start * width..slots.end * width];
        let mut out = vec![f32::NAN; slots.len() * fixture.n_head * LAYOUT.d_v];
        let mut scratch = vec![f32::NAN; attention.scratch_len(n, slots.len())];
        let blocks = self::blocks(&fixture.layout, &fixture.cache);
        attention.run(set, pool, q, blocks, &seen, &mut scratch, &mut out).unwrap();
        out
    };
    let rules = [BiasRule::Table { bias: &bias, max_distance }, BiasRule::Slopes { max_bias: 8.0 }];
    for (rule, ahead) in rules.into_iter().flat_map(|rule| [(rule, 0), (rule, n)]) {
        let expected = run(KernelSet::scalar(), &Inline, rule, 0..n, ahead);
        for n_threads in 1..=3 {
            let pool = ThreadPool::new(n_threads).unwrap();
            for set in KernelSet::available() {
                let chunks = [0..1, 1..8, 8..300, 300..n];
                let got: Vec<f32> =
                    chunks.into_iter().flat_map(|slots| run(set, &pool, rule, slots, ahead)).collect();
                assert_bits(format_args!("{} {n_threads}", set.name()), &got, &expected);
            }
        }
        // One row by the textbook.
        let (token, head, width) = (590, 4, fixture.n_head * LAYOUT.d_v);
        let cells: Vec<_> = (0..n.min(token + 1 + ahead)).map(|slot| (slot, fixture.stored(slot))).collect();
        let q = &fixture.q[(token * fixture.n_head + head) * LAYOUT.d_k..][..LAYOUT.d_k];
        let score = |slot: usize, k: &[f32]| {
            let distance = pos(slot) - pos(token);
            let near = distance.clamp(-(max_distance as i32), max_distance as i32);
            let bias = match rule {
                BiasRule::Table { .. } => {
                    f64::from(bias[head * (2 * max_distance + 1) + (near + max_distance as i32) as usize])
                }
                // The fifth of six heads is the first behind the fourth, the largest power of two.
                BiasRule::Slopes { .. } => -0.5 * f64::from(distance.abs()),
            };
            fixture.score(q, &k[LAYOUT.d_k..]) + bias
        };
        let weights: Vec<f64> = cells.iter().map(|(slot, (k, _))| score(*slot, k).exp()).collect();
        for d in 0..LAYOUT.d_v {
            let sum = weights.iter().zip(&cells).map(|(w, (_, (_, v)))| w * f64::from(v[LAYOUT.d_v + d]));
            let exact = sum.sum::<f64>() / weights.iter().sum::<f64>();
            let got = f64::from(expected[token * width + head * LAYOUT.d_v + d]);
            assert!((got - exact).abs() < 3e-6, "{got}, {exact} wanted");
        }
    }
}

/// Numbers so small that a processor takes a hundred times as long for each.
#[test]
fn no_weight_is_so_small_that_it_has_fewer_bits() {
    let scores: Scores = core::array::from_fn(|i| i as f32 * -0.5);
    for set in KernelSet::available() {
        let (mut p, mut running) = ([scores], Running::START);
        let shaping = Shaping { scale: 1.0, cap: 0.0 };
        let seen = [[u32::MAX; SPAN_BLOCKS]];
        let _first = (set.softmax_span)(&mut p, &seen, shaping, &mut running);
        for (score, p) in scores.iter().zip(&p[0]) {
            // 64 ln 2 is 44.36.
            let wanted = if *score > -44.3 { score.exp() } else { 0.0 };
            assert!((p - wanted).abs() <= wanted * 1e-6, "{}: exp({score}) became {p}", set.name());
        }
        for (score, kept) in [(44.0, true), (45.0, false), (100.0, false)] {
            let (mut running, mut far) = (running, [[score; SPAN_CELLS]]);
            let join = (set.softmax_span)(&mut far, &seen, shaping, &mut running);
            assert_eq!(join.keep[0] > 0.0, kept, "{}: {score}", set.name());
            assert_eq!(join.take[0], 1.0);
        }
    }
}

#[test]
fn a_row_that_sees_nothing_is_zero() {
    let mut fixture = Fixture::new(LAYOUT, 2, 40, 1);
    fixture.kill(0..40);
    for sinks in [vec![], vec![1.0; 4]] {
        fixture.sinks = sinks;
        for set in KernelSet::available() {
            assert!(fixture.run(set, &Inline, 30..40, usize::MAX).iter().all(|x| x.to_bits() == 0));
        }
    }
    assert!(fixture.run(KernelSet::scalar(), &Inline, 0..0, 0).is_empty());
}

#[test]
fn bad_calls_are_refused_before_anything_is_written() {
    let fixture = Fixture::new(LAYOUT, 2, 40, 1);
    let cache: &[u8] = bytemuck::cast_slice(&fixture.cache);
    let len = LAYOUT.block_bytes();
    let stride = core::cell::Cell::new(len + GAP);
    let missing = [BlockEntry { block: 2, live: 1 }];
    let run = |attention: Attention<'_>, q: usize, cache: &[u8], table: &[BlockEntry], out: usize| {
        let mut out = vec![7.0; out];
        let seen = |_: usize| Seen { table, slots: 0..40 };
        let q = &fixture.q[..q];
        let blocks = CellBlocks::new(cache, &LAYOUT, stride.get());
        let result = attention.run(KernelSet::scalar(), &Inline, q, blocks, &seen, &mut [], &mut out);
        assert!(result.is_ok() || out.iter().all(|&x| x == 7.0));
        result
    };
    let (attention, table) = (fixture.attention(), &fixture.table[..]);
    assert_eq!(run(attention, 80, cache, table, 96), Ok(()));
    let length = |what, found, wanted| Err(Error::Length { what, found, wanted });
    assert_eq!(run(attention, 81, cache, table, 96), length("queries", 81, 80));
    assert_eq!(run(attention, 80, cache, table, 95), length("attention output", 95, 96));
    let odd = Attention { n_head: 3, ..attention };
    assert_eq!(
        run(odd, 60, cache, table, 72),
        Err(Error::Ragged { what: "query heads", found: 3, block: 2 })
    );
    let none = Attention { n_head: 0, ..attention };
    assert_eq!(run(none, 0, cache, table, 0), length("query heads", 0, 2));
    let sinks = Attention { sinks: &[1.0], ..attention };
    assert_eq!(run(sinks, 80, cache, table, 96), length("attention sinks", 1, 4));
    let (q_pos, k_pos) = (|_: usize| 0, |_: u32| [0; BLOCK_CELLS]);
    let position_bias = Some(PositionBias {
        rule: BiasRule::Table { bias: &[0.0; 11], max_distance: 1 },
        q_pos: &q_pos,
        k_pos: &k_pos,
    });
    let biased = Attention { position_bias, ..attention };
    assert_eq!(run(biased, 80, cache, table, 96), length("relative position bias", 11, 12));
    assert_eq!(
        run(attention, 80, &cache[4..], table, 96),
        Err(Error::Alignment { what: "cache", wanted: 64 })
    );
    assert_eq!(run(attention, 80, cache, &missing, 96), Err(Error::Block { found: 2, n_blocks: 2 }));
    stride.set(len + 32);
    assert_eq!(run(attention, 80, cache, table, 96), Err(Error::Alignment { what: "cache", wanted: 64 }));
    stride.set(len + GAP);
    // Without blocks there is nothing to align.
    assert_eq!(run(attention, 80, &cache[4..8], table, 96), Err(Error::Block { found: 0, n_blocks: 0 }));
    let halves = Attention { layout: CellLayout { k_type: F16, ..LAYOUT }, ..attention };
    let wanted = halves.layout.block_bytes();
    assert_eq!(
        run(halves, 80, cache, table, 96),
        Err(Error::Length { what: "block of cells", found: len, wanted })
    );
    let quantised = Attention { layout: CellLayout { k_type: Q8_0, ..LAYOUT }, ..attention };
    let ragged = Err(Error::Ragged { what: "dimensions of a key", found: 20, block: 32 });
    assert_eq!(run(quantised, 80, cache, table, 96), ragged);
    let dead = [BlockEntry { block: 9, live: 0 }];
    assert_eq!(run(attention, 80, cache, &dead, 96), Ok(()));
}

#[test]
fn storing_by_threads_stores_the_same_and_refuses_bad_cells() {
    for (k_type, v_type, d_k, d_v) in [(Q8_0, Q4_0, 64, 32), (Q4_0, Q8_0, 32, 64)] {
        let layout = CellLayout { n_head_kv: 2, d_k, d_v, k_type, v_type };
        let fixture = Fixture::new(layout, 1, 50, 2);
        let mut row = vec![0.0; 2 * d_v];
        for (slot, v) in fixture.v.chunks_exact(2 * d_v).enumerate() {
            let block = blocks(&layout, &fixture.cache).get((slot / BLOCK_CELLS) as u32).unwrap();
            layout.load_v(block, slot % BLOCK_CELLS, &mut row);
            assert!(row.iter().zip(v).all(|(a, b)| (a - b).abs() < 0.15), "{slot} {v_type:?}");
        }
    }
    let fixture = Fixture::new(CellLayout { k_type: F16, v_type: BF16, ..LAYOUT }, 1, 700, 2);
    let Fixture { layout, k, v, .. } = &fixture;
    let mut cache = vec![Line([0xff; 64]); fixture.cache.len()];
    let mut one_by_one = cache.clone();
    for (slot, (k, v)) in k.chunks_exact(40).zip(v.chunks_exact(48)).enumerate() {
        let mut blocks = blocks_mut(layout, &mut one_by_one);
        let block = blocks.get_mut((slot / BLOCK_CELLS) as u32).unwrap();
        layout.store_k(block, slot % BLOCK_CELLS, k);
        layout.store_v(block, slot % BLOCK_CELLS, v);
    }
    let cell = |slot: usize| ((slot / BLOCK_CELLS) as u32, (slot % BLOCK_CELLS) as u32);
    for n_threads in [1, 2, 3] {
        let pool = ThreadPool::new(n_threads).unwrap();
        for set in KernelSet::available() {
            cache.fill(Line([0xff; 64]));
            store(set, &pool, layout, k, v, &cell, blocks_mut(layout, &mut cache)).unwrap();
            assert!(cache == one_by_one, "{n_threads} {}", set.name());
        }
    }
    cache.fill(Line([0x11; 64]));
    let mut refused = |cell: &(dyn Fn(usize) -> (u32, u32) + Sync), v: &[f32]| {
        let blocks = blocks_mut(layout, &mut cache);
        let error = store(KernelSet::scalar(), &Inline, layout, k, v, cell, blocks).unwrap_err();
        assert!(cache.iter().all(|line| line.0 == [0x11; 64]));
        error
    };
    assert_eq!(refused(&|i| (if i == 699 { 22 } else { 0 }, 0), v), Error::Block { found: 22, n_blocks: 22 });
    let above = Error::Length { what: "cell in its block", found: 32, wanted: 32 };
    assert_eq!(refused(&|i| (0, if i == 699 { 32 } else { 0 }), v), above);
    let short = Error::Length { what: "values", found: 10, wanted: 700 * 48 };
    assert_eq!(refused(&cell, &v[..10]), short);
    let (len, wanted) = (layout.block_bytes(), LAYOUT.block_bytes());
    let wrong: [(usize, &CellLayout, usize, Error); 3] = [
        (0, &LAYOUT, len, Error::Length { what: "block of cells", found: len, wanted }),
        (8, layout, len, Error::Alignment { what: "cache", wanted: 64 }),
        (0, layout, len + 32, Error::Alignment { what: "cache", wanted: 64 }),
    ];
    for (start, of, stride, error) in wrong {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut cache);
        let blocks = CellBlocksMut::new(&mut bytes[start..], layout, stride);
        assert_eq!(store(KernelSet::scalar(), &Inline, of, k, v, &cell, blocks), Err(error));
        assert!(cache.iter().all(|line| line.0 == [0x11; 64]));
    }
}
