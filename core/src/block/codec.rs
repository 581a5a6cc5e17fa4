//! One block of floats to its stored form and back.

use bytemuck::Pod;

use crate::error::Error;

/// A block of `N` elements in its stored form.
pub trait Codec<const N: usize>: Pod {
    /// Write the block's elements to `y`.
    fn load(&self, y: &mut [f32; N]);

    /// Return the block that stands for the elements `x`.
    ///
    /// Any floats are accepted, but infinities and NaNs spoil the whole block: its bytes are
    /// unspecified then.
    fn store(x: &[f32; N]) -> Self;

    /// Decode whole blocks: `bytes` hold exactly `y.len()` elements. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `y` is not a whole number of blocks, [`Error::Length`] if `bytes` are
    /// too few or too many; `y` is untouched then.
    fn decode(bytes: &[u8], y: &mut [f32]) -> Result<(), Error> {
        check::<Self, N>(y.len(), bytes.len())?;
        let blocks = bytes.chunks_exact(size_of::<Self>());
        for (bytes, y) in blocks.zip(y.as_chunks_mut().0) {
            bytemuck::pod_read_unaligned::<Self>(bytes).load(y);
        }
        Ok(())
    }

    /// Encode whole blocks: `bytes` have room for exactly `x.len()` elements. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `x` is not a whole number of blocks, [`Error::Length`] if `bytes` are
    /// too few or too many; `bytes` are untouched then.
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
    // Elements are four bytes each in memory and no block takes more for one: no overflow.
    let wanted = n / N * size_of::<B>();
    if n_bytes != wanted {
        return Err(Error::Length { what: "bytes of blocks", found: n_bytes, wanted });
    }
    Ok(())
}
