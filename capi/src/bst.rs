//! Functions that llama.h has no words for: exact rollback with its cost, forks, pins, saved states
//! with fingerprints, prompt caches, and the reason of the last failure.
//!
//! `include/backstitch.h` declares them. They take the handles of llama.h.

use crate::border::{In, Out, Text, exports, write_text};
use crate::context::{ContextEntry, context};
use crate::error::Error;
use crate::handles::{Handle, Kind, Registry};
use crate::log;
use backstitch_kv::file::Buffer;
use backstitch_models::prompt_cache::{Access, PromptCache};
use backstitch_models::{Pos, RestoreOptions, Rollback, RollbackCost as Cost, SeqId, Token};
use std::ffi::{CStr, c_char};

/// The most tokens of a prompt.
const MOST_TOKENS: usize = 1 << 30;

/// Work that a rollback took, or would take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RollbackCost {
    /// The position that was restored.
    pub restored_from: i32,
    /// Steps of recurrences that were replayed, without running the model.
    pub replayed: u32,
    /// Tokens that were re-evaluated.
    pub reevaluated: u32,
}

impl From<Rollback> for RollbackCost {
    fn from(done: Rollback) -> Self {
        RollbackCost {
            restored_from: done.restored_from.0,
            replayed: done.replayed,
            reevaluated: done.reevaluated,
        }
    }
}

/// The part of a prompt that a cache had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Recalled {
    /// Tokens that the sequence holds now.
    pub n_tokens: usize,
    /// Tokens that are stored.
    pub n_stored: usize,
}

static CACHES: Registry<PromptCache> = Registry::new(Kind::PromptCache);

/// Give `act` the context and a sequence of it.
fn with<T>(
    handle: Handle,
    seq: i32,
    act: impl FnOnce(&mut backstitch_models::Context, SeqId) -> Result<T, Error>,
) -> Result<T, Error> {
    let entry = context(handle)?;
    let (seq, mut live) = (entry.seq(seq)?, entry.live()?);
    act(live.change()?, seq)
}

/// Return the tokens of a list of C's.
fn tokens(list: &In<i32>, n: usize) -> Result<Vec<Token>, Error> {
    if n > MOST_TOKENS {
        return Err(Error::Range { what: "n_tokens", found: n as i64, wanted: "at most 2^30" });
    }
    let wanted = "a token";
    let token = |&token: &i32| {
        let token = u32::try_from(token);
        token.map(Token).map_err(|_| Error::Range { what: "tokens", found: -1, wanted })
    };
    list.slice(n, "tokens")?.iter().map(token).collect()
}

/// Return the cost of going back to a position, without going.
fn cost(context: &backstitch_models::Context, seq: SeqId, pos: i32) -> Result<RollbackCost, Error> {
    let ranges = context.positions(seq)?;
    let found = ranges.iter().find(|range| range.positions.contains(&Pos(pos)));
    let wanted = "a position that the sequence reached";
    let range = found.ok_or(Error::Range { what: "pos", found: pos.into(), wanted })?;
    let restored_from = range.restored_from.0;
    let distance = pos.abs_diff(restored_from);
    Ok(match range.cost {
        Cost::Held => RollbackCost { restored_from: pos, replayed: 0, reevaluated: 0 },
        Cost::Replayed => RollbackCost { restored_from, replayed: distance, reevaluated: 0 },
        _ => RollbackCost { restored_from, replayed: 0, reevaluated: distance },
    })
}

/// Make `dst` a copy of `src` that shares all its memory.
fn fork(entry: &ContextEntry, src: SeqId, dst: SeqId) -> Result<(), Error> {
    let mut live = entry.live()?;
    let context = live.change()?;
    if src == dst {
        return Ok(());
    }
    // All other sequences exist, so the copy gets the number that becomes free.
    context.release(dst)?;
    let result = context.fork(src).map(drop);
    live.make_sequences();
    Ok(result?)
}

