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
pub(in crate::storage) fn of_pieces(pieces: &[&[u8]]) -> u64 {
    let mut sum = Checksum::new();
    pieces.iter().for_each(|piece| sum.add(piece));
    sum.value()
}

/// A checksum of bytes that come in pieces; the same as if they came at once.
pub(in crate::storage) struct Checksum {
    set: &'static KernelSet,
    /// Of all stripes but those that are kept.
    sums: Sums,
    /// The last stripe that was summed.
    last: [u8; STRIPE],
    kept: [u8; KEPT],
    n_kept: usize,
    len: u64,
}

/// The fate of a piece of bytes.
struct Split<'a> {
    /// Goes to what is kept.
    front: &'a [u8],
    /// Summed where it lies.
    stripes: &'a [[u8; STRIPE]],
    /// Kept in turn: never nothing, because the last stripe is summed differently.
    rest: &'a [u8],
}

impl Checksum {
    pub fn new() -> Self {
        // All sets give the same sums; one that was asked for and cannot be had is reported where
        // models are loaded.
        let set = KernelSet::detect().unwrap_or(KernelSet::scalar());
        Self { set, sums: Sums::default(), last: [0; STRIPE], kept: [0; KEPT], n_kept: 0, len: 0 }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        let Split { front, stripes, rest } = self.split(bytes);
        self.keep(front);
        if !rest.is_empty() {
            self.sum_kept();
            (self.set.sum_stripes)(&mut self.sums, stripes);
            self.keep_behind(stripes, rest);
        }
    }

    /// Add the bytes of `from` while they are copied to `to`, which is as long; else the copy ends
    /// with the shorter.
    pub fn add_copied(&mut self, from: &[u8], to: &mut [u8]) {
        let n = from.len().min(to.len());
        let from = from.get(..n).unwrap_or_default();
        let Split { front, stripes, rest } = self.split(from);
        let Some((to_front, to)) = to.split_at_mut_checked(front.len()) else { return };
        to_front.copy_from_slice(front);
        self.keep(front);
        if !rest.is_empty() {
            self.sum_kept();
            let (to_stripes, to) = to.split_at_mut(stripes.as_flattened().len());
            (self.set.sum_and_copy_stripes)(&mut self.sums, stripes, to_stripes.as_chunks_mut().0);
            if let Some(to_rest) = to.get_mut(..rest.len()) {
                to_rest.copy_from_slice(rest);
            }
            self.keep_behind(stripes, rest);
        }
    }

    pub fn value(&self) -> u64 {
        let kept = self.kept.get(..self.n_kept).unwrap_or_default();
        if self.len <= SHORT {
            return XxHash3_64::oneshot(kept);
        }
        let mut sums = self.sums;
        let (stripes, _) = kept.get(..self.n_kept.saturating_sub(1)).unwrap_or_default().as_chunks();
        (self.set.sum_stripes)(&mut sums, stripes);
        let last = kept.last_chunk().copied().unwrap_or_else(|| joined(&self.last, kept));
        sums.finish(self.len, &last)
    }

    fn split<'a>(&mut self, bytes: &'a [u8]) -> Split<'a> {
        self.len = self.len.saturating_add(bytes.len() as u64);
        let (front, behind) = bytes.split_at((KEPT - self.n_kept).min(bytes.len()));
        let n_stripes = behind.len().saturating_sub(1) / STRIPE;
        let (stripes, rest) = behind.split_at(n_stripes * STRIPE);
        Split { front, stripes: stripes.as_chunks().0, rest }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.kept.get_mut(self.n_kept..).unwrap_or_default();
        room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self.n_kept += bytes.len();
    }

    /// Sum what is kept, which is as much as can be.
    fn sum_kept(&mut self) {
        let (stripes, _) = self.kept.as_chunks();
        (self.set.sum_stripes)(&mut self.sums, stripes);
        self.last = stripes.last().copied().unwrap_or(self.last);
        self.n_kept = 0;
    }

    /// Keep `rest`, which follows `stripes`.
    fn keep_behind(&mut self, stripes: &[[u8; STRIPE]], rest: &[u8]) {
        self.last = stripes.last().copied().unwrap_or(self.last);
        self.keep(rest);
    }
}

/// Return the last 64 bytes of a stripe and what follows it.
fn joined(before: &[u8; STRIPE], after: &[u8]) -> [u8; STRIPE] {
    let mut bytes = before.iter().chain(after).skip(after.len());
    core::array::from_fn(|_| bytes.next().copied().unwrap_or_default())
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
