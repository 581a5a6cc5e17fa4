//! Numbers of instructions of small pieces of work, counted by valgrind: the same in every run,
//! however busy the machine is.
//!
//! `cargo bench -p backstitch-benches --bench instructions` counts all pieces, and fails if one
//! takes more instructions than `instructions.tsv` says, beyond a tolerance. After `--`, `--update`
//! writes that file, and a name selects pieces. Valgrind does not know AVX-512, so the kernel set
//! is `avx2`.
#![allow(missing_docs, reason = "a program has nobody to read its items")]

use backstitch_core::attention::{Attention, Seen};
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry, CellBlocks, CellLayout, CellType};
use backstitch_core::packed::{Line, PackedType, packed_bytes};
use backstitch_core::pool::Inline;
use backstitch_core::quantized::quantized_row_bytes;
use backstitch_core::{Input, KernelSet, Packed, Product, Write, matmul, quantize};
use backstitch_models::{Context, Model, Params, Pos, Token};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// Share by which a count may exceed the one in the file. A count that is lower by as much should
/// be written to the file. Other versions of compilers and system libraries change counts a little.
const TOLERANCE: f64 = 0.03;

/// A function that prepares a piece of work, uncounted.
type Prepare = fn() -> Box<dyn FnMut()>;

const WORKS: [(&str, Prepare); 15] = [
    ("multiply 512x512 by 1, Q8_0", || multiply(PackedType::Q8_0, 1)),
    ("multiply 512x512 by 1, Q4_0", || multiply(PackedType::Q4_0, 1)),
    ("multiply 512x512 by 1, F16", || multiply(PackedType::F16, 1)),
    ("multiply 512x512 by 32, Q8_0", || multiply(PackedType::Q8_0, 32)),
    ("multiply 512x512 by 32, Q4_0", || multiply(PackedType::Q4_0, 32)),
    ("multiply 512x512 by 32, F16", || multiply(PackedType::F16, 32)),
    ("round 32 rows of 512 to 8 bits", || rounding(32)),
    ("attend 1 token to 2048", || attend(1, 2048)),
    ("attend 64 tokens to 512", || attend(64, 512)),
    ("append a token, llama", || append("llama")),
    ("append a token, gemma3", || append("gemma3")),
    ("append a token, mamba2", || append("mamba2")),
    ("append a token, falcon_h1", || append("falcon_h1")),
    ("fork and release, falcon_h1", || fork("falcon_h1")),
    ("roll back 7 tokens, falcon_h1", || rollback("falcon_h1")),
];

/// Run a piece of work. Valgrind counts inside of this function only, and finds it by its name.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}

fn set() -> &'static KernelSet {
    KernelSet::detect().expect("a kernel set")
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

fn multiply(kind: PackedType, n_tokens: usize) -> Box<dyn FnMut()> {
    const N: usize = 512;
    let n_lines = packed_bytes(kind, N, N).expect("whole blocks") / size_of::<Line>();
    let lines: Vec<Line> =
        (0..n_lines).map(|i| Line(core::array::from_fn(|j| ((i * 7 + j * 13) % 31) as u8))).collect();
    let x = numbers(n_tokens * N);
    let mut room = vec![0u32; n_tokens * quantized_row_bytes(N).expect("whole blocks") / 4];
    let mut out = vec![0.0; n_tokens * N];
    Box::new(move || {
        let weights = Packed::new(kind, N, N, bytemuck::cast_slice(&lines)).expect("the packed size");
        let quantized = quantize(set(), &Inline, &x, N, bytemuck::cast_slice_mut(&mut room)).expect("room");
        let input = Input::both(&x, quantized).expect("one shape");
        let product = Product { weights, out: &mut out, write: Write::Store };
        matmul(set(), &Inline, input, &mut [product]).expect("fits");
        black_box(&out);
    })
}

fn rounding(n_tokens: usize) -> Box<dyn FnMut()> {
    let x = numbers(n_tokens * 512);
    let mut room = vec![0u32; n_tokens * quantized_row_bytes(512).expect("whole blocks") / 4];
    Box::new(move || {
        let bytes = bytemuck::cast_slice_mut(&mut room);
        black_box(quantize(set(), &Inline, &x, 512, bytes).expect("room"));
    })
}

