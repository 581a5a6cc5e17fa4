//! Products of packed weights with rows of activations: the driver over kernels and threads.
//!
//! # The order of operations
//! For each token and each row of weights an accumulator starts at +0.0 and takes K in order. This
//! is the definition, to the bit; kernels may compute it in any tiles.
//!
//! - Float weights: `acc = fma(w, x, acc)` for each column.
//! - Quantised weights, for each block of 32 columns: the exact integer `sum` of products of
//!   elements and activations, then `acc = fma(sum as f32, d_w * d_x, acc)`, and where elements
//!   have a minimum, `acc = fma(m, sum_x, acc)` right after.
//!
//! The factors depend on the type; every `d_w` and `m` is exact:
//!
//! | types | elements | `d_w` | `m` |
//! |---|---|---|---|
//! | Q8_0, Q4_0, IQ4_NL, MXFP4 | their values; of MXFP4 twice | `d`; of MXFP4 half | |
//! | NVFP4 | twice their values, times half the scale of their sub-block | 1 | |
//! | Q4_1, Q5_1 | `q` | `d` | `m` |
//! | Q5_0; TQ1_0, TQ2_0, Q1_0, Q2_0 | `8 (q - 16)`; `8 (q - 1)` | `d / 8` | |
//! | Q4_K, Q5_K | `q` | `d * scale` | `-dmin * min` |
//! | IQ4_XS | their values | `d * scale` | |
//! | Q6_K | `4 (q - 32)`, times the scale of its sub-block | `d / 4` | |
//! | Q3_K | `32 (q - 4)`, times the scale of its sub-block | `d / 32` | |
//! | Q2_K | `q`, times the scale of its sub-block | `d` | |
//! | IQ1, IQ2, IQ3 | their values in whole numbers, times the scale of their sub-block | `d` times `UNIT` | |
//!
//! The minima of Q2_K belong to sub-blocks of 16 columns and are integers as well: `acc = fma(n as
//! f32, dmin / 128 * d_x, acc)`, where `n` is the sum of all activations times their minima, times
//! -128. The sum of NVFP4, whose scales are no integers, is `fma(sum_1, scale_1, sum_0 * scale_0)`,
//! rounded once. Nothing depends on the number of tokens, the number of threads, or the kernel set.
//!
//! # Example
//! ```
//! use backstitch_core::packed::{Line, Source, pack, packed_bytes};
//! use backstitch_core::pool::Inline;
//! use backstitch_core::{DType, Input, KernelSet, Packed, Product, Write, matmul};
//!
//! // Two outputs of three inputs.
//! let rows = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let rows: Vec<u8> = rows.iter().flat_map(|w| w.to_le_bytes()).collect();
//! let source = Source::new(DType::F32, 2, 3, &rows)?;
//! let mut lines = vec![Line([0; 64]); packed_bytes(source.kind(), 2, 3)? / 64];
//! pack(&source, 0, bytemuck::cast_slice_mut(&mut lines))?;
//! let weights = Packed::new(source.kind(), 2, 3, bytemuck::cast_slice(&lines))?;
//!
//! let mut out = [0.0; 2];
//! let product = Product { weights, out: &mut out, write: Write::Store };
//! let x = Input::floats(&[1.0, 0.0, -1.0], 3)?;
//! matmul(KernelSet::scalar(), &Inline, x, &mut [product])?;
//! assert_eq!(out, [-2.0, -2.0]);
//! # Ok::<(), backstitch_core::Error>(())
//! ```

pub use crate::kernels::matmul::Write;

use crate::error::{Error, whole_rows};
use crate::kernel_set::{KernelSet, Multiply};
use crate::packed::{BLOCK, PANEL, Packed};
use crate::pool::{Band, Bands, MAX_THREADS, Pool, Share};
use crate::quantized::Quantized;

/// The activations that all products of one call share: `[n_tokens, n_cols]`, as floats, quantised,
/// or both.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    n_tokens: usize,
    n_cols: usize,
    floats: Option<&'a [f32]>,
    quantized: Option<Quantized<'a>>,
}

impl<'a> Input<'a> {
    /// Return rows of `n_cols` floats, for float weights.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `x` are no whole rows.
    pub fn floats(x: &'a [f32], n_cols: usize) -> Result<Self, Error> {
        let ragged = Error::Ragged { what: "rows of activations", found: x.len(), block: n_cols };
        let n_tokens = whole_rows(x.len(), n_cols).ok_or(ragged)?;
        Ok(Self { n_tokens, n_cols, floats: Some(x), quantized: None })
    }

    /// Return quantised rows, for quantised weights.
    pub fn quantized(x: Quantized<'a>) -> Self {
        Self { n_tokens: x.n_tokens(), n_cols: x.n_cols(), floats: None, quantized: Some(x) }
    }

    /// Return the same rows both ways, for products with weights of both kinds.
    ///
    /// # Errors
    /// [`Error::Length`] unless both have the same shape.
    pub fn both(x: &'a [f32], quantized: Quantized<'a>) -> Result<Self, Error> {
        let wanted = quantized.n_tokens() * quantized.n_cols();
        if x.len() != wanted {
            return Err(Error::Length { what: "rows of activations", found: x.len(), wanted });
        }
        Ok(Self { floats: Some(x), ..Self::quantized(quantized) })
    }
}

