//! The adapters that requests may choose, and the scales of those that choose none.

use super::error::ApiError;
use backstitch_models::adapter::{Adapter, AdapterSet};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A LoRA adapter of a server.
#[derive(Clone, Debug)]
pub struct LoadedAdapter {
    /// The path of its file, as clients are told.
    pub path: PathBuf,
    /// The adapter.
    pub adapter: Adapter,
    /// Its scale for requests that do not say, until clients change it.
    pub scale: f32,
}

/// The adapters of a server.
///
/// # Example
/// ```
/// use backstitch_server::http::Adapters;
///
/// let none = Adapters::default();
/// assert!(none.list.is_empty() && none.controls.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Adapters {
    /// LoRA adapters, which clients know by their index.
    pub list: Vec<LoadedAdapter>,
    /// Control vectors, with which every request is evaluated.
    pub controls: AdapterSet,
}

/// Indices of adapters, and the scale of each.
pub type Scales = Vec<(usize, f32)>;

/// The adapters of a server, with the scales that clients gave them.
#[derive(Debug)]
pub struct ScaledAdapters {
    adapters: Adapters,
    scales: Mutex<Vec<f32>>,
}

impl ScaledAdapters {
    pub(super) fn new(adapters: Adapters) -> Self {
        let scales = adapters.list.iter().map(|loaded| loaded.scale).collect();
        ScaledAdapters { adapters, scales: Mutex::new(scales) }
    }

    fn scales(&self) -> Vec<f32> {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Return the adapters as llama-server lists them.
    pub fn to_json(&self) -> Value {
        let all = self.adapters.list.iter().zip(self.scales()).enumerate();
        let entries = all.map(|(id, (loaded, scale))| {
            let path = loaded.path.to_string_lossy();
            json!({"id": id, "path": path, "scale": scale, "task_name": "", "prompt_prefix": ""})
        });
        entries.collect()
    }

    /// Read a list of adapters and scales, as `[{"id": 0, "scale": 0.5}]`; `name` names it in
    /// errors.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](super::ErrorKind::Invalid) for anything else, and for adapters that
    /// there are not.
    pub fn read(&self, list: &[Value], name: &str) -> Result<Scales, ApiError> {
        let n = self.adapters.list.len();
        let read = |entry: &Value| {
            let id = entry.get("id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
            let scale = entry.get("scale").map_or(Some(0.0), Value::as_f64).map(|scale| scale as f32);
            let scale = scale.filter(|scale| scale.is_finite());
            match (id.filter(|&id| id < n), scale) {
                (Some(id), Some(scale)) => Ok((id, scale)),
                _ if n == 0 => Err(ApiError::field(name, "empty: this server has no adapters")),
                _ => {
                    let wanted = format!("a list of objects with an id below {n} and a scale");
                    Err(ApiError::field(name, &wanted))
                }
            }
        };
        list.iter().map(read).collect()
    }

    /// Scale adapters for requests that do not say; those that are not named get the scale 0.
    pub fn scale(&self, given: &Scales) {
        let mut scales = self.scales.lock().unwrap_or_else(PoisonError::into_inner);
        scales.fill(0.0);
        for &(id, scale) in given {
            if let Some(slot) = scales.get_mut(id) {
                *slot = scale;
            }
        }
    }

    /// Return the set of a request: the adapters that it names with their scales, or for none those
    /// of the server.
    ///
    /// # Errors
    /// [`ErrorKind::Server`](super::ErrorKind::Server) if the adapters are not of one model.
    pub fn set(&self, given: &Scales) -> Result<AdapterSet, ApiError> {
        let mut scales = if given.is_empty() { self.scales() } else { vec![0.0; self.adapters.list.len()] };
        for &(id, scale) in given {
            if let Some(slot) = scales.get_mut(id) {
                *slot = scale;
            }
        }
        let mut set = self.adapters.controls.clone();
        for (loaded, scale) in self.adapters.list.iter().zip(scales) {
            set = set.with(&loaded.adapter, scale).map_err(crate::Error::from)?;
        }
        Ok(set)
    }
}
