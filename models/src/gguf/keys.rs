//! Metadata by key and type.

use alloc::format;
use alloc::vec::Vec;

use super::reader::{Gguf, KeyValue};
use super::value::{Array, FromValue, Mismatch, Value};
use crate::error::Error;

const ARCHITECTURE: &str = "general.architecture";

impl<'a> KeyValue<'a> {
    /// The value as a Rust type.
    ///
    /// # Errors
    /// [`Error::WrongType`] and [`Error::OutOfRange`].
    pub fn read<'v, T: FromValue<'v, 'a>>(&'v self) -> Result<T, Error> {
        T::from_value(&self.value).map_err(|mismatch| self.mismatch(mismatch, T::WANTED))
    }

    fn mismatch(&self, mismatch: Mismatch, wanted: &'static str) -> Error {
        let (key, offset) = (self.key.into(), self.offset);
        match mismatch {
            Mismatch::Type => Error::WrongType { key, offset, found: self.value.ty(), wanted },
            Mismatch::Range { found, wanted } => {
                Error::OutOfRange { key, offset, found: format!("{found}").into(), wanted }
            }
        }
    }
}

impl<'a> Gguf<'a> {
    /// The value of a key that may be missing.
    ///
    /// # Errors
    /// [`Error::WrongType`] and [`Error::OutOfRange`] if it is there and cannot be read as `T`.
    pub fn optional<'v, T: FromValue<'v, 'a>>(&'v self, key: &str) -> Result<Option<T>, Error> {
        self.entry(key).map(KeyValue::read).transpose()
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`] and [`Error::OutOfRange`].
    pub fn required<'v, T: FromValue<'v, 'a>>(&'v self, key: &str) -> Result<T, Error> {
        self.optional(key)?.ok_or_else(|| Error::MissingKey { key: key.into() })
    }

    /// An integer that must be there; errors as [`Gguf::required`].
    pub fn u32(&self, key: &str) -> Result<u32, Error> {
        self.required(key)
    }

    /// A float that must be there; errors as [`Gguf::required`].
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        self.required(key)
    }

    /// A text that must be there; errors as [`Gguf::required`].
    pub fn str(&self, key: &str) -> Result<&'a str, Error> {
        self.required(key)
    }

    /// The architecture, `general.architecture`, as in `"llama"`; errors as [`Gguf::required`].
    pub fn architecture(&self) -> Result<&'a str, Error> {
        self.str(ARCHITECTURE)
    }

    /// The keys that start with the name of the architecture; errors as [`Gguf::architecture`].
    pub fn keys(&self) -> Result<Keys<'_, 'a>, Error> {
        Ok(Keys { gguf: self, prefix: self.architecture()? })
    }
}

/// The metadata whose keys start with the name of the architecture: `keys.u32("block_count")` reads
/// `"llama.block_count"` of a llama model.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'v, 'a> {
    gguf: &'v Gguf<'a>,
    prefix: &'a str,
}

impl<'v, 'a> Keys<'v, 'a> {
    /// The name of the architecture.
    pub const fn prefix(&self) -> &'a str {
        self.prefix
    }

    /// The entry of `prefix.suffix`.
    pub fn entry(&self, suffix: &str) -> Option<&'v KeyValue<'a>> {
        self.gguf.entry(&format!("{}.{suffix}", self.prefix))
    }

    /// The value of a key that may be missing; errors as [`Gguf::optional`].
    pub fn optional<T: FromValue<'v, 'a>>(&self, suffix: &str) -> Result<Option<T>, Error> {
        self.entry(suffix).map(KeyValue::read).transpose()
    }

    /// The value of a key that must be there; errors as [`Gguf::required`].
    pub fn required<T: FromValue<'v, 'a>>(&self, suffix: &str) -> Result<T, Error> {
        self.optional(suffix)?.ok_or_else(|| self.missing(suffix))
    }

    /// An integer that must be there; errors as [`Gguf::required`].
    pub fn u32(&self, suffix: &str) -> Result<u32, Error> {
        self.required(suffix)
    }

    /// A float that must be there; errors as [`Gguf::required`].
    pub fn f32(&self, suffix: &str) -> Result<f32, Error> {
        self.required(suffix)
    }

    /// A value that is one number for all layers or an array with one a layer, if it is there.
    ///
    /// # Errors
    /// As [`Gguf::optional`], and [`Error::Length`] if it is an array that has not one element a layer.
    pub fn per_layer<T>(&self, suffix: &str, n_layer: u32) -> Result<Option<PerLayer<T>>, Error>
    where
        T: FromValue<'v, 'a>,
        Vec<T>: FromValue<'v, 'a>,
    {
        let Some(entry) = self.entry(suffix) else { return Ok(None) };
        let Value::Array(array) = &entry.value else { return Ok(Some(PerLayer::Same(entry.read()?))) };
        check_length(entry.key, array, n_layer)?;
        Ok(Some(PerLayer::Each(entry.read()?)))
    }

    fn missing(&self, suffix: &str) -> Error {
        Error::MissingKey { key: format!("{}.{suffix}", self.prefix).into() }
    }
}

fn check_length(key: &str, array: &Array<'_>, n_layer: u32) -> Result<(), Error> {
    let (found, wanted) = (array.len() as u64, u64::from(n_layer));
    if found == wanted { Ok(()) } else { Err(Error::Length { key: key.into(), found, wanted }) }
}

/// A hyper-parameter that may differ from layer to layer.
#[derive(Clone, Debug, PartialEq)]
pub enum PerLayer<T> {
    /// The same for all layers.
    Same(T),
    /// One a layer.
    Each(Vec<T>),
}

impl<T: Copy> PerLayer<T> {
    /// The value of layer `il`; none if there are fewer layers.
    pub fn at(&self, il: usize) -> Option<T> {
        match self {
            Self::Same(value) => Some(*value),
            Self::Each(values) => values.get(il).copied(),
        }
    }
}
