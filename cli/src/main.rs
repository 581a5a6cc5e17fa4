//! The `backstitch` program: language models on CPUs from the command line.
//!
//! `args` says what can be asked for, a file in `commands` does it, `output` and `error` decide what people and
//! programs read. Everything about models is in `backstitch-models`.

mod allocations;
mod args;
mod commands;
mod embedded;
mod error;
mod footprint;
mod interrupt;
mod machine;
mod model;
mod output;
mod picture;
mod progress;
mod prompt;
mod prompt_cache;
mod saved;
mod session;

use clap::Parser;
use error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse_from(args::expand(std::env::args_os()));
    interrupt::listen();
    match commands::run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(Error::Interrupted) => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => {
            output::note("error", error);
            ExitCode::FAILURE
        }
    }
}
