//! The prompt cache on disk: what was evaluated survives evictions, restarts and kills.

use super::super::params::EngineParams;
use super::super::request::Tenant;
use super::super::task::Task;
use super::Worker;
use crate::error::Error;
use backstitch_models::SeqId;
use backstitch_models::prompt_cache::{Access, BLOCK_TOKENS, BackgroundWriter, EvaluatedPrefix, PromptCache};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The number of tokens that reading from disk must save.
const WORTH_READING: usize = 2 * BLOCK_TOKENS;

/// The folder of everything that survives: a prompt cache for each tenant.
pub(super) struct StateFolder {
    folder: PathBuf,
    n_bytes: u64,
    /// The most bytes that wait for the disk, for each tenant.
    waiting: u64,
    /// The caches of the tenants so far; `None` for those that could not be opened.
    caches: HashMap<Tenant, Option<Cache>>,
    /// The sequences of which a part is not handed over yet.
    unstored: Vec<Unstored>,
}

/// A sequence that waits until the disk has taken what was handed over.
struct Unstored {
    seq: SeqId,
    tenant: Tenant,
    /// The rest when a part of it was last handed over; `None` before.
    before: Option<Left>,
}

/// The rest of a sequence to store: the first block, and the number of resume points.
type Left = (usize, usize);

struct Cache {
    cache: PromptCache,
    /// The cache of the thread that stores.
    of_writer: PromptCache,
    writer: BackgroundWriter,
}

impl Cache {
    fn open(folder: &Path, n_bytes: u64) -> Option<Cache> {
        let open = || {
            let cache = PromptCache::open(folder, Access::ReadWrite { budget: n_bytes })?;
            // Parts that are too many are not handed over, so none has to be dropped.
            let own = PromptCache::open(folder, Access::ReadWrite { budget: n_bytes })?;
            Ok(Cache { cache, of_writer: own.clone(), writer: BackgroundWriter::spawn(own, u64::MAX)? })
        };
        let opened: Result<Cache, backstitch_models::prompt_cache::Error> = open();
        opened.inspect_err(|error| tracing::warn!(%error, "conversations are not stored")).ok()
    }

    /// Log the files that were found damaged, each once.
    fn tell_damage(&self) {
        for path in self.caches().into_iter().flat_map(PromptCache::take_damaged) {
            tracing::warn!(path = %path.display(), "a stored conversation is damaged, and re-evaluated");
        }
    }

    /// Return the number of files that were found damaged.
    fn n_damaged(&self) -> u64 {
        self.caches().into_iter().map(PromptCache::n_damaged).sum()
    }

    fn caches(&self) -> [&PromptCache; 2] {
        [&self.cache, &self.of_writer]
    }

    /// Copy and hand over as many parts of `prefix` as may wait: `most` bytes, or one part that is
    /// larger. Return true if that is all of it.
    fn put(&self, prefix: &mut EvaluatedPrefix<'_>, most: u64) -> bool {
        loop {
            let part = take_part(prefix, most);
            let waiting = self.writer.stats().waiting;
            if waiting > 0 && waiting.saturating_add(part.bytes()) > most {
                return false;
            }
            // A thread that is gone takes nothing, which shows when the rest is looked at.
            self.writer.put(part.into_owned());
            if prefix.blocks.is_empty() && prefix.resumes.is_empty() {
                return true;
            }
        }
    }
}

/// Take the next part off a prefix, of at most `most` bytes if it can be cut so small: all of it,
/// or some of its blocks, or behind the last one some of its resume points.
fn take_part<'a>(prefix: &mut EvaluatedPrefix<'a>, most: u64) -> EvaluatedPrefix<'a> {
    let part = |first, blocks, resumes| EvaluatedPrefix {
        root: prefix.root,
        tokens: prefix.tokens.clone(),
        first,
        blocks,
        resumes,
    };
    let len =
        |pieces: &[std::borrow::Cow<'_, [u8]>]| pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
    if prefix.bytes() <= most {
        let blocks = std::mem::take(&mut prefix.blocks);
        let (first, resumes) = (prefix.first, std::mem::take(&mut prefix.resumes));
        return part(first, blocks, resumes);
    }
    if prefix.blocks.is_empty() {
        let n = n_fitting(prefix.resumes.iter().map(|(_, pieces)| len(pieces)), most);
        let resumes = prefix.resumes.drain(..n).collect();
        return part(prefix.first, Vec::new(), resumes);
    }
    let n = n_fitting(prefix.blocks.iter().map(|pieces| len(pieces)), most);
    let (first, blocks) = (prefix.first, prefix.blocks.drain(..n).collect());
    prefix.first += n;
    part(first, blocks, Vec::new())
}

