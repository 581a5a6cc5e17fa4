//! Values of metadata keys, and their conversion to and from Rust types.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The type of a metadata value. The discriminants are the type numbers of GGUF.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Value, ValueType};
///
/// assert_eq!(Value::from(7u32).ty(), ValueType::U32);
/// assert_eq!(ValueType::from_id(4), Some(ValueType::U32));
/// assert_eq!((ValueType::U32.bytes(), ValueType::Str.bytes()), (Some(4), None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// An unsigned byte.
    U8 = 0,
    /// A signed byte.
    I8 = 1,
    /// An unsigned 16-bit integer.
    U16 = 2,
    /// A signed 16-bit integer.
    I16 = 3,
    /// An unsigned 32-bit integer.
    U32 = 4,
    /// A signed 32-bit integer.
    I32 = 5,
    /// A 32-bit float.
    F32 = 6,
    /// A boolean, stored as the byte 0 or 1.
    Bool = 7,
    /// A UTF-8 string, stored after its length.
    Str = 8,
    /// Elements of one type, stored after that type and their number.
    Array = 9,
    /// An unsigned 64-bit integer.
    U64 = 10,
    /// A signed 64-bit integer.
    I64 = 11,
    /// A 64-bit float.
    F64 = 12,
}

impl ValueType {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Str,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Return the type that GGUF files number `id`.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.id() == id)
    }

    /// Return the number of the type in GGUF files.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Return the number of bytes of a value in the file; `None` for strings and arrays, whose
    /// length varies.
    pub const fn bytes(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Str | Self::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::Str => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        })
    }
}

/// A metadata value. Strings and arrays borrow from the file.
///
/// A value is made by [`Gguf::parse`](super::Gguf::parse), or from a Rust value for a
/// [`Writer`](super::Writer). [`FromValue`] reads it.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{FromValue, Value};
///
/// let value = Value::from(vec![1u8, 2, 3]);
/// assert_eq!(Vec::<u32>::from_value(&value), Ok(vec![1, 2, 3])); // any integer type that fits
/// assert_eq!(Value::from(-1i32).as_integer(), Some(-1));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are those of `ValueType`")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// Return the type of this value.
    pub const fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::Str(_) => ValueType::Str,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Return the value if it is an integer of any width.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(x) => x.into(),
            Self::I8(x) => x.into(),
            Self::U16(x) => x.into(),
            Self::I16(x) => x.into(),
            Self::U32(x) => x.into(),
            Self::I32(x) => x.into(),
            Self::U64(x) => x.into(),
            Self::I64(x) => x.into(),
            _ => return None,
        })
    }

    /// Read a value of fixed size from the start of `bytes`. `None` if `ty` has no fixed size,
    /// `bytes` is too short, or a boolean is neither 0 nor 1.
    pub(super) fn decode(ty: ValueType, bytes: &[u8]) -> Option<Self> {
        Some(match ty {
            ValueType::U8 => Self::U8(u8::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::U64 => Self::U64(u64::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(*bytes.first_chunk()?)),
            ValueType::Bool => match bytes.first()? {
                0 => Self::Bool(false),
                1 => Self::Bool(true),
                _ => return None,
            },
            ValueType::Str | ValueType::Array => return None,
        })
    }

    /// Append the value as a file stores it, without its type.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(x) => out.extend(x.to_le_bytes()),
            Self::I8(x) => out.extend(x.to_le_bytes()),
            Self::U16(x) => out.extend(x.to_le_bytes()),
            Self::I16(x) => out.extend(x.to_le_bytes()),
            Self::U32(x) => out.extend(x.to_le_bytes()),
            Self::I32(x) => out.extend(x.to_le_bytes()),
            Self::F32(x) => out.extend(x.to_le_bytes()),
            Self::U64(x) => out.extend(x.to_le_bytes()),
            Self::I64(x) => out.extend(x.to_le_bytes()),
            Self::F64(x) => out.extend(x.to_le_bytes()),
            Self::Bool(x) => out.push(u8::from(*x)),
            Self::Str(text) => encode_text(text, out),
            Self::Array(array) => array.encode(out),
        }
    }
}

/// Append a string as a file stores it: its length in bytes, then the bytes.
pub(super) fn encode_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// An array of values of one type.
///
/// Strings are held as an index into the file (two words each), elements of fixed size as the bytes
/// of the file.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Value, ValueType};
///
/// let Value::Array(array) = Value::from(vec![1.5f32, 2.5]) else { panic!() };
/// assert_eq!((array.ty(), array.len()), (ValueType::F32, 2));
/// assert_eq!(array.get(1), Some(Value::F32(2.5)));
/// assert_eq!(array.texts(), None);
/// ```
#[derive(Clone, PartialEq)]
pub struct Array<'a> {
    ty: ValueType,
    elements: Elements<'a>,
}

