//! F32: single precision, little-endian.

use bytemuck::{Pod, Zeroable};

use super::codec::Codec;

/// One element.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Block([u8; 4]);

impl Codec<1> for Block {
    fn load(&self, y: &mut [f32; 1]) {
        *y = [f32::from_le_bytes(self.0)];
    }

    fn store(&[x]: &[f32; 1]) -> Self {
        Block(x.to_le_bytes())
    }
}
