//! `backstitch state trim`: roll a saved state back, and save what remains.
//!
//! The state is restored, rolled back and saved by the library, so the result is the state that the
//! remaining tokens alone would have made.

use super::expect_model;
use crate::args::TrimArgs;
use crate::error::Error;
use crate::interrupt::Stoppable;
use crate::model;
use crate::output::{Output, bytes, counted, one_line};
use crate::progress::Progress;
use crate::saved;
use crate::target::{Kind, Saving, Target, Text};
use backstitch_kv::Pos;
use backstitch_kv::storage::Scope;
use backstitch_models::{Rollback, SaveOptions};

/// Run the command.
///
/// # Errors
/// - [`Error::State`] if the state cannot be read, or belongs to another model.
/// - [`Error::Refused`] if it holds several sequences or ends before `--to`, if no model was named
///   and the state is not one of the embedded model, or if `-o` would replace another text.
/// - [`Error::Engine`] if the rollback fails.
/// - [`Error::NotSaved`] or [`Error::Write`] if the new file cannot be written.
pub fn run(args: &TrimArgs) -> Result<(), Error> {
    let input = Some(args.path.as_path());
    let read = [args.model.model.as_deref()];
    let target = Target::check_in_place(&args.output, "-o", Kind::State, input, &read)?;
    let file = saved::open(&args.path)?;
    let container = saved::container(&args.path, &file)?;
    container.expect_scope(Scope::Sequence).map_err(|error| Error::of_state(&args.path, error))?;
    let saved = saved::parse(&args.path, &container)?;
    let [sequence] = saved.sequences.as_slice() else {
        let n = counted(saved.sequences.len(), "sequence");
        return Err(Error::Refused(format!("{} holds {n}, not one", args.path.display())));
    };
    let end = sequence.end.0.unsigned_abs();
    let name = one_line(&args.path.display().to_string());
    if args.to > end {
        return Err(Error::Refused(format!("{name} ends at position {end}, before --to {}", args.to)));
    }
    // An edited sequence, or one of another engine, may list fewer tokens than it has positions.
    let n_listed = args.to.saturating_sub(sequence.start.0.unsigned_abs()) as usize;
    let (tokens, _) = sequence.tokens.split_at(n_listed.min(sequence.tokens.len()));
    let text = Text { model: container.fingerprint(), tokens, saving: Saving::All };
    if !args.force {
        target.expect_text(text)?;
    }
    let model = model::open(&args.model, model::n_threads(None))?;
    expect_model(&args.path, &container, &model, &args.model)?;
    let mut ctx = saved::context(&saved, &model)?;
    let progress = Progress::endless("restoring");
    let restored = ctx.restore(&args.path)?;
    drop(progress);
    let progress = Progress::endless("rolling back");
    let Rollback { replayed, reevaluated, .. } = ctx.rollback(restored.seq(), Pos(args.to as i32))?;
    let options = SaveOptions::default().metadata(&restored.metadata);
    drop(progress);
    let progress = Progress::endless("saving");
    let _finish = Stoppable::begin();
    let (output, written) = target.save(text, args.force, |path, watch| {
        ctx.save_watched(Some(restored.seq()), path, &options, watch)
    })?;
    let written = written.container;
    drop(progress);
    let mut out = Output::new(false);
    let (size, output) = (bytes(written.bytes), one_line(&output.display().to_string()));
    let cost = match (replayed, reevaluated) {
        (0, 0) => "nothing was re-evaluated".into(),
        (n, 0) => format!("{} replayed", counted(n as usize, "recurrence")),
        (_, n) => format!("{} re-evaluated", counted(n as usize, "token")),
    };
    out.text(format_args!("{output}: positions up to {} of {end}, {size}; {cost}", args.to), 6)?;
    Ok(out.flush()?)
}
