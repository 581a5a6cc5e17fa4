//! The element types of tensors, and the one table that says all about them.
//!
//! Everything that depends on a type (how many bytes a row takes, how it is decoded) is looked up in [`DTypeInfo`];
//! nothing else in the project lists the types. To add a format: a module under `block`, a variant, a row.
//!
//! ```
//! use backstitch_core::DType;
//!
//! let dtype = DType::from_name("Q8_0").expect("a known type");
//! let row = [127.0; 64];
//! let mut stored = vec![0; dtype.row_bytes(row.len()).expect("whole blocks")];
//! dtype.encode(&row, &mut stored)?;
//!
//! let mut again = [0.0; 64];
//! dtype.decode(&stored, &mut again)?;
//! assert_eq!(again, row);
//! # Ok::<(), backstitch_core::Error>(())
//! ```

use crate::block::{self, Codec};
use crate::error::Error;

/// An element type of a tensor, by its GGUF name.
///
/// Types whose name starts with `Q`, `IQ`, `MX` or `TQ` are quantised: elements come in blocks that share scales.
#[expect(non_camel_case_types, reason = "these are the names people know from GGUF files")]
#[expect(missing_docs, reason = "the table below says what there is to say about each")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    TQ2_0,
    I8,
    I16,
    I32,
    I64,
    F64,
}

/// Turns whole blocks into floats: `bytes` of the type, `y` one float an element.
pub type Decode = fn(bytes: &[u8], y: &mut [f32]) -> Result<(), Error>;

/// Turns floats into whole blocks: `x` one float an element, `bytes` of the type.
pub type Encode = fn(x: &[f32], bytes: &mut [u8]) -> Result<(), Error>;

/// What there is to know about an element type.
#[derive(Clone, Copy, Debug)]
pub struct DTypeInfo {
    /// The type described.
    pub dtype: DType,
    /// Its number in GGUF files.
    pub gguf_id: u32,
    /// Its name in GGUF tools.
    pub name: &'static str,
    /// Elements in a block; 1 for plain types.
    pub block_len: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// To floats; none for types that no kernel reads.
    pub decode: Option<Decode>,
    /// From floats; none for types that nothing writes.
    pub encode: Option<Encode>,
}

const TABLE: [DTypeInfo; 22] = [
    blocks::<block::f32::Block, 1>(DType::F32, 0, "F32"),
    blocks::<block::f16::Half, 1>(DType::F16, 1, "F16"),
    blocks::<block::bf16::Block, 1>(DType::BF16, 30, "BF16"),
    blocks::<block::q4_0::Block, 32>(DType::Q4_0, 2, "Q4_0"),
    blocks::<block::q4_1::Block, 32>(DType::Q4_1, 3, "Q4_1"),
    blocks::<block::q5_0::Block, 32>(DType::Q5_0, 6, "Q5_0"),
    blocks::<block::q5_1::Block, 32>(DType::Q5_1, 7, "Q5_1"),
    blocks::<block::q8_0::Block, 32>(DType::Q8_0, 8, "Q8_0"),
    blocks::<block::q2_k::Block, 256>(DType::Q2_K, 10, "Q2_K"),
    blocks::<block::q3_k::Block, 256>(DType::Q3_K, 11, "Q3_K"),
    blocks::<block::q4_k::Block, 256>(DType::Q4_K, 12, "Q4_K"),
    blocks::<block::q5_k::Block, 256>(DType::Q5_K, 13, "Q5_K"),
    blocks::<block::q6_k::Block, 256>(DType::Q6_K, 14, "Q6_K"),
    blocks::<block::iq4_nl::Block, 32>(DType::IQ4_NL, 20, "IQ4_NL"),
    blocks::<block::iq4_xs::Block, 256>(DType::IQ4_XS, 23, "IQ4_XS"),
    blocks::<block::mxfp4::Block, 32>(DType::MXFP4, 39, "MXFP4"),
    blocks::<block::tq2_0::Block, 256>(DType::TQ2_0, 35, "TQ2_0"),
    opaque(DType::I8, 24, "I8", 1),
    opaque(DType::I16, 25, "I16", 2),
    opaque(DType::I32, 26, "I32", 4),
    opaque(DType::I64, 27, "I64", 8),
    opaque(DType::F64, 28, "F64", 8),
];

const fn blocks<B: Codec<N>, const N: usize>(dtype: DType, gguf_id: u32, name: &'static str) -> DTypeInfo {
    let (decode, encode) = (Some(B::decode as Decode), Some(B::encode as Encode));
    DTypeInfo { dtype, gguf_id, name, block_len: N, block_bytes: size_of::<B>(), decode, encode }
}

const fn opaque(dtype: DType, gguf_id: u32, name: &'static str, block_bytes: usize) -> DTypeInfo {
    DTypeInfo { dtype, gguf_id, name, block_len: 1, block_bytes, decode: None, encode: None }
}

