//! The commands, one file each.
//!
//! A command takes its options, does its work with the libraries, and writes to an
//! [`Output`](crate::output::Output). Everything that two commands need is in the modules beside
//! this one: loading a model (`model`), reading a prompt (`prompt`), a session with progress and
//! signals (`session`), files that may be replaced (`target`).

mod bench;
mod cache;
mod chat;
mod completions;
mod convert;
mod doctor;
mod embed;
mod graph;
mod imatrix;
mod inspect;
mod man;
mod models;
mod pack;
mod perplexity;
mod quantize;
mod run;
mod serve;
mod state;
mod timeline;
mod tokenize;
mod verify;

use crate::args::Command;
use crate::error::Error;
use crate::model;

/// Run a command.
///
/// # Errors
/// - [`Error::Engine`] if `BACKSTITCH_ISA` names a kernel set that this processor does not have.
/// - The errors of the command.
pub fn run(command: &Command) -> Result<(), Error> {
    // Every command fails here if the kernel set is unavailable, also those that only compute
    // checksums with it: a mistake in BACKSTITCH_ISA must not go unnoticed.
    backstitch_core::KernelSet::detect().map_err(backstitch_models::Error::from)?;
    model::warn_beyond_threads(n_threads(command));
    match command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Perplexity(args) => perplexity::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Pack(args) => pack::run(args),
        Command::Quantize(args) => quantize::run(args),
        Command::Imatrix(args) => imatrix::run(args),
        Command::Graph(args) => graph::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Timeline(args) => timeline::run(args),
        Command::State(args) => state::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Models(args) => models::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
    }
}

/// Return the number of threads that the person asked for, if the command has that option.
fn n_threads(command: &Command) -> Option<u32> {
    match command {
        Command::Run(args) => args.context.n_threads,
        Command::Chat(args) => args.context.n_threads,
        Command::Serve(args) => args.context.n_threads,
        Command::Perplexity(args) => args.context.n_threads,
        Command::Embed(args) => args.n_threads,
        Command::Bench(args) => args.n_threads.iter().copied().max(),
        Command::Timeline(args) => args.context.n_threads,
        Command::Pack(args) => args.n_threads,
        Command::Quantize(args) => args.n_threads,
        Command::Imatrix(args) => args.context.n_threads,
        Command::Doctor(args) => args.n_threads,
        Command::Verify(args) => args.n_threads,
        _ => None,
    }
}