/// Return how many of the first sizes are at most `most` together, but at least one.
fn n_fitting(sizes: impl Iterator<Item = u64>, most: u64) -> usize {
    let mut sum = 0u64;
    let fitting = sizes.take_while(|size| {
        sum = sum.saturating_add(*size);
        sum <= most
    });
    fitting.count().max(1)
}

/// Return true if less is left to store than before. Entries that were evicted meanwhile make it
/// more.
fn is_less((first, n_resumes): Left, (first_before, n_before): Left) -> bool {
    first > first_before || (first == first_before && n_resumes < n_before)
}

impl StateFolder {
    pub fn new(folder: &Path, params: &EngineParams) -> Self {
        StateFolder {
            folder: folder.to_path_buf(),
            n_bytes: params.state_bytes,
            waiting: params.state_waiting,
            caches: HashMap::new(),
            unstored: Vec::new(),
        }
    }

    /// Return the prompt cache of a tenant, which is made at its first use. Salts have none: each
    /// would take a folder with a budget of its own, and a thread.
    fn of(&mut self, tenant: Tenant) -> Option<&Cache> {
        if tenant.is_salted() {
            return None;
        }
        let (folder, n_bytes) = (&self.folder, self.n_bytes);
        let name = || tenant.folder().unwrap_or_else(|| "shared".into());
        let cache = self.caches.entry(tenant).or_insert_with(|| Cache::open(&folder.join(name()), n_bytes));
        cache.as_ref().inspect(|cache| cache.tell_damage())
    }

    /// Return true if nothing waits for the disk of a tenant.
    fn is_free(&self, tenant: Tenant) -> bool {
        self.caches
            .get(&tenant)
            .and_then(Option::as_ref)
            .is_none_or(|cache| cache.writer.stats().unfinished == 0)
    }

    /// Wait until all that was handed over is stored, or could not be.
    fn flush(&self) {
        self.caches.values().flatten().for_each(|cache| cache.writer.flush());
    }
}

impl Worker {
    /// Take the longest prefix of a task's tokens from disk, if it is much longer than the `n_held`
    /// tokens in memory, which `spared` holds. Return its sequence and length.
    pub(super) fn recall(
        &mut self,
        task: &Task,
        n_held: usize,
        spared: Option<SeqId>,
    ) -> Result<Option<(SeqId, usize)>, Error> {
        let Some(state) = &mut self.state else { return Ok(None) };
        let Some(Cache { cache, .. }) = state.of(task.request.tenant) else { return Ok(None) };
        let root = self.ctx.prompt_cache_root(&task.request.adapters);
        // A cache that cannot be read has nothing.
        let n_stored = cache.n_stored(&root, &task.tokens).unwrap_or(0) * BLOCK_TOKENS;
        if n_stored < n_held + WORTH_READING {
            return Ok(None);
        }
        let seq = self.new_sequence(task, spared)?;
        let cache = self.state.as_mut().and_then(|state| state.of(task.request.tenant));
        let recalled = cache.map(|cache| {
            let recalled = self.ctx.recall(seq, &cache.cache, &task.tokens);
            cache.tell_damage();
            recalled
        });
        match recalled {
            Some(Ok(recalled)) if recalled.n_tokens >= n_held + WORTH_READING => {
                Ok(Some((seq, recalled.n_tokens)))
            }
            _ => {
                self.release(seq)?;
                Ok(None)
            }
        }
    }

    /// Hand what is new of a sequence to the thread that stores it; what has to wait is handed over
    /// later.
    pub(super) fn remember(&mut self, seq: SeqId) {
        let Some(tenant) = self.conversations.get(seq).map(|held| held.tenant) else { return };
        self.forget_unstored(seq);
        self.store(Unstored { seq, tenant, before: None });
    }

