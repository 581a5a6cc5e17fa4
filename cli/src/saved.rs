//! Saved states: what a state file holds, how two of them differ, and how one of its sequences is
//! restored.
//!
//! Parsing and comparing need no model: they work on descriptions and bytes alone. Restoring needs
//! one, and a context that is as large as the state. That size comes from an untrusted file, so
//! `memory` checks it first. [`rotation`] deals with models to which the size makes a difference.

mod cells;
mod compare;
mod restore;
pub mod rotation;
#[cfg(test)]
mod tests;

use crate::error::Error;
use backstitch_kv::storage::{Container, StateFile};
use backstitch_models::SavedContext;
use std::path::Path;

pub use compare::{Difference, compare};
pub use restore::{context, empty_context, restore_one};

/// Open the state file at `path`.
///
/// # Errors
/// [`Error::State`] if it cannot be read.
pub fn open(path: &Path) -> Result<StateFile, Error> {
    StateFile::open(path).map_err(|error| Error::of_state(path, error))
}

/// Return the container in the file at `path`, whose header and directory are checked.
///
/// # Errors
/// [`Error::State`] if they are damaged, [`Error::Refused`] for a file of another kind.
pub fn container<'a>(path: &Path, file: &'a StateFile) -> Result<Container<'a>, Error> {
    file.container().map_err(|error| Error::of_state(path, error))
}

/// Parse the state in the file at `path`. Its descriptions are checked against each other, so that
/// whoever looks at the result need not check them again; cells and states are not read.
///
/// # Errors
/// [`Error::State`] and [`Error::Engine`] with the path and the section that is damaged or
/// contradicts another.
pub fn parse<'a>(path: &Path, container: &'a Container<'a>) -> Result<SavedContext<'a>, Error> {
    SavedContext::parse(container).map_err(|error| Error::of_saved(path, error))
}
