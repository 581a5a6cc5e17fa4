//! Metadata: what a model file says about itself, as text.

use backstitch_core::DType;
use backstitch_models::gguf::{Gguf, Value};
use backstitch_quantize::FileType;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};

/// Entries of a file that are no lists, and sums over its tensors.
#[derive(Debug)]
pub struct Metadata {
    entries: Vec<(String, String)>,
    /// Number of the file type, as the file states it.
    pub file_type: i32,
    /// Bytes of all tensors.
    pub n_bytes: u64,
    /// Elements of all tensors.
    pub n_params: u64,
    /// Type of most elements, for files that state no type.
    most: Option<DType>,
    /// Values that C has the address of.
    stable: Mutex<HashMap<String, CString>>,
}

impl Metadata {
    /// Read the metadata of a file.
    pub fn read(gguf: &Gguf<'_>) -> Self {
        let entries =
            gguf.metadata().iter().filter_map(|entry| Some((entry.key.into(), text(&entry.value)?)));
        let mut by_type: Vec<(DType, u64)> = Vec::new();
        for tensor in gguf.tensors() {
            let n = tensor.n_elements() as u64;
            match by_type.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype()) {
                Some((_, sum)) => *sum += n,
                None => by_type.push((tensor.dtype(), n)),
            }
        }
        let stated = gguf.optional::<u32>("general.file_type").ok().flatten();
        Metadata {
            entries: entries.collect(),
            file_type: stated.map_or(0, |number| number as i32),
            n_bytes: gguf.tensors().iter().map(|tensor| tensor.n_bytes() as u64).sum(),
            n_params: by_type.iter().map(|(_, n)| n).sum(),
            most: by_type
                .iter()
                .max_by_key(|(_, n)| *n)
                .map(|(dtype, _)| *dtype)
                .filter(|_| stated.is_none()),
            stable: Mutex::default(),
        }
    }

    /// Return the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Return key and value of an entry.
    pub fn entry(&self, index: i32) -> Option<(&str, &str)> {
        let entry = self.entries.get(usize::try_from(index).ok()?)?;
        Some((&entry.0, &entry.1))
    }

    /// Return the value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.0 == key).map(|entry| entry.1.as_str())
    }

    /// Return the value of a key that begins with the name of the architecture.
    pub fn of_architecture(&self, suffix: &str) -> Option<&str> {
        let architecture = self.value("general.architecture")?;
        self.value(&format!("{architecture}.{suffix}"))
    }

    /// Return the address of the value of a key, which stays as long as the model; null if there
    /// is none.
    pub fn stable(&self, key: &str) -> *const c_char {
        let Some(value) = self.value(key) else { return std::ptr::null() };
        let mut stable = self.stable.lock().unwrap_or_else(PoisonError::into_inner);
        stable.entry(key.into()).or_insert_with(|| crate::log::c_string(value)).as_ptr()
    }

    /// Return architecture, size and file type in a few words.
    pub fn description(&self) -> String {
        let architecture = self.value("general.architecture").unwrap_or("unknown");
        let size = match self.n_params {
            n if n >= 1_000_000_000 => format!("{:.1}B", n as f64 / 1e9),
            n => format!("{:.0}M", n as f64 / 1e6),
        };
        let known = FileType::ALL.iter().find(|ty| i64::from(ty.number()) == i64::from(self.file_type));
        let file_type = match (self.most, known) {
            (Some(most), _) => most.name(),
            (None, Some(known)) => known.name(),
            (None, None) => "unknown type",
        };
        format!("{architecture} {size} {file_type}")
    }
}

/// Return a value as text; `None` for lists.
fn text(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Array(_) => return None,
        Value::Str(text) => (*text).into(),
        Value::Bool(flag) => flag.to_string(),
        Value::F32(x) => format!("{x:.6}"),
        Value::F64(x) => format!("{x:.6}"),
        other => other.as_integer()?.to_string(),
    })
}
