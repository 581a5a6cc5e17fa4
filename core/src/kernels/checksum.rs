//! Checksums of whole stripes; [`crate::checksum`] defines them.

use crate::checksum::{BLOCK_STRIPES, KEYS, STIR, STRIPE, Sums};
use crate::isa::Simd;

/// Bytes between a copy past the caches and its prefetch: the processor's own prefetcher stops at
/// the end of each page of 4 KiB.
const AHEAD: usize = 8 << 10;

/// Add whole stripes.
#[inline(always)]
pub(crate) fn sum_stripes<S: Simd>(s: S, sums: &mut Sums, stripes: &[[u8; STRIPE]]) {
    let (mut lanes, mut rest) = (sums.lanes, stripes);
    if sums.n_stripes == 0 {
        let (blocks, after) = rest.as_chunks::<BLOCK_STRIPES>();
        for block in blocks {
            for (stripe, key) in block.iter().zip(&KEYS) {
                s.sum_stripe(&mut lanes, stripe, key);
            }
            s.stir_sums(&mut lanes, &KEYS[BLOCK_STRIPES], STIR);
        }
        rest = after;
    }
    while !rest.is_empty() {
        let (run, after) = rest.split_at(rest.len().min(BLOCK_STRIPES - sums.n_stripes));
        for (stripe, key) in run.iter().zip(&KEYS[sums.n_stripes..]) {
            s.sum_stripe(&mut lanes, stripe, key);
        }
        end_run(s, sums, &mut lanes, run.len());
        rest = after;
    }
    sums.lanes = lanes;
}

/// Add whole stripes while copying them.
///
/// Sums go by stripes, copies by the cache lines of `to`, which may begin anywhere in a stripe.
#[inline(always)]
pub(crate) fn sum_and_copy_stripes<S: Simd>(
    s: S,
    sums: &mut Sums,
    from: &[[u8; STRIPE]],
    to: &mut [[u8; STRIPE]],
) {
    let n = from.len().min(to.len());
    let (from, to) = (&from[..n], to[..n].as_flattened_mut());
    let first = to.as_ptr().align_offset(STRIPE).min(to.len());
    let (start, to) = to.split_at_mut(first);
    let (from_start, from_lines) = from.as_flattened().split_at(first);
    start.copy_from_slice(from_start);
    let (mut lines, end) = to.as_chunks_mut();
    let (mut from_lines, from_end) = from_lines.as_chunks();
    end.copy_from_slice(from_end);
    let (mut lanes, mut rest) = (sums.lanes, from);
    while !rest.is_empty() {
        let (run, after) = rest.split_at(rest.len().min(BLOCK_STRIPES - sums.n_stripes));
        // One line fewer than stripes where they begin at different places.
        let (run_lines, lines_after) = lines.split_at_mut(run.len().min(lines.len()));
        let (run_from, from_after) = from_lines.split_at(run_lines.len());
        for (from, to) in run_from.iter().zip(run_lines) {
            s.prefetch(from, AHEAD);
            s.stream(from, to);
        }
        for (stripe, key) in run.iter().zip(&KEYS[sums.n_stripes..]) {
            s.sum_stripe(&mut lanes, stripe, key);
        }
        end_run(s, sums, &mut lanes, run.len());
        (rest, lines, from_lines) = (after, lines_after, from_after);
    }
    s.settle();
    sums.lanes = lanes;
}

/// Stir the sums if a block is full.
#[inline(always)]
fn end_run<S: Simd>(s: S, sums: &mut Sums, lanes: &mut [u64; 8], n_stripes: usize) {
    sums.n_stripes += n_stripes;
    if sums.n_stripes == BLOCK_STRIPES {
        s.stir_sums(lanes, &KEYS[BLOCK_STRIPES], STIR);
        sums.n_stripes = 0;
    }
}
