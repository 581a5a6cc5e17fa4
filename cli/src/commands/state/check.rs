//! `backstitch state check`: check a state file for damage.
//!
//! Every byte is compared with its checksum, and the descriptions with each other. No model is
//! needed.

use super::check_bytes;
use crate::args::CheckArgs;
use crate::error::Error;
use crate::output::{Output, bytes, counted, one_line};
use crate::saved;

/// Run the command.
///
/// # Errors
/// - [`Error::State`] with the first section that is not as it was written, and its place.
/// - [`Error::Refused`] if the file is no saved state.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &CheckArgs) -> Result<(), Error> {
    let file = saved::open(&args.path)?;
    let container = saved::container(&args.path, &file)?;
    check_bytes(&args.path, &container)?;
    let saved = saved::parse(&args.path, &container)?;
    let mut out = Output::new(false);
    let (n, n_bytes) = (container.sections().len(), bytes(container.committed_len()));
    let n_tokens: usize = saved.sequences.iter().map(|sequence| sequence.tokens.len()).sum();
    let name = one_line(&args.path.display().to_string());
    let good = out.good();
    out.text(
        format_args!(
            "{name}: {good}sound{good:#}: {n} sections, {n_bytes}, {} of {n_tokens} tokens",
            counted(saved.sequences.len(), "sequence")
        ),
        6,
    )?;
    if container.uncommitted() > 0 {
        let rest = bytes(container.uncommitted());
        out.text(
            format_args!("{rest} after it are left of a save that did not end; the next one overwrites them"),
            6,
        )?;
    }
    Ok(out.flush()?)
}
