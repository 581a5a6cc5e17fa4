//! `backstitch state convert`: files for llama.cpp, and from it.

use super::{at, container, context, open};
use crate::args::{ConvertArgs, LlamaForm};
use crate::error::Error;
use crate::model;
use crate::output::{bytes, counted, note};
use crate::saved::Saved;
use backstitch_kv::file::Buffer;
use backstitch_kv::io::ReadAt;
use backstitch_kv::state::llama::{Form, Options};
use backstitch_kv::state::{self, Scope, StateFile};
use backstitch_models::{Context, Error as ModelError, Model, Params, RestoreOptions, Restored, SaveOptions};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// First bytes of sessions, sequences and buffers of llama.cpp.
const LLAMA: [[u8; 4]; 3] = [*b"nsgg", *b"qsgg", [0xd8, 0x3c, 0x14, 0xaf]];

/// Whether a file that begins so is one of llama.cpp.
pub fn is_llama(found: [u8; 8]) -> bool {
    LLAMA.iter().any(|magic| found.starts_with(magic))
}

/// Runs the command.
///
/// # Errors
/// If the file is neither, not of the model, or damaged; or the new one cannot be written.
pub fn run(args: &ConvertArgs) -> Result<(), Error> {
    let file = open(&args.path)?;
    let mut front = [0; 8];
    let n = file.read_at(0, &mut front).map_err(|error| at(&args.path, state::Error::Io(error)))?;
    if n >= 4 && is_llama(front) { import(args, front) } else { export(args, &file) }
}

/// From ours to llama.cpp's.
fn export(args: &ConvertArgs, file: &StateFile) -> Result<(), Error> {
    let container = container(&args.path, file)?;
    let saved = Saved::read(&container).map_err(|error| at(&args.path, error))?;
    let model = model::open(&args.model, model::n_threads(None))?;
    container.expect_fingerprint(&model.fingerprint()).map_err(|error| at(&args.path, error))?;
    let mut ctx = context(&saved, &model)?;
    let restored = match container.scope() {
        Scope::Sequence => ctx.restore(&args.path)?,
        Scope::Context => ctx.restore_all(&args.path, &RestoreOptions::default())?,
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
    replace(&args.output, &written)?;
    let (n, size) = (counted(restored.sequences.len(), "sequence"), bytes(written.len() as u64));
    note("note", format_args!("{n} to {}, {size}", args.output.display()));
    note("note", format_args!("left out, for llama.cpp's files have no place for it: {}", lost(&saved)));
    Ok(())
}

/// What llama.cpp's files have no place for.
fn lost(saved: &Saved<'_>) -> String {
    let n = saved.image().checkpoints.len();
    let parts = [
        (n > 0, counted(n, "checkpoint")),
        (saved.sequences.iter().any(|sequence| sequence.logits.is_some()), "the last logits".into()),
        (saved.sampler.is_some(), "the samplers".into()),
        (!saved.metadata.is_empty(), "the metadata".into()),
        (true, "which model it is of".into()),
        (true, "checksums".into()),
    ];
    parts.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

/// From llama.cpp's to ours.
fn import(args: &ConvertArgs, front: [u8; 8]) -> Result<(), Error> {
    let read = Buffer::read(&args.path).map_err(|error| Error::Refused(error.to_string()))?;
    let file = read.bytes();
    let model = model::open(&args.model, model::n_threads(None))?;
    let is_session = front.starts_with(&LLAMA[0]);
    let mut n_seq_max = 1;
    let (ctx, restored) = loop {
        let mut ctx = room(args, &model, file, n_seq_max)?;
        match take(&mut ctx, file, is_session) {
            // There are more of them; now it is known how many.
            Err(ModelError::Sequence { seq }) if seq >= n_seq_max => n_seq_max = seq.saturating_add(1),
            Err(error) => return Err(Error::Refused(format!("{}: {error}", args.path.display()))),
            Ok(restored) => break (ctx, restored),
        }
    };
    let saved = match restored.sequences.len() {
        1 => ctx.save_with(restored.seq(), &args.output, &SaveOptions::default())?,
        _ => ctx.save_all(&args.output, &SaveOptions::default())?,
    };
    let n = counted(restored.sequences.len(), "sequence");
    note("note", format_args!("{n} to {}, {}", args.output.display(), bytes(saved.container.bytes)));
    note("note", "nothing in the file says that it is of this model: that is your word");
    if restored.sequences.iter().any(|sequence| sequence.n_tokens < sequence.end.0.unsigned_abs() as usize) {
        note("note", "the file does not list all tokens: what lies before its end cannot be evaluated again");
    }
    Ok(())
}

/// A context with room for what is in a file.
fn room(args: &ConvertArgs, model: &Model, file: &[u8], n_seq_max: u32) -> Result<Context, Error> {
    let listed = file.get(8..12).and_then(|bytes| bytes.first_chunk()).map_or(0, |n| u32::from_le_bytes(*n));
    let listed = u64::from(listed).min(file.len() as u64 / 4) as u32;
    let n_ctx = args.n_ctx.unwrap_or(model.hparams().n_ctx_train.min(4096).max(listed));
    let (type_k, type_v) = (args.type_k.into(), args.type_v.into());
    let n_threads = model::n_threads(None);
    Ok(Context::new(model, Params { n_ctx, n_seq_max, n_threads, type_k, type_v, ..Params::default() })?)
}

fn take(ctx: &mut Context, file: &[u8], is_session: bool) -> Result<Restored, ModelError> {
    let options = RestoreOptions::default();
    if is_session {
        return ctx.llama_state_read(file, &options);
    }
    let seq = ctx.sequence()?;
    ctx.llama_seq_state_read(seq, file, &options)
}

/// Puts a file in place of another in one step.
fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.into(), source };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&part, path)).map_err(|error| {
        // What is left of it is of no use; the first error says why.
        let _ = fs::remove_file(&part);
        failed(error)
    })
}
