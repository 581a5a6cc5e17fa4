//! The prompt cache on disk: what was evaluated survives evictions, restarts and kills.

use super::super::request::Tenant;
use super::super::task::Task;
use super::Worker;
use crate::error::Error;
use backstitch_models::SeqId;
use backstitch_models::prompt_cache::{Access, BLOCK_TOKENS, BackgroundWriter, PromptCache};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The most bytes that may wait to be stored for a tenant.
const MOST_WAITING: u64 = 256 << 20;

/// The number of tokens that reading from disk must save.
const WORTH_READING: usize = 2 * BLOCK_TOKENS;

/// The folder of everything that survives: a prompt cache for each tenant.
pub(super) struct StateFolder {
    folder: PathBuf,
    n_bytes: u64,
    /// The caches of the tenants so far; `None` for those that could not be opened.
    caches: HashMap<Tenant, Option<Cache>>,
}

struct Cache {
    cache: PromptCache,
    writer: BackgroundWriter,
}

impl Cache {
    fn open(folder: &Path, n_bytes: u64) -> Option<Cache> {
        let open = || {
            let cache = PromptCache::open(folder, Access::ReadWrite { budget: n_bytes })?;
            let writer = BackgroundWriter::spawn(
                PromptCache::open(folder, Access::ReadWrite { budget: n_bytes })?,
                MOST_WAITING,
            )?;
            Ok(Cache { cache, writer })
        };
        let opened: Result<Cache, backstitch_models::prompt_cache::Error> = open();
        opened.ok()
    }
}

impl StateFolder {
    pub fn new(folder: &Path, n_bytes: u64) -> Self {
        StateFolder { folder: folder.to_path_buf(), n_bytes, caches: HashMap::new() }
    }

    /// Return the prompt cache of a tenant, which is made at its first use. Salts have none: each
    /// would take a folder with a budget of its own, and a thread.
    fn of(&mut self, tenant: Tenant) -> Option<&Cache> {
        if tenant.is_salted() {
            return None;
        }
        let (folder, n_bytes) = (&self.folder, self.n_bytes);
        let name = || tenant.folder().unwrap_or_else(|| "shared".into());
        self.caches.entry(tenant).or_insert_with(|| Cache::open(&folder.join(name()), n_bytes)).as_ref()
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
        let recalled = cache.map(|cache| self.ctx.recall(seq, &cache.cache, &task.tokens));
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

    /// Hand what is new of a sequence to the thread that stores it.
    pub(super) fn remember(&mut self, seq: SeqId) {
        let Some(held) = self.conversations.get(seq) else { return };
        let Some(cache) = self.state.as_mut().and_then(|state| state.of(held.tenant)) else { return };
        // After a restart, what cannot be stored is re-evaluated.
        if let Ok(Some(prefix)) = self.ctx.remember(seq, &cache.cache) {
            cache.writer.put(prefix.into_owned());
        }
    }

    /// Store what is held, and wait until it is.
    pub(super) fn remember_all(&mut self) {
        let all: Vec<SeqId> =
            self.conversations.iter().filter(|held| held.is_reusable).map(|held| held.seq).collect();
        all.into_iter().for_each(|seq| self.remember(seq));
        let caches = self.state.iter().flat_map(|state| state.caches.values()).flatten();
        caches.for_each(|cache| cache.writer.flush());
    }
}
