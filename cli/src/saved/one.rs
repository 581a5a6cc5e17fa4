//! One sequence out of a file that may hold several.

use super::Saved;
use crate::error::{Error, one_line};
use crate::output::counted;
use crate::{memory, model};
use backstitch_core::cell::{BLOCK_CELLS, CellType};
use backstitch_kv::state::{Scope, StateFile};
use backstitch_models::{Context, Model, Params, RestoreOptions, Restored, SaveOptions, SeqId};
use std::path::Path;

/// More sequences than this a context of this program does not have.
const MAX_SEQUENCES: u32 = 4096;

/// Restores the sequence `wanted` of a file as a new one; without a wish, the only one that is there.
///
/// # Errors
/// [`Error::Refused`] if the file holds several and none was chosen, or not that one: the text lists them. What
/// restoring says.
pub fn restore_one(ctx: &mut Context, path: &Path, wanted: Option<u32>) -> Result<Restored, Error> {
    let at = |source| Error::of_state(path, source);
    let file = StateFile::open(path).map_err(at)?;
    let container = file.container().map_err(at)?;
    if container.scope() == Scope::Sequence && wanted.is_none() {
        return Ok(ctx.restore(path)?);
    }
    let saved = Saved::read(&container).map_err(at)?;
    let id = choose(&saved, path, wanted)?;
    if container.scope() == Scope::Sequence {
        return Ok(ctx.restore(path)?);
    }
    container.expect_fingerprint(&ctx.model().fingerprint()).map_err(at)?;
    // All of them are restored beside, and the wanted one moves over.
    let mut all = saved.context(&ctx.model().clone())?;
    let mut restored = all.restore_all(path)?;
    let mut bytes = Vec::new();
    all.seq_state_write(SeqId(id), &mut bytes, &SaveOptions::default())?;
    drop(all);
    let seq = ctx.sequence()?;
    let mut one = ctx.seq_state_read_bytes(seq, &bytes, &RestoreOptions::default())?;
    let samplers = restored.sequences.iter_mut().find(|sequence| sequence.seq == SeqId(id));
    restored.sampler = samplers.and_then(|sequence| sequence.sampler.take());
    one.sequences.iter_mut().for_each(|sequence| sequence.sampler = restored.sampler.clone());
    (restored.sequences, restored.fit) = (one.sequences, one.fit);
    Ok(restored)
}

/// The id of the sequence that is wanted.
fn choose(saved: &Saved<'_>, path: &Path, wanted: Option<u32>) -> Result<u32, Error> {
    let found = match (wanted, saved.sequences.as_slice()) {
        (None, [only]) => Some(only.id),
        (wanted, all) => all.iter().map(|sequence| sequence.id).find(|id| Some(*id) == wanted),
    };
    found.ok_or_else(|| {
        let one = |sequence: &super::SavedSequence| {
            format!("{} ({})", sequence.id, counted(sequence.end.0.unsigned_abs() as usize, "token"))
        };
        let list = saved.sequences.iter().map(one).collect::<Vec<_>>().join(", ");
        let (name, n) = (one_line(&path.display().to_string()), counted(saved.sequences.len(), "sequence"));
        Error::Refused(format!("{name} holds {n}: {list}; choose one with --sequence ID"))
    })
}

impl Saved<'_> {
    /// A context that holds what was saved, without room for more.
    ///
    /// # Errors
    /// [`Error::Refused`] for more sequences than a context has, or positions that need more memory than there is;
    /// [`Error::Engine`] if there is too little memory.
    pub fn context(&self, model: &Model) -> Result<Context, Error> {
        let types = self.image().shape.groups.first().map(|group| (group.k_type, group.v_type));
        let (type_k, type_v) = types.unwrap_or((CellType::F16, CellType::F16));
        let ends = self.sequences.iter().map(|sequence| sequence.end.0.unsigned_abs());
        let blocks = self.image().blocks.iter().map(|blocks| (blocks.len() * BLOCK_CELLS) as u32);
        let n_ctx = ends.chain(blocks).max().unwrap_or(0).max(1);
        let is_whole = self.container.scope() == Scope::Context;
        let ids = self.sequences.iter().map(|sequence| sequence.id).filter(|_| is_whole);
        let n_seq_max = ids.max().unwrap_or(0).saturating_add(1);
        if n_seq_max > MAX_SEQUENCES {
            let last = n_seq_max - 1;
            return Err(Error::Refused(format!(
                "sequence {last} is beyond the {MAX_SEQUENCES} of a context"
            )));
        }
        let n_threads = model::n_threads(None);
        let params = Params::default()
            .n_ctx(n_ctx)
            .n_seq_max(n_seq_max)
            .n_threads(n_threads)
            .type_k(type_k)
            .type_v(type_v);
        memory::check(model, &params)?;
        Ok(Context::new(model, params)?)
    }
}
