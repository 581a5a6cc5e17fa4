//! One block of floats to its stored form and back.

use bytemuck::Pod;

use crate::error::{Error, whole_rows};

/// The importance of errors in a block's elements, as an importance matrix gives it.
#[derive(Clone, Copy)]
pub struct Importance<'a, const N: usize> {
    /// A number for each element, at least 0.
    pub of: &'a [f32; N],
    /// The mean of the squares of the elements of the whole row.
    pub row_mean_square: f32,
}

impl<const N: usize> Importance<'_, N> {
    /// Return the weights of errors in sub-block `j` of `S` elements, `x`: the importance of an
    /// element times the root of its square plus `mean_square`.
    pub fn weights<const S: usize>(&self, j: usize, x: &[f32; S], mean_square: f32) -> [f32; S] {
        let of = &self.of.as_chunks::<S>().0[j];
        core::array::from_fn(|i| of[i] * libm::sqrtf(mean_square + x[i] * x[i]))
    }
}

/// Return the sum of squares, in order.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x)
}

/// A block of `N` elements in its stored form.
pub trait Codec<const N: usize>: Pod {
    /// True if the type has no encoder without importance: so few bits are left that errors must go
    /// where they do least harm.
    const NEEDS_IMPORTANCE: bool = false;

    /// Write the block's elements to `y`.
    fn load(&self, y: &mut [f32; N]);

    /// Return the block that stands for the elements `x`.
    ///
    /// Any floats are accepted, but infinities and NaNs spoil the whole block: its bytes are
    /// unspecified then.
    fn store(x: &[f32; N]) -> Self;

    /// Return the block that stands for the elements `x`, whose errors matter as `importance` says.
    /// Types whose reference quantiser pays no heed to it do as [`Codec::store`].
    fn store_important(x: &[f32; N], _importance: &Importance<'_, N>) -> Self {
        Self::store(x)
    }

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

    /// Encode rows of as many elements as `importance` has, a number of at least 0 for each column:
    /// `bytes` have room for exactly `x.len()` elements. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `importance` is not a whole number of blocks or `x` are no whole rows,
    /// [`Error::Length`] if `bytes` are too few or too many; `bytes` are untouched then.
    fn encode_important(x: &[f32], importance: &[f32], bytes: &mut [u8]) -> Result<(), Error> {
        let n_cols = importance.len();
        if whole_rows(x.len(), n_cols).is_none() {
            return Err(Error::Ragged { what: "elements with importance", found: x.len(), block: n_cols });
        }
        check::<Self, N>(n_cols, n_cols / N * size_of::<Self>())?;
        check::<Self, N>(x.len(), bytes.len())?;
        let row_bytes = (n_cols / N * size_of::<Self>()).max(1);
        for (x, bytes) in x.chunks(n_cols.max(1)).zip(bytes.chunks_exact_mut(row_bytes)) {
            let row_mean_square = sum_of_squares(x) / n_cols as f32;
            let blocks = bytes.chunks_exact_mut(size_of::<Self>());
            for ((bytes, x), of) in blocks.zip(x.as_chunks().0).zip(importance.as_chunks().0) {
                let block = Self::store_important(x, &Importance { of, row_mean_square });
                bytes.copy_from_slice(bytemuck::bytes_of(&block));
            }
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
