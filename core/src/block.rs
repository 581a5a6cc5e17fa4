//! The block formats of GGUF tensors: how elements lie in bytes, and how they are made.
//!
//! A file a format. Each has a block struct that can be cast from bytes at any alignment (all fields are bytes; numbers are little-endian
//! as in the file), and a [`Codec`] that turns one block into floats and back. Decoding is bit-equal to the reference
//! decoders of the GGUF project, encoding to its reference quantisers run without an importance matrix, so that a
//! model quantised here and one quantised there are the same file. That is why the arithmetic in here must not
//! be reordered: products, sums and roundings are part of the format in all but name.

use bytemuck::Pod;

use crate::error::Error;

pub mod bf16;
pub mod f16;
pub mod f32;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod tq2_0;

mod bits;
mod range;
mod round;
mod scale_min;
mod search;
#[cfg(test)]
mod tests;

/// A block of `N` elements in its stored form.
pub trait Codec<const N: usize>: Pod {
    /// Writes the block's elements to `y`.
    fn load(&self, y: &mut [f32; N]);

    /// The block that stands for the elements `x`.
    ///
    /// Any floats are accepted, but infinities and NaNs spoil the whole block: what it becomes is unspecified.
    fn store(x: &[f32; N]) -> Self;

    /// Decodes whole blocks: `bytes` hold exactly `y.len()` elements. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `y` is not a whole number of blocks, [`Error::Length`] if `bytes` are too few or too many.
    fn decode(bytes: &[u8], y: &mut [f32]) -> Result<(), Error> {
        check::<Self, N>(y.len(), bytes.len())?;
        let blocks = bytes.chunks_exact(size_of::<Self>());
        for (bytes, y) in blocks.zip(y.as_chunks_mut().0) {
            bytemuck::pod_read_unaligned::<Self>(bytes).load(y);
        }
        Ok(())
    }

    /// Encodes whole blocks: `bytes` have room for exactly `x.len()` elements. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `x` is not a whole number of blocks, [`Error::Length`] if `bytes` are too few or too many.
    fn encode(x: &[f32], bytes: &mut [u8]) -> Result<(), Error> {
        check::<Self, N>(x.len(), bytes.len())?;
        let blocks = bytes.chunks_exact_mut(size_of::<Self>());
        for (bytes, x) in blocks.zip(x.as_chunks().0) {
            bytes.copy_from_slice(bytemuck::bytes_of(&Self::store(x)));
        }
        Ok(())
    }
}

fn check<B: Pod, const N: usize>(n: usize, n_bytes: usize) -> Result<(), Error> {
    if !n.is_multiple_of(N) {
        return Err(Error::Ragged { what: "elements", found: n, block: N });
    }
    // Elements are four bytes each in memory and no block takes more than that for one, so this cannot overflow.
    let wanted = n / N * size_of::<B>();
    if n_bytes != wanted {
        return Err(Error::Length { what: "bytes of blocks", found: n_bytes, wanted });
    }
    Ok(())
}
