//! Rows of any element type to floats and back.
//!
//! The table in `block.rs` says which block struct a type has; everything else is in that struct's
//! [`Codec`].

use crate::block::codec::Codec;
use crate::block::{self, every_type};
use crate::dtype::DType;
use crate::error::Error;

/// Define [`DType::decode`] and [`DType::encode`]: a codec for each float type and for each of the
/// quantised types given.
macro_rules! define_conversions {
    (() $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal;)*) => {
        $(const _: () = assert!(
            size_of::<block::$module::Block>() == $bytes,
            concat!("the table gives blocks of ", stringify!($name), " another size"),
        );)*

        impl DType {
            /// Decode whole blocks to floats: `bytes` hold exactly `y.len()` elements.
            ///
            /// # Errors
            /// [`Error::Unsupported`] for integers and doubles, [`Error::Ragged`] if `y` is not a
            /// whole number of blocks, [`Error::Length`] if `bytes` are too few or too many.
            pub fn decode(self, bytes: &[u8], y: &mut [f32]) -> Result<(), Error> {
                match self {
                    DType::F32 => block::f32::Block::decode(bytes, y),
                    DType::F16 => block::f16::Half::decode(bytes, y),
                    DType::BF16 => block::bf16::Block::decode(bytes, y),
                    $(DType::$name => <block::$module::Block as Codec<$len>>::decode(bytes, y),)*
                    DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 => {
                        Err(Error::Unsupported { op: "decode", dtype: self.name() })
                    }
                }
            }

            /// Encode floats to whole blocks: `bytes` have room for exactly `x.len()` elements.
            ///
            /// # Errors
            /// [`Error::Unsupported`] for integers and doubles, [`Error::NeedsImportance`] if
            /// [`DType::needs_importance`], [`Error::Ragged`] if `x` is not a whole number of blocks,
            /// [`Error::Length`] if `bytes` are too few or too many.
            pub fn encode(self, x: &[f32], bytes: &mut [u8]) -> Result<(), Error> {
                if self.needs_importance() {
                    return Err(Error::NeedsImportance { dtype: self.name() });
                }
                match self {
                    DType::F32 => block::f32::Block::encode(x, bytes),
                    DType::F16 => block::f16::Half::encode(x, bytes),
                    DType::BF16 => block::bf16::Block::encode(x, bytes),
                    $(DType::$name => <block::$module::Block as Codec<$len>>::encode(x, bytes),)*
                    DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 => {
                        Err(Error::Unsupported { op: "encode", dtype: self.name() })
                    }
                }
            }

            /// Encode rows of floats to whole blocks where an importance matrix says which errors
            /// matter: `importance` has a number of at least 0 for each column. Types whose
            /// reference quantiser pays no heed to it are encoded as by [`DType::encode`].
            ///
            /// # Errors
            /// [`Error::Unsupported`] for integers and doubles, [`Error::Ragged`] if `importance` is
            /// not a whole number of blocks or `x` are no whole rows, [`Error::Length`] if `bytes`
            /// are too few or too many.
            pub fn encode_important(
                self,
                x: &[f32],
                importance: &[f32],
                bytes: &mut [u8],
            ) -> Result<(), Error> {
                match self {
                    DType::F32 | DType::F16 | DType::BF16 => self.encode(x, bytes),
                    $(DType::$name => {
                        <block::$module::Block as Codec<$len>>::encode_important(x, importance, bytes)
                    })*
                    DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 => {
                        Err(Error::Unsupported { op: "encode", dtype: self.name() })
                    }
                }
            }

            /// Return true if floats are encoded only with importance: so few bits are left that
            /// errors must go where they do least harm.
            pub const fn needs_importance(self) -> bool {
                match self {
                    $(DType::$name => <block::$module::Block as Codec<$len>>::NEEDS_IMPORTANCE,)*
                    _ => false,
                }
            }
        }
    };
}

every_type!(define_conversions());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_no_kernel_reads_say_so() {
        let wanted = Err(Error::Unsupported { op: "decode", dtype: "I32" });
        assert_eq!(DType::I32.decode(&[0; 4], &mut [0.0]), wanted);
        let wanted = Err(Error::Unsupported { op: "encode", dtype: "F64" });
        assert_eq!(DType::F64.encode(&[0.0], &mut [0; 8]), wanted);
    }
}
