//! A file a command.

mod bench;
mod chat;
mod graph;
mod inspect;
mod pack;
mod run;
mod state;
mod store;
mod timeline;
mod tokenize;
mod verify;

use crate::args::Command;
use crate::error::Error;
use crate::model;

/// Does what was asked for.
///
/// # Errors
/// Whatever the command fails with.
pub fn run(command: &Command) -> Result<(), Error> {
    // A kernel set that was asked for and cannot be had is an error of every command, also of those that
    // only sum checksums with it.
    backstitch_core::KernelSet::detect().map_err(backstitch_models::Error::from)?;
    model::warn_beyond_threads(n_threads(command));
    match command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Pack(args) => pack::run(args),
        Command::Graph(args) => graph::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Timeline(args) => timeline::run(args),
        Command::State(args) => state::run(args),
        Command::Store(args) => store::run(args),
        Command::Verify(args) => verify::run(args),
    }
}

/// The threads that were asked for.
fn n_threads(command: &Command) -> Option<u32> {
    match command {
        Command::Run(args) => args.context.n_threads,
        Command::Chat(args) => args.context.n_threads,
        Command::Bench(args) => args.n_threads.iter().copied().max(),
        Command::Timeline(args) => args.context.n_threads,
        Command::Pack(args) => args.n_threads,
        Command::Verify(args) => args.n_threads,
        _ => None,
    }
}
