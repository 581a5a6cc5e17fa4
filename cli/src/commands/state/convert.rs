//! `backstitch state convert`: convert between states of Backstitch and of llama.cpp.
//!
//! The first bytes of the file say which of the two it is, and that decides the direction. Files of
//! llama.cpp hold cells and recurrent states only, and nothing in them says which model they belong
//! to; both are reported, because converting back does not restore what was lost.

use super::expect_model;
use crate::args::{ConvertArgs, LlamaForm};
use crate::error::{Error, of_engine, of_file};
use crate::interrupt::Stoppable;
use crate::model;
use crate::output::{bytes, counted, note};
use crate::progress::Progress;
use crate::saved;
use crate::target::{Kind, Saving, Target, Text, is_llama};
use backstitch_kv::file::Buffer;
use backstitch_kv::io::ReadAt;
use backstitch_kv::storage::{Scope, StateFile};
use backstitch_models::llama_files::{Form, Options};
use backstitch_models::{
    Context, Error as ModelError, Model, RestoreOptions, Restored, SaveOptions, SavedContext,
};
use std::io::Write;

/// Run the command.
///
/// # Errors
/// - [`Error::State`] if the file is damaged or belongs to another model.
/// - [`Error::Refused`] if it is no state, does not fit the model or the form of `--to`, or if `-o`
///   would replace another text.
/// - [`Error::Engine`] if the model cannot be loaded.
/// - [`Error::NotSaved`] or [`Error::Write`] if the new file cannot be written.
pub fn run(args: &ConvertArgs) -> Result<(), Error> {
    let file = saved::open(&args.path)?;
    let mut front = [0; 8];
    let n = file.read_at(0, &mut front).map_err(|error| Error::of_state(&args.path, error.into()))?;
    let is_import = n >= 4 && is_llama(&front);
    let kind = if is_import { Kind::State } else { Kind::LlamaState };
    let read = [Some(args.path.as_path()), args.model.model.as_deref()];
    let target = Target::check(&args.output, "-o", kind, &read)?;
    if is_import { import(args, &target, front) } else { export(args, &target, &file) }
}

/// Convert a saved state to a file of llama.cpp.
fn export(args: &ConvertArgs, target: &Target<'_>, file: &StateFile) -> Result<(), Error> {
    let container = saved::container(&args.path, file)?;
    let saved = saved::parse(&args.path, &container)?;
    let model = model::open(&args.model, model::n_threads(None))?;
    expect_model(&args.path, &container, &model, &args.model)?;
    let mut ctx = saved::context(&saved, &model)?;
    let progress = Progress::endless("converting");
    let restored = match container.scope() {
        Scope::Sequence => ctx.restore(&args.path)?,
        Scope::Context | Scope::Entry => ctx.restore_all(&args.path)?,
    };
    let options = Options { v_trans: args.no_flash_attn, ..Options::default() };
    let written = match args.to {
        LlamaForm::Session => ctx.llama_state_write(&options)?,
        LlamaForm::Sequence if restored.sequences.len() != 1 => {
            let n = restored.sequences.len();
            let name = args.path.display();
            return Err(Error::Refused(format!(
                "{name} holds {n} sequences; only --to session has room for them"
            )));
        }
        LlamaForm::Sequence => ctx.llama_seq_state_write(restored.seq(), Form::Sequence, &options)?,
    };
    if !args.force {
        target.expect_llama_text(&written)?;
    }
    target.write(|mut file| file.write_all(&written))?;
    drop(progress);
    let (n, size) = (counted(restored.sequences.len(), "sequence"), bytes(written.len() as u64));
    note("note", format_args!("{n} to {}, {size}", args.output.display()));
    note("note", format_args!("left out, for llama.cpp's files have no place for it: {}", lost(&saved)));
    Ok(())
}

/// Name the content that llama.cpp's files have no place for.
fn lost(saved: &SavedContext<'_>) -> String {
    let n = saved.snapshot().checkpoints.len();
    let parts = [
        (n > 0, counted(n, "checkpoint")),
        (saved.sequences.iter().any(|sequence| sequence.logits.is_some()), "the last logits".into()),
        (saved.sampler().is_some(), "the samplers".into()),
        (!saved.metadata.is_empty(), "the metadata".into()),
        (true, "which model it is of".into()),
        (true, "checksums".into()),
    ];
    parts.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

/// Convert a file of llama.cpp to a saved state.
///
/// The number of sequences in the file is not known before it is read, and a context has room for
/// all or none. So it is read again with a larger context for each sequence that did not exist.
fn import(args: &ConvertArgs, target: &Target<'_>, front: [u8; 8]) -> Result<(), Error> {
    let read = Buffer::read(&args.path).map_err(|error| Error::Refused(of_file(&error)))?;
    let file = read.bytes();
    let model = model::open(&args.model, model::n_threads(None))?;
    let progress = Progress::endless("converting");
    let is_session = front.starts_with(b"nsgg");
    let mut n_seq_max = 1;
    let (ctx, restored) = loop {
        let mut ctx = context(args, &model, file, n_seq_max)?;
        match take(&mut ctx, file, is_session) {
            Err(ModelError::Sequence { seq }) if seq >= n_seq_max => n_seq_max = seq.saturating_add(1),
            Err(error) => {
                return Err(Error::Refused(format!("{}: {}", args.path.display(), of_engine(&error))));
            }
            Ok(restored) => break (ctx, restored),
        }
    };
    let tokens = ctx.tokens(restored.seq())?;
    let text = Text { model: &ctx.fingerprint(), tokens, saving: Saving::Imported };
    if !args.force {
        target.expect_text(text)?;
    }
    let _finish = Stoppable::begin();
    let one = (restored.sequences.len() == 1).then(|| restored.seq());
    let (output, saved) = target
        .save(text, args.force, |path, watch| ctx.save_watched(one, path, &SaveOptions::default(), watch))?;
    drop(progress);
    let n = counted(restored.sequences.len(), "sequence");
    note("note", format_args!("{n} to {}, {}", output.display(), bytes(saved.container.bytes)));
    note("note", "nothing in the file says that it is of this model: that is your word");
    if restored.sequences.iter().any(|sequence| sequence.n_tokens < sequence.end.0.unsigned_abs() as usize) {
        note("note", "the file does not list all tokens: what lies before its end cannot be re-evaluated");
    }
    Ok(())
}

/// Make a context for the content of a file of llama.cpp: as large as `-c` says, or as its list of
/// tokens needs.
fn context(args: &ConvertArgs, model: &Model, file: &[u8], n_seq_max: u32) -> Result<Context, Error> {
    let listed = file.get(8..12).and_then(|bytes| bytes.first_chunk()).map_or(0, |n| u32::from_le_bytes(*n));
    let listed = u64::from(listed).min(file.len() as u64 / 4) as u32;
    let n_ctx = args.n_ctx.unwrap_or(model.hparams().n_ctx_train.min(4096).max(listed));
    saved::empty_context(model, n_ctx, n_seq_max, (args.type_k.into(), args.type_v.into()))
}

/// Read a session, or a file of one sequence, into an empty context.
fn take(ctx: &mut Context, file: &[u8], is_session: bool) -> Result<Restored, ModelError> {
    let options = RestoreOptions::default();
    if is_session {
        return ctx.llama_state_read(file, &options);
    }
    let seq = ctx.sequence()?;
    ctx.llama_seq_state_read(seq, file, &options)
}
