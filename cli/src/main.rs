//! The `backstitch` program: language models on CPUs from the command line.
//!
//! A command line passes three stages: `args` parses it, a file in `commands` runs it, and `output`
//! and `error` write what people and other programs read. Commands share the other modules. Around
//! a model: `catalog` finds it by name, `model` and `embedded` load it, `footprint` computes its
//! size, `prompt` reads the text, `session` evaluates and generates, `drafter` speeds that up,
//! `prompt_cache`, `saved` and `target` work with files, `picture` draws. Around the process:
//! `interrupt`, `progress`, `terminal`, `memory`, `machine`, `file_size`, `allocations`,
//! `allocator`.
//!
//! This crate knows people and operating systems. Models, sequences and states are the business of
//! `backstitch-models` and `backstitch-kv`.

mod adapters;
mod allocations;
mod allocator;
mod args;
mod catalog;
mod commands;
mod drafter;
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
mod whole_file;

use clap::Parser;
use clap::error::ErrorKind;
use error::Error;
use std::io::Write;
use std::process::ExitCode;

/// Exit code of a command line that cannot be parsed, the one that clap uses.
const WRONG_USAGE: u8 = 2;

/// Return true for the texts of `--help` and `--version`, and for the help that stands in for a
/// missing command.
fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Print a help text, on standard error if it stands in for a command.
fn help(text: &clap::Error) -> ExitCode {
    match text.print().and_then(|()| std::io::stdout().flush()).map_err(Error::from) {
        Ok(()) => ExitCode::from(if text.use_stderr() { WRONG_USAGE } else { 0 }),
        Err(error) => failed(&error),
    }
}

/// Tell why the program failed, and return its exit code.
fn failed(error: &Error) -> ExitCode {
    if error.is_closed_pipe() {
        return ExitCode::SUCCESS;
    }
    output::note("error", error::chain(error));
    ExitCode::FAILURE
}

/// Run the command line. The exit code is 0 if it succeeded or the reader of its output went away,
/// 1 if it failed, 2 for wrong usage, and 128 plus the number of a signal that stopped it.
fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|command| command == "serve") {
        allocator::settle();
    }
    let expanded = match args::expand(std::env::args_os(), &|name| std::env::var_os(name)) {
        Ok(expanded) => expanded,
        Err(text) => {
            output::note("error", text);
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let mut cli = match args::Cli::try_parse_from(expanded.words) {
        Ok(cli) => cli,
        Err(error) if is_help(&error) => return help(&error),
        Err(error) => {
            output::note("error", args::usage_line(&error, &expanded.command));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    expanded.notes.iter().for_each(|text| output::note("note", text));
    interrupt::listen();
    file_size::let_writes_fail();
    cli.command.share_memory();
    match catalog::resolve(&mut cli.command).and_then(|()| commands::run(&cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Interrupted) => ExitCode::from(interrupt::exit_code()),
        Err(error) => failed(&error),
    }
}
