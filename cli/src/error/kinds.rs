//! Errors about files of another kind than the one that was wanted.
//!
//! A model given to `--restore`, or a saved state given to `-m`, is a common slip. The errors here
//! say what the file is and which command or option takes it, where the library could only say that
//! the first bytes are wrong.

use super::Error;
use crate::output::one_line;
use crate::target::{Found, Kind};
use backstitch_kv::storage::{self, Tag};
use std::path::Path;

impl Error {
    /// Make the error about a file that cannot be used as a saved state: `source`, or, if the file
    /// is no saved state at all, the kind that it has.
    pub fn of_state(path: &Path, source: storage::Error) -> Self {
        let is_none = match &source {
            storage::Error::Magic { .. } => true,
            storage::Error::Truncated { section, .. } => *section == Tag::HEADER,
            _ => false,
        };
        let Some(found) = is_none.then(|| kind(path)).flatten() else {
            return Self::State { path: path.into(), source };
        };
        let advice = match found {
            Found::Is(Kind::LlamaState) => "; `backstitch state convert` makes a saved state of it",
            Found::Is(Kind::Model | Kind::PackedModel) => "; -m takes it",
            // It begins like a saved state, so `source` says more.
            Found::Is(Kind::State) => return Self::State { path: path.into(), source },
            _ => "",
        };
        Self::is_not(path, found, "a saved state", advice)
    }

    /// Make the error about a file that cannot be used as a saved state.
    pub fn of_saved(path: &Path, source: backstitch_models::Error) -> Self {
        match source {
            backstitch_models::Error::State(source) => Self::of_state(path, source),
            source => {
                Self::Engine(backstitch_models::Error::File { path: path.into(), source: Box::new(source) })
            }
        }
    }

    /// Make the error about a file that cannot be used as a model: `source`, or, if the file is a
    /// state, the command that takes it.
    pub fn of_model(path: &Path, source: backstitch_models::Error) -> Self {
        let (found, advice) = match kind(path) {
            Some(found @ Found::Is(Kind::State)) => (
                found,
                "; `backstitch state inspect` shows what it holds, `backstitch run --restore` continues it",
            ),
            Some(found @ Found::Is(Kind::LlamaState)) => {
                (found, "; `backstitch state convert` makes a saved state of it")
            }
            _ => return source.into(),
        };
        Self::is_not(path, found, "a model", advice)
    }

    /// Make the error about a file that is `found` where `wanted` was needed.
    fn is_not(path: &Path, found: Found, wanted: &str, advice: &str) -> Self {
        let name = one_line(&path.display().to_string());
        Self::Refused(format!("{name} is {found}, not {wanted}{advice}"))
    }
}

/// Return the kind of a file that a library refused, or none if the path is no regular file or
/// cannot be read. Reading a pipe could wait forever.
fn kind(path: &Path) -> Option<Found> {
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file { Found::at(path).ok() } else { None }
}
