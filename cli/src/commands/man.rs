//! `backstitch man`: a manual page for every command, made of the definition of the command line.
//!
//! `clap_mangen` writes most of a page. The title and the examples are written here: it leaves out
//! an empty date, so that the fields after it move up, and it fills the lines of examples as if
//! they were sentences.

use crate::args::{Cli, ManArgs};
use crate::error::Error;
use crate::output::{Output, counted};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::Path;

/// Write a manual page for every command.
///
/// # Errors
/// [`Error::Write`] if a page cannot be written.
pub fn run(args: &ManArgs) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Write { path, source }
    };
    fs::create_dir_all(&args.folder).map_err(failed(&args.folder))?;
    // `help` repeats the other commands and has no page.
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    collect(&root, &mut pages).map_err(failed(&args.folder))?;
    for (name, page) in &pages {
        let path = args.folder.join(format!("{name}.1"));
        fs::write(&path, page).map_err(failed(&path))?;
    }
    let mut out = Output::new(false);
    out.line(format_args!("{} in {}", counted(pages.len(), "page"), args.folder.display()))?;
    Ok(out.flush()?)
}

/// Add the pages of a command and of the commands below it.
fn collect(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    pages.push((name.into(), page(command, name)?));
    command.get_subcommands().try_for_each(|below| collect(below, pages))
}

/// Return the page of a command.
fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let program = concat!("backstitch ", env!("CARGO_PKG_VERSION"));
    let mut page = format!(".TH {name} 1 \"\" \"{program}\" \"Backstitch\"\n").into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    page.extend(examples(&after).into_bytes());
    Ok(page)
}

/// Return the section of the text below the options. Its lines stay as they are, from the first
/// column on, because they are up to 80 columns wide.
fn examples(text: &str) -> String {
    let text = text.strip_prefix("Examples:\n").unwrap_or(text);
    let mut section = String::from(".SH EXAMPLES\n.nf\n.in 0\n");
    for line in text.lines() {
        // These would begin a request to the formatter.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        section += &format!("{guard}{}\n", line.replace('\\', "\\e").replace('-', "\\-"));
    }
    section + ".in\n.fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_shown_as_they_are_written() {
        let section = examples("Examples:\n  run -p 'a\\n'\n.hidden\n\n'q'");
        let wanted = ".SH EXAMPLES\n.nf\n.in 0\n  run \\-p 'a\\en'\n\\&.hidden\n\n\\&'q'\n.in\n.fi\n";
        assert_eq!(section, wanted);
    }

    #[test]
    fn every_command_has_a_page_and_no_page_names_another() {
        let mut root = Cli::command().disable_help_subcommand(true);
        root.build();
        let mut pages = Vec::new();
        collect(&root, &mut pages).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"backstitch") && names.contains(&"backstitch-state-trim"), "{names:?}");
        for (name, page) in &pages {
            let page = String::from_utf8_lossy(page).replace("\\-", "-");
            let named = page.match_indices("(1)").filter_map(|(at, _)| page[..at].split_whitespace().last());
            for other in named {
                assert!(names.contains(&other), "{name}: {other}");
            }
            assert!(page.starts_with(&format!(".TH {name} 1 ")), "{name}");
        }
    }
}
