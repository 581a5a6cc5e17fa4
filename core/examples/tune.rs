#![allow(missing_docs, unsafe_code)]
use backstitch_core::packed::*;
use backstitch_core::pool::*;
use backstitch_core::*;
#[repr(C)]
struct Ts {
    s: i64,
    n: i64,
}
unsafe extern "C" {
    fn clock_gettime(id: i32, t: *mut Ts) -> i32;
}
fn cpu() -> f64 {
    let mut t = Ts { s: 0, n: 0 };
    unsafe { clock_gettime(3, &mut t) };
    t.s as f64 + t.n as f64 * 1e-9
}
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let only = args.get(1).cloned().unwrap_or_default();
    let threads: usize = args.get(2).map_or(1, |a| a.parse().unwrap());
    let mode = args.get(3).cloned().unwrap_or_default();
    let set = KernelSet::detect().unwrap();
    let pool = ThreadPool::new(threads).unwrap();
    let run = |kind: PackedType, rows: usize, cols: usize, tokens: usize, label: &str| {
        let size = packed_bytes(kind, rows, cols).unwrap();
        let mut lines = vec![Line([0; 64]); size / 64];
        for (i, l) in lines.iter_mut().enumerate() {
            l.0 = std::array::from_fn(|j| ((i * 7 + j * 13) % 31) as u8);
        }
        let w = Packed::new(kind, rows, cols, bytemuck::cast_slice(&lines)).unwrap();
        let x: Vec<f32> = (0..tokens * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let mut room = vec![0u32; tokens * cols / 32 * 12];
        let q = quantize(set, &pool, &x, cols, bytemuck::cast_slice_mut(&mut room)).unwrap();
        let input = Input::both(&x, q).unwrap();
        let mut out = vec![0.0f32; tokens * rows];
        let mut best = f64::MAX;
        let start = Instant::now();
        let mut n = 0;
        while n < 3 || start.elapsed().as_secs_f64() < 0.25 {
            let t = cpu();
            matmul(set, &pool, input, &mut [Product { weights: w, out: &mut out, write: Write::Store }])
                .unwrap();
            best = best.min(cpu() - t);
            n += 1;
        }
        println!(
            "{:5} {label:8} {rows:6}x{cols:5} T{tokens:4}: {:8.1} us {:7.1} GOP/s {:6.1} GB/s",
            format!("{kind:?}"),
            best * 1e6,
            2.0 * (rows * cols * tokens) as f64 / best / 1e9,
            size as f64 / best / 1e9
        );
    };
    for kind in [PackedType::Q8_0, PackedType::Q4_0, PackedType::Q4_1, PackedType::F16, PackedType::F32] {
        if !only.is_empty() && !format!("{kind:?}").eq_ignore_ascii_case(&only) && only != "all" {
            continue;
        }
        if mode == "cold" {
            rawread(32768 * 2048);
            for t in [1, 2, 4, 8] {
                run(kind, 32768, 2048, t, "cold");
            }
            run(kind, 16384, 576, 1, "L3");
            run(kind, 1536, 576, 1, "L2");
            continue;
        }
        if mode == "quick" {
            run(kind, 1536, 576, 1, "L2");
            for t in [2, 3, 4, 5, 8, 16, 128] {
                run(kind, 1536, 576, t, "L2");
            }
            run(kind, 576, 1536, 128, "");
            run(kind, 576, 4096, 128, "");
            continue;
        }
        if mode != "gemm" {
            run(kind, 32768, 2048, 1, "cold");
            run(kind, 16384, 1536, 1, "L3");
            run(kind, 1536, 576, 1, "L2");
            run(kind, 576, 576, 1, "L2");
            for t in [2, 3, 4, 5, 8] {
                run(kind, 32768, 2048, t, "cold");
            }
            for t in [2, 4, 8] {
                run(kind, 1536, 576, t, "L2");
            }
        }
        if mode != "gemv" {
            for (rows, cols) in [(1536, 576), (576, 1536), (2048, 2048), (5632, 2048)] {
                run(kind, rows, cols, 128, "gemm");
            }
            run(kind, 1536, 576, 16, "gemm");
            run(kind, 1536, 576, 64, "gemm");
        }
    }
}

#[inline(never)]
fn rawread(n: usize) {
    let v = vec![1u64; n / 8];
    let mut best = f64::MAX;
    for _ in 0..8 {
        let t = cpu();
        std::hint::black_box(unsafe { sum(&v) });
        best = best.min(cpu() - t);
    }
    println!("raw read {:.1} GB/s", n as f64 / best / 1e9);
}
#[target_feature(enable = "avx512f")]
unsafe fn sum(v: &[u64]) -> u64 {
    v.iter().fold(0, |a, b| a ^ b)
}
