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

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::gguf::Writer;

    fn file() -> Vec<u8> {
        let mut writer = Writer::new();
        writer.set("general.architecture", "falcon-h1").unwrap();
        writer.set("falcon-h1.block_count", 3u32).unwrap();
        writer.set("falcon-h1.rope.freq_base", 1e6f32).unwrap();
        writer.set("falcon-h1.shift", -2i32).unwrap();
        writer.set("falcon-h1.head_count_kv", Vec::from([1u32, 0, 2])).unwrap();
        writer.to_bytes()
    }

    #[test]
    fn keys_are_read_by_type_below_the_architecture() {
        let file = file();
        let gguf = Gguf::parse(&file).unwrap();
        let keys = gguf.keys().unwrap();
        assert_eq!(keys.prefix(), "falcon-h1");
        assert_eq!(keys.u32("block_count").unwrap(), 3);
        assert_eq!(gguf.u32("falcon-h1.block_count").unwrap(), 3);
        assert_eq!(keys.f32("rope.freq_base").unwrap(), 1e6);
        assert_eq!(keys.optional::<u32>("nothing").unwrap(), None);
        assert_eq!(keys.required::<Vec<u32>>("head_count_kv").unwrap(), [1, 0, 2]);
    }

    #[test]
    fn a_wrong_key_is_named_with_what_it_is() {
        let file = file();
        let gguf = Gguf::parse(&file).unwrap();
        let keys = gguf.keys().unwrap();
        let cases = [
            (keys.u32("nothing").unwrap_err(), "key \"falcon-h1.nothing\" is missing"),
            (gguf.u32("nothing").unwrap_err(), "key \"nothing\" is missing"),
            (
                keys.f32("block_count").unwrap_err(),
                "key \"falcon-h1.block_count\" at offset 73 is of type u32, not a float",
            ),
            (
                keys.u32("shift").unwrap_err(),
                "key \"falcon-h1.shift\" at offset 150 is -2, which does not fit u32",
            ),
            (
                keys.required::<&[&str]>("head_count_kv").unwrap_err(),
                "key \"falcon-h1.head_count_kv\" at offset 181 is of type array, not an array of strings",
            ),
            (
                keys.per_layer::<u32>("head_count_kv", 4).unwrap_err(),
                "key \"falcon-h1.head_count_kv\" has 3 elements, not 4",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_number_may_hold_for_all_layers_or_each_have_its_own() {
        let file = file();
        let gguf = Gguf::parse(&file).unwrap();
        let keys = gguf.keys().unwrap();
        let same = keys.per_layer::<u32>("block_count", 2).unwrap().unwrap();
        let each = keys.per_layer::<u32>("head_count_kv", 3).unwrap().unwrap();
        assert_eq!([same.at(0), same.at(1)], [Some(3), Some(3)]);
        assert_eq!([each.at(0), each.at(1), each.at(2), each.at(3)], [Some(1), Some(0), Some(2), None]);
        assert_eq!(keys.per_layer::<u32>("nothing", 3).unwrap(), None);
    }

    #[test]
    fn a_file_without_architecture_says_so() {
        let file = Writer::new().to_bytes();
        let error = Gguf::parse(&file).unwrap().keys().unwrap_err();
        assert_eq!(error.to_string(), "key \"general.architecture\" is missing");
    }
}