fn attend(n_tokens: usize, n_slots: usize) -> Box<dyn FnMut()> {
    let (k_type, v_type) = (CellType::F16, CellType::F16);
    let layout = CellLayout { n_head_kv: 3, d_k: 64, d_v: 64, k_type, v_type };
    let n_blocks = n_slots.div_ceil(BLOCK_CELLS);
    let cache = vec![Line([0x11; 64]); n_blocks * layout.block_bytes() / 64];
    let extents: Vec<BlockEntry> =
        (0..n_blocks as u32).map(|block| BlockEntry { block, live: u32::MAX }).collect();
    let (q, mut out) = (numbers(n_tokens * 9 * 64), vec![0.0; n_tokens * 9 * 64]);
    Box::new(move || {
        let attention =
            Attention { n_head: 9, scale: 0.125, soft_cap: 0.0, sinks: &[], position_bias: None, layout };
        let first = n_slots - n_tokens;
        let seen = |i: usize| Seen { table: &extents, slots: 0..(first + i) as u32 + 1 };
        let (cache, len) = (bytemuck::cast_slice(&cache), layout.block_bytes());
        let blocks = CellBlocks::new(cache, &layout, len);
        attention.run(set(), &Inline, &q, blocks, &seen, &mut [], &mut out).expect("fits");
        black_box(&out);
    })
}

/// Make a context of a tiny model that holds forty tokens.
fn context(name: &str) -> (Context, backstitch_models::SeqId) {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let model = Model::from_bytes(&fs::read(path).expect("a model")).expect("a model");
    let params = Params::default().n_ctx(128).n_seq_max(4);
    let mut ctx = Context::with_pool(&model, params, std::sync::Arc::new(Inline)).expect("a context");
    let seq = ctx.sequence().expect("a sequence");
    (0..40).for_each(|i| ctx.append(seq, &[Token(i)]).expect("room"));
    (ctx, seq)
}

fn append(name: &str) -> Box<dyn FnMut()> {
    let (mut ctx, seq) = context(name);
    Box::new(move || ctx.append(seq, &[Token(3)]).expect("room"))
}

fn fork(name: &str) -> Box<dyn FnMut()> {
    let (mut ctx, seq) = context(name);
    Box::new(move || {
        let fork = ctx.fork(seq).expect("room");
        ctx.release(fork).expect("it is there");
    })
}

fn rollback(name: &str) -> Box<dyn FnMut()> {
    let (mut ctx, seq) = context(name);
    Box::new(move || {
        let back = ctx.rollback(seq, Pos(33)).expect("it goes back");
        assert_eq!(back.reevaluated, 0);
    })
}

/// Run this program under valgrind with one piece of work, and return its number of instructions.
fn count(name: &str) -> u64 {
    let out = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*instructions*measured*",
        ])
        .arg(env::current_exe().expect("a path"))
        .args(["--run", name])
        .env("BACKSTITCH_ISA", "avx2")
        .output()
        .unwrap_or_else(|error| panic!("valgrind has to be installed: {error}"));
    let text = String::from_utf8_lossy(&out.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")).map(|(_, n)| n.trim());
    match collected.and_then(|n| n.parse().ok()) {
        Some(n) if out.status.success() && n > 0 => n,
        _ => panic!("{name}: {text}"),
    }
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.tsv")
}

fn known() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(file()).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once('\t'));
    fields.filter_map(|(name, n)| Some((name.to_owned(), n.parse().ok()?))).collect()
}

fn compare(picked: &[&(&str, Prepare)], update: bool) -> ExitCode {
    let mut known = known();
    let mut failed = false;
    for (name, _) in picked {
        let found = count(name);
        let change = known.get(*name).map(|&n| found as f64 / n as f64 - 1.0);
        let verdict = match change {
            None => "not written down",
            Some(change) if change > TOLERANCE => "too many",
            Some(change) if change < -TOLERANCE => "fewer: write it down with --update",
            Some(_) => "",
        };
        let percent = change.map_or(String::new(), |change| format!("{:+.1} %", 100.0 * change));
        println!("{found:>12} {percent:>9}  {name}  {verdict}");
        failed |= !matches!(change, Some(change) if change <= TOLERANCE);
        known.insert((*name).to_owned(), found);
    }
    if update {
        known.retain(|name, _| WORKS.iter().any(|(known, _)| known == name));
        let text: String = known.iter().map(|(name, n)| format!("{name}\t{n}\n")).collect();
        fs::write(file(), text).expect("the file can be written");
        return ExitCode::SUCCESS;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [run, name] = arguments.as_slice()
        && run == "--run"
    {
        let (_, prepare) = WORKS.iter().find(|(known, _)| known == name).expect("a piece of work");
        measured(&mut *prepare());
        return ExitCode::SUCCESS;
    }
    if env::args().any(|argument| argument == "--test") {
        // `cargo test --benches` can only check that everything runs.
        WORKS.iter().for_each(|(_, prepare)| measured(&mut *prepare()));
        return ExitCode::SUCCESS;
    }
    let update = arguments.iter().any(|argument| argument == "--update");
    let names: Vec<&String> = arguments.iter().filter(|argument| *argument != "--update").collect();
    let is_picked =
        |(name, _): &&(&str, Prepare)| names.is_empty() || names.iter().any(|n| name.contains(*n));
    let picked: Vec<_> = WORKS.iter().filter(is_picked).collect();
    compare(&picked, update)
}