    /// Hand over as much of a sequence as may wait. Of one that was handed over before, something
    /// must have been stored meanwhile, or it is given up.
    fn store(&mut self, Unstored { seq, tenant, before }: Unstored) {
        let Some(state) = &mut self.state else { return };
        let most = state.waiting;
        let Some(cache) = state.of(tenant) else { return };
        if let Some(error) = cache.writer.take_error() {
            tracing::warn!(%error, "a conversation could not be stored");
        }
        // After a restart, what cannot be stored is re-evaluated.
        let Ok(Some(mut prefix)) = self.ctx.remember(seq, &cache.cache) else { return };
        let left = (prefix.first, prefix.resumes.len());
        if before.is_some_and(|before| !is_less(left, before)) {
            self.counters.n_unstored += 1;
            return;
        }
        let is_free = cache.writer.stats().unfinished == 0;
        if !cache.put(&mut prefix, most) {
            let before = is_free.then_some(left);
            state.unstored.push(Unstored { seq, tenant, before });
        }
    }

    /// Go on with sequences that had to wait for the disk, if it has taken what was handed over.
    pub(super) fn store_more(&mut self) {
        let Some(state) = &mut self.state else { return };
        for unstored in std::mem::take(&mut state.unstored) {
            let Some(state) = &mut self.state else { return };
            match state.is_free(unstored.tenant) {
                true => self.store(unstored),
                false => state.unstored.push(unstored),
            }
        }
    }

    /// Return true if nothing is left to hand over.
    pub(super) fn has_stored_all(&self) -> bool {
        self.state.as_ref().is_none_or(|state| state.unstored.is_empty())
    }

    /// Return how often something of a sequence could not be stored.
    pub(super) fn n_unstored(&self) -> u64 {
        let caches = self.state.iter().flat_map(|state| state.caches.values().flatten());
        caches.map(|cache| cache.writer.stats().errors).sum::<u64>() + self.counters.n_unstored
    }

    /// Return how many stored files were found damaged.
    pub(super) fn n_damaged(&self) -> u64 {
        self.state.iter().flat_map(|state| state.caches.values().flatten()).map(Cache::n_damaged).sum()
    }

    /// Hand no more of a sequence over. Return true if something was left.
    pub(super) fn forget_unstored(&mut self, seq: SeqId) -> bool {
        let Some(state) = &mut self.state else { return false };
        let n_before = state.unstored.len();
        state.unstored.retain(|unstored| unstored.seq != seq);
        state.unstored.len() < n_before
    }

    /// Store what is held, and wait until it is.
    pub(super) fn remember_all(&mut self) {
        let all: Vec<SeqId> =
            self.conversations.iter().filter(|held| held.is_reusable).map(|held| held.seq).collect();
        for seq in all {
            self.remember(seq);
            // Each time something is stored, or the sequence is given up.
            while !self.has_stored_all() && self.wait_for_disk() {
                self.store_more();
            }
        }
        self.wait_for_disk();
    }

    /// Wait until all that was handed over is stored, or could not be. Return false if a thread
    /// that stores is gone.
    fn wait_for_disk(&self) -> bool {
        let Some(state) = &self.state else { return true };
        state.flush();
        state.caches.keys().all(|tenant| state.is_free(*tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_models::Token;
    use backstitch_models::prompt_cache::Key;
    use std::borrow::Cow;

    #[test]
    fn parts_are_small_and_make_the_whole() {
        let payload = |n: usize| vec![Cow::Borrowed(&[0u8; 10][..n])];
        let mut prefix = EvaluatedPrefix {
            root: Key::root(&[0; 32], &[0; 32]),
            tokens: Cow::Owned(vec![Token(1); 9 * BLOCK_TOKENS]),
            first: 3,
            blocks: vec![payload(4), payload(4), payload(4), payload(10), payload(0), payload(2)],
            resumes: vec![(5, payload(9)), (9, payload(3))],
        };
        let mut parts = Vec::new();
        while !prefix.blocks.is_empty() || !prefix.resumes.is_empty() {
            let part = take_part(&mut prefix, 8);
            parts.push((part.first, part.blocks.len(), part.resumes.len()));
        }
        // The block and the resume point of more than 8 bytes stand alone.
        assert_eq!(parts, [(3, 2, 0), (5, 1, 0), (6, 1, 0), (7, 2, 0), (9, 0, 1), (9, 0, 1)]);
    }
}
