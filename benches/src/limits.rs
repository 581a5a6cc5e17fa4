//! What this machine can do at most: read from caches and memory, multiply and add in registers. Measured when first asked for.

#![allow(unsafe_code)]

use crate::Cost;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// The best of these counts: other processes only ever slow a round down.
const ROUNDS: usize = 7;

/// Bytes that are read again and again: in the first cache, the second, the third or memory, and neither.
const SIZES: [usize; 4] = [24 << 10, 1 << 20, 24 << 20, 512 << 20];

/// Rates of some threads together, in 10^9 a second.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes read, from each of [`SIZES`] a thread.
    read: [f64; SIZES.len()],
    /// Operations on floats, two for a fused multiplication and addition.
    flops: f64,
    /// The same on bytes.
    byte_ops: f64,
}

impl Limits {
    /// Those of one thread, or of two.
    pub fn of(n_threads: usize) -> &'static Self {
        static ONE: OnceLock<Limits> = OnceLock::new();
        static TWO: OnceLock<Limits> = OnceLock::new();
        if n_threads < 2 {
            ONE.get_or_init(|| Self::measure(1))
        } else {
            TWO.get_or_init(|| Self::measure(2))
        }
    }

    fn measure(n_threads: usize) -> Self {
        let words: Vec<u64> = vec![1; SIZES[SIZES.len() - 1] / size_of::<u64>() / n_threads];
        let read = SIZES.map(|bytes| {
            let words = &words[..words.len().min(bytes / size_of::<u64>())];
            let times = (16 << 20) / size_of_val(words) + 1;
            let rate = rate(n_threads, || (0..times).for_each(|_| _ = black_box(sum(black_box(words)))));
            rate * (times * size_of_val(words)) as f64
        });
        let flops = rate(n_threads, || _ = black_box(multiply_floats(black_box(0.5)))) * FLOPS;
        let byte_ops = rate(n_threads, || _ = black_box(multiply_bytes(black_box(3)))) * BYTE_OPS;
        let limits = Self { read, flops, byte_ops };
        println!("limits of {n_threads} threads: {limits}");
        limits
    }

    /// How much of the limit a call of `cost` reaches that takes `seconds`, and which limit that is.
    pub fn share(&self, cost: Cost, seconds: f64) -> (f64, &'static str) {
        let size = SIZES.iter().position(|&size| cost.bytes <= size).unwrap_or(SIZES.len() - 1);
        let least = [
            (cost.bytes as f64 / self.read[size], "reading"),
            (cost.flops as f64 / self.flops, "multiplying floats"),
            (cost.byte_ops as f64 / self.byte_ops, "multiplying bytes"),
        ];
        let (least, what) = least.into_iter().fold((0.0, ""), |a, b| if b.0 > a.0 { b } else { a });
        (least / 1e9 / seconds, what)
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { read, flops, byte_ops } = self;
        for (size, rate) in SIZES.iter().zip(read) {
            write!(f, "{rate:.0} GB/s of {} KiB, ", size >> 10)?;
        }
        write!(f, "{flops:.0} GFLOP/s, {byte_ops:.0} GOP/s of bytes")
    }
}

/// How often a nanosecond `work` is done, by all threads together.
fn rate(n_threads: usize, work: impl Fn() + Sync) -> f64 {
    let round = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            (1..n_threads).for_each(|_| _ = scope.spawn(&work));
            work();
        });
        start.elapsed().as_secs_f64()
    };
    let seconds = (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min);
    n_threads as f64 / seconds / 1e9
}

/// Declares a function that is compiled for the widest vectors there are.
macro_rules! widest {
    ($name:ident, $body:ident, $arg:ty => $out:ty) => {
        fn $name(x: $arg) -> $out {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,fma")]
                fn wide(x: $arg) -> $out {
                    $body(x)
                }
                #[target_feature(enable = "avx2,fma")]
                fn narrow(x: $arg) -> $out {
                    $body(x)
                }
                if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vnni") {
                    // SAFETY: the processor has these features.
                    return unsafe { wide(x) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has these features.
                    return unsafe { narrow(x) };
                }
            }
            $body(x)
        }
    };
}

widest!(sum, sum_body, &[u64] => u64);
widest!(multiply_floats, multiply_floats_body, f32 => f32);

#[inline(always)]
fn sum_body(words: &[u64]) -> u64 {
    // Independent sums, so that additions do not wait for each other.
    let mut sums = [0u64; 64];
    for chunk in words.as_chunks::<64>().0 {
        sums.iter_mut().zip(chunk).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    sums.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Sums that are independent of each other, vectors of 16, and additions to each.
const SUMS: usize = 12;
const LANES: usize = 16;
const TIMES: usize = 1 << 18;
const FLOPS: f64 = (2 * SUMS * LANES * TIMES) as f64;

#[inline(always)]
fn multiply_floats_body(x: f32) -> f32 {
    let (mut sums, factor) = ([[x; LANES]; SUMS], [x; LANES]);
    for _ in 0..TIMES {
        for sum in &mut sums {
            for (sum, factor) in sum.iter_mut().zip(&factor) {
                *sum = sum.mul_add(*factor, *factor);
            }
        }
    }
    sums.iter().flatten().sum()
}

const BYTE_OPS: f64 = (2 * SUMS * 4 * LANES * TIMES) as f64;

/// Products of bytes, summed by fours, where the processor has an instruction for that; else nothing is known and nothing limits.
fn multiply_bytes(x: i32) -> i32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm512_add_epi32, _mm512_dpbusd_epi32, _mm512_reduce_add_epi32, _mm512_set1_epi32,
        };
        #[target_feature(enable = "avx512f,avx512vnni")]
        fn products(x: i32) -> i32 {
            let x = _mm512_set1_epi32(x);
            let mut sums = [x; SUMS];
            for _ in 0..TIMES {
                for sum in &mut sums {
                    *sum = _mm512_dpbusd_epi32(*sum, x, x);
                }
            }
            _mm512_reduce_add_epi32(sums.into_iter().fold(x, |a, b| _mm512_add_epi32(a, b)))
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the processor has these features.
            return unsafe { products(x) };
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_vectors_compute_what_narrow_ones_do() {
        assert_eq!(sum(&[3; 128]), 384);
        assert_eq!(multiply_floats(0.5).to_bits(), multiply_floats_body(0.5).to_bits());
        // All products or nothing.
        let each = 3 * 3 * TIMES as i32 + 3;
        assert!([3, (3 + SUMS as i32 * each) * LANES as i32].contains(&multiply_bytes(3)));
    }

    #[test]
    fn the_share_is_that_of_the_tightest_limit() {
        let limits = Limits { read: [100.0, 50.0, 25.0, 10.0], flops: 200.0, byte_ops: 800.0 };
        let second = |bytes, flops, byte_ops| limits.share(Cost { bytes, flops, byte_ops }, 1.0);
        assert_eq!(second(1000, 0, 0), (1e-8, "reading"));
        assert_eq!(second(1 << 30, 0, 0), ((1u64 << 30) as f64 / 1e10, "reading"));
        assert_eq!(second(1000, 4000, 8000), (2e-8, "multiplying floats"));
        assert_eq!(second(1000, 0, 40_000), (5e-8, "multiplying bytes"));
    }
}
