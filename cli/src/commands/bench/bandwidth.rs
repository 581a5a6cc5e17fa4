//! How fast this machine reads memory.

use std::hint::black_box;
use std::time::Instant;

/// More than any cache holds.
const BYTES: usize = 512 << 20;
/// The best of these counts: other processes only ever slow a round down.
const ROUNDS: usize = 5;

/// Gigabytes (10^9) a second that `n_threads` read together; `None` if there is no memory to try it on.
pub fn read(n_threads: usize) -> Option<f64> {
    let n = BYTES / size_of::<u64>();
    let mut words: Vec<u64> = Vec::new();
    words.try_reserve_exact(n).ok()?;
    // Not zero: pages that were never written to may all be the same one.
    words.resize(n, 1);
    let seconds = (0..ROUNDS).map(|_| round(&words, n_threads)).min_by(f64::total_cmp)?;
    Some(BYTES as f64 / seconds / 1e9)
}

/// Seconds to read everything once, each thread its own part, of which the caller is one.
fn round(words: &[u64], n_threads: usize) -> f64 {
    let start = Instant::now();
    let mut parts = words.chunks(words.len().div_ceil(n_threads.max(1)));
    let own = parts.next().unwrap_or_default();
    std::thread::scope(|scope| {
        for part in parts {
            scope.spawn(move || black_box(sum(part)));
        }
        black_box(sum(own));
    });
    start.elapsed().as_secs_f64()
}

fn sum(words: &[u64]) -> u64 {
    let (chunks, rest) = words.as_chunks::<32>();
    // Independent sums, so that additions do not wait for each other.
    let mut sums = [0u64; 32];
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_once() {
        for n in [0, 1, 31, 32, 33, 1000] {
            let words: Vec<u64> = (0..n).collect();
            assert_eq!(sum(&words), n * n.saturating_sub(1) / 2);
        }
    }
}
