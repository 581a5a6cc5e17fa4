//! Beginnings of prompts that were evaluated before, by this process or another: taken from a
//! prompt cache on disk, and given to it.

use super::state::{Nowhere, RestoreOptions};
use super::{Context, History};
use crate::adapter::AdapterSet;
use crate::error::Error;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_kv::io::Write;
use backstitch_kv::snapshot::{Content, Resume, Sees, Shape};
use backstitch_kv::storage::prompt_cache::{
    BLOCK_TOKENS, EvaluatedPrefix, Found, Key, MAX_RESUME, Need, Payload, Pieces, Prefix, PromptCache, Why,
};
use backstitch_kv::storage::{
    self, Container, Header, IMAGE_TAGS, SNAPSHOT_VERSION, Scope, Writer, encode_shape, write_snapshot,
};
use backstitch_kv::{Export, Pos, SeqId, Token};
use core::ops::Range;
use std::borrow::Cow;

/// Counts the releases that compute other bits than the one before from the same tokens: what was
/// stored by one of them is nothing that this one would have computed. A test holds the bits of
/// some logits, and so notices when it has to go up.
const NUMERICS: u32 = 2;

/// The number of times that a beginning is looked for again after a file of it was damaged or could
/// not be read.
const ATTEMPTS: usize = 8;

/// The prefix of a prompt that [`Context::recall`] found in a prompt cache.
///
/// # Example
/// ```no_run
/// use backstitch_models::prompt_cache::{Access, PromptCache};
/// use backstitch_models::{Context, Model, Params, Token};
///
/// let model = Model::open("llama.gguf")?;
/// let mut ctx = Context::new(&model, Params::default())?;
/// let cache = PromptCache::open("prompts", Access::ReadWrite { budget: 1 << 30 })?;
/// let (seq, prompt) = (ctx.sequence()?, [Token(5); 100]);
/// let recalled = ctx.recall(seq, &cache, &prompt)?;
/// ctx.append(seq, &prompt[recalled.n_tokens..])?;
/// if let Some(prefix) = ctx.remember(seq, &cache)? {
///     cache.put(&prefix)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Recalled {
    /// Number of tokens that the sequence holds now; the rest of the prompt has to be evaluated.
    pub n_tokens: usize,
    /// Number of tokens that are stored; more than `n_tokens` if the model's states are kept at few
    /// positions only.
    pub n_stored: usize,
    /// Reason that there are no more.
    pub why: Why,
    /// The damaged or unreadable entry that was found on the way, if one was.
    pub trouble: Option<storage::Error>,
}

/// Return true if the blocks are all that a sequence needs to continue.
fn needs_blocks_only(shape: &Shape) -> bool {
    shape.recurrent.is_empty() && shape.groups.iter().all(|group| group.sees == Sees::All)
}

/// Return true if the tokens of a sequence determine its memory. An encoder's output is not among
/// its tokens.
fn is_told_by_tokens(shape: &Shape) -> bool {
    shape.groups.iter().all(|group| group.sees != Sees::EncoderOutput)
        && !(shape.groups.is_empty() && shape.recurrent.is_empty())
}

/// Return true if a restore failed because this context has too little memory, rather than because
/// of what was to be restored.
fn is_of_context(error: &backstitch_kv::Error) -> bool {
    matches!(error, backstitch_kv::Error::Full { .. } | backstitch_kv::Error::OutOfMemory { .. })
}

impl Context {
    /// Return the key under which a prompt cache keeps what this model evaluates, with the adapters
    /// of `set`, into caches of this shape and these element types.
    pub fn prompt_cache_root(&self, set: &AdapterSet) -> Key {
        let mut memory = blake3::Hasher::new();
        memory.update(&NUMERICS.to_le_bytes()).update(&SNAPSHOT_VERSION.to_le_bytes());
        memory.update(&encode_shape(&self.memory.shape()));
        Key::root(&self.evaluated_by(set).0, memory.finalize().as_bytes())
    }

