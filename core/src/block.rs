//! The block formats of GGUF tensors: their bytes, and how floats become blocks.
//!
//! Every format has a file. It defines a block struct that can be cast from bytes at any alignment
//! (all fields are bytes; numbers are little-endian as in the file), and a [`Codec`](codec::Codec)
//! that turns one block into floats and back. Decoding is bit-equal to the reference decoders of
//! the GGUF project; encoding is bit-equal to its reference quantisers run without an importance
//! matrix, so a model quantised here and one quantised there are the same file. The arithmetic in
//! here must therefore not be reordered: products, sums and roundings are part of the format.
//!
//! # Words
//! A *quant* is the small integer that stands for an element. A *scale* `d` multiplies it, a
//! *minimum* `m` is added to or subtracted from the product. Types of 256 elements (*super-blocks*)
//! divide them into *sub-blocks* of 16 or 32 elements; each sub-block has a small integer scale of
//! its own, and the super-block's `d` is the scale of those scales.
//!
//! # The table of quantised types
//! This file ends with a table that all quantised types are in. A row gives a type's GGUF name and
//! number, the module of its file format, and the elements and bytes of a block. The struct of the
//! same name in `crate::format` is its format in panels. Everything else is generated from the
//! rows: [`DType`](crate::DType) with names and sizes, decoding and encoding,
//! [`PackedType`](crate::PackedType) and packing, and the products of every kernel set.

pub mod activations;
pub mod bf16;
pub mod codec;
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

/// Columns that are multiplied together: a block of the types of 32 elements, an eighth of the
/// others.
pub const BLOCK: usize = 32;

/// Pass all quantised types to the macro `$then`, behind the tokens in parentheses.
macro_rules! quantised_types {
    ($then:ident ($($args:tt)*)) => {
        $then! {
            ($($args)*)
            Q4_0 = 2, q4_0: 32 in 18;
            Q4_1 = 3, q4_1: 32 in 20;
            Q5_0 = 6, q5_0: 32 in 22;
            Q5_1 = 7, q5_1: 32 in 24;
            Q8_0 = 8, q8_0: 32 in 34;
            Q2_K = 10, q2_k: 256 in 84;
            Q3_K = 11, q3_k: 256 in 110;
            Q4_K = 12, q4_k: 256 in 144;
            Q5_K = 13, q5_k: 256 in 176;
            Q6_K = 14, q6_k: 256 in 210;
            IQ4_NL = 20, iq4_nl: 32 in 18;
            IQ4_XS = 23, iq4_xs: 256 in 136;
            MXFP4 = 39, mxfp4: 32 in 17;
            TQ2_0 = 35, tq2_0: 256 in 66;
        }
    };
}

pub(crate) use quantised_types;
