//! Q8_0: 32 elements, one scale, 8 bits each.
//!
//! An element is `d * q`.
//!
//! ```text
//! byte   0 1   2    3    ...   33
//!        d     q0   q1   ...   q31
//! ```
//! The rounding of a block is at most half of `d`. KV caches use the same numbers, in another order
//! ([`crate::cell`]).

use bytemuck::{Pod, Zeroable};

use super::codec::Codec;
use super::f16::Half;
use super::{range, round};

/// 32 elements in 34 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale.
    pub d: Half,
    /// The elements in order.
    pub qs: [i8; 32],
}

impl Codec<32> for Block {
    fn load(&self, y: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (y, &q) in y.iter_mut().zip(&self.qs) {
            *y = f32::from(q) * d;
        }
    }

    /// Send the element farthest from zero to 127 or -127; round the rest half away from zero.
    fn store(x: &[f32; 32]) -> Self {
        let d = range::farthest(x).abs() / 127.0;
        let id = round::inverse(d);
        Block { d: Half::from_f32(d), qs: x.map(|x| round::truncate(libm::roundf(x * id)) as i8) }
    }
}
