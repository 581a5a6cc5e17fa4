//! The block formats of GGUF tensors: their bytes, and how floats become blocks.
//!
//! Every format has a file. It defines a block struct that can be cast from bytes at any alignment
//! (all fields are bytes; numbers are little-endian as in the file), and a [`Codec`](codec::Codec)
//! that turns one block into floats and back. Decoding is bit-equal to the reference decoders of
//! the GGUF project; encoding is bit-equal to its reference quantisers (of llama.cpp b10434; IQ3_S
//! has an exception), with an importance matrix and without, so a model quantised here and one
//! quantised there are the same file. The arithmetic in here must therefore not be reordered:
//! products, sums and roundings are part of the format.
//!
//! # Words
//! A *quant* is the small integer that stands for an element. A *scale* `d` multiplies it, a
//! *minimum* `m` is added to or subtracted from the product. Types of 256 elements (*super-blocks*)
//! divide them into *sub-blocks* of 16 or 32 elements; each sub-block has a small integer scale of
//! its own, and the super-block's `d` is the scale of those scales.
//!
//! # The tables of quantised types
//! This file ends with two tables that all quantised types are in. A row gives a type's GGUF name
//! and number, the module of its file format, and the elements and bytes of a block. The struct of
//! the same name in `crate::format` is its format in panels. Everything else is generated from the
//! rows: [`DType`](crate::DType) with names and sizes, decoding and encoding,
//! [`PackedType`](crate::PackedType) and packing, and the products of every kernel set.
//!
//! Types in the second table have no products of their own: they are packed into the panels of a
//! type whose panels hold the same values, bit for bit.

pub mod activations;
pub mod bf16;
pub mod codec;
pub mod codes;
pub mod f16;
pub mod f32;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod q1_0;
pub mod q2_0;
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
pub mod tq1_0;
pub mod tq2_0;

mod bits;
mod grid;
mod range;
mod round;
mod scale_min;
mod search;
#[cfg(test)]
mod tests;

/// Columns that are multiplied together: a block of the types of 32 elements, an eighth of the
/// others.
pub const BLOCK: usize = 32;

/// Pass the quantised types that have panels and products of their own to the macro `$then`, behind
/// the tokens in parentheses.
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
            IQ3_XXS = 18, iq3_xxs: 256 in 98;
            IQ4_NL = 20, iq4_nl: 32 in 18;
            IQ3_S = 21, iq3_s: 256 in 110;
            IQ2_S = 22, iq2_s: 256 in 82;
            IQ4_XS = 23, iq4_xs: 256 in 136;
            IQ1_M = 29, iq1_m: 256 in 56;
            MXFP4 = 39, mxfp4: 32 in 17;
            TQ2_0 = 35, tq2_0: 256 in 66;
            NVFP4 = 40, nvfp4: 64 in 36;
            Q2_0 = 42, q2_0: 64 in 18;
        }
    };
}

/// Pass the quantised types that are packed into the panels of another type to the macro `$then`,
/// behind the tokens in parentheses.
macro_rules! repacked_types {
    ($then:ident ($($args:tt)*)) => {
        $then! {
            ($($args)*)
            IQ2_XXS = 16, iq2_xxs: 256 in 66 as IQ2_S;
            IQ2_XS = 17, iq2_xs: 256 in 74 as IQ2_S;
            IQ1_S = 19, iq1_s: 256 in 50 as IQ1_M;
            TQ1_0 = 34, tq1_0: 256 in 54 as TQ2_0;
            Q1_0 = 41, q1_0: 128 in 18 as Q2_0;
        }
    };
}

/// Pass all quantised types to the macro `$then`, behind the tokens in parentheses.
macro_rules! every_type {
    ((@native $then:ident ($($args:tt)*)) $($native:tt)*) => {
        $crate::block::repacked_types! { every_type (@repacked $then ($($args)*) { $($native)* }) }
    };
    ((@repacked $then:ident ($($args:tt)*) { $($native:tt)* })
        $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal as $panel:ident;)*) => {
        $then! { ($($args)*) $($native)* $($name = $id, $module: $len in $bytes;)* }
    };
    ($then:ident ($($args:tt)*)) => {
        $crate::block::quantised_types! { every_type (@native $then ($($args)*)) }
    };
}

pub(crate) use {every_type, quantised_types, repacked_types};