exports! {
    /// Return the version of the library.
    fn bst_version() -> *const c_char = [c"".as_ptr()] {
        const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
        Ok(CStr::from_bytes_until_nul(VERSION.as_bytes()).unwrap_or_default().as_ptr())
    }

    /// Return the version of llama-cpp-python whose structures the library has.
    fn bst_layout() -> *const c_char = [c"".as_ptr()] {
        Ok(if cfg!(feature = "layout-0-3-16") { c"0.3.16" } else { c"0.3.36" }.as_ptr())
    }

    /// Return the reason of this thread's last failure; an empty text if there was none.
    fn bst_last_error() -> *const c_char = [c"".as_ptr()] {
        Ok(log::last_error())
    }

    /// Roll a sequence back so that `pos` is the position of its next token, and write the cost: 0
    /// if that is done, -1 if not.
    fn bst_rollback(ctx: Handle, seq: i32, pos: i32, cost: Out<RollbackCost>) -> i32 = [-1] {
        let done = with(ctx, seq, |context, seq| Ok(context.rollback(seq, Pos(pos))?))?;
        if !cost.is_null() {
            cost.write(done.into(), "cost")?;
        }
        Ok(0)
    }

    /// Write the cost of a rollback to a position, without doing it: 0, or -1 if the position was
    /// not reached.
    fn bst_cost_of_rollback(ctx: Handle, seq: i32, pos: i32, out: Out<RollbackCost>) -> i32 = [-1] {
        let entry = context(ctx)?;
        let (seq, live) = (entry.seq(seq)?, entry.live()?);
        out.write(cost(live.context()?, seq, pos)?, "cost")?;
        Ok(0)
    }

    /// Make a sequence a copy of another one, which shares its memory until one of them changes: 0,
    /// or -1.
    fn bst_fork(ctx: Handle, src: i32, dst: i32) -> i32 = [-1] {
        let entry = context(ctx)?;
        fork(&entry, entry.seq(src)?, entry.seq(dst)?)?;
        Ok(0)
    }

    /// Pin the end of a sequence: a rollback reaches it at once from now on. 0, or -1.
    fn bst_pin(ctx: Handle, seq: i32) -> i32 = [-1] {
        with(ctx, seq, |context, seq| Ok(context.pin(seq)?))?;
        Ok(0)
    }

    /// Remove the pin at a position: 1, 0 if there is none, or -1.
    fn bst_unpin(ctx: Handle, seq: i32, pos: i32) -> i32 = [-1] {
        Ok(with(ctx, seq, |context, seq| Ok(context.unpin(seq, Pos(pos))?))?.into())
    }

    /// Write the tokens that a sequence holds, and return their number, or its negative if there
    /// are more than `capacity`; 0 if they are not known.
    fn bst_tokens(ctx: Handle, seq: i32, out: Out<i32>, capacity: i32) -> i32 = [0] {
        let entry = context(ctx)?;
        let (seq, live) = (entry.seq(seq)?, entry.live()?);
        let tokens: Vec<i32> = live.context()?.tokens(seq)?.iter().map(|token| token.0 as i32).collect();
        let n = i32::try_from(tokens.len()).unwrap_or(i32::MAX);
        if n > capacity.max(0) {
            return Ok(-n);
        }
        out.fill(&tokens, "tokens")?;
        Ok(n)
    }

    /// Write the logits of the last token of a sequence, whose batch may be long ago: the number of
    /// them, or its negative if there are more than `capacity`; 0 if there are none.
    fn bst_logits(ctx: Handle, seq: i32, out: Out<f32>, capacity: i32) -> i32 = [0] {
        with(ctx, seq, |context, seq| {
            let logits = context.logits(seq)?;
            let n = i32::try_from(logits.len()).unwrap_or(i32::MAX);
            if n > capacity.max(0) {
                return Ok(-n);
            }
            out.fill(logits, "logits")?;
            Ok(n)
        })
    }

    /// Save a sequence to a file of Backstitch's, with all positions that it can go back to: 0, or
    /// -1, and the file is as it was then, or holds the new state if only making it durable failed.
    fn bst_save(ctx: Handle, seq: i32, path: Text) -> i32 = [-1] {
        let entry = context(ctx)?;
        let (seq, live) = (entry.seq(seq)?, entry.live()?);
        live.context()?.save(seq, path.path("path")?)?;
        Ok(0)
    }

    /// Restore a sequence from a file of Backstitch's, in the place of what it holds: 0, or -1, and
    /// nothing has changed then.
    fn bst_restore(ctx: Handle, seq: i32, path: Text) -> i32 = [-1] {
        let file = Buffer::read(path.path("path")?)?;
        with(ctx, seq, |context, seq| {
            Ok(context.seq_state_read_bytes(seq, file.bytes(), &RestoreOptions::default()).map(drop)?)
        })?;
        Ok(0)
    }

    /// Write the 32 bytes that tell the states of a context's model from others: 0, or -1.
    fn bst_fingerprint(ctx: Handle, out: Out<u8>) -> i32 = [-1] {
        let entry = context(ctx)?;
        let fingerprint = entry.live()?.context()?.fingerprint();
        out.fill(&fingerprint.0, "fingerprint")?;
        Ok(0)
    }

    /// Open a folder of evaluated prompts that may grow to `budget` bytes, or return null.
    fn bst_prompt_cache_open(path: Text, budget: u64) -> Handle = [Handle::NULL] {
        CACHES.insert(PromptCache::open(path.path("path")?, Access::ReadWrite { budget })?)
    }

    /// Close a prompt cache.
    fn bst_prompt_cache_free(cache: Handle) {
        if cache.is_null() {
            return Ok(());
        }
        CACHES.remove(cache).map(drop)
    }

    /// Fill a sequence with the longest beginning of a prompt that the cache has, and write how
    /// much that is and, as text, why it is not more: 0, or -1.
    fn bst_recall(
        ctx: Handle, seq: i32, cache: Handle, list: In<i32>, n_tokens: usize, out: Out<Recalled>,
        why: Out<c_char>, why_size: usize,
    ) -> i32 = [-1] {
        let (cache, prompt) = (CACHES.get(cache)?, tokens(&list, n_tokens)?);
        let recalled = with(ctx, seq, |context, seq| Ok(context.recall(seq, &cache, &prompt)?))?;
        let mut text = recalled.why.to_string();
        if let Some(trouble) = &recalled.trouble {
            text = format!("{text}; {trouble}");
        }
        write_text(text.as_bytes(), why, why_size)?;
        if !out.is_null() {
            out.write(Recalled { n_tokens: recalled.n_tokens, n_stored: recalled.n_stored }, "recalled")?;
        }
        Ok(0)
    }

    /// Store the beginning of a sequence that the cache lacks: 1 if there was something to store, 0
    /// if not, or -1.
    fn bst_remember(ctx: Handle, seq: i32, cache: Handle) -> i32 = [-1] {
        let (entry, cache) = (context(ctx)?, CACHES.get(cache)?);
        let (seq, live) = (entry.seq(seq)?, entry.live()?);
        match live.context()?.remember(seq, &cache)? {
            Some(prefix) => cache.put(&prefix).map(|_| 1).map_err(Error::from),
            None => Ok(0),
        }
    }
}