    /// Replace the content of `seq` by the longest prefix of `tokens` that `cache` has. The last
    /// token is never part of it, because its logits come from evaluating it. Further logits have
    /// the same bits as if all tokens had been evaluated.
    ///
    /// Errors of the prompt cache make the prefix shorter. If nothing is found, the sequence is
    /// empty.
    ///
    /// # Errors
    /// The sequence holds what it held then.
    ///
    /// - [`Error::Sequence`] if `seq` does not exist.
    /// - [`Error::Memory`] with [`backstitch_kv::Error::Full`] if too few blocks are free.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    /// - [`Error::Cancelled`] after a request; see [`Context::set_cancel`].
    pub fn recall(&mut self, seq: SeqId, cache: &PromptCache, tokens: &[Token]) -> Result<Recalled, Error> {
        self.history(seq)?;
        let shape = self.memory.shape();
        let need = if needs_blocks_only(&shape) { Need::Blocks } else { Need::ResumePoint };
        let (root, mut most) = (self.prompt_cache_root(self.adapters(seq)?), tokens.len().saturating_sub(1));
        let mut recalled = Recalled { n_tokens: 0, n_stored: 0, why: Why::NothingStored, trouble: None };
        for _ in 0..ATTEMPTS {
            if !is_told_by_tokens(&shape) {
                break;
            }
            let found = match cache.longest(&root, tokens, most, need) {
                Ok(found) => found,
                Err(error) => {
                    recalled.trouble = Some(error);
                    break;
                }
            };
            (recalled.n_stored, recalled.why) = (found.n_stored, found.why);
            if found.n_tokens == 0 {
                break;
            }
            let trouble = match self.take_found(seq, &shape, &found, tokens) {
                Ok(()) => {
                    recalled.n_tokens = found.n_tokens;
                    return Ok(recalled);
                }
                Err(Error::State(error)) => error,
                Err(Error::Memory(error)) if !is_of_context(&error) => storage::Error::Memory(error),
                Err(error) => return Err(error),
            };
            most = found.retry_len(&trouble);
            recalled.trouble = Some(trouble);
        }
        self.empty(seq)?;
        Ok(recalled)
    }

    /// Import the prefix that was found.
    fn take_found(
        &mut self,
        seq: SeqId,
        shape: &Shape,
        found: &Found,
        tokens: &[Token],
    ) -> Result<(), Error> {
        debug_assert!(found.n_tokens < tokens.len(), "a prefix without the last token");
        let known = tokens.get(..found.n_tokens).unwrap_or_default();
        let history = History::of(known, self.params.n_ctx)?;
        let resume = found.resume.as_ref().map(Payload::to_vec).transpose()?;
        let container = resume.as_deref().map(Container::parse).transpose()?;
        if let Some(container) = &container {
            // A resume point of another set than its key says would be a forged one.
            container.expect_fingerprint(&self.evaluated_by(self.adapters(seq)?))?;
            container.expect(&IMAGE_TAGS)?;
        }
        let prefix = Prefix::new(shape, found, container.as_ref())?;
        let contents = vec![(history, None)];
        self.adopt(prefix.snapshot(), &prefix, &[seq], contents, &RestoreOptions::default()).map(drop)
    }

    fn empty(&mut self, seq: SeqId) -> Result<(), Error> {
        self.seq_rm(seq, Pos::ZERO..Pos::MAX)
    }

