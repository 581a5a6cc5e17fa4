use super::*;
use crate::kernel_set::KernelSet;
use std::vec;
use std::vec::Vec;
use twox_hash::XxHash3_64;

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i * i * 31 + i / 7 * 13 + 5) as u8).collect()
}

/// Return the checksum, with stripes taken in runs of `run`, and what was copied.
fn sum(set: &KernelSet, bytes: &[u8], run: usize, copy: bool) -> u64 {
    let (stripes, _) = bytes[..bytes.len() - 1].as_chunks::<STRIPE>();
    let mut sums = Sums::default();
    for part in stripes.chunks(run) {
        // Wherever lines of memory begin in it.
        let mut space = vec![0; (part.len() + 1) * STRIPE];
        let before = sums;
        for start in [0, 1, 16, 48, 63, space.as_ptr().align_offset(STRIPE)] {
            let (to, _) = space[start..start + part.len() * STRIPE].as_chunks_mut();
            let mut copied = before;
            (set.sum_and_copy_stripes)(&mut copied, part, to);
            assert_eq!(to, part, "{start}");
            if copy {
                sums = copied;
            }
        }
        if !copy {
            (set.sum_stripes)(&mut sums, part);
        }
    }
    sums.finish(bytes.len() as u64, bytes.last_chunk().unwrap())
}

#[test]
fn sums_are_those_of_the_specification_on_every_set_however_stripes_come() {
    for set in KernelSet::available() {
        for len in (241..1400).step_by(3).chain([2048, 2049, 4096, 4097, 10_000, 65_537]) {
            let bytes = bytes(len);
            let wanted = XxHash3_64::oneshot(&bytes);
            for (run, copy) in [(1, false), (5, true), (16, false), (17, true), (1000, false), (1000, true)] {
                assert_eq!(sum(set, &bytes, run, copy), wanted, "{} {len} {run}", set.name());
            }
        }
    }
}

#[test]
fn copies_end_with_the_shorter_side() {
    for set in KernelSet::available() {
        let (from, mut to, mut sums) = ([[7; STRIPE]; 3], [[0; STRIPE]; 2], Sums::default());
        (set.sum_and_copy_stripes)(&mut sums, &from, &mut to);
        assert_eq!((to, sums.n_stripes), ([[7; STRIPE]; 2], 2));
    }
}
