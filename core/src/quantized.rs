//! Activations as 8-bit integers, the other side of products with quantised weights.
//!
//! Each row is cut into blocks of 32 columns with one scale: `x ~ d * q` with q in -127..=127. The
//! integer sum of a block of activations and a block of weights is exact, so it is the same on
//! every instruction set and in any order. Only the sum is turned into a float, once a block.
//!
//! Blocks of up to 48 tokens lie side by side, `[n_cols / 32, 48 tokens]`: kernels walk along the
//! columns with several tokens at a time, and their reads are then one stream.

pub use crate::block::activations::QBlock;

use crate::block::activations::GROUP;
use crate::error::{Error, whole_rows};
use crate::format::layout::BLOCK;
use crate::kernel_set::KernelSet;
use crate::pool::{Parts, Pool, n_jobs};

/// Return the bytes that one quantised row of `n_cols` columns takes; a multiple of 4.
///
/// # Errors
/// [`Error::Ragged`] if `n_cols` is no multiple of 32, [`Error::Length`] if no machine could hold
/// the row.
pub fn quantized_row_bytes(n_cols: usize) -> Result<usize, Error> {
    if !n_cols.is_multiple_of(BLOCK) {
        return Err(Error::Ragged { what: "columns to quantise", found: n_cols, block: BLOCK });
    }
    let too_long = Error::Length { what: "columns to quantise", found: n_cols, wanted: usize::MAX / 2 };
    (n_cols / BLOCK).checked_mul(size_of::<QBlock>()).ok_or(too_long)
}

/// A view of quantised rows, `[n_tokens, n_cols]`.
///
/// [`quantize`] returns one; [`Quantized::new`] makes one again of the same bytes.
///
/// ```
/// use backstitch_core::pool::Inline;
/// use backstitch_core::quantized::{quantize, quantized_row_bytes};
/// use backstitch_core::KernelSet;
///
/// let x: [f32; 32] = core::array::from_fn(|i| i as f32 - 16.0);
/// let mut room = vec![0_u32; quantized_row_bytes(32)? / 4];
/// let bytes = bytemuck::cast_slice_mut(&mut room);
/// let rows = quantize(KernelSet::scalar(), &Inline, &x, 32, bytes)?;
///
/// let block = rows.blocks()[0];
/// let quants: [i8; 32] = bytemuck::cast(block.q);
/// assert_eq!(block.d, 16.0 / 127.0);
/// assert_eq!((quants[0], quants[16], quants[31]), (-127, 0, 119));
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quantized<'a> {
    n_tokens: usize,
    n_cols: usize,
    blocks: &'a [QBlock],
}

impl<'a> Quantized<'a> {
    /// Return a view of rows of `n_cols` that [`quantize`] wrote to `bytes` earlier; any bytes are
    /// safe.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `n_cols` is no multiple of 32 or `bytes` are no whole rows,
    /// [`Error::Alignment`] unless they start at a multiple of 4.
    pub fn new(n_cols: usize, bytes: &'a [u8]) -> Result<Self, Error> {
        let row_bytes = quantized_row_bytes(n_cols)?;
        let ragged = Error::Ragged { what: "quantised rows", found: bytes.len(), block: row_bytes };
        let n_tokens = whole_rows(bytes.len(), row_bytes).ok_or(ragged)?;
        let misaligned = Error::Alignment { what: "quantised rows", wanted: align_of::<QBlock>() };
        let blocks = bytemuck::try_cast_slice(bytes).map_err(|_| misaligned)?;
        Ok(Self { n_tokens, n_cols, blocks })
    }

    /// Return the number of rows.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Return the number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Return all blocks: for each 48 tokens (the last group may have fewer) `[n_cols / 32, tokens
    /// of the group]`.
    pub fn blocks(&self) -> &'a [QBlock] {
        self.blocks
    }

    /// Write row `token` as floats to `y`: the numbers that products with quantised weights see.
    ///
    /// # Errors
    /// [`Error::Length`] unless `y` has `n_cols` elements, or if there is no such row.
    pub fn decode_row(&self, token: usize, y: &mut [f32]) -> Result<(), Error> {
        let (found, wanted) = (y.len(), self.n_cols);
        if found != wanted {
            return Err(Error::Length { what: "decoded row", found, wanted });
        }
        if token >= self.n_tokens {
            let (found, wanted) = (self.n_tokens, token.saturating_add(1));
            return Err(Error::Length { what: "rows of activations", found, wanted });
        }
        let n_blocks = self.n_cols / BLOCK;
        let group = token / GROUP * GROUP;
        // The last group may have fewer tokens, whose blocks lie closer together.
        let stride = GROUP.min(self.n_tokens - group);
        let blocks = self.blocks.iter().skip(group * n_blocks + token - group).step_by(stride);
        for (block, y) in blocks.zip(y.as_chunks_mut::<BLOCK>().0) {
            let q: &[i8; BLOCK] = bytemuck::cast_ref(&block.q);
            y.iter_mut().zip(q).for_each(|(y, &q)| *y = block.d * f32::from(q));
        }
        Ok(())
    }
}

/// Fewer floats than this are quantised faster by one thread than handed to a second.
const LEAST: usize = 8192;

/// Quantise `x`, rows of `n_cols` floats, into `out`; the rest of `out` stays untouched.
///
/// Any floats are accepted; [`QBlock`] says what becomes of infinities and NaNs.
///
/// # Errors
/// [`Error::Ragged`] if `n_cols` is no multiple of 32 or `x` are no whole rows, [`Error::Length`]
/// if `out` is smaller than [`quantized_row_bytes`] a row, [`Error::Alignment`] unless it starts at
/// a multiple of 4: nothing was written then. [`Error::Panicked`] if a job of the pool panicked.
pub fn quantize<'a>(
    set: &KernelSet,
    pool: &dyn Pool,
    x: &[f32],
    n_cols: usize,
    out: &'a mut [u8],
) -> Result<Quantized<'a>, Error> {
    let row_bytes = quantized_row_bytes(n_cols)?;
    let ragged = Error::Ragged { what: "rows to quantise", found: x.len(), block: n_cols };
    let n_tokens = whole_rows(x.len(), n_cols).ok_or(ragged)?;
    let (wanted, found) = (n_tokens * row_bytes, out.len());
    let out =
        out.get_mut(..wanted).ok_or(Error::Length { what: "room for quantised rows", found, wanted })?;
    let misaligned = Error::Alignment { what: "room for quantised rows", wanted: align_of::<QBlock>() };
    let blocks: &mut [QBlock] = bytemuck::try_cast_slice_mut(out).map_err(|_| misaligned)?;
    let n_blocks = (n_cols / BLOCK).max(1);
    let jobs = n_jobs(pool, x.len(), LEAST);
    let parts = Parts::new(&mut *blocks, GROUP * n_blocks, jobs);
    pool.run(jobs, &|job| {
        if let Some((first, part)) = parts.take(job) {
            let x = &x.as_chunks().0[first..first + part.len()];
            for (x, out) in x.chunks(GROUP * n_blocks).zip(part.chunks_mut(GROUP * n_blocks)) {
                (set.quantize)(x, n_blocks, out);
            }
        }
    })?;
    Ok(Quantized { n_tokens, n_cols, blocks })
}
