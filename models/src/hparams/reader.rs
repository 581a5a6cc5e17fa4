//! Reading keys below the architecture's prefix, and holding them to limits.

use crate::{
    error::Error,
    gguf::{FromValue, Gguf, PerLayer, Value},
};
use alloc::{boxed::Box, vec, vec::Vec};

// Limits well above any model that exists. They and `MAX_PRODUCT` keep the products that are formed
// before a tensor of that shape was found in the file, heads times their width above all, far from
// overflow, on 32-bit targets too.
pub(super) const MAX_WIDTH: u32 = 1 << 20;
pub(super) const MAX_LAYERS: u32 = 4096;
pub(super) const MAX_VOCAB: u32 = 1 << 24;
pub(super) const MAX_TAPS: u32 = 64;
pub(super) const MAX_BUCKETS: u32 = 128;
pub(super) const MAX_PRODUCT: u64 = 1 << 28;

/// Reads keys below the architecture's prefix and holds them to limits. Everything in a file may be
/// hostile, so a number that is out of bounds is an error that names its key.
pub(super) struct Reader<'g, 'a> {
    pub(super) gguf: &'g Gguf<'a>,
    pub(super) architecture: &'a str,
}

impl<'g, 'a> Reader<'g, 'a> {
    pub(super) fn invalid(
        &self,
        key: &'static str,
        found: impl core::fmt::Display,
        wanted: &'static str,
    ) -> Error {
        let key: Box<str> = alloc::format!("{}.{key}", self.architecture).into();
        Error::Hparam { key, found: alloc::format!("{found}").into(), wanted }
    }

    /// Return a number of at least 1, if the file has the key.
    pub(super) fn optional_count(&self, key: &'static str, limit: u32) -> Result<Option<usize>, Error> {
        match self.gguf.keys()?.optional::<u32>(key)? {
            Some(n) if n == 0 || n > limit => {
                Err(self.invalid(key, n, "a number from 1 to the largest this engine takes"))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }

    /// Return a number of at least 1.
    pub(super) fn count(&self, key: &'static str, limit: u32) -> Result<usize, Error> {
        match self.optional_count(key, limit)? {
            Some(n) => Ok(n),
            None => self.gguf.keys()?.required::<u32>(key).map(|n| n as usize),
        }
    }

    /// Return a number from 1 to `most`, which `other` states.
    pub(super) fn count_of_all(
        &self,
        key: &'static str,
        other: &'static str,
        most: u32,
    ) -> Result<usize, Error> {
        self.of_all(key, other, self.gguf.keys()?.required::<u32>(key)?, most)
    }

    /// Return `found`, the number that `key` states, if it is 1 to `most`, which `other` states.
    pub(super) fn of_all(
        &self,
        key: &'static str,
        other: &'static str,
        found: u32,
        most: u32,
    ) -> Result<usize, Error> {
        if (1..=most).contains(&found) {
            return Ok(found as usize);
        }
        let full = |key| alloc::format!("{}.{key}", self.architecture).into();
        Err(Error::OfAll { key: full(key), found, other: full(other), limit: most })
    }

    /// Check that `n` things of `width` each, the last stated by `key`, are at most
    /// [`MAX_PRODUCT`].
    pub(super) fn product(&self, key: &'static str, n: usize, width: usize) -> Result<(), Error> {
        // u64: the product may not fit a 32-bit usize.
        match n as u64 * width as u64 {
            0..=MAX_PRODUCT => Ok(()),
            _ => Err(self.invalid(key, width, "at most 2^28 in all heads, layers or experts together")),
        }
    }

    /// Return a number for each layer, if the file has the key: one for all, or an array.
    pub(super) fn per_layer<T>(&self, key: &'static str, n_block: usize) -> Result<Option<PerLayer<T>>, Error>
    where
        T: FromValue<'g, 'a>,
        Vec<T>: FromValue<'g, 'a>,
    {
        self.gguf.keys()?.per_layer::<T>(key, n_block as u32)
    }

    /// Return the truth value of each layer, if the file has the key: an array of such, or of
    /// numbers, or one that counts for all layers.
    pub(super) fn flags(&self, key: &'static str, n_block: usize) -> Result<Option<Vec<bool>>, Error> {
        let keys = self.gguf.keys()?;
        let Some(entry) = keys.entry(key) else { return Ok(None) };
        let flags = match (&entry.value, Vec::<bool>::from_value(&entry.value)) {
            (_, Ok(flags)) => flags,
            (Value::Array(_), _) => entry.read::<Vec<u32>>()?.iter().map(|&n| n != 0).collect(),
            (Value::Bool(flag), _) => vec![*flag; n_block],
            _ => vec![entry.read::<u32>()? != 0; n_block],
        };
        match flags.len() == n_block {
            true => Ok(Some(flags)),
            false => Err(self.invalid(key, flags.len(), "one element for every layer")),
        }
    }

    /// Return the number of layer `il` of what [`Reader::per_layer`] read; errors as
    /// [`Reader::optional_count`], but 0 is a number if `zero` is.
    pub(super) fn count_of(
        &self,
        (key, limit, zero): (&'static str, u32, bool),
        all: Option<&PerLayer<u32>>,
        il: usize,
    ) -> Result<Option<usize>, Error> {
        match all.and_then(|all| all.at(il)) {
            Some(n) if n > limit => Err(self.invalid(key, n, "a number up to the largest this engine takes")),
            Some(0) if !zero => Err(self.invalid(key, 0, "a number from 1 to the largest this engine takes")),
            n => Ok(n.map(|n| n as usize)),
        }
    }

    pub(super) fn missing(&self, key: &'static str) -> Error {
        Error::MissingKey { key: alloc::format!("{}.{key}", self.architecture).into() }
    }

    pub(super) fn optional_f32(&self, key: &'static str) -> Result<Option<f32>, Error> {
        match self.gguf.keys()?.optional::<f32>(key)? {
            Some(x) if !x.is_finite() => Err(self.invalid(key, x, "a finite number")),
            x => Ok(x),
        }
    }

    /// Return a number above 0; 0 stands for none.
    pub(super) fn f32_unless_0(&self, key: &'static str) -> Result<Option<f32>, Error> {
        match self.optional_f32(key)? {
            Some(x) if x < 0.0 => Err(self.invalid(key, x, "a number from 0 up")),
            x => Ok(x.filter(|&x| x > 0.0)),
        }
    }

    pub(super) fn positive_f32(&self, key: &'static str) -> Result<Option<f32>, Error> {
        match self.optional_f32(key)? {
            Some(x) if x <= 0.0 => Err(self.invalid(key, x, "a number above 0")),
            x => Ok(x),
        }
    }
}
