//! Errors about wrong usage in one line, where clap's own have several.
//!
//! Every error of the program is one line that begins with "error: ", so that scripts can find it
//! and a terminal shows it whole. What clap says below its message is in `--help`.

use clap::error::Error;

/// Return one line that says why clap refused a command line, and which help to read. `command` is
/// the name of the command, as in [`Expanded::command`](super::expand::Expanded::command).
pub fn usage_line(error: &Error, command: &str) -> String {
    let text = error.render().to_string();
    let message = text.split("\n\n").take_while(|part| !is_boilerplate(part)).map(|part| {
        let words: Vec<_> = part.split_whitespace().collect();
        words.join(" ")
    });
    let message = message.collect::<Vec<_>>().join("; ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let command = if command.is_empty() { String::new() } else { format!(" {command}") };
    format!("{message}; try `backstitch{command} --help`")
}

/// Return true for the paragraphs that clap puts below every error.
fn is_boilerplate(part: &str) -> bool {
    part.starts_with("Usage:") || part.starts_with("For more information")
}
