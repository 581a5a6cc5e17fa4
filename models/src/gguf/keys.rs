//! Metadata looked up by key and read as a Rust type.

use alloc::format;
use alloc::vec::Vec;

use super::reader::{Gguf, KeyValue};
use super::value::{Array, FromValue, Mismatch, Value};
use crate::error::Error;

const ARCHITECTURE: &str = "general.architecture";

impl<'a> KeyValue<'a> {
    /// Return the value as a Rust type.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the value is of another kind; [`Error::OutOfRange`] if it is a
    /// number that does not fit `T`.
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
    /// Return the value of a key that may be missing.
    ///
    /// # Errors
    /// [`Error::WrongType`] or [`Error::OutOfRange`] if the key is there and its value cannot be
    /// read as `T`.
    pub fn optional<'v, T: FromValue<'v, 'a>>(&'v self, key: &str) -> Result<Option<T>, Error> {
        self.entry(key).map(KeyValue::read).transpose()
    }

    /// Return the value of a key that must be there.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if it is not; [`Error::WrongType`] and [`Error::OutOfRange`] as
    /// [`Gguf::optional`].
    pub fn required<'v, T: FromValue<'v, 'a>>(&'v self, key: &str) -> Result<T, Error> {
        self.optional(key)?.ok_or_else(|| Error::MissingKey { key: key.into() })
    }

    /// Return an integer that must be there.
    ///
    /// # Errors
    /// Those of [`Gguf::required`].
    pub fn u32(&self, key: &str) -> Result<u32, Error> {
        self.required(key)
    }

    /// Return a float that must be there.
    ///
    /// # Errors
    /// Those of [`Gguf::required`].
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        self.required(key)
    }

    /// Return a string that must be there.
    ///
    /// # Errors
    /// Those of [`Gguf::required`].
    pub fn str(&self, key: &str) -> Result<&'a str, Error> {
        self.required(key)
    }

    /// Return the architecture (`general.architecture`), such as `"llama"`.
    ///
    /// # Errors
    /// Those of [`Gguf::required`].
    pub fn architecture(&self) -> Result<&'a str, Error> {
        self.str(ARCHITECTURE)
    }

    /// Return the metadata of this file's architecture: the keys that start with its name.
    ///
    /// # Errors
    /// Those of [`Gguf::architecture`].
    pub fn keys(&self) -> Result<Keys<'_, 'a>, Error> {
        Ok(Keys { gguf: self, prefix: self.architecture()? })
    }
}

/// The metadata whose keys start with the name of the architecture.
///
/// Hyper-parameters have keys such as `llama.block_count`. A reader of hyper-parameters asks for
/// `block_count` alone, and so is the same for all architectures. [`Gguf::keys`] makes this view.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Gguf, Writer};
///
/// let mut writer = Writer::new();
/// writer.set("general.architecture", "llama")?.set("llama.block_count", 4u32)?;
/// let file = writer.to_bytes();
/// let gguf = Gguf::parse(&file)?;
/// let keys = gguf.keys()?;
/// assert_eq!((keys.prefix(), keys.u32("block_count")?), ("llama", 4));
/// assert!(keys.required::<u32>("context_length").is_err());
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Keys<'v, 'a> {
    gguf: &'v Gguf<'a>,
    prefix: &'a str,
}

impl<'v, 'a> Keys<'v, 'a> {
    /// Return the name of the architecture.
    pub const fn prefix(&self) -> &'a str {
        self.prefix
    }

    /// Return the entry of `prefix.suffix`.
    pub fn entry(&self, suffix: &str) -> Option<&'v KeyValue<'a>> {
        self.gguf.entry(&format!("{}.{suffix}", self.prefix))
    }

    /// Return the value of a key that may be missing.
    ///
    /// # Errors
    /// Those of [`Gguf::optional`].
    pub fn optional<T: FromValue<'v, 'a>>(&self, suffix: &str) -> Result<Option<T>, Error> {
        self.entry(suffix).map(KeyValue::read).transpose()
    }

    /// Return the value of a key that must be there.
    ///
    /// # Errors
    /// Those of [`Gguf::required`].
    pub fn required<T: FromValue<'v, 'a>>(&self, suffix: &str) -> Result<T, Error> {
        self.optional(suffix)?.ok_or_else(|| self.missing(suffix))
    }

    /// Return an integer that must be there.
    ///
    /// # Errors
    /// Those of [`Gguf::required`].
    pub fn u32(&self, suffix: &str) -> Result<u32, Error> {
        self.required(suffix)
    }

    /// Return a float that must be there.
    ///
    /// # Errors
    /// Those of [`Gguf::required`].
    pub fn f32(&self, suffix: &str) -> Result<f32, Error> {
        self.required(suffix)
    }

    /// Return a hyper-parameter that is either one value for all layers or an array with one
    /// element per layer; `None` if the key is missing.
    ///
    /// # Errors
    /// Those of [`Gguf::optional`], and [`Error::Length`] if it is an array whose length is not
    /// `n_layer`.
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
///
/// Hybrid models, for example, have an array of head counts in which recurrent layers have 0.
/// [`Keys::per_layer`] reads it.
///
/// # Example
/// ```
/// use backstitch_models::gguf::{Gguf, PerLayer, Writer};
///
/// let mut writer = Writer::new();
/// writer.set("general.architecture", "jamba")?;
/// writer.set("jamba.attention.head_count_kv", vec![0u32, 8, 0])?;
/// let file = writer.to_bytes();
/// let heads = Gguf::parse(&file)?.keys()?.per_layer::<u32>("attention.head_count_kv", 3)?;
/// assert_eq!(heads, Some(PerLayer::Each(vec![0, 8, 0])));
/// assert_eq!(heads.and_then(|heads| heads.at(1)), Some(8));
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum PerLayer<T> {
    /// One value for all layers.
    Same(T),
    /// One value for each layer, in order.
    Each(Vec<T>),
}

impl<T: Copy> PerLayer<T> {
    /// Return the value of layer `il`; `None` if there are fewer layers.
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
            (
                keys.u32("nothing").unwrap_err(),
                "key \"falcon-h1.nothing\" is missing; convert the model again",
            ),
            (gguf.u32("nothing").unwrap_err(), "key \"nothing\" is missing; convert the model again"),
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
        assert_eq!(error.to_string(), "key \"general.architecture\" is missing; convert the model again");
    }
}