#[derive(Clone, PartialEq)]
enum Elements<'a> {
    /// Little-endian values of fixed size, all valid.
    Fixed(Cow<'a, [u8]>),
    Texts(Box<[&'a str]>),
}

impl<'a> Array<'a> {
    /// Make an array of values of fixed size. `bytes` hold whole elements, and booleans are 0 or 1.
    pub(super) const fn fixed(ty: ValueType, bytes: &'a [u8]) -> Self {
        Self { ty, elements: Elements::Fixed(Cow::Borrowed(bytes)) }
    }

    /// Make an array of strings.
    pub(super) fn of_texts(texts: Vec<&'a str>) -> Self {
        Self { ty: ValueType::Str, elements: Elements::Texts(texts.into()) }
    }

    /// Return the type of the elements.
    pub const fn ty(&self) -> ValueType {
        self.ty
    }

    /// Return the number of elements.
    pub fn len(&self) -> usize {
        match &self.elements {
            Elements::Fixed(bytes) => {
                debug_assert!(self.ty.bytes().is_some(), "elements of fixed size");
                bytes.len() / self.ty.bytes().unwrap_or(1)
            }
            Elements::Texts(texts) => texts.len(),
        }
    }

    /// Return true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the elements if they are strings.
    pub const fn texts(&self) -> Option<&[&'a str]> {
        match &self.elements {
            Elements::Texts(texts) => Some(texts),
            Elements::Fixed(_) => None,
        }
    }

    /// Return element `i`, in constant time.
    pub fn get(&self, i: usize) -> Option<Value<'a>> {
        match &self.elements {
            Elements::Fixed(bytes) => {
                let start = i.checked_mul(self.ty.bytes()?)?;
                Value::decode(self.ty, bytes.get(start..)?)
            }
            Elements::Texts(texts) => texts.get(i).map(|text| Value::Str(text)),
        }
    }

    /// Return the elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|i| self.get(i))
    }

    /// Append element type, number of elements and elements as a file stores them.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.ty.id().to_le_bytes());
        out.extend((self.len() as u64).to_le_bytes());
        match &self.elements {
            Elements::Fixed(bytes) => out.extend(bytes.iter()),
            Elements::Texts(texts) => texts.iter().for_each(|text| encode_text(text, out)),
        }
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.ty, self.len())
    }
}

/// Implement `From` a Rust value and from a vector of them, for each type of fixed size.
macro_rules! from_rust {
    ($($rust:ty => $variant:ident),*) => {$(
        impl From<$rust> for Value<'_> {
            fn from(x: $rust) -> Self {
                Self::$variant(x)
            }
        }

        impl From<Vec<$rust>> for Value<'_> {
            fn from(xs: Vec<$rust>) -> Self {
                let mut bytes = Vec::new();
                xs.into_iter().for_each(|x| Value::from(x).encode(&mut bytes));
                Self::Array(Array { ty: ValueType::$variant, elements: Elements::Fixed(Cow::Owned(bytes)) })
            }
        }
    )*};
}

from_rust!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    u64 => U64, i64 => I64, f64 => F64);

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Str(text)
    }
}

impl<'a> From<Vec<&'a str>> for Value<'a> {
    fn from(texts: Vec<&'a str>) -> Self {
        Self::Array(Array::of_texts(texts))
    }
}

/// The reason that a value could not be read as a Rust type.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{FromValue, Mismatch, Value, ValueType};
///
/// assert_eq!(u32::from_value(&Value::Str("7")), Err(Mismatch::Type));
/// let (found, wanted) = (-1, ValueType::U32);
/// assert_eq!(u32::from_value(&Value::I8(-1)), Err(Mismatch::Range { found, wanted }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The value is of another kind.
    Type,
    /// The value is a number that does not fit.
    Range {
        /// The number.
        found: i128,
        /// The type that it does not fit.
        wanted: ValueType,
    },
}

/// A Rust type that a metadata value can be read as.
///
/// Writers of GGUF disagree on the width and sign of integers, so any integer type reads any stored
/// integer that fits. Floats are read from both widths. A `Vec` is read from an array, element by
/// element.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{FromValue, Value};
///
/// assert_eq!(u32::from_value(&Value::I64(7)), Ok(7));
/// assert_eq!(f32::from_value(&Value::F64(0.5)), Ok(0.5));
/// ```
pub trait FromValue<'v, 'a>: Sized {
    /// The name of the type in errors, such as "an array of strings".
    const WANTED: &'static str;

    /// Read `value`.
    ///
    /// # Errors
    /// [`Mismatch::Type`] if the value is of another kind; [`Mismatch::Range`] if it is a number
    /// that does not fit.
    fn from_value(value: &'v Value<'a>) -> Result<Self, Mismatch>;
}

macro_rules! from_integer {
    ($($rust:ty, $variant:ident, $wanted:literal, $list:literal);*) => {$(
        impl FromValue<'_, '_> for $rust {
            const WANTED: &'static str = $wanted;

            fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
                let found = value.as_integer().ok_or(Mismatch::Type)?;
                found.try_into().map_err(|_| Mismatch::Range { found, wanted: ValueType::$variant })
            }
        }

        impl FromValue<'_, '_> for Vec<$rust> {
            const WANTED: &'static str = $list;

            fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
                elements(value)
            }
        }
    )*};
}

from_integer!(u32, U32, "an integer", "an array of integers"; i32, I32, "an integer", "an array of integers";
    u64, U64, "an integer", "an array of integers");

