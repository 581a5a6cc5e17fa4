//! TQ1_0: 256 elements, one scale, -1, 0 or 1 each; five of them in a byte.
//!
//! An element is `d * (q - 1)`. A byte holds five quants as the digits of a number to the base of
//! three, scaled to 256: multiplying by three pushes the next digit out at the top.
//!
//! ```text
//! byte   0 .. 31            32 .. 47          48 .. 51         52 53
//!        elements 0 .. 159  .. 239            240 .. 255       d
//! ```
//! 1.69 bits an element in all. Loaded into the panels of TQ2_0, which hold the same values.

use bytemuck::{Pod, Zeroable};

use super::codec::Codec;
use super::f16::Half;
use super::{range, round};

/// 256 elements in 54 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Five quants a byte: elements `i`, `32 + i` … of the first 160, then `i`, `16 + i` … of the
    /// next 80.
    pub qs: [u8; 48],
    /// Four quants a byte: elements `240 + i`, `244 + i` …
    pub qh: [u8; 4],
    /// The scale.
    pub d: Half,
}

/// Return the byte and the digit of element `i`.
fn place(i: usize) -> (usize, usize) {
    match i {
        ..160 => (i % 32, i / 32),
        160..240 => (32 + i % 16, (i - 160) / 16),
        _ => (48 + i % 4, (i - 240) / 4),
    }
}

/// Return digit `digit` of a byte.
fn digit(byte: u8, digit: usize) -> u8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    (u16::from(byte.wrapping_mul(POWERS[digit])) * 3 >> 8) as u8
}

impl Block {
    /// Return the quants of the 32 elements from 32j (`j` from 0 to 7).
    pub fn quants(&self, j: usize) -> [u8; 32] {
        core::array::from_fn(|k| {
            let (byte, at) = place(32 * j + k);
            digit(if byte < 48 { self.qs[byte] } else { self.qh[byte - 48] }, at)
        })
    }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            *y = self.quants(j).map(|q| (i32::from(q) - 1) as f32 * d);
        }
    }

    /// Make the largest magnitude the scale; round the rest half away from zero.
    fn store(x: &[f32; 256]) -> Self {
        let d = range::farthest(x).abs();
        let id = round::inverse(d);
        let mut numbers = [0_u8; 52];
        for (i, x) in x.iter().enumerate() {
            let q = round::truncate(libm::roundf(x * id)).wrapping_add(1) as u8;
            let number = &mut numbers[place(i).0];
            *number = number.wrapping_mul(3).wrapping_add(q);
        }
        for number in &mut numbers[48..] {
            // A digit that no element has.
            *number = number.wrapping_mul(3);
        }
        // Rounded up, so that digits come out whole again.
        let bytes = numbers.map(|number| (u16::from(number) * 256).div_ceil(243) as u8);
        let (mut qs, mut qh) = ([0; 48], [0; 4]);
        qs.copy_from_slice(&bytes[..48]);
        qh.copy_from_slice(&bytes[48..]);
        Block { qs, qh, d: Half::from_f32(d) }
    }
}
