//! `backstitch completions` and `backstitch man`: files for shells and for `man`, made of the
//! definition of the command line.

use crate::args::{Cli, CompletionsArgs, ManArgs, Shell};
use crate::error::Error;
use crate::output::{Output, counted};
use clap::{Command, CommandFactory};
use std::fs;
use std::path::Path;

/// Print the completions for a shell.
///
/// # Errors
/// [`Error::Terminal`] if the output fails.
pub fn completions(args: &CompletionsArgs) -> Result<(), Error> {
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

/// Write a manual page for every command.
///
/// # Errors
/// [`Error::Write`] if a page cannot be written.
pub fn man(args: &ManArgs) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Write { path, source }
    };
    fs::create_dir_all(&args.folder).map_err(failed(&args.folder))?;
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    collect(&root, &mut pages);
    for (name, page) in &pages {
        let path = args.folder.join(format!("{name}.1"));
        fs::write(&path, page).map_err(failed(&path))?;
    }
    let mut out = Output::new(false);
    out.line(format_args!("{} in {}", counted(pages.len(), "page"), args.folder.display()))?;
    Ok(out.flush()?)
}

/// Add the pages of a command and of the commands below it.
fn collect(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    let mut page = Vec::new();
    // Writing to memory does not fail.
    if clap_mangen::Man::new(command.clone()).render(&mut page).is_ok() {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        pages.push((name.into(), page));
    }
    let below = command.get_subcommands().filter(|below| below.get_name() != "help");
    below.for_each(|below| collect(below, pages));
}
