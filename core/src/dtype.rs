//! The element types of tensors: names, GGUF numbers and sizes.
//!
//! Floats and plain integers are listed here; the quantised types come from the table at the end of
//! `block.rs`. [`DType::decode`] and [`DType::encode`] are in `convert.rs`.
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
//!
//! GGUF's numbers and names are those of ggml's `enum ggml_type`; numbers that are missing here
//! belong to types that files no longer use or that this crate does not read.

use crate::block::every_type;

/// The properties of an element type.
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
}

/// Define [`DType`] and its table: floats, then the quantised types given, then plain integers and
/// doubles, which no kernel reads.
macro_rules! define_dtypes {
    (() $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal;)*) => {
        /// An element type of a tensor, by its GGUF name.
        ///
        /// Types whose names start with `Q`, `IQ`, `MX`, `NV` or `TQ` are quantised: elements come in
        /// blocks that share scales. [`DType::info`] gives a type's properties.
        #[expect(non_camel_case_types, reason = "these are the names people know from GGUF files")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType {
            /// IEEE single precision.
            F32,
            /// IEEE half precision.
            F16,
            /// The upper half of single precision.
            BF16,
            $(
                #[doc = concat!("Quantised, see [`crate::block::", stringify!($module), "`].")]
                $name,
            )*
            /// Signed integers of 8 bits.
            I8,
            /// Signed integers of 16 bits.
            I16,
            /// Signed integers of 32 bits.
            I32,
            /// Signed integers of 64 bits.
            I64,
            /// IEEE double precision.
            F64,
        }

        /// Every type, in the order of the variants.
        const TABLE: &[DTypeInfo] = &[
            plain(DType::F32, 0, "F32", 4),
            plain(DType::F16, 1, "F16", 2),
            plain(DType::BF16, 30, "BF16", 2),
            $(DTypeInfo {
                dtype: DType::$name,
                gguf_id: $id,
                name: stringify!($name),
                block_len: $len,
                block_bytes: $bytes,
            },)*
            plain(DType::I8, 24, "I8", 1),
            plain(DType::I16, 25, "I16", 2),
            plain(DType::I32, 26, "I32", 4),
            plain(DType::I64, 27, "I64", 8),
            plain(DType::F64, 28, "F64", 8),
        ];
    };
}

every_type!(define_dtypes());

/// Return the row of a type whose elements stand alone.
const fn plain(dtype: DType, gguf_id: u32, name: &'static str, block_bytes: usize) -> DTypeInfo {
    DTypeInfo { dtype, gguf_id, name, block_len: 1, block_bytes }
}

impl DType {
    /// Return every type with its properties, in the order of the variants.
    pub const fn table() -> &'static [DTypeInfo] {
        TABLE
    }

    /// Return the type's row of the table.
    pub const fn info(self) -> &'static DTypeInfo {
        &TABLE[self as usize]
    }

    /// Return the type that GGUF files number `id`; none if this crate does not know it.
    pub fn from_gguf_id(id: u32) -> Option<DType> {
        TABLE.iter().find(|info| info.gguf_id == id).map(|info| info.dtype)
    }

    /// Return the type of that name ("Q4_0", "f16"), in capitals or not.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|info| info.name.eq_ignore_ascii_case(name)).map(|info| info.dtype)
    }

    /// Return its name in GGUF tools.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Return its number in GGUF files.
    pub const fn gguf_id(self) -> u32 {
        self.info().gguf_id
    }

    /// Return elements in a block; 1 for plain types.
    pub const fn block_len(self) -> usize {
        self.info().block_len
    }

    /// Return the bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.info().block_bytes
    }

    /// Return the bytes of a row of `n` elements; none unless `n` is a whole number of blocks and
    /// the bytes can be counted.
    pub const fn row_bytes(self, n: usize) -> Option<usize> {
        if !n.is_multiple_of(self.block_len()) {
            return None;
        }
        (n / self.block_len()).checked_mul(self.block_bytes())
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
            (DType::TQ1_0, 256, 54),
            (DType::IQ1_S, 256, 50),
            (DType::IQ1_M, 256, 56),
            (DType::IQ2_XXS, 256, 66),
            (DType::IQ2_XS, 256, 74),
            (DType::IQ2_S, 256, 82),
            (DType::IQ3_XXS, 256, 98),
            (DType::IQ3_S, 256, 110),
            (DType::NVFP4, 64, 36),
            (DType::Q1_0, 128, 18),
            (DType::Q2_0, 64, 18),
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
}
