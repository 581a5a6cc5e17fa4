//! XXH3-64, the checksum of everything in a container.
//!
//! It finds what disks and cables do to bytes, at the speed of a copy. It does not hold against somebody who wants to deceive: where that
//! matters bytes are compared, or a fingerprint is used.

use core::hash::Hasher as _;
use twox_hash::xxhash3_64::Hasher;

/// The checksum of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    Hasher::oneshot(bytes)
}

/// A checksum of bytes that come in pieces; the same as if they came at once.
#[derive(Default)]
pub(super) struct Checksum(Hasher);

impl Checksum {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub fn value(&self) -> u64 {
        self.0.finish()
    }
}

/// The checksum of `pieces`, one after the other.
pub(super) fn of_pieces(pieces: &[&[u8]]) -> u64 {
    if let [only] = pieces {
        return checksum(only);
    }
    let mut sum = Checksum::default();
    pieces.iter().for_each(|piece| sum.add(piece));
    sum.value()
}
