//! Products of packed weights with rows of activations: the driver over kernels and threads.
//!
//! What is computed, on bits: for each token and each row of weights an accumulator starts at +0.0 and takes K in order.
//! Float weights: `acc = fma(w, x, acc)` for each column. Quantised weights, for each block of 32 columns: the exact integer
//! `sum` of products of elements `q` and activations, then `acc = fma(sum as f32, d_w * d_x, acc)`, and where elements have a
//! minimum, `acc = fma(m, sum_x, acc)` right after. What these are by type; every `d_w` and `m` is exact:
//!
//! | types | elements | `d_w` | `m` |
//! |---|---|---|---|
//! | Q8_0, Q4_0, IQ4_NL, MXFP4 | their values; of MXFP4 twice | `d`; of MXFP4 half | |
//! | Q4_1, Q5_1 | `q` | `d` | `m` |
//! | Q5_0, TQ2_0 | `8 (q - 16)`, `8 (q - 1)` | `d / 8` | |
//! | Q4_K, Q5_K | `q` | `d * scale` | `-dmin * min` |
//! | IQ4_XS | their values | `d * scale` | |
//! | Q6_K, Q3_K | `4 (q - 32)`, `32 (q - 4)`, each times the scale of its 16 columns | `d / 4`, `d / 32` | |
//! | Q2_K | `q` times the scale of its 16 columns | `d` | |
//!
//! The minima of Q2_K, of 16 columns too, are integers as well: `acc = fma(n as f32, dmin / 128 * d_x, acc)`, where `n` is the
//! sum of all activations times their minima, times -128. Nothing depends on the number of tokens, of threads, or on
//! the kernel set.

use crate::packed::{PANEL, Packed, PackedType};
use crate::pool::{Band, Bands, MAX_THREADS, Pool, Share};
use crate::quantized::Quantized;
use crate::{Error, KernelSet};

/// What happens to what `out` held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `out = y`.
    Store,
    /// `out = out + y`, rounded once: the residual stream.
    Add,
}

/// The activations that all products of one call share: `[n_tokens, n_cols]`, as floats, quantised, or both.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    n_tokens: usize,
    n_cols: usize,
    floats: Option<&'a [f32]>,
    quantized: Option<Quantized<'a>>,
}

impl<'a> Input<'a> {
    /// Rows of `n_cols` floats, for float weights.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `x` is not of whole rows.
    pub fn floats(x: &'a [f32], n_cols: usize) -> Result<Self, Error> {
        let n_tokens = x.len().checked_div(n_cols).unwrap_or(0);
        if n_tokens * n_cols != x.len() {
            return Err(Error::Ragged { what: "rows of activations", found: x.len(), block: n_cols });
        }
        Ok(Self { n_tokens, n_cols, floats: Some(x), quantized: None })
    }

    /// Quantised rows, for quantised weights.
    pub fn quantized(x: Quantized<'a>) -> Self {
        Self { n_tokens: x.n_tokens(), n_cols: x.n_cols(), floats: None, quantized: Some(x) }
    }

    /// The same rows both ways, for products with weights of both kinds.
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

/// One weight matrix and where its product with the input goes.
#[derive(Debug)]
pub struct Product<'a> {
    /// The weights.
    pub weights: Packed<'a>,
    /// `[n_tokens, weights.n_rows()]`.
    pub out: &'a mut [f32],
    /// Whether to store or to add.
    pub write: Write,
}

/// The most products in one call of [`matmul`].
pub const MAX_PRODUCTS: usize = 8;

/// A job costs at least so much, see [`panel_cost`]: less, about half a microsecond, is done sooner than handed over.
const LEAST: u64 = 1 << 19;

/// Multiplies one input by several matrices, in one run of the pool: queries, keys and values, or gate and up.
///
/// `out[t][r]` becomes, or is increased by, the product of row t of the input with row r of the weights; the module's
/// description says how, on bits. Allocates nothing.
///
/// # Errors
/// [`Error::Length`] for more than [`MAX_PRODUCTS`] products, [`Error::Shape`] if a product's weights or output do not fit
/// the input, [`Error::Length`] if it needs the kind of activations that the input lacks; nothing was written then.
/// [`Error::Panicked`] from the pool.
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

/// What a panel costs, in multiply-adds on quantised weights: few tokens wait for memory, which brings a byte in the time of
/// some sixteen of them, many for arithmetic.
fn panel_cost(weights: &Packed<'_>, n_tokens: usize) -> u64 {
    let arithmetic = if weights.kind().takes_quantized() { 1 } else { 3 };
    let bytes = weights.panel_bytes() as u64 * 16;
    bytes.max(arithmetic * (PANEL * weights.n_cols()) as u64 * n_tokens as u64)
}

/// The part of one product that falls into `band`.
fn multiply(
    set: &KernelSet,
    input: &Input<'_>,
    weights: &Packed<'_>,
    band: &mut Band<'_, f32>,
    write: Write,
) {
    let panels = weights.panels(band.cols());
    let floats = input.floats.unwrap_or(&[]);
    let blocks = input.quantized.map_or(&[][..], |x| x.blocks());
    if panels.is_empty() || input.n_tokens == 0 {
        return;
    }
    let kernel = match weights.kind() {
        PackedType::F32 => return (set.multiply_f32)(panels, floats, input.n_cols, band, write),
        PackedType::F16 => return (set.multiply_f16)(panels, floats, input.n_cols, band, write),
        PackedType::BF16 => return (set.multiply_bf16)(panels, floats, input.n_cols, band, write),
        PackedType::Q8_0 => set.multiply_q8_0,
        PackedType::Q4_0 => set.multiply_q4_0,
        PackedType::Q4_1 => set.multiply_q4_1,
        PackedType::Q5_0 => set.multiply_q5_0,
        PackedType::Q5_1 => set.multiply_q5_1,
        PackedType::Q2_K => set.multiply_q2_k,
        PackedType::Q3_K => set.multiply_q3_k,
        PackedType::Q4_K => set.multiply_q4_k,
        PackedType::Q5_K => set.multiply_q5_k,
        PackedType::Q6_K => set.multiply_q6_k,
        PackedType::IQ4_NL => set.multiply_iq4_nl,
        PackedType::IQ4_XS => set.multiply_iq4_xs,
        PackedType::MXFP4 => set.multiply_mxfp4,
        PackedType::TQ2_0 => set.multiply_tq2_0,
    };
    kernel(panels, blocks, input.n_cols / crate::packed::BLOCK, band, write);
}

#[cfg(test)]
mod tests;
