//! Memory operations without a model, in a hybrid of layers that cache all tokens, layers with a
//! window, and recurrent layers: sequences of 1,000, 10,000 and 100,000 cells.

use backstitch_core::cell::CellType;
use backstitch_kv::{
    AttentionLayer, AttentionSpec, Batch, LayerSpec, Memory, Params, Pos, RollbackParams, SeqId, StateTensor,
    Token, Window,
};
use backstitch_models::{Context, Model};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;

const SEQ: SeqId = SeqId(0);
const FORK: SeqId = SeqId(1);

/// Make a memory with four layers of each kind. They are narrow, because the bytes of keys and
/// values are not what is measured.
fn memory(n_ctx: u32) -> Memory {
    let layer = AttentionLayer { n_head_kv: 1, d_k: 8, d_v: 8, ..AttentionLayer::default() };
    let windowed = AttentionLayer { window: Some(Window::Sliding(512)), ..layer.clone() };
    let attention = |layer: &AttentionLayer| LayerSpec {
        attention: AttentionSpec::Cached(layer.clone()),
        ..LayerSpec::default()
    };
    let recurrent =
        LayerSpec { recurrent: vec![StateTensor { len: 256, input: 16 }], ..LayerSpec::default() };
    let layers: Vec<LayerSpec> =
        (0..4).flat_map(|_| [attention(&layer), attention(&windowed), recurrent.clone()]).collect();
    let (k_type, v_type) = (CellType::F16, CellType::F16);
    let rollback = RollbackParams::default();
    let params = Params::default()
        .n_ctx(n_ctx + 4096)
        .n_seq_max(8)
        .n_batch(2048)
        .k_type(k_type)
        .v_type(v_type)
        .rollback(rollback);
    Memory::new(&layers, &params).unwrap()
}

/// Append `n` tokens to a sequence.
fn append(memory: &mut Memory, batch: &mut Batch, seq: SeqId, n: u32) {
    batch.clear();
    let start = memory.seq_pos_max(seq).map_or(0, |last| last.0 + 1);
    for i in 0..n as i32 {
        batch.push(Token(1), Pos(start + i), &[seq], false);
    }
    let mut plan = memory.prepare(batch, 512).unwrap();
    while let Some(ubatch) = plan.next_ubatch() {
        black_box(ubatch.n_tokens());
    }
    plan.commit().unwrap();
}

fn filled(n_cells: u32) -> (Memory, Batch) {
    let (mut memory, mut batch) = (memory(n_cells), Batch::new());
    let mut left = n_cells;
    while left > 0 {
        let n = left.min(2048);
        append(&mut memory, &mut batch, SEQ, n);
        left -= n;
    }
    (memory, batch)
}

fn rewind(memory: &mut Memory, back: i32) {
    let end = memory.seq_pos_max(SEQ).unwrap().0 + 1;
    let mut rewind = memory.rewind(SEQ, Pos(end - back), 512).unwrap();
    assert_eq!(rewind.route().reevaluated, 0);
    while let Some(ubatch) = rewind.next_ubatch() {
        black_box(ubatch.n_tokens());
    }
    rewind.commit().unwrap();
}

fn operations(c: &mut Criterion) {
    for n_cells in [1_000, 10_000, 100_000] {
        let (mut memory, mut batch) = filled(n_cells);
        let mut group = c.benchmark_group("memory");
        let id = |name: &str| BenchmarkId::new(name, n_cells);
        group.bench_function(id("append_1_and_go_back_1"), |b| {
            b.iter(|| {
                append(&mut memory, &mut batch, SEQ, 1);
                rewind(&mut memory, 1);
            });
        });
        group.bench_function(id("append_20_and_go_back_20"), |b| {
            b.iter(|| {
                append(&mut memory, &mut batch, SEQ, 20);
                rewind(&mut memory, 20);
            });
        });
        group.bench_function(id("pin_and_unpin"), |b| {
            b.iter(|| {
                memory.pin(SEQ).unwrap();
                let end = Pos(memory.seq_pos_max(SEQ).unwrap().0 + 1);
                memory.unpin(SEQ, end).unwrap()
            });
        });
        group.bench_function(id("plan_32_and_drop"), |b| {
            batch.clear();
            let start = memory.seq_pos_max(SEQ).unwrap().0 + 1;
            (0..32).for_each(|i| {
                batch.push(Token(1), Pos(start + i), &[SEQ], false);
            });
            b.iter(|| drop(memory.prepare(&batch, 512).unwrap()));
        });
        group.bench_function(id("fork_and_remove"), |b| {
            b.iter(|| {
                memory.seq_cp(SEQ, FORK, Pos::ZERO..Pos::MAX).unwrap();
                memory.seq_rm(FORK, Pos::ZERO..Pos::MAX).unwrap();
            });
        });
        group.finish();
    }
}

/// Measure the sequences of a hybrid model: tokens, memory, checkpoints and journals together.
fn contexts(c: &mut Criterion) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/falcon_h1.gguf");
    let model = Model::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    let params = backstitch_models::Params::default().n_ctx(4096).n_seq_max(2);
    let mut ctx = Context::new(&model, params).unwrap();
    let seq = ctx.sequence().unwrap();
    let tokens: Vec<Token> = (0..2000).map(|i| Token(i % 250)).collect();
    ctx.append(seq, &tokens).unwrap();
    let mut group = c.benchmark_group("context");
    group.bench_function("fork_2000_tokens_and_release", |b| {
        b.iter(|| {
            let fork = ctx.fork(seq).unwrap();
            ctx.release(fork).unwrap();
        });
    });
    group.bench_function("fork_go_back_31_tokens_and_release", |b| {
        b.iter(|| {
            let fork = ctx.fork(seq).unwrap();
            ctx.rollback(fork, Pos(1969)).unwrap();
            ctx.release(fork).unwrap();
        });
    });
    group.finish();
}

criterion_group!(benches, operations, contexts);
criterion_main!(benches);