impl DType {
    /// Every type with its properties, in the order of the variants.
    pub const fn table() -> &'static [DTypeInfo] {
        &TABLE
    }

    /// This type's row of the table.
    pub const fn info(self) -> &'static DTypeInfo {
        &TABLE[self as usize]
    }

    /// The type that GGUF files number `id`; none if this crate does not know it.
    pub fn from_gguf_id(id: u32) -> Option<DType> {
        TABLE.iter().find(|info| info.gguf_id == id).map(|info| info.dtype)
    }

    /// The type of that name ("Q4_0", "f16"), in capitals or not.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|info| info.name.eq_ignore_ascii_case(name)).map(|info| info.dtype)
    }

    /// Its name in GGUF tools.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Its number in GGUF files.
    pub const fn gguf_id(self) -> u32 {
        self.info().gguf_id
    }

    /// Elements in a block; 1 for plain types.
    pub const fn block_len(self) -> usize {
        self.info().block_len
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.info().block_bytes
    }

    /// Bytes of a row of `n` elements; none unless `n` is a whole number of blocks and the bytes can be counted.
    pub const fn row_bytes(self, n: usize) -> Option<usize> {
        if !n.is_multiple_of(self.block_len()) {
            return None;
        }
        (n / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Decodes whole blocks to floats: `bytes` hold exactly `y.len()` elements.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for types without a decoder, [`Error::Ragged`] and [`Error::Length`] for wrong sizes.
    pub fn decode(self, bytes: &[u8], y: &mut [f32]) -> Result<(), Error> {
        let decode = self.info().decode.ok_or(Error::Unsupported { op: "decode", dtype: self })?;
        decode(bytes, y)
    }

    /// Encodes floats to whole blocks: `bytes` have room for exactly `x.len()` elements.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for types without an encoder, [`Error::Ragged`] and [`Error::Length`] for wrong sizes.
    pub fn encode(self, x: &[f32], bytes: &mut [u8]) -> Result<(), Error> {
        let encode = self.info().encode.ok_or(Error::Unsupported { op: "encode", dtype: self })?;
        encode(x, bytes)
    }
}

impl core::fmt::Display for DType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_table_stand_where_their_variant_points() {
        for (i, info) in TABLE.iter().enumerate() {
            assert_eq!(info.dtype as usize, i, "{}", info.name);
            assert_eq!(info.dtype.info().name, info.name);
        }
    }

    #[test]
    fn numbers_and_names_lead_back_to_the_type() {
        for info in DType::table() {
            assert_eq!(DType::from_gguf_id(info.gguf_id), Some(info.dtype));
            assert_eq!(DType::from_name(info.name), Some(info.dtype));
            assert_eq!(std::format!("{:?}", info.dtype), info.name);
        }
        assert_eq!(DType::from_name("q4_k"), Some(DType::Q4_K));
        assert_eq!(DType::from_name("Q4_9"), None);
        assert_eq!(DType::from_gguf_id(4), None);
        assert_eq!(DType::from_gguf_id(u32::MAX), None);
    }

    #[test]
    fn sizes_are_those_of_the_gguf_documentation() {
        let cases = [
            (DType::F32, 1, 4),
            (DType::F16, 1, 2),
            (DType::BF16, 1, 2),
            (DType::Q4_0, 32, 18),
            (DType::Q4_1, 32, 20),
            (DType::Q5_0, 32, 22),
            (DType::Q5_1, 32, 24),
            (DType::Q8_0, 32, 34),
            (DType::Q2_K, 256, 84),
            (DType::Q3_K, 256, 110),
            (DType::Q4_K, 256, 144),
            (DType::Q5_K, 256, 176),
            (DType::Q6_K, 256, 210),
            (DType::IQ4_NL, 32, 18),
            (DType::IQ4_XS, 256, 136),
            (DType::MXFP4, 32, 17),
            (DType::TQ2_0, 256, 66),
            (DType::I8, 1, 1),
            (DType::I16, 1, 2),
            (DType::I32, 1, 4),
            (DType::I64, 1, 8),
            (DType::F64, 1, 8),
        ];
        assert_eq!(cases.len(), TABLE.len());
        for (dtype, len, bytes) in cases {
            assert_eq!((dtype.block_len(), dtype.block_bytes()), (len, bytes), "{dtype}");
        }
    }

    #[test]
    fn row_bytes_refuses_broken_blocks_and_overflow() {
        assert_eq!(DType::Q4_0.row_bytes(64), Some(36));
        assert_eq!(DType::Q4_0.row_bytes(0), Some(0));
        assert_eq!(DType::Q4_0.row_bytes(63), None);
        assert_eq!(DType::Q6_K.row_bytes(32), None);
        assert_eq!(DType::F64.row_bytes(usize::MAX), None);
        assert_eq!(DType::I8.row_bytes(usize::MAX), Some(usize::MAX));
    }

    #[test]
    fn types_that_no_kernel_reads_say_so() {
        let wanted = Err(Error::Unsupported { op: "decode", dtype: DType::I32 });
        assert_eq!(DType::I32.decode(&[0; 4], &mut [0.0]), wanted);
        let wanted = Err(Error::Unsupported { op: "encode", dtype: DType::F64 });
        assert_eq!(DType::F64.encode(&[0.0], &mut [0; 8]), wanted);
    }
}
