//! Restoring one sequence of a file that may hold several, and contexts for what a file holds.
//!
//! The library restores a file of several sequences as a whole only. So all are restored in a
//! context of their own, from which the wanted one is copied.

use super::{container, open, parse, rotation};
use crate::error::Error;
use crate::output::{counted, one_line};
use crate::{memory, model};
use backstitch_core::cell::{BLOCK_CELLS, CellType};
use backstitch_kv::storage::Scope;
use backstitch_models::{
    Context, Model, Params, RestoreOptions, Restored, SaveOptions, SavedContext, SavedSequence, SeqId,
};
use std::path::Path;

/// Largest number of sequences of a context. A file may name more, and each costs memory.
const MAX_SEQUENCES: u32 = 4096;

/// Restore the sequence `wanted` of a file as a new sequence of the context; if none was named, the
/// only one of the file.
///
/// # Errors
/// - [`Error::Refused`] if the file lacks that sequence, or holds several and none was named: the
///   text lists them. Also if it was saved from a context whose length makes it another model's
///   ([`rotation::expect`]).
/// - [`Error::State`] and [`Error::Engine`] if the state cannot be restored.
pub fn restore_one(ctx: &mut Context, path: &Path, wanted: Option<u32>) -> Result<Restored, Error> {
    let file = open(path)?;
    let container = container(path, &file)?;
    rotation::expect(path, &container, ctx)?;
    if container.scope() == Scope::Sequence && wanted.is_none() {
        return Ok(ctx.restore(path)?);
    }
    let saved = parse(path, &container)?;
    let id = choose(&saved, path, wanted)?;
    if container.scope() == Scope::Sequence {
        return Ok(ctx.restore(path)?);
    }
    container.expect_fingerprint(&ctx.fingerprint()).map_err(|error| Error::of_state(path, error))?;
    // All are restored in a context beside, and the wanted one is copied from there.
    let mut all = context(&saved, &ctx.model().clone())?;
    let sets = [ctx.default_adapters().clone()];
    let restored = all.restore_all_with(path, &RestoreOptions::default().adapters(&sets))?;
    let samplers: Vec<_> = restored
        .sequences
        .into_iter()
        .filter_map(|sequence| Some((sequence.seq, sequence.sampler?)))
        .collect();
    let options = SaveOptions::default().samplers(&samplers).metadata(&restored.metadata);
    let mut bytes = Vec::new();
    all.seq_state_write(SeqId(id), &mut bytes, &options)?;
    drop(all);
    let seq = ctx.sequence()?;
    Ok(ctx.seq_state_read_bytes(seq, &bytes, &RestoreOptions::default())?)
}

/// Return the id of the sequence to restore.
///
/// # Errors
/// [`Error::Refused`] with a list of the sequences.
fn choose(saved: &SavedContext<'_>, path: &Path, wanted: Option<u32>) -> Result<u32, Error> {
    let found = match (wanted, saved.sequences.as_slice()) {
        (None, [only]) => Some(only.id),
        (wanted, all) => all.iter().map(|sequence| sequence.id).find(|id| Some(*id) == wanted),
    };
    found.ok_or_else(|| {
        let one = |sequence: &SavedSequence| {
            format!("{} ({})", sequence.id, counted(sequence.end.0.unsigned_abs() as usize, "token"))
        };
        let list = saved.sequences.iter().map(one).collect::<Vec<_>>().join(", ");
        let (name, n) = (one_line(&path.display().to_string()), counted(saved.sequences.len(), "sequence"));
        Error::Refused(format!("{name} holds {n}: {list}; choose one with --sequence ID"))
    })
}

/// Make an empty context of the size that the saved sequences need, and no larger.
///
/// # Errors
/// [`Error::Refused`] for more sequences than a context has, or positions that need more memory
/// than there is; [`Error::Engine`] if there is too little memory.
pub fn context(saved: &SavedContext<'_>, model: &Model) -> Result<Context, Error> {
    let snapshot = saved.snapshot();
    let types = snapshot.shape.groups.first().map(|group| (group.k_type, group.v_type));
    let ends = saved.sequences.iter().map(|sequence| sequence.end.0.unsigned_abs());
    let blocks = snapshot.blocks.iter().map(|blocks| (blocks.len() * BLOCK_CELLS) as u32);
    let least = ends.chain(blocks).max().map_or(1, |most| most.max(1));
    let n_ctx = rotation::n_ctx(model, saved.container.fingerprint(), least);
    let is_whole = saved.container.scope() == Scope::Context;
    let last = saved.sequences.iter().map(|sequence| sequence.id).filter(|_| is_whole).max();
    let n_seq_max = last.map_or(1, |last| last.saturating_add(1));
    if n_seq_max > MAX_SEQUENCES {
        let last = n_seq_max - 1;
        return Err(Error::Refused(format!("sequence {last} is beyond the {MAX_SEQUENCES} of a context")));
    }
    empty_context(model, n_ctx, n_seq_max, types.unwrap_or((CellType::F16, CellType::F16)))
}

/// Make an empty context of a given size, with all threads of the machine.
///
/// # Errors
/// [`Error::Refused`] if it needs more memory than there is; [`Error::Engine`] if there is too
/// little memory.
pub fn empty_context(
    model: &Model,
    n_ctx: u32,
    n_seq_max: u32,
    (type_k, type_v): (CellType, CellType),
) -> Result<Context, Error> {
    let n_threads = model::n_threads(None);
    let params = Params::default().n_ctx(n_ctx).n_seq_max(n_seq_max).n_threads(n_threads);
    let params = params.type_k(type_k).type_v(type_v);
    memory::check(model, &params)?;
    Ok(Context::new(model, params)?)
}
