//! Planes: elements of two, four or one bits as kernels unpack them.
//!
//! A panel stores the elements of a block of 32 columns in lines of 64 bytes. In each line every
//! one of the sixteen rows owns four bytes, one for each of four neighbouring columns, because that
//! is the operand of an instruction that multiplies four bytes and adds them to a 32-bit lane
//! (VNNI, `sdot`). Elements narrower than a byte share it with other groups of four columns: a
//! [`Fours`] holds two groups a line, a [`Twos`] four, a [`Ones`] eight.
//!
//! Elements of three, five or six bits are split: the lower bits lie in one plane, the upper bits
//! in another, and kernels join them with one `or` ([`ThreeBits`], [`FiveBits`], [`SixBits`]).

use super::layout::BLOCK;
use bytemuck::{Pod, Zeroable};

/// 64 bytes: four columns of each of sixteen rows.
pub(crate) type Line = [u8; 64];

/// Four bits an element. The low nibbles of line `g` are the four columns from `4g`, the high
/// nibbles those from `16 + 4g`.
pub(crate) type Fours = [Line; 4];

/// Two bits an element. The bits from `2j` of line `g` are the four columns from `8j + 4g`.
pub(crate) type Twos = [Line; 2];

/// One bit an element. Bit `j` is the four columns from `4j`.
pub(crate) type Ones = [Line; 1];

/// Elements of three bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ThreeBits {
    /// The lower two bits.
    pub low: Twos,
    /// The upper bit.
    pub high: Ones,
}

/// Elements of five bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FiveBits {
    /// The lower four bits.
    pub low: Fours,
    /// The upper bit.
    pub high: Ones,
}

/// Elements of six bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SixBits {
    /// The lower four bits.
    pub low: Fours,
    /// The upper two bits.
    pub high: Twos,
}

/// Write the elements `q` of row `lane` to a plane of `N` bits an element.
///
/// The four columns from `4w` go to line `w % N`, to the bits from `N * (w / N)` on. An element has
/// at most `N` bits. Bytes of other rows stay as they are.
pub(crate) fn put<const N: usize>(plane: &mut [Line; N], lane: usize, q: &[u8; BLOCK]) {
    let mut words = [0; N];
    for (w, quad) in q.as_chunks().0.iter().enumerate() {
        words[w % N] |= u32::from_le_bytes(*quad) << (N * (w / N));
    }
    for (line, word) in plane.iter_mut().zip(words) {
        line.as_chunks_mut().0[lane] = word.to_le_bytes();
    }
}

/// Write the nibbles of a file's block, which hold elements `i` and `16 + i` in byte `i`.
///
/// A [`Fours`] has the same pairs in its bytes, so nothing is taken apart.
pub(crate) fn put_nibbles(plane: &mut Fours, lane: usize, qs: &[u8; 16]) {
    for (line, quad) in plane.iter_mut().zip(qs.as_chunks::<4>().0) {
        line.as_chunks_mut().0[lane] = *quad;
    }
}

/// Return the elements of row `lane` that [`put`] wrote.
pub(crate) fn get<const N: usize>(plane: &[Line; N], lane: usize) -> [u8; BLOCK] {
    core::array::from_fn(|k| {
        let byte = plane[k / 4 % N][4 * lane + k % 4];
        byte >> (N * (k / 4 / N)) & ((1 << N) - 1) as u8
    })
}

/// Return the elements of row `lane` of which the bits above the lowest `L` lie in a plane of their
/// own.
pub(crate) fn get_split<const L: usize, const H: usize>(
    low: &[Line; L],
    high: &[Line; H],
    lane: usize,
) -> [u8; BLOCK] {
    let (low, high) = (get(low, lane), get(high, lane));
    core::array::from_fn(|k| low[k] | high[k] << L)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::PANEL;

    #[test]
    fn planes_give_back_what_was_put_in() {
        fn check<const N: usize>() {
            let mut plane = [[0x55; 64]; N];
            let rows: [[u8; BLOCK]; PANEL] = core::array::from_fn(|i| {
                core::array::from_fn(|k| ((i * 37 + k * 11 + k / 5) % (1 << N)) as u8)
            });
            for (lane, q) in rows.iter().enumerate() {
                put(&mut plane, lane, q);
            }
            for (lane, q) in rows.iter().enumerate() {
                assert_eq!(get(&plane, lane), *q, "{N} bits, row {lane}");
            }
        }
        check::<1>();
        check::<2>();
        check::<4>();
    }
}
