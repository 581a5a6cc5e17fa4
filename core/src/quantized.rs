//! Activations as 8-bit integers, the other side of products with quantised weights.
//!
//! Each row is cut into blocks of 32 columns with one scale: `x ~ d * q` with q in -127..=127. A block's integer sum with
//! a block of weights is exact, so it is the same on every instruction set and in any order.

use crate::packed::BLOCK;
use crate::pool::{Parts, Pool, n_jobs};
use crate::{Error, KernelSet};
use bytemuck::{Pod, Zeroable};

/// Tokens whose blocks lie side by side: whole tiles of all kernels, of twelve and of sixteen tokens.
pub(crate) const GROUP: usize = 48;

/// Thirty-two activations: what kernels read. Public only for its size and its place in kernel signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct QBlock {
    /// The scale: the largest absolute value over 127; 0 where all are 0 or too small for 127 over it to be finite; NaN
    /// where any is infinite or NaN.
    pub d: f32,
    /// `d` times the sum of `q`, rounded once: what a block with a minimum multiplies it by.
    pub sum: f32,
    /// -8 times the sum of `q`: the correction for weights stored plus 8.
    pub less_8: i32,
    /// -128 times the sum of `q`: the correction for weights stored plus 128.
    pub less_128: i32,
    /// The part of `less_128` that the first sixteen contribute.
    pub first: i32,
    /// `x * (127 / max)` rounded to the nearest integer, ties to even, as signed bytes; four to a word, lowest first.
    pub q: [i32; BLOCK / 4],
}

/// Bytes that one quantised row of `n_cols` columns takes; a multiple of 4.
///
/// # Errors
/// [`Error::Ragged`] if `n_cols` is no multiple of 32.
pub fn quantized_row_bytes(n_cols: usize) -> Result<usize, Error> {
    if !n_cols.is_multiple_of(BLOCK) {
        return Err(Error::Ragged { what: "columns to quantise", found: n_cols, block: BLOCK });
    }
    let too_long = Error::Length { what: "columns to quantise", found: n_cols, wanted: usize::MAX / 2 };
    (n_cols / BLOCK).checked_mul(size_of::<QBlock>()).ok_or(too_long)
}

/// Quantised rows, `[n_tokens, n_cols]`.
#[derive(Clone, Copy, Debug)]
pub struct Quantized<'a> {
    n_tokens: usize,
    n_cols: usize,
    blocks: &'a [QBlock],
}

impl<'a> Quantized<'a> {
    /// Rows of `n_cols` that [`quantize`] wrote to `bytes` earlier; any bytes are safe.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `n_cols` is no multiple of 32 or `bytes` not of whole rows, [`Error::Alignment`].
    pub fn new(n_cols: usize, bytes: &'a [u8]) -> Result<Self, Error> {
        let row_bytes = quantized_row_bytes(n_cols)?;
        let n_tokens = bytes.len().checked_div(row_bytes).unwrap_or(0);
        if n_tokens * row_bytes != bytes.len() {
            return Err(Error::Ragged { what: "quantised rows", found: bytes.len(), block: row_bytes });
        }
        let misaligned = Error::Alignment { what: "quantised rows", wanted: align_of::<QBlock>() };
        let blocks = bytemuck::try_cast_slice(bytes).map_err(|_| misaligned)?;
        Ok(Self { n_tokens, n_cols, blocks })
    }

    /// Rows.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// All blocks: for each 48 tokens (the last group may have fewer) `[n_cols / 32, tokens of the group]`.
    pub fn blocks(&self) -> &'a [QBlock] {
        self.blocks
    }
}

/// Fewer floats than this are quantised faster by one thread than handed to a second.
const LEAST: usize = 8192;

/// Quantises `x`, rows of `n_cols` floats, into `out`, whose start must be aligned to 4 bytes; what is left of it stays
/// untouched. Any floats are accepted; see [`QBlock`] for what those that are not finite become.
///
/// # Errors
/// [`Error::Ragged`] if `n_cols` is no multiple of 32 or `x` not of whole rows, [`Error::Length`] if `out` is smaller than
/// [`quantized_row_bytes`] a row, [`Error::Alignment`]; nothing was written then. [`Error::Panicked`] from the pool.
pub fn quantize<'a>(
    set: &KernelSet,
    pool: &dyn Pool,
    x: &[f32],
    n_cols: usize,
    out: &'a mut [u8],
) -> Result<Quantized<'a>, Error> {
    let row_bytes = quantized_row_bytes(n_cols)?;
    let n_tokens = x.len().checked_div(n_cols).unwrap_or(0);
    if n_tokens * n_cols != x.len() {
        return Err(Error::Ragged { what: "rows to quantise", found: x.len(), block: n_cols });
    }
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
