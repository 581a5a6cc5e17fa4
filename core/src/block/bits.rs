//! How quants are packed into bytes.
//!
//! Blocks of 32 put elements `i` and `16 + i` into one byte; blocks of 256 use the layouts that [`Plane`] describes, and
//! are read by strips of 16 or 32 elements that share a scale.

/// `y[i] = value(q[i])` for the 32 nibbles of a block.
pub fn each_nibble(qs: &[u8; 16], y: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let (low, high) = y.split_at_mut(16);
    for ((low, high), q) in low.iter_mut().zip(high).zip(qs) {
        *low = value(q & 15);
        *high = value(q >> 4);
    }
}

/// The 32 nibbles of a block; what does not fit in one becomes 15.
pub fn nibbles(x: &[f32; 32], quant: impl Fn(f32) -> u8) -> [u8; 16] {
    let mut qs = [0; 16];
    let (low, high) = x.split_at(16);
    for ((q, &low), &high) in qs.iter_mut().zip(low).zip(high) {
        *q = quant(low).min(15) | quant(high).min(15) << 4;
    }
    qs
}

/// `y[i] = value(q[i])` for the 32 five-bit quants of a block: nibbles, and bit `i` of `qh` on top.
pub fn each_five(qs: &[u8; 16], qh: [u8; 4], y: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let qh = u32::from_le_bytes(qh);
    let fifth = |i: usize| ((qh >> i & 1) as u8) << 4;
    let (low, high) = y.split_at_mut(16);
    for (i, ((low, high), q)) in low.iter_mut().zip(high).zip(qs).enumerate() {
        *low = value(q & 15 | fifth(i));
        *high = value(q >> 4 | fifth(i + 16));
    }
}

/// The 32 five-bit quants of a block as nibbles and fifth bits; what does not fit becomes 31.
pub fn fives(x: &[f32; 32], quant: impl Fn(f32) -> u8) -> ([u8; 16], [u8; 4]) {
    let (mut qs, mut qh) = ([0; 16], 0_u32);
    for (i, &x) in x.iter().enumerate() {
        let q = quant(x).min(31);
        qs[i % 16] |= (q & 15) << (i / 16 * 4);
        qh |= u32::from(q >> 4) << i;
    }
    (qs, qh.to_le_bytes())
}

/// A layout of 256 quants, some bits of each, in bytes.
///
/// Elements come in groups that share `width` bytes: the first `width` elements have the lowest bits of each byte, the
/// next `width` the bits above them, until the bytes are full.
pub struct Plane {
    /// Bits an element.
    pub bits: usize,
    /// Bytes a group.
    pub width: usize,
}

impl Plane {
    /// One bit an element: 256 elements share 32 bytes.
    pub const ONE: Plane = Plane { bits: 1, width: 32 };
    /// Two bits an element: 128 elements share 32 bytes.
    pub const TWO: Plane = Plane { bits: 2, width: 32 };
    /// Four bits an element: 64 elements share 32 bytes.
    pub const FOUR: Plane = Plane { bits: 4, width: 32 };

    /// Where element `i` lies: its byte, and how far it is shifted up in it.
    const fn place(&self, i: usize) -> (usize, usize) {
        let group = self.width * 8 / self.bits;
        (i / group * self.width + i % self.width, i % group / self.width * self.bits)
    }

    const fn mask(&self) -> u8 {
        (1 << self.bits) - 1
    }

    /// The quants of strip `j`, that is of the elements from `j * S` on; `S` divides the width.
    #[inline]
    pub fn strip<const S: usize>(&self, bytes: &[u8], j: usize) -> [u8; S] {
        let (start, shift) = self.place(j * S);
        let mut q = [0; S];
        for (q, byte) in q.iter_mut().zip(&bytes[start..]) {
            *q = byte >> shift & self.mask();
        }
        q
    }

    /// The bytes of the 256 quants; of each quant, the bits from `from` on.
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
            assert_eq!(Plane::ONE.strip(&one, j), q.map(|q| q >> 5 & 1));
            assert_eq!(Plane::TWO.strip(&two, j), q.map(|q| q >> 4 & 3));
            assert_eq!(Plane::FOUR.strip(&four, j), q.map(|q| q & 15));
            assert_eq!(wide.strip(&four_wide, j), q.map(|q| q & 15));
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
