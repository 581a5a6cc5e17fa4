//! `backstitch state`: inspect, check, compare, trim and convert saved states.
//!
//! The subcommands open a file in the same steps: `saved::open` maps it, `saved::container` checks
//! its header and directory, and `saved::parse` reads the descriptions. [`check_bytes`] reads all
//! bytes. Every error names the file, because some commands take several.

mod check;
mod convert;
mod diff;
mod inspect;
mod trim;

use crate::args::{ModelArgs, StateArgs, StateCommand};
use crate::error::Error;
use crate::output::one_line;
use crate::progress::Progress;
use crate::saved::rotation::long_fingerprint;
use backstitch_kv::storage::{Container, Fingerprint};
use backstitch_models::Model;
use std::path::Path;

/// The answer of `splice`, which exists to give it: joining states is asked for often, and a joined
/// state would look right.
const NO_SPLICE: &str = "states cannot be joined: what is kept of a token depends on all tokens before it; \
trim one to what both begin with and evaluate the rest after it (`backstitch state splice --help` shows how)";

/// Run the command.
///
/// # Errors
/// The errors of the subcommand; [`Error::Refused`] from `splice`.
pub fn run(args: &StateArgs) -> Result<(), Error> {
    match &args.command {
        StateCommand::Inspect(args) => inspect::run(args),
        StateCommand::Check(args) => check::run(args),
        StateCommand::Diff(args) => diff::run(args),
        StateCommand::Trim(args) => trim::run(args),
        StateCommand::Convert(args) => convert::run(args),
        StateCommand::Splice(_) => Err(Error::Refused(NO_SPLICE.into())),
    }
}

/// Check the bytes of all sections, with a progress bar. Sections are not held in memory, so they
/// may be as long as one that is restored.
fn check_bytes(path: &Path, container: &Container<'_>) -> Result<(), Error> {
    let progress = Progress::bytes("checking");
    let total = container.committed_len().saturating_sub(container.waste());
    let mut done: u64 = 0;
    let checked = container.check_with(|section| {
        done = done.saturating_add(section.stored_len);
        progress.set(done, total);
    });
    checked.map_err(|error| Error::of_state(path, error))
}

/// Refuse a model that the state is not of. A state of a long context is one of its model, too.
fn expect_model(
    path: &Path,
    container: &Container<'_>,
    model: &Model,
    args: &ModelArgs,
) -> Result<(), Error> {
    let is_of_long = *container.fingerprint() == long_fingerprint(model);
    if is_of_long { Ok(()) } else { expect_fingerprint(path, container, &model.fingerprint(), args) }
}

/// Refuse a state with another fingerprint than that of `model`. The error says which model was
/// taken if none was named.
fn expect_fingerprint(
    path: &Path,
    container: &Container<'_>,
    model: &Fingerprint,
    args: &ModelArgs,
) -> Result<(), Error> {
    match container.expect_fingerprint(model) {
        Err(_) if args.model.is_none() => Err(Error::Refused(format!(
            "{} is a state of the model with fingerprint {:.32}; without -m it was tried with the model inside the \
             program ({:.32}); name the right one with -m FILE (`backstitch inspect FILE` shows fingerprints)",
            one_line(&path.display().to_string()),
            container.fingerprint().to_string(),
            model.to_string(),
        ))),
        other => other.map_err(|error| Error::of_state(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_kv::storage::{Header, MAX_READ, Scope, Tag, Writer};

    #[test]
    fn a_section_that_is_too_long_to_be_read_at_once_is_checked() {
        let mebibyte = vec![0; 1 << 20];
        let pieces = vec![&mebibyte[..]; 1 + (MAX_READ >> 20) as usize];
        let header = Header { fingerprint: Fingerprint([5; 32]), scope: Scope::Sequence };
        let mut bytes = Vec::with_capacity(258 << 20);
        let mut writer = Writer::new(&mut bytes, header).unwrap();
        writer.section(Tag(*b"STAT"), 1, true, 0, &pieces).unwrap();
        writer.finish().unwrap();
        let check = |bytes: &[u8]| check_bytes(Path::new("a.bst"), &Container::parse(bytes).unwrap());
        check(&bytes).unwrap();
        bytes[200 << 20] = 1;
        assert!(check(&bytes).unwrap_err().to_string().contains("is damaged"));
    }
}
