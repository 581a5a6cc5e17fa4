//! Errors about files that are of another kind than the one that was wanted: what they are, and which command takes them.

use super::{Error, one_line};
use crate::target::Found;
use backstitch_kv::state::{self, Tag};
use std::path::Path;

impl Error {
    /// A file cannot be used as a saved state because of `source`, or because it is no such file at all.
    pub fn of_state(path: &Path, source: state::Error) -> Self {
        let is_none = match &source {
            state::Error::Magic { .. } => true,
            state::Error::Truncated { section, .. } => *section == Tag::HEADER,
            _ => false,
        };
        let Some(found) = is_none.then(|| kind(path)).flatten() else {
            return Self::State { path: path.into(), source };
        };
        let advice = match found {
            Found::LlamaState => "; `backstitch state convert` makes a saved state of it",
            Found::Model | Found::PackedModel => "; -m takes it",
            // It begins as one.
            Found::State => return Self::State { path: path.into(), source },
            _ => "",
        };
        Self::is_not(path, found, "a saved state", advice)
    }

    /// A file cannot be used as a model because of `source`, or because it is a state of one.
    pub fn of_model(path: &Path, source: backstitch_models::Error) -> Self {
        let (found, advice) = match kind(path) {
            Some(found @ Found::State) => (
                found,
                "; `backstitch state inspect` shows what it holds, `backstitch run --restore` goes on with it",
            ),
            Some(found @ Found::LlamaState) => {
                (found, "; `backstitch state convert` makes a saved state of it")
            }
            _ => return source.into(),
        };
        Self::is_not(path, found, "a model", advice)
    }

    fn is_not(path: &Path, found: Found, wanted: &str, advice: &str) -> Self {
        let name = one_line(&path.display().to_string());
        Self::Refused(format!("{name} is {found}, not {wanted}{advice}"))
    }
}

/// The kind of a file; none for what is no file, or cannot be read. A pipe would be waited for.
fn kind(path: &Path) -> Option<Found> {
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file { Found::at(path).ok() } else { None }
}
