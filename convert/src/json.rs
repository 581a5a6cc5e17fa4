//! JSON files of a folder: read with a limit, and objects that keep their order and refuse
//! duplicates.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::error::Error;

/// Largest JSON or text file that is read. The largest tokenizers take a tenth of it.
const MAX_FILE: u64 = 256 << 20;

/// Read a whole file of at most 256 MiB.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read, [`Error::FileTooLarge`] if it is longer.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found > MAX_FILE {
        return Err(Error::FileTooLarge { path: path.into(), found, limit: MAX_FILE });
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Read a text file; `None` if it does not exist.
///
/// # Errors
/// The errors of [`read_file`], and [`Error::Format`] if it is not UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, Error> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = String::from_utf8(read_file(path)?).map_err(|error| Error::Format {
        path: path.into(),
        found: error.to_string(),
        wanted: "a text in UTF-8".into(),
    })?;
    Ok(Some(text))
}

/// Parse a JSON document; `path` is for errors.
///
/// # Errors
/// [`Error::Format`] if it is no JSON document or not of the form of `T`.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::Format {
        path: path.into(),
        found: error.to_string(),
        wanted: "a JSON document of the usual form".into(),
    })
}

/// Read and parse a JSON file; `None` if it does not exist.
///
/// # Errors
/// The errors of [`read_file`] and [`parse`].
pub(crate) fn read_json(path: &Path) -> Result<Option<Value>, Error> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => parse(path, &read_file(path)?).map(Some),
        _ => Ok(None),
    }
}

/// The entries of a JSON object in the order of the file, no key twice.
#[derive(Clone, Debug)]
pub(crate) struct Entries<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(String, T)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some((key, value)) = map.next_entry::<String, T>()? {
            if !seen.insert(key.clone()) {
                return Err(serde::de::Error::custom(format_args!("the key {key:?} appears twice")));
            }
            entries.push((key, value));
        }
        Ok(Entries(entries))
    }
}

/// Return a short text of a JSON value, for errors.
pub(crate) fn shown(value: &Value) -> String {
    const MOST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_appears_twice_is_refused() {
        let path = Path::new("x.json");
        let entries: Entries<u32> = parse(path, br#"{"b": 1, "a": 2}"#).unwrap();
        assert_eq!(entries.0, [("b".to_owned(), 1), ("a".to_owned(), 2)]);
        let error = parse::<Entries<u32>>(path, br#"{"b": 1, "b": 2}"#).unwrap_err();
        assert!(error.to_string().contains("the key \"b\" appears twice"), "{error}");
    }

    #[test]
    fn long_values_are_cut_in_errors() {
        assert_eq!(shown(&Value::from("é".repeat(200))).chars().count(), 83);
    }
}
