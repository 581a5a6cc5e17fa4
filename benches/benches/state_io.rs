//! Measure saving and restoring a sequence beside copying, writing and reading as many bytes, with
//! one thread and with two. The memory has the shape of SmolLM2-135M (30 layers of 3 heads of 64,
//! f16) and holds 512, 2,048 and 8,192 tokens.

use backstitch_core::cell::CellType;
use backstitch_core::pool::{Inline, Parts, Pool, ThreadPool};
use backstitch_kv::io::Space;
use backstitch_kv::storage::disk::RealDisk;
use backstitch_kv::storage::{
    self, Container, Fingerprint, Header, Scope, StateFile, StoredSnapshot, Sync, Writer, write_snapshot,
    write_snapshot_with,
};
use backstitch_kv::{
    AttentionLayer, AttentionSpec, Batch, LayerSpec, Memory, Params, Pos, RollbackParams, SeqId, Token,
};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SEQ: SeqId = SeqId(0);
const HEADER: Header = Header { fingerprint: Fingerprint([1; 32]), scope: Scope::Sequence };

/// Room for a sequence, and for another that is restored in its place.
fn memory(n_tokens: u32) -> Memory {
    let layer = AttentionLayer { n_head_kv: 3, d_k: 64, d_v: 64, ..AttentionLayer::default() };
    let attention = AttentionSpec::Cached(layer);
    let layers = vec![LayerSpec { attention, ..LayerSpec::default() }; 30];
    let (k_type, v_type) = (CellType::F16, CellType::F16);
    let timeline = RollbackParams::default();
    let params = Params::default()
        .n_ctx(2 * n_tokens + 64)
        .n_seq_max(1)
        .n_batch(2048)
        .k_type(k_type)
        .v_type(v_type)
        .rollback(timeline);
    Memory::new(&layers, &params).unwrap()
}

/// Append `n` tokens whose keys and values all differ.
fn append(memory: &mut Memory, n: u32) {
    let mut batch = Batch::new();
    let start = memory.seq_pos_max(SEQ).map_or(0, |last| last.0 + 1);
    for i in 0..n as i32 {
        batch.push(Token(1), Pos(start + i), &[SEQ], false);
    }
    let mut plan = memory.prepare(&batch, 2048).unwrap();
    while let Some(mut ubatch) = plan.next_ubatch() {
        let width = ubatch.n_tokens() * 192;
        for layer in 0..30 {
            let row = |salt: usize| -> Vec<f32> {
                let value = |i: usize| ((i * 31 + salt + start as usize * 7) % 65521) as f32 / 1024.0;
                (0..width).map(value).collect()
            };
            ubatch.store(layer).unwrap().put(&row(layer), &row(layer + 100)).unwrap();
        }
    }
    plan.commit().unwrap();
}

fn filled(n_tokens: u32) -> Memory {
    let mut memory = memory(n_tokens);
    (0..n_tokens / 512).for_each(|_| append(&mut memory, 512));
    memory
}

/// Save all of a memory so that it can be continued.
fn save(memory: &Memory, out: &mut dyn backstitch_kv::io::Write, pool: &dyn Pool) {
    let snapshot = memory.export(&[SEQ]).unwrap();
    let mut writer = Writer::in_place(out, HEADER).unwrap();
    write_snapshot_with(&mut writer, &snapshot, None, pool).unwrap();
    black_box(writer.finish().unwrap());
}

/// Save all of a memory to a path, without waiting for the disk.
fn save_to_file(memory: &Memory, path: &Path, pool: &dyn Pool) {
    let snapshot = memory.export(&[SEQ]).unwrap();
    let mut fill = |writer: &mut Writer<'_>| write_snapshot_with(writer, &snapshot, None, pool);
    let saved = storage::save(&RealDisk, path, HEADER, Sync::No, &mut fill);
    assert!(!saved.unwrap().appended);
}

fn saved(memory: &Memory) -> Vec<u8> {
    let mut bytes = Vec::new();
    let snapshot = memory.export(&[SEQ]).unwrap();
    let mut writer = Writer::in_place(&mut bytes, HEADER).unwrap();
    write_snapshot(&mut writer, &snapshot, None).unwrap();
    let (at, slot) = writer.finish().unwrap().slot();
    bytes[at as usize..at as usize + slot.len()].copy_from_slice(&slot);
    bytes
}

