//! `backstitch state`: what is in state files, whether it is sound, and what differs.

mod check;
mod convert;
mod diff;
mod inspect;
mod trim;

use crate::args::{StateArgs, StateCommand};
use crate::error::Error;
use crate::model;
use crate::progress::Progress;
use crate::saved::Saved;
use backstitch_core::cell::{BLOCK_CELLS, CellType};
use backstitch_kv::state::{self, Container, Scope, StateFile};
use backstitch_models::{Context, Model, Params};
use std::path::Path;

/// More sequences than this a context of this program does not have.
const MAX_SEQUENCES: u32 = 4096;

/// Why `splice` does nothing.
const NO_SPLICE: &str = "states cannot be joined: what is kept of a token depends on all tokens before it; \
trim one to what both begin with and evaluate the rest behind it (`backstitch state splice --help` shows how)";

/// Runs the command.
///
/// # Errors
/// Whatever the subcommand fails with.
pub fn run(args: &StateArgs) -> Result<(), Error> {
    match &args.command {
        StateCommand::Inspect(args) => inspect::run(args),
        StateCommand::Check(args) => check::run(args),
        StateCommand::Diff(args) => diff::run(args),
        StateCommand::Trim(args) => trim::run(args),
        StateCommand::Convert(args) => convert::run(args),
        StateCommand::Splice(_) => Err(Error::Refused(NO_SPLICE.into())),
    }
}

/// Opens a state file.
fn open(path: &Path) -> Result<StateFile, Error> {
    StateFile::open(path).map_err(|error| at(path, error))
}

/// The container in a file.
fn container<'a>(path: &Path, file: &'a StateFile) -> Result<Container<'a>, Error> {
    file.container().map_err(|error| match error {
        state::Error::Magic { found } if convert::is_llama(found) => {
            let name = path.display();
            let text = "is a file of llama.cpp; `backstitch state convert` makes a state file of it";
            Error::Refused(format!("{name} {text}"))
        }
        error => at(path, error),
    })
}

/// Checks the bytes of all sections, behind a progress bar.
fn check_bytes(path: &Path, container: &Container<'_>) -> Result<(), Error> {
    let progress = Progress::new("checking");
    let total = container.sections().map(|section| section.stored_len).fold(0, u64::saturating_add);
    let mut done: u64 = 0;
    for section in container.sections() {
        container.read(section).map_err(|error| at(path, error))?;
        done = done.saturating_add(section.stored_len);
        progress.set(done, total);
    }
    Ok(())
}

/// A context that holds what `saved` does, without room for more.
fn context(saved: &Saved<'_>, model: &Model) -> Result<Context, Error> {
    let types = saved.image().shape.groups.first().map(|group| (group.k_type, group.v_type));
    let (type_k, type_v) = types.unwrap_or((CellType::F16, CellType::F16));
    let ends = saved.sequences.iter().map(|sequence| sequence.end.0.unsigned_abs());
    let blocks = saved.image().blocks.iter().map(|blocks| (blocks.len() * BLOCK_CELLS) as u32);
    let n_ctx = ends.chain(blocks).max().unwrap_or(0).max(1);
    let ids = saved
        .sequences
        .iter()
        .map(|sequence| sequence.id)
        .filter(|_| saved.container.scope() == Scope::Context);
    let n_seq_max = ids.max().unwrap_or(0).saturating_add(1);
    if n_seq_max > MAX_SEQUENCES {
        return Err(Error::Refused(format!(
            "sequence {} is beyond the {MAX_SEQUENCES} of a context",
            n_seq_max - 1
        )));
    }
    let n_threads = model::n_threads(None);
    Ok(Context::new(model, Params { n_ctx, n_seq_max, n_threads, type_k, type_v, ..Params::default() })?)
}

/// The error with the file that it is about.
fn at(path: &Path, source: state::Error) -> Error {
    Error::State { path: path.into(), source }
}
