//! The types that weights are packed as, and the bytes that they take.
//!
//! [`PackedType`] is the list of [`DType`] without integers and doubles. Its quantised variants
//! come from the table in `block.rs`; `match_format` gives generic code the format of each.

use crate::block::{quantised_types, repacked_types};
use crate::dtype::DType;
use crate::error::Error;
use crate::format;
use crate::format::Format;
use crate::format::layout::{self, ALIGN, BLOCK, Layout, PANEL};

/// The shape of panels of a type.
#[derive(Clone, Copy)]
struct Shape {
    /// Columns that share scales: a row is a whole number of these.
    group_cols: usize,
    /// Bytes of a panel of so many columns, a whole number of groups.
    panel_bytes: fn(usize) -> usize,
}

impl Shape {
    const fn of<L: Layout>() -> Self {
        Self { group_cols: L::BLOCKS * BLOCK, panel_bytes: |n_cols| layout::panel_bytes::<L>(n_cols / BLOCK) }
    }

    const fn floats<const SIZE: usize>() -> Self {
        Self { group_cols: 1, panel_bytes: |n_cols| (n_cols * PANEL * SIZE).next_multiple_of(ALIGN) }
    }
}

/// Define [`PackedType`] with the quantised types given.
macro_rules! define_packed_types {
    (() $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal;)*) => {
        /// The element types that kernels multiply by: all that hold weights.
        #[expect(non_camel_case_types, reason = "these are the names people know from GGUF files")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PackedType {
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
        }

        $(const _: () = assert!(
            <format::$name as Format>::FILE_BLOCKS * BLOCK == $len,
            concat!("the format of ", stringify!($name), " has blocks of another length"),
        );)*

        impl PackedType {
            /// Return the type that weights of type `dtype` are packed as: their own, or one whose
            /// panels hold the same values; none if they hold no weights.
            pub const fn of(dtype: DType) -> Option<Self> {
                match dtype {
                    DType::F32 => Some(Self::F32),
                    DType::F16 => Some(Self::F16),
                    DType::BF16 => Some(Self::BF16),
                    $(DType::$name => Some(Self::$name),)*
                    _ => repacked(dtype),
                }
            }

            /// Return the name of the type that it is called after.
            pub const fn name(self) -> &'static str {
                match self {
                    Self::F32 => "F32",
                    Self::F16 => "F16",
                    Self::BF16 => "BF16",
                    $(Self::$name => stringify!($name),)*
                }
            }

            const fn shape(self) -> Shape {
                match self {
                    Self::F32 => Shape::floats::<4>(),
                    Self::F16 | Self::BF16 => Shape::floats::<2>(),
                    $(Self::$name => Shape::of::<format::$name>(),)*
                }
            }
        }
    };
}

quantised_types!(define_packed_types());

/// Define `repacked` for the types given.
macro_rules! define_repacked_types {
    (() $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal as $panel:ident;)*) => {
        $(const _: () = assert!(
            <format::$name as Format>::FILE_BLOCKS * BLOCK == $len,
            concat!("the format of ", stringify!($name), " has blocks of another length"),
        );)*

        /// Return the type in whose panels `dtype` is packed, if it has none of its own.
        const fn repacked(dtype: DType) -> Option<PackedType> {
            match dtype {
                $(DType::$name => Some(PackedType::$panel),)*
                _ => None,
            }
        }
    };
}

repacked_types!(define_repacked_types());

impl PackedType {
    /// Return true if products with it take activations as 8-bit integers
    /// ([`Quantized`](crate::Quantized)), false if as floats.
    pub const fn takes_quantized(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Return the bytes of one panel of `n_cols` columns.
    ///
    /// # Errors
    /// [`Error::Ragged`] if `n_cols` is no multiple of the columns that share scales (32, or 256 in
    /// super-blocks), [`Error::Length`] if no machine could hold the panel.
    pub fn panel_bytes(self, n_cols: usize) -> Result<usize, Error> {
        let Shape { group_cols: block, panel_bytes } = self.shape();
        if !n_cols.is_multiple_of(block) {
            return Err(Error::Ragged { what: "columns of packed weights", found: n_cols, block });
        }
        // No type takes more than 64 bytes a column.
        if n_cols > isize::MAX as usize / (2 * ALIGN) {
            let wanted = isize::MAX as usize / (2 * ALIGN);
            return Err(Error::Length { what: "columns of packed weights", found: n_cols, wanted });
        }
        Ok(panel_bytes(n_cols))
    }
}

/// Evaluate `$then` with `$Q` standing for the format of the quantised type `$kind`; float types
/// take the arms in braces.
macro_rules! match_format {
    ((@arms $kind:expr, { $($floats:tt)* }, $Q:ident => $then:expr)
        $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal;)*) => {
        match $kind {
            $($floats)*
            $(PackedType::$name => {
                type $Q = $crate::format::$name;
                $then
            })*
        }
    };
    ($kind:expr, { $($floats:tt)* }, $Q:ident => $then:expr) => {
        $crate::block::quantised_types! {
            match_format (@arms $kind, { $($floats)* }, $Q => $then)
        }
    };
}

/// Evaluate `$then` with `$Q` standing for the format of the quantised type `$dtype`, its own where
/// it shares the panels of another; all other types take the arms in braces.
macro_rules! match_format_of {
    ((@arms $dtype:expr, { $($others:tt)* }, $Q:ident => $then:expr)
        $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal;)*) => {
        match $dtype {
            $($others)*
            $(DType::$name => {
                type $Q = $crate::format::$name;
                $then
            })*
        }
    };
    ($dtype:expr, { $($others:tt)* }, $Q:ident => $then:expr) => {
        $crate::block::every_type! {
            match_format_of (@arms $dtype, { $($others)* }, $Q => $then)
        }
    };
}

pub(super) use {match_format, match_format_of};

/// Return the bytes of a packed matrix of `n_rows` rows (outputs) and `n_cols` columns (inputs), as
/// [`Packed::new`](super::Packed::new) takes them.
///
/// # Errors
/// [`Error::Ragged`] if `n_cols` is no multiple of the columns that share scales, [`Error::Length`]
/// if no machine could hold the matrix.
pub fn packed_bytes(kind: PackedType, n_rows: usize, n_cols: usize) -> Result<usize, Error> {
    let too_many = Error::Length { what: "packed weights", found: usize::MAX, wanted: isize::MAX as usize };
    let bytes = kind.panel_bytes(n_cols)?.checked_mul(n_rows.div_ceil(PANEL)).ok_or(too_many)?;
    if bytes <= isize::MAX as usize { Ok(bytes) } else { Err(too_many) }
}