    /// Return the part that `cache` lacks of the beginning of `seq`: the whole blocks of its
    /// tokens, and where the model keeps states or windows, these as they were at the end of some
    /// blocks, the last of them above all, unless they have more than [`MAX_RESUME`] bytes. `None`
    /// if there is nothing to store, or the sequence is not what its tokens made of it.
    ///
    /// Copies only states; make the entry own its bytes to store it elsewhere than here.
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist; [`Error::State`] if a state cannot be written;
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn remember(&self, seq: SeqId, cache: &PromptCache) -> Result<Option<EvaluatedPrefix<'_>>, Error> {
        self.remember_within(seq, cache, MAX_RESUME)
    }

    /// As [`Context::remember`], with resume points of at most `most` bytes.
    fn remember_within(
        &self,
        seq: SeqId,
        cache: &PromptCache,
        most: u64,
    ) -> Result<Option<EvaluatedPrefix<'_>>, Error> {
        let history = self.history(seq)?;
        let (tokens, shape) = (history.tokens(), self.memory.shape());
        let n_blocks = tokens.len() / BLOCK_TOKENS;
        if n_blocks == 0 || history.is_foreign() || history.first() > Pos::ZERO || !is_told_by_tokens(&shape)
        {
            return Ok(None);
        }
        let root = self.prompt_cache_root(self.adapters(seq)?);
        // A cache that cannot be read has nothing; storing the entry reports its error.
        let first = cache.n_stored(&root, tokens).unwrap_or(0).min(n_blocks);
        let snapshot = self.memory.export(&[seq])?;
        let resumes = match needs_blocks_only(&shape) {
            true => Vec::new(),
            false => {
                let stored = cache.resume_points(&root, tokens).unwrap_or_default();
                self.resumes(seq, &snapshot, n_blocks, most, &stored)?
            }
        };
        let blocks = match shape.group_of_all() {
            Some(group) => blocks(&snapshot, group, first..n_blocks),
            None => (first..n_blocks).map(|_| Vec::new()).collect(),
        };
        let has_all = blocks.len() == n_blocks - first;
        let is_new = !blocks.is_empty() || !resumes.is_empty();
        let tokens = Cow::Borrowed(tokens);
        Ok((has_all && is_new).then_some(EvaluatedPrefix { root, tokens, first, blocks, resumes }))
    }

    /// Return the payloads of at most `most` bytes that it takes to go on from the ends of some
    /// blocks, except those `stored`: where checkpoints are.
    fn resumes(
        &self,
        seq: SeqId,
        content: &impl Content,
        n_blocks: usize,
        most: u64,
        stored: &[usize],
    ) -> Result<Vec<(usize, Pieces<'static>)>, Error> {
        let snapshot = content.snapshot();
        let marks = snapshot.sequences.iter().flat_map(|sequence| &sequence.checkpoints);
        let mut ends: Vec<usize> = marks.map(|mark| mark.pos.0 as usize).collect();
        ends.extend([n_blocks * BLOCK_TOKENS, n_blocks.saturating_sub(1) * BLOCK_TOKENS]);
        let is_block =
            |end: usize| end > 0 && end.is_multiple_of(BLOCK_TOKENS) && end <= n_blocks * BLOCK_TOKENS;
        ends.retain(|end| is_block(*end) && !stored.contains(&(end / BLOCK_TOKENS)));
        ends.sort_unstable();
        ends.dedup();
        let header = Header { fingerprint: self.evaluated_by(self.adapters(seq)?), scope: Scope::Sequence };
        let mut list = Vec::new();
        for end in ends {
            let Some(resume) = Resume::at(content, 0, Pos(end as i32)) else { continue };
            let write = |out: &mut dyn Write| {
                let mut writer = Writer::new(out, header)?;
                write_snapshot(&mut writer, &resume, None)?;
                writer.finish()
            };
            // Asked first, because one that is too large may be larger than the memory.
            let n_bytes = write(&mut Nowhere)?.bytes;
            if n_bytes > most {
                continue;
            }
            let (mut bytes, refused) = (Vec::new(), Error::OutOfMemory { what: "a resume point", n_bytes });
            bytes.try_reserve_exact(n_bytes as usize).map_err(|_| refused)?;
            write(&mut bytes)?;
            list.push((end / BLOCK_TOKENS, vec![Cow::Owned(bytes)]));
        }
        Ok(list)
    }
}

/// Return the bytes of some blocks of a sequence, as far as they are full and at the positions of
/// its tokens.
fn blocks<'a>(snapshot: &Export<'a>, group: usize, range: Range<usize>) -> Vec<Pieces<'a>> {
    let blocks = range.map_while(|number| {
        let pos = Pos((number * BLOCK_TOKENS) as i32);
        let layers = snapshot.full_block(0, group, number, pos)?;
        Some(layers.into_iter().map(Cow::Borrowed).collect())
    });
    blocks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Params};
    use backstitch_kv::storage::prompt_cache::Access;

    #[test]
    fn resume_points_that_nobody_could_read_are_left_out_and_blocks_are_stored() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/falcon_h1.gguf");
        let (model, folder) = (Model::open(path).unwrap(), tempfile::tempdir().unwrap());
        let cache = PromptCache::open(folder.path(), Access::ReadWrite { budget: 1 << 30 }).unwrap();
        let mut ctx = Context::new(&model, Params::default().n_ctx(128)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &(0..100).map(|i| Token(7 + i % 50)).collect::<Vec<_>>()).unwrap();
        let counts = |most| {
            let entry = ctx.remember_within(seq, &cache, most).unwrap();
            entry.map(|entry| (entry.blocks.len(), entry.resumes.len()))
        };
        let whole = ctx.remember(seq, &cache).unwrap().unwrap();
        let most = whole.resumes.iter().map(|(_, pieces)| pieces.concat().len() as u64).max().unwrap();
        let n_largest = whole.resumes.iter().filter(|(_, pieces)| pieces.concat().len() as u64 == most);
        let (n, n_largest) = (whole.resumes.len(), n_largest.count());
        assert_eq!(counts(most), Some((3, n)));
        assert_eq!(counts(most - 1), Some((3, n - n_largest)));
        cache.put(&ctx.remember_within(seq, &cache, most - 1).unwrap().unwrap()).unwrap();
        assert_eq!(counts(most - 1), None, "the blocks are there, and nothing is stored again");
    }
}
