//! The `backstitch` program: language models on CPUs from the command line.
//!
//! `args` says what can be asked for, a file in `commands` does it, `output` and `error` decide what people
//! and programs read. Everything about models is in `backstitch-models`.

mod allocations;
mod args;
mod commands;
mod embedded;
mod error;
mod file_size;
mod footprint;
mod interrupt;
mod machine;
mod memory;
mod model;
mod output;
mod picture;
mod progress;
mod prompt;
mod prompt_cache;
mod saved;
mod session;
mod target;
mod terminal;

use clap::Parser;
use clap::error::ErrorKind;
use error::Error;
use std::process::ExitCode;

/// The exit code of a command line that cannot be understood, as clap has it.
const WRONG_USAGE: u8 = 2;

/// Returns true for texts that were asked for, or that stand in for a command that is missing.
fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

fn main() -> ExitCode {
    let expanded = match args::expand(std::env::args_os()) {
        Ok(expanded) => expanded,
        Err(text) => {
            output::note("error", text);
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let cli = match args::Cli::try_parse_from(expanded.words) {
        Ok(cli) => cli,
        Err(error) if is_help(&error) => error.exit(),
        Err(error) => {
            output::note("error", args::usage_line(&error, &expanded.command));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    expanded.notes.iter().for_each(|text| output::note("note", text));
    interrupt::listen();
    file_size::let_writes_fail();
    match commands::run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(Error::Interrupted) => ExitCode::from(interrupt::exit_code()),
        Err(error) => {
            output::note("error", error::chain(&error));
            ExitCode::FAILURE
        }
    }
}