/// One weight matrix and the place of its product with the input.
#[derive(Debug)]
pub struct Product<'a> {
    /// The weights.
    pub weights: Packed<'a>,
    /// `[n_tokens, weights.n_rows()]`.
    pub out: &'a mut [f32],
    /// Store or add.
    pub write: Write,
}

/// The most products in one call of [`matmul`].
pub const MAX_PRODUCTS: usize = 8;

/// The least cost of a job, see [`panel_cost`]: less, about half a microsecond of work, is done
/// sooner than handed over.
const LEAST: u64 = 1 << 19;

/// Multiply one input by several matrices, in one run of the pool: queries, keys and values, or
/// gate and up.
///
/// `out[t][r]` becomes, or is increased by, the product of row t of the input with row r of the
/// weights, in the order of operations of the module. Allocates nothing.
///
/// # Errors
/// [`Error::Length`] for more than [`MAX_PRODUCTS`] products or an output of another size,
/// [`Error::Shape`] if weights do not fit the input, [`Error::Length`] if a product needs the kind
/// of activations that the input lacks: nothing was written then. [`Error::Panicked`] if a job of
/// the pool panicked.
pub fn matmul(
    set: &KernelSet,
    pool: &dyn Pool,
    input: Input<'_>,
    products: &mut [Product<'_>],
) -> Result<(), Error> {
    if products.len() > MAX_PRODUCTS {
        return Err(Error::Length { what: "products", found: products.len(), wanted: MAX_PRODUCTS });
    }
    for product in &*products {
        check(&input, product)?;
    }
    let cost = |w: &Packed<'_>| w.n_rows().div_ceil(PANEL) as u64 * panel_cost(w, input.n_tokens);
    let total = products.iter().map(|p| cost(&p.weights)).sum::<u64>();
    let n_pieces = (total / LEAST).clamp(1, pool.n_pieces().clamp(1, MAX_THREADS) as u64);
    let n_jobs = match pool.most_per_job() {
        u64::MAX => n_pieces,
        most => total.div_ceil(most.max(1)).clamp(n_pieces, MAX_THREADS as u64),
    } as usize;
    let mut before = 0;
    let mut tasks = [const { None }; MAX_PRODUCTS];
    for (Product { weights, out, write }, task) in products.iter_mut().zip(&mut tasks) {
        let share = Share { n_jobs, before, each: panel_cost(weights, input.n_tokens), total };
        before += cost(weights);
        *task = Some((*weights, Bands::new(out, weights.n_rows(), PANEL, share), *write));
    }
    pool.run(n_jobs, &|job| {
        for (weights, bands, write) in tasks.iter().flatten() {
            if let Some(mut band) = bands.take(job) {
                multiply(set, &input, weights, &mut band, *write);
            }
        }
    })?;
    Ok(())
}

fn check(input: &Input<'_>, product: &Product<'_>) -> Result<(), Error> {
    let weights = &product.weights;
    if weights.n_cols() != input.n_cols {
        let wanted = [weights.n_rows(), input.n_cols];
        return Err(Error::Shape { what: "weights", found: [weights.n_rows(), weights.n_cols()], wanted });
    }
    let has =
        if weights.kind().takes_quantized() { input.quantized.is_some() } else { input.floats.is_some() };
    if !has {
        let what = if weights.kind().takes_quantized() { "quantised input" } else { "float input" };
        return Err(Error::Length { what, found: 0, wanted: input.n_tokens * input.n_cols });
    }
    let wanted = input.n_tokens.saturating_mul(weights.n_rows());
    if product.out.len() != wanted {
        return Err(Error::Length { what: "output of a product", found: product.out.len(), wanted });
    }
    Ok(())
}

/// Return the cost of a panel, in multiply-adds on quantised weights.
///
/// With few tokens it is the time of memory, which brings a byte in the time of some sixteen
/// multiply-adds; with many it is that of the arithmetic.
fn panel_cost(weights: &Packed<'_>, n_tokens: usize) -> u64 {
    let arithmetic = if weights.kind().takes_quantized() { 1 } else { 3 };
    let bytes = weights.panel_bytes() as u64 * 16;
    bytes.max(arithmetic * (PANEL * weights.n_cols()) as u64 * n_tokens as u64)
}

/// Compute the part of one product that falls into `band`.
fn multiply(
    set: &KernelSet,
    input: &Input<'_>,
    weights: &Packed<'_>,
    band: &mut Band<'_, f32>,
    write: Write,
) {
    let panels = weights.panels(band.cols());
    if panels.is_empty() || input.n_tokens == 0 {
        return;
    }
    match (set.multiply(weights.kind()), input.floats, input.quantized) {
        (Multiply::Floats(kernel), Some(x), _) => kernel(panels, x, input.n_cols, band, write),
        (Multiply::Blocks(kernel), _, Some(x)) => {
            kernel(panels, x.blocks(), input.n_cols / BLOCK, band, write);
        }
        _ => debug_assert!(false, "`check` has seen to the kind of activations"),
    }
}

#[cfg(test)]
mod tests;
