//! `backstitch state`: what is in state files, whether it is sound, and what differs.

mod check;
mod diff;
mod inspect;

use crate::args::{StateArgs, StateCommand};
use crate::error::Error;
use backstitch_kv::state::{self, Container, StateFile};
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// Whatever the subcommand fails with.
pub fn run(args: &StateArgs) -> Result<(), Error> {
    match &args.command {
        StateCommand::Inspect(args) => inspect::run(args),
        StateCommand::Check(args) => check::run(args),
        StateCommand::Diff(args) => diff::run(args),
    }
}

/// Opens a state file.
fn open(path: &Path) -> Result<StateFile, Error> {
    StateFile::open(path).map_err(|error| at(path, error))
}

/// The container in a file.
fn container<'a>(path: &Path, file: &'a StateFile) -> Result<Container<'a>, Error> {
    file.container().map_err(|error| at(path, error))
}

/// The error with the file that it is about.
fn at(path: &Path, source: state::Error) -> Error {
    Error::State { path: path.into(), source }
}
