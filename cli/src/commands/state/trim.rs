//! `backstitch state trim`: a state file that ends earlier.

use super::{at, container, context, open};
use crate::args::TrimArgs;
use crate::error::{Error, one_line};
use crate::model;
use crate::output::{Output, bytes, counted};
use crate::saved::Saved;
use backstitch_kv::Pos;
use backstitch_kv::state::Scope;
use backstitch_models::{Rollback, SaveOptions};

/// Runs the command.
///
/// # Errors
/// If the state cannot be read, is none of the model or ends before that position, or the new file cannot be written.
pub fn run(args: &TrimArgs) -> Result<(), Error> {
    let file = open(&args.path)?;
    let container = container(&args.path, &file)?;
    container.expect_scope(Scope::Sequence).map_err(|error| at(&args.path, error))?;
    let saved = Saved::read(&container).map_err(|error| at(&args.path, error))?;
    let end = saved.sequences.first().map_or(0, |sequence| sequence.end.0.unsigned_abs());
    let name = one_line(&args.path.display().to_string());
    if args.to > end {
        return Err(Error::Refused(format!("{name} ends at position {end}, before --to {}", args.to)));
    }
    let model = model::open(&args.model, model::n_threads(None))?;
    container.expect_fingerprint(&model.fingerprint()).map_err(|error| at(&args.path, error))?;
    let mut ctx = context(&saved, &model)?;
    let restored = ctx.restore(&args.path)?;
    let Rollback { replayed, reevaluated, .. } = ctx.rollback(restored.seq(), Pos(args.to as i32))?;
    let options = SaveOptions { metadata: &restored.metadata, ..SaveOptions::default() };
    let written = ctx.save_with(restored.seq(), &args.output, &options)?.container;
    let mut out = Output::new(false);
    let (size, output) = (bytes(written.bytes), one_line(&args.output.display().to_string()));
    let cost = match (replayed, reevaluated) {
        (0, 0) => "nothing was evaluated again".into(),
        (n, 0) => format!("{} replayed", counted(n as usize, "recurrence")),
        (_, n) => format!("{} evaluated again", counted(n as usize, "token")),
    };
    out.line(format_args!("{output}: positions up to {} of {end}, {size}; {cost}", args.to))?;
    Ok(out.flush()?)
}
