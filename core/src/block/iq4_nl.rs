//! IQ4_NL: 32 elements, one scale, 4 bits each that choose from sixteen uneven values.
//!
//! An element is `d * VALUES[q]`. A codebook spends its steps where most weights are, near
//! zero; the steps of Q4_0, of the same size, are even.
//!
//! ```text
//! byte   0 1   2        3        ...   17
//!        d     q0 q16   q1 q17   ...   q15 q31      low nibble, high nibble
//! ```

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::f16::Half;
use super::search::{codebook, index, squares};
use super::{bits, round};

/// The values that the quants choose, in ascending order; denser near zero.
pub const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 32 elements in 18 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale.
    pub d: Half,
    /// Element `i` in the low nibble of byte `i`, element `16 + i` in the high one.
    pub qs: [u8; 16],
}

/// Encode a block whose errors count by `w`.
fn encode(x: &[f32; 32], w: &[f32; 32]) -> Block {
    let d = codebook(x, w, &VALUES);
    let id = round::inverse(d);
    Block { d: Half::from_f32(d), qs: bits::nibbles(x, |x| index(id * x, &VALUES) as u8) }
}

impl Codec<32> for Block {
    fn load(&self, y: &mut [f32; 32]) {
        let d = self.d.to_f32();
        bits::each_nibble(&self.qs, y, |q| d * f32::from(VALUES[usize::from(q & 15)]));
    }

    /// Search for the scale. The quants are those of the scale before it is rounded to half
    /// precision.
    fn store(x: &[f32; 32]) -> Self {
        encode(x, &squares(x))
    }

    fn store_important(x: &[f32; 32], importance: &Importance<'_, 32>) -> Self {
        encode(x, &importance.weights(0, x, sum_of_squares(x) * (2.0 / 32.0)))
    }
}
