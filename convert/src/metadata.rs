//! The metadata of the new file.

use backstitch_models::gguf::{Value, Writer};

use crate::error::Error;

/// A value of the new file, owned.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are types of GGUF values")]
pub enum Meta {
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
    Bytes(Vec<u8>),
    Texts(Vec<String>),
}

/// Implement `From` for the Rust type of each variant.
macro_rules! from_rust {
    ($($rust:ty => $variant:ident),*) => {$(
        impl From<$rust> for Meta {
            fn from(x: $rust) -> Self {
                Self::$variant(x)
            }
        }
    )*};
}

from_rust! {
    u32 => U32, i32 => I32, f32 => F32, bool => Bool, String => Text, Vec<i32> => I32s, Vec<u32> => U32s,
    Vec<f32> => F32s, Vec<bool> => Bools, Vec<String> => Texts
}

impl From<&str> for Meta {
    fn from(x: &str) -> Self {
        Self::Text(x.into())
    }
}

impl Meta {
    fn value(&self) -> Value<'_> {
        match self {
            Self::U32(x) => (*x).into(),
            Self::I32(x) => (*x).into(),
            Self::F32(x) => (*x).into(),
            Self::Bool(x) => (*x).into(),
            Self::Text(x) => x.as_str().into(),
            Self::I32s(x) => x.clone().into(),
            Self::U32s(x) => x.clone().into(),
            Self::F32s(x) => x.clone().into(),
            Self::Bools(x) => x.clone().into(),
            Self::Bytes(x) => x.clone().into(),
            Self::Texts(x) => x.iter().map(String::as_str).collect::<Vec<_>>().into(),
        }
    }
}

/// The keys and values of the new file, in the order in which they were first set.
#[derive(Clone, Debug)]
pub struct Metadata {
    architecture: &'static str,
    entries: Vec<(String, Meta)>,
}

impl Metadata {
    /// Start the metadata of a model.
    pub fn new(architecture: &'static str) -> Self {
        let entries = vec![("general.architecture".into(), architecture.into())];
        Self { architecture, entries }
    }

    /// Return the name of the architecture.
    pub fn architecture(&self) -> &'static str {
        self.architecture
    }

    /// Set a key; one that was set before gets the new value.
    pub fn set(&mut self, key: &str, value: impl Into<Meta>) {
        let value = value.into();
        match self.entries.iter_mut().find(|entry| entry.0 == key) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key.into(), value)),
        }
    }

    /// Set a key of the architecture: `block_count` becomes `llama.block_count`.
    pub fn set_own(&mut self, key: &str, value: impl Into<Meta>) {
        self.set(&format!("{}.{key}", self.architecture), value);
    }

    /// Set a key of the architecture if there is a value.
    pub fn set_some(&mut self, key: &str, value: Option<impl Into<Meta>>) {
        if let Some(value) = value {
            self.set_own(key, value);
        }
    }

    /// Remove a key of the architecture.
    pub fn remove_own(&mut self, key: &str) {
        let key = format!("{}.{key}", self.architecture);
        self.entries.retain(|entry| entry.0 != key);
    }

    /// Return the value of a key.
    pub fn get(&self, key: &str) -> Option<&Meta> {
        self.entries.iter().find(|entry| entry.0 == key).map(|entry| &entry.1)
    }

    /// Copy all keys to a writer.
    ///
    /// # Errors
    /// [`Error::Gguf`] for a key that no file can have.
    pub fn write<'a>(&'a self, writer: &mut Writer<'a>) -> Result<(), Error> {
        for (key, value) in &self.entries {
            writer.set(key.as_str(), value.value())?;
        }
        Ok(())
    }
}
