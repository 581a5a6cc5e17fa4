//! Quants in the bytes of a file's block.
//!
//! Types of 32 elements put elements `i` and `16 + i` into one byte. Types of 256 elements use the
//! orders that [`Plane`] describes, and are read by sub-blocks of 16 or 32 elements that share a
//! scale. Every type has its own mixture of these: Q6_K, for instance, has its lower four bits in
//! one plane and its upper two in another.

/// Set `y[i] = value(q[i])` for the 32 nibbles of a block.
pub fn each_nibble(qs: &[u8; 16], y: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let (low, high) = y.split_at_mut(16);
    for ((low, high), q) in low.iter_mut().zip(high).zip(qs) {
        *low = value(q & 15);
        *high = value(q >> 4);
    }
}

/// Return the 32 nibbles of a block, as `quant` makes them; a quant that does not fit becomes 15.
pub fn nibbles(x: &[f32; 32], quant: impl Fn(f32) -> u8) -> [u8; 16] {
    pack_nibbles(&x.map(quant))
}

/// Return the nibbles of a block; a quant that does not fit becomes 15.
pub fn pack_nibbles(q: &[u8; 32]) -> [u8; 16] {
    core::array::from_fn(|i| q[i].min(15) | q[i + 16].min(15) << 4)
}

/// Set `y[i] = value(q[i])` for the 32 five-bit quants of a block: nibbles, and bit `i` of `qh` on
/// top.
pub fn each_five(qs: &[u8; 16], qh: [u8; 4], y: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let qh = u32::from_le_bytes(qh);
    let fifth = |i: usize| ((qh >> i & 1) as u8) << 4;
    let (low, high) = y.split_at_mut(16);
    for (i, ((low, high), q)) in low.iter_mut().zip(high).zip(qs).enumerate() {
        *low = value(q & 15 | fifth(i));
        *high = value(q >> 4 | fifth(i + 16));
    }
}

/// Return the 32 five-bit quants of a block as nibbles and fifth bits; a quant that does not fit
/// becomes 31.
pub fn fives(x: &[f32; 32], quant: impl Fn(f32) -> u8) -> ([u8; 16], [u8; 4]) {
    pack_fives(&x.map(quant))
}

/// Return five-bit quants as nibbles and fifth bits; a quant that does not fit becomes 31.
pub fn pack_fives(q: &[u8; 32]) -> ([u8; 16], [u8; 4]) {
    let (mut qs, mut qh) = ([0; 16], 0_u32);
    for (i, &q) in q.iter().enumerate() {
        let q = q.min(31);
        qs[i % 16] |= (q & 15) << (i / 16 * 4);
        qh |= u32::from(q >> 4) << i;
    }
    (qs, qh.to_le_bytes())
}

/// An order of 256 quants, or of some bits of each, in bytes.
///
/// Elements come in groups that share `width` bytes: the first `width` elements have the lowest
/// bits of each byte, the next `width` the bits above them, until the bytes are full. With two bits
/// and 32 bytes, elements 0, 32, 64 and 96 share byte 0; a group is 128 elements.
pub struct Plane {
    /// Bits an element.
    pub bits: usize,
    /// Bytes that a group shares.
    pub width: usize,
}

impl Plane {
    /// One bit an element: 256 elements share 32 bytes.
    pub const ONE: Plane = Plane { bits: 1, width: 32 };
    /// Two bits an element: 128 elements share 32 bytes.
    pub const TWO: Plane = Plane { bits: 2, width: 32 };
    /// Four bits an element: 64 elements share 32 bytes.
    pub const FOUR: Plane = Plane { bits: 4, width: 32 };

    /// Return the place of element `i`: its byte, and how far it is shifted up in it.
    const fn place(&self, i: usize) -> (usize, usize) {
        let group = self.width * 8 / self.bits;
        (i / group * self.width + i % self.width, i % group / self.width * self.bits)
    }

    const fn mask(&self) -> u8 {
        (1 << self.bits) - 1
    }

    /// Return the quants of sub-block `j`, the elements from `j * S` on; `S` divides the width.
    #[inline]
    pub fn sub_block<const S: usize>(&self, bytes: &[u8], j: usize) -> [u8; S] {
        let (start, shift) = self.place(j * S);
        let mut q = [0; S];
        for (q, byte) in q.iter_mut().zip(&bytes[start..]) {
            *q = byte >> shift & self.mask();
        }
        q
    }

    /// Return the bytes of the 256 quants; of each quant, the bits from `from` on.
    pub fn pack<const BYTES: usize>(&self, q: &[u8; 256], from: usize) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (i, q) in q.iter().enumerate() {
            let (at, shift) = self.place(i);
            bytes[at] |= (q >> from & self.mask()) << shift;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_give_back_what_was_put_in() {
        let q: [u8; 256] = core::array::from_fn(|i| (i * 37 + i / 7) as u8);
        let wide = Plane { bits: 4, width: 64 };
        let one: [u8; 32] = Plane::ONE.pack(&q, 5);
        let two: [u8; 64] = Plane::TWO.pack(&q, 4);
        let four: [u8; 128] = Plane::FOUR.pack(&q, 0);
        let four_wide: [u8; 128] = wide.pack(&q, 0);
        for (j, q) in q.as_chunks::<16>().0.iter().enumerate() {
            assert_eq!(Plane::ONE.sub_block(&one, j), q.map(|q| q >> 5 & 1));
            assert_eq!(Plane::TWO.sub_block(&two, j), q.map(|q| q >> 4 & 3));
            assert_eq!(Plane::FOUR.sub_block(&four, j), q.map(|q| q & 15));
            assert_eq!(wide.sub_block(&four_wide, j), q.map(|q| q & 15));
        }
        assert_ne!(four, four_wide);
    }

    #[test]
    fn five_bit_quants_come_back() {
        let x: [f32; 32] = core::array::from_fn(|i| ((i * 11) % 32) as f32);
        let (qs, qh) = fives(&x, |x| x as u8);
        let mut y = [0.0; 32];
        each_five(&qs, qh, &mut y, f32::from);
        assert_eq!(x, y);
    }
}
