//! `backstitch completions`: files for shells, made of the definition of the command line.

use crate::args::{Cli, CompletionsArgs, Shell};
use crate::error::Error;
use crate::output::Output;
use clap::CommandFactory;

/// Print the completions for a shell.
///
/// # Errors
/// [`Error::Terminal`] if the output fails.
pub fn run(args: &CompletionsArgs) -> Result<(), Error> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "backstitch", &mut script);
    let mut out = Output::new(false);
    out.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(out.flush()?)
}
