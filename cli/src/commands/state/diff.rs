//! `backstitch state diff`: compare two state files.
//!
//! Both files are checked completely first: a damaged byte must not show up as a difference between
//! texts.

use super::check_bytes;
use crate::args::DiffArgs;
use crate::error::{Error, of_state};
use crate::output::{Output, one_line};
use crate::saved::{self, Difference, compare};
use serde_json::{Value, json};

/// Run the command.
///
/// # Errors
/// - [`Error::Different`] if the states differ.
/// - [`Error::State`] or [`Error::Refused`] if a file is damaged or no saved state.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &DiffArgs) -> Result<(), Error> {
    let (file_a, file_b) = (saved::open(&args.a)?, saved::open(&args.b)?);
    let (a, b) = (saved::container(&args.a, &file_a)?, saved::container(&args.b, &file_b)?);
    check_bytes(&args.a, &a)?;
    check_bytes(&args.b, &b)?;
    let a = saved::parse(&args.a, &a)?;
    let b = saved::parse(&args.b, &b)?;
    let found = compare(&a, &b).map_err(|error| Error::Refused(of_state(&error)))?;
    let mut out = Output::new(args.json);
    if out.is_json() {
        out.value(&found.iter().map(as_json).collect())?;
    } else if found.is_empty() {
        out.text("the same state", 6)?;
    }
    for difference in found.iter().filter(|_| !args.json) {
        let heading = out.heading();
        let of = difference.sequence.map_or(String::new(), |id| format!(" of sequence {id}"));
        out.text(
            format_args!("{heading}{}{of}{heading:#}: {}", difference.what, one_line(&difference.text)),
            6,
        )?;
    }
    out.flush()?;
    if found.is_empty() { Ok(()) } else { Err(Error::Different { n: found.len() }) }
}

/// Return a difference as JSON.
fn as_json(difference: &Difference) -> Value {
    let Difference { what, sequence, at, text } = difference;
    json!({ "what": what, "sequence": sequence, "at": at, "text": text })
}
