//! The log of the server, on standard error.
//!
//! Every request is a line: its method, path, status and time, and the reason if it was refused.
//! Prompts, answers and keys are in no line, whatever the level.

use crate::args::{LogFormat, ServeArgs};
use tracing::level_filters::LevelFilter;

/// Start to log, as the options say: requests and warnings, with `-v` also details of each, with
/// `--log-disable` nothing. The server then still says on which address it listens.
pub fn start(args: &ServeArgs) {
    let level = match (args.log_disable, args.verbose) {
        (true, _) => LevelFilter::OFF,
        (_, true) => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    let builder =
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    // A second start, which tests may do, keeps the first log.
    let _ = match args.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(has_colors()).try_init(),
    };
}

/// Return true if standard error is a terminal whose person wants colours.
fn has_colors() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