impl FromValue<'_, '_> for f32 {
    const WANTED: &'static str = "a float";

    fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
        match *value {
            Value::F32(x) => Ok(x),
            Value::F64(x) => Ok(x as f32),
            _ => Err(Mismatch::Type),
        }
    }
}

impl FromValue<'_, '_> for Vec<f32> {
    const WANTED: &'static str = "an array of floats";

    fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
        elements(value)
    }
}

impl FromValue<'_, '_> for bool {
    const WANTED: &'static str = "a boolean";

    fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
        match *value {
            Value::Bool(x) => Ok(x),
            _ => Err(Mismatch::Type),
        }
    }
}

impl FromValue<'_, '_> for Vec<bool> {
    const WANTED: &'static str = "an array of booleans";

    fn from_value(value: &Value<'_>) -> Result<Self, Mismatch> {
        elements(value)
    }
}

impl<'a> FromValue<'_, 'a> for &'a str {
    const WANTED: &'static str = "a string";

    fn from_value(value: &Value<'a>) -> Result<Self, Mismatch> {
        match *value {
            Value::Str(text) => Ok(text),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'v, 'a> FromValue<'v, 'a> for &'v [&'a str] {
    const WANTED: &'static str = "an array of strings";

    fn from_value(value: &'v Value<'a>) -> Result<Self, Mismatch> {
        match value {
            Value::Array(array) => array.texts().ok_or(Mismatch::Type),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'v, 'a> FromValue<'v, 'a> for &'v Array<'a> {
    const WANTED: &'static str = "an array";

    fn from_value(value: &'v Value<'a>) -> Result<Self, Mismatch> {
        match value {
            Value::Array(array) => Ok(array),
            _ => Err(Mismatch::Type),
        }
    }
}

/// Read every element of an array.
fn elements<T: for<'v, 'a> FromValue<'v, 'a>>(value: &Value<'_>) -> Result<Vec<T>, Mismatch> {
    let Value::Array(array) = value else { return Err(Mismatch::Type) };
    array.iter().map(|element| T::from_value(&element)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_numbers_of_the_format_document() {
        for (id, ty) in (0u32..).zip(ValueType::ALL) {
            assert_eq!((ty.id(), ValueType::from_id(id)), (id, Some(ty)));
        }
        assert_eq!(ValueType::from_id(13), None);
        assert_eq!((ValueType::Str.id(), ValueType::Array.id(), ValueType::F64.id()), (8, 9, 12));
    }

    #[test]
    fn any_integer_reads_as_any_type_it_fits() {
        let seven: [Value<'_>; 8] = [
            7u8.into(),
            7i8.into(),
            7u16.into(),
            7i16.into(),
            7u32.into(),
            7i32.into(),
            7u64.into(),
            7i64.into(),
        ];
        for value in seven {
            assert_eq!(u32::from_value(&value), Ok(7));
            assert_eq!(i32::from_value(&value), Ok(7));
            assert_eq!(u64::from_value(&value), Ok(7));
            assert_eq!(f32::from_value(&value), Err(Mismatch::Type));
        }
        let range = |found, wanted| Err::<u32, _>(Mismatch::Range { found, wanted });
        assert_eq!(u32::from_value(&Value::I32(-1)), range(-1, ValueType::U32));
        assert_eq!(u32::from_value(&Value::U64(u64::MAX)), range(u64::MAX.into(), ValueType::U32));
        assert_eq!(u32::from_value(&Value::Bool(true)), Err(Mismatch::Type));
    }

    #[test]
    fn arrays_give_their_elements_in_order_and_nothing_beyond() {
        let Value::Array(array) = Value::from(Vec::from([1u16, 2, 700])) else { panic!() };
        assert_eq!((array.ty(), array.len(), array.is_empty()), (ValueType::U16, 3, false));
        assert_eq!(array.iter().collect::<Vec<_>>(), [Value::U16(1), Value::U16(2), Value::U16(700)]);
        assert_eq!((array.get(2), array.get(3), array.get(usize::MAX)), (Some(Value::U16(700)), None, None));
        assert_eq!(array.texts(), None);
        assert_eq!(Vec::<u32>::from_value(&Value::Array(array)), Ok(Vec::from([1, 2, 700])));
    }

    #[test]
    fn one_wrong_element_refuses_the_array() {
        let value = Value::from(Vec::from([1i32, -2]));
        let mismatch = Mismatch::Range { found: -2, wanted: ValueType::U32 };
        assert_eq!(Vec::<u32>::from_value(&value), Err(mismatch));
        assert_eq!(Vec::<f32>::from_value(&value), Err(Mismatch::Type));
        assert_eq!(Vec::<u32>::from_value(&Value::U32(1)), Err(Mismatch::Type));
    }

    #[test]
    fn texts_outlive_the_array_that_lists_them() {
        let text = alloc::string::String::from("a text");
        let first = {
            let value = Value::from(Vec::from([text.as_str()]));
            <&[&str]>::from_value(&value).unwrap()[0]
        };
        assert_eq!(first, "a text");
    }
}