/// Replace the sequence by the one in a container.
fn restore(memory: &mut Memory, container: &Container<'_>, pool: &dyn Pool) {
    let stored = StoredSnapshot::open(container).unwrap();
    memory.import_with(stored.snapshot(), &stored, &[SEQ], false, pool).unwrap().commit();
}

/// Append what is new since `old`; return the number of bytes written.
fn save_again(memory: &Memory, old: &[u8], out: &mut Vec<u8>, pool: &dyn Pool) -> u64 {
    let snapshot = memory.export(&[SEQ]).unwrap();
    let container = Container::parse(old).unwrap();
    let stored = StoredSnapshot::open(&container).unwrap();
    let mut writer = Writer::append(out, &container).unwrap();
    write_snapshot_with(&mut writer, &snapshot, Some(&stored), pool).unwrap();
    writer.finish().unwrap().written
}

/// Return the path of a file that the benchmark may overwrite.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Copy as many bytes on as many threads as restoring does.
fn copy(from: &[u8], to: &mut [u8], pool: &dyn Pool) {
    let n_jobs = pool.n_threads();
    let parts = Parts::new(to, 4096, n_jobs);
    let job = |job| {
        if let Some((first, part)) = parts.take(job) {
            part.copy_from_slice(&from[first..first + part.len()]);
        }
    };
    pool.run(n_jobs, &job).unwrap();
}

fn state_io(c: &mut Criterion) {
    let two = ThreadPool::new(2).unwrap();
    let pools: [(&str, &dyn Pool); 2] = [("1_thread", &Inline), ("2_threads", &two)];
    for n_tokens in [512, 2048, 8192] {
        let mut memory = filled(n_tokens);
        let bytes = saved(&memory);
        let mut target = vec![1; bytes.len()];
        let path = file("state");
        std::fs::write(&path, &bytes).unwrap();
        let mut group = c.benchmark_group(format!("state_io/{n_tokens}"));
        group
            .sample_size(20)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(1));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        for (name, pool) in pools {
            let id = |what: &str| BenchmarkId::new(what, name);
            group.bench_function(id("copy"), |b| b.iter(|| copy(black_box(&bytes), &mut target, pool)));
            let container = Container::parse(&bytes).unwrap();
            let from_memory = id("restore_from_memory");
            group.bench_function(from_memory, |b| b.iter(|| restore(&mut memory, &container, pool)));
            group.bench_function(id("save_to_memory"), |b| {
                b.iter(|| save(&memory, &mut Space::new(&mut target), pool));
            });
            group.bench_function(id("restore_from_file"), |b| {
                b.iter(|| {
                    let file = StateFile::open(&path).unwrap();
                    restore(&mut memory, &file.container().unwrap(), pool);
                });
            });
        }
        group.bench_function("read_of_file", |b| {
            b.iter(|| File::open(&path).unwrap().read_exact(&mut target).unwrap());
        });
        group.bench_function("copy_to_fresh_pages", |b| {
            b.iter_batched(|| (), |()| black_box(&bytes).clone(), BatchSize::PerIteration);
        });
        group.bench_function("save_to_vec", |b| {
            b.iter(|| {
                target.clear();
                save(&memory, &mut target, &Inline);
            });
        });
        let new = file("new");
        let gone = || drop(std::fs::remove_file(&new));
        group.bench_function("write_of_new_file", |b| {
            b.iter_batched(gone, |()| std::fs::write(&new, &bytes).unwrap(), BatchSize::PerIteration);
        });
        for (name, pool) in pools {
            group.bench_function(BenchmarkId::new("save_to_new_file", name), |b| {
                b.iter_batched(gone, |()| save_to_file(&memory, &new, pool), BatchSize::PerIteration);
            });
        }

        append(&mut memory, 10);
        let mut more = Vec::new();
        let written = save_again(&memory, &bytes, &mut more, &Inline);
        let share = 100.0 * written as f64 / bytes.len() as f64;
        println!("saving again after 10 tokens writes {written} bytes, {share:.2} % of the first save");
        for (name, pool) in pools {
            group.bench_function(BenchmarkId::new("save_again_after_10_tokens", name), |b| {
                b.iter(|| {
                    more.clear();
                    save_again(&memory, &bytes, &mut more, pool)
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, state_io);
criterion_main!(benches);
