//! XXH3-64, the checksum of everything in a container.
//!
//! It finds what disks and cables do to bytes, at the speed of a copy. It does not hold against
//! somebody who wants to deceive: where that matters bytes are compared, or a fingerprint is used.

use backstitch_core::KernelSet;
use backstitch_core::checksum::{STRIPE, Sums};
use twox_hash::XxHash3_64;

/// Up to here the specification has a way of its own, which waits for the end.
const SHORT: u64 = 240;

/// Bytes that are kept: all of a short content, whole stripes of a long one.
const KEPT: usize = 4 * STRIPE;

/// Return the checksum of `bytes`.
pub(in crate::storage) fn checksum(bytes: &[u8]) -> u64 {
    of_pieces(&[bytes])
}

/// Return the checksum of `pieces`, one after the other.
pub(in crate::storage) fn of_pieces<P: AsRef<[u8]>>(pieces: &[P]) -> u64 {
    let mut sum = Checksum::new();
    pieces.iter().for_each(|piece| sum.add(piece.as_ref()));
    sum.value()
}

/// A checksum of bytes that come in pieces; the same as if they came at once.
pub(in crate::storage) struct Checksum {
    set: &'static KernelSet,
    /// Of all stripes but those that are kept.
    sums: Sums,
    /// The last stripe that was summed, and behind it the bytes that are kept, up to `end`. Of a
    /// long content they are never none, because its last 64 bytes are summed differently.
    tail: [u8; STRIPE + KEPT],
    end: usize,
    len: u64,
}

impl Checksum {
    pub fn new() -> Self {
        // All sets give the same sums; one that was asked for and cannot be had is reported where
        // models are loaded.
        let set = KernelSet::detect().unwrap_or(KernelSet::scalar());
        Self { set, sums: Sums::default(), tail: [0; STRIPE + KEPT], end: STRIPE, len: 0 }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.take(bytes, None);
    }

    /// Add the bytes of `from` while they are copied to `to`, which is as long.
    pub fn add_copied(&mut self, from: &[u8], to: &mut [u8]) {
        debug_assert_eq!(from.len(), to.len(), "a copy is as long as its source");
        self.take(from, Some(to));
    }

    fn take(&mut self, bytes: &[u8], copy: Option<&mut [u8]>) {
        self.len = self.len.saturating_add(bytes.len() as u64);
        let (front, behind) = bytes.split_at((self.tail.len() - self.end).min(bytes.len()));
        let (summed, rest) = behind.split_at(behind.len().saturating_sub(1) / STRIPE * STRIPE);
        let (stripes, _) = summed.as_chunks();
        self.keep(front);
        if !behind.is_empty() {
            // What is kept is as much as can be.
            let (kept, _) = self.tail[STRIPE..].as_chunks();
            (self.set.sum_stripes)(&mut self.sums, kept);
            self.tail.copy_within(KEPT.., 0);
            self.end = STRIPE;
        }
        match copy {
            None => (self.set.sum_stripes)(&mut self.sums, stripes),
            Some(to) => {
                let (to_front, to) = to.split_at_mut(front.len());
                let (to_summed, to_rest) = to.split_at_mut(summed.len());
                to_front.copy_from_slice(front);
                (self.set.sum_and_copy_stripes)(&mut self.sums, stripes, to_summed.as_chunks_mut().0);
                to_rest.copy_from_slice(rest);
            }
        }
        if let Some(last) = stripes.last() {
            self.tail[..STRIPE].copy_from_slice(last);
        }
        self.keep(rest);
    }

    /// Keep `bytes`, which there is room for.
    fn keep(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        self.tail[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    pub fn value(&self) -> u64 {
        let kept = &self.tail[STRIPE..self.end];
        if self.len <= SHORT {
            return XxHash3_64::oneshot(kept);
        }
        let mut sums = self.sums;
        let (stripes, _) = kept[..kept.len() - 1].as_chunks();
        (self.set.sum_stripes)(&mut sums, stripes);
        sums.finish(self.len, &core::array::from_fn(|i| self.tail[self.end - STRIPE + i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn checksums_are_those_of_the_specification_for_every_length_and_every_way_to_cut() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i * 7 + i / 3) as u8).collect();
        for len in (0..700).chain([1023, 1024, 1025, 2048, 4999, 5000]) {
            let bytes = &bytes[..len];
            let wanted = XxHash3_64::oneshot(bytes);
            assert_eq!(checksum(bytes), wanted, "{len}");
            for step in [1, 63, 64, 65, 192, 255, 256, 257, 1024, 1500] {
                let (mut sum, mut copying, mut copy) = (Checksum::new(), Checksum::new(), vec![0; len]);
                for (piece, to) in bytes.chunks(step).zip(copy.chunks_mut(step)) {
                    sum.add(piece);
                    sum.add(&[]);
                    copying.add_copied(piece, to);
                }
                assert_eq!((sum.value(), copying.value()), (wanted, wanted), "{len} in steps of {step}");
                assert_eq!(copy, bytes);
            }
        }
    }
}
