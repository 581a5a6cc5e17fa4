//! State files to look at: everything that can be said of one without the model it belongs to.

mod compare;
mod one;
pub mod rotation;
#[cfg(test)]
mod tests;

use crate::error::Error;
use backstitch_kv::storage::Container;
use backstitch_models::SavedContext;
use std::path::Path;

pub use compare::{Difference, compare};
pub use one::{context, restore_one, room};

/// Parse the state in the file at `path`.
///
/// # Errors
/// [`Error::State`] and [`Error::Engine`] with the path and the section that is damaged or
/// contradicts another.
pub fn parse<'a>(path: &Path, container: &'a Container<'a>) -> Result<SavedContext<'a>, Error> {
    SavedContext::parse(container).map_err(|error| Error::of_saved(path, error))
}
