//! XXH3-64 of data longer than 240 bytes: finds the damage that disks and cables do, while bytes
//! are copied.
//!
//! The kernels [`sum_stripes`](crate::KernelSet::sum_stripes) and
//! [`sum_and_copy_stripes`](crate::KernelSet::sum_and_copy_stripes) take all whole stripes of 64
//! bytes but one, in order, as they come; [`Sums::finish`] takes the last 64 bytes, which may
//! overlap the stripe before them. All kernel sets give the sums of the specification
//! (`doc/xxhash_spec.md` of xxHash, "XXH3 algorithm for large inputs", without seed, with the
//! default secret).
//!
//! It is no cryptographic hash: a person who can write a file can also write its checksum.

use crate::isa::{Scalar, Simd, lanes64};

/// Bytes that are taken at a time.
pub const STRIPE: usize = 64;

/// Stripes that form a block, after which the sums are stirred.
pub(crate) const BLOCK_STRIPES: usize = 16;

/// The factor of the stirring.
pub(crate) const STIR: u32 = 0x9e37_79b1;

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_MX: u64 = 0x1656_6791_9e37_79f9;

/// The default secret of the specification.
#[rustfmt::skip]
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// The key of each stripe of a block, then the key that a block is stirred with.
pub(crate) const KEYS: [[u8; STRIPE]; BLOCK_STRIPES + 1] = {
    let mut keys = [[0; STRIPE]; BLOCK_STRIPES + 1];
    let mut i = 0;
    while i <= BLOCK_STRIPES {
        keys[i] = key(8 * i);
        i += 1;
    }
    keys
};
/// The key of the last 64 bytes.
const LAST_KEY: [u8; STRIPE] = key(121);
/// The key of the final merge.
const MERGE_KEY: [u8; STRIPE] = key(11);

/// Return the bytes of the secret from `start`.
const fn key(start: usize) -> [u8; STRIPE] {
    let mut key = [0; STRIPE];
    let mut i = 0;
    while i < STRIPE {
        key[i] = SECRET[start + i];
        i += 1;
    }
    key
}

/// The checksum of the stripes so far.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::checksum::{STRIPE, Sums};
///
/// fn checksum(bytes: &[u8]) -> u64 {
///     let (stripes, _) = bytes[..bytes.len() - 1].as_chunks();
///     let mut sums = Sums::default();
///     (KernelSet::scalar().sum_stripes)(&mut sums, stripes);
///     sums.finish(bytes.len() as u64, bytes.last_chunk().expect("64 bytes"))
/// }
///
/// let bytes = [7; 5 * STRIPE];
/// let mut damaged = bytes;
/// damaged[100] ^= 1;
/// assert_ne!(checksum(&bytes), checksum(&damaged));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    pub(crate) lanes: [u64; 8],
    /// Stripes of the block that is not full.
    pub(crate) n_stripes: usize,
}

impl Default for Sums {
    fn default() -> Self {
        let lanes = [
            0xc2b2_ae3d,
            PRIME_1,
            0xc2b2_ae3d_27d4_eb4f,
            0x1656_67b1_9e37_79f9,
            0x85eb_ca77_c2b2_ae63,
            0x85eb_ca77,
            0x27d4_eb2f_1656_67c5,
            0x9e37_79b1,
        ];
        Self { lanes, n_stripes: 0 }
    }
}

impl Sums {
    /// Return the checksum of `len` bytes (more than 240) that end with `last`, after all stripes
    /// but the last were summed. The last stripe is the one that is not whole, or else the last
    /// whole one.
    pub fn finish(self, len: u64, last: &[u8; STRIPE]) -> u64 {
        let mut lanes = self.lanes;
        Scalar::token().sum_stripe(&mut lanes, last, &LAST_KEY);
        let keys = lanes64(&MERGE_KEY);
        let keyed: [u64; 8] = core::array::from_fn(|i| lanes[i] ^ keys[i]);
        let (pairs, _) = keyed.as_chunks();
        let sum = pairs.iter().map(folded_product).fold(len.wrapping_mul(PRIME_1), u64::wrapping_add);
        let sum = (sum ^ sum >> 37).wrapping_mul(PRIME_MX);
        sum ^ sum >> 32
    }
}

/// Return the halves of the 128-bit product, one laid over the other.
fn folded_product(&[a, b]: &[u64; 2]) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
