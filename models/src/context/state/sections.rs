//! The sections of a saved state beside those of the memory, for whoever looks at one without a
//! context.

use backstitch_kv::storage::{self, Tag};

/// The ids of the sequences, u32 each, in the order of all other lists.
pub const SEQUENCES: Tag = Tag(*b"SEQS");
/// The tokens of a sequence.
pub const TOKENS: Tag = Tag(*b"TOKS");
/// The logits `[n_vocab]` after the last token of a sequence, f32 each.
pub const LOGITS: Tag = Tag(*b"LGTS");
/// The state of the chain of samplers of a sequence.
pub const SAMPLER: Tag = Tag(*b"SMPL");
/// The states of the chain of samplers of a sequence at its earlier positions.
pub const TRAIL: Tag = Tag(*b"SMPT");
/// The adapters that a sequence was evaluated with: their identity, 32 bytes, then their names and
/// scales as text. Sequences without adapters have no such section.
pub const ADAPTERS: Tag = Tag(*b"ADPT");
/// The most bytes of [`ADAPTERS`].
pub const MAX_ADAPTERS: u64 = 1024;
/// Bytes of the caller's.
pub const METADATA: Tag = Tag(*b"META");
/// The most bytes of a list of tokens, [`TOKENS`] or [`SAMPLER`], and of [`TRAIL`];
/// `docs/state-format.md` has all such bounds.
pub const MAX_TOKENS: u64 = 64 << 20;
/// The version of the layout of each of these.
pub const VERSION: u16 = 1;

/// Return the most bytes that the samplers of a sequence of `n_ctx` tokens take, whatever shares
/// them: where tokens are drawn one at a time, each is remembered and has its random numbers.
pub(super) fn sampler_room(n_ctx: u32) -> u64 {
    28 * u64::from(n_ctx) + 4096
}

/// Refuse what is longer than it may be: to read it, and to save what could not be restored.
pub(super) fn expect_at_most(what: &'static str, value: u64, limit: u64) -> Result<(), storage::Error> {
    if value > limit { Err(storage::Error::TooLarge { what, value, limit }) } else { Ok(()) }
}
