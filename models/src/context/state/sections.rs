//! The sections of a saved state beside those of the memory, for whoever looks at one without a context.

use backstitch_kv::state::Tag;

/// The ids of the sequences, u32 each, in the order of all other lists.
pub const SEQUENCES: Tag = Tag(*b"SEQS");
/// The tokens of a sequence.
pub const TOKENS: Tag = Tag(*b"TOKS");
/// The logits `[n_vocab]` after the last token of a sequence, f32 each.
pub const LOGITS: Tag = Tag(*b"LGTS");
/// The state of a chain of samplers.
pub const SAMPLER: Tag = Tag(*b"SMPL");
/// Bytes of the caller's.
pub const METADATA: Tag = Tag(*b"META");
/// The version of the layout of each of these.
pub const VERSION: u16 = 1;
