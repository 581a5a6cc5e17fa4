//! Reports about slots, held sequences and its counters.

use super::event::Timings;
use backstitch_models::{CostRange, Token};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A view of a slot: the request under way in it, or the last one.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SlotReport {
    /// The number of the slot.
    pub id: usize,
    /// The number of the request, counted from the start of the engine; `None` if there was none.
    pub task: Option<u64>,
    /// A request is under way.
    pub is_processing: bool,
    /// The number of tokens of its prompt.
    pub n_prompt: usize,
    /// The number of tokens of its prompt that were evaluated.
    pub n_prompt_evaluated: usize,
    /// The number of tokens of its prompt that were reused.
    pub n_prompt_cached: usize,
    /// The number of tokens generated.
    pub n_generated: usize,
    /// The number of tokens that may still be generated; `None` without a limit.
    pub n_left: Option<usize>,
    /// The known tokens, with those generated.
    pub tokens: Vec<Token>,
    /// Times of the request.
    pub timings: Timings,
}

/// A sequence that is held.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldSequence {
    /// The number of the sequence in the context.
    pub seq: u32,
    /// The slot that shows the sequence.
    pub slot: Option<usize>,
    /// A request extends the sequence now.
    pub is_busy: bool,
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The time since its last use.
    pub idle: Duration,
    /// The bytes of its blocks, states and checkpoints. Sequences share some of them.
    pub n_bytes: u64,
    /// The positions as ranges of equal rollback cost.
    pub positions: Vec<CostRange>,
}

/// Counters of an engine since it was started, or of all engines of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Tokens of prompts that were evaluated.
    pub n_prompt: u64,
    /// Tokens of prompts that were reused.
    pub n_cached: u64,
    /// The time in which tokens of prompts were evaluated.
    pub prompt: Duration,
    /// Tokens that were generated.
    pub n_generated: u64,
    /// The time in which tokens were generated.
    pub generation: Duration,
    /// Requests under way.
    pub n_processing: usize,
    /// Requests in the queue.
    pub n_waiting: usize,
    /// Most tokens that a sequence held.
    pub n_tokens_max: usize,
    /// Batches evaluated.
    pub n_batches: u64,
    /// Sum of the numbers of slots that took part in a batch.
    pub n_slots_in_batches: u64,
    /// Sequences held beside those under way.
    pub n_held: usize,
    /// Sequences dropped to make room.
    pub n_evicted: u64,
    /// Parts of sequences that could not be stored: the disk was full or failed, or the sequence
    /// was dropped before the disk had taken it.
    pub n_unstored: u64,
    /// Stored files of sequences that were found damaged.
    pub n_damaged: u64,
    /// Drafts that were evaluated.
    pub n_drafts: u64,
    /// Tokens of drafts.
    pub n_drafted: u64,
    /// Tokens of drafts that became part of a text.
    pub n_accepted: u64,
}

impl Counters {
    /// Return the counters of an engine that has ended: nothing is under way or waits. What it held
    /// last stays.
    pub(crate) fn ended(self) -> Self {
        Counters { n_processing: 0, n_waiting: 0, ..self }
    }

    /// Return the counters of an engine, added to those of `earlier` ones, which have ended.
    pub(crate) fn after(self, earlier: &Counters) -> Self {
        Counters {
            n_prompt: self.n_prompt + earlier.n_prompt,
            n_cached: self.n_cached + earlier.n_cached,
            prompt: self.prompt + earlier.prompt,
            n_generated: self.n_generated + earlier.n_generated,
            generation: self.generation + earlier.generation,
            n_processing: self.n_processing,
            n_waiting: self.n_waiting,
            n_tokens_max: self.n_tokens_max.max(earlier.n_tokens_max),
            n_batches: self.n_batches + earlier.n_batches,
            n_slots_in_batches: self.n_slots_in_batches + earlier.n_slots_in_batches,
            n_held: self.n_held,
            n_evicted: self.n_evicted + earlier.n_evicted,
            n_unstored: self.n_unstored + earlier.n_unstored,
            n_damaged: self.n_damaged + earlier.n_damaged,
            n_drafts: self.n_drafts + earlier.n_drafts,
            n_drafted: self.n_drafted + earlier.n_drafted,
            n_accepted: self.n_accepted + earlier.n_accepted,
        }
    }
}

/// The last known counters of an engine, which outlive it. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Counters>>);

impl Ledger {
    /// Record the counters.
    pub fn set(&self, counters: Counters) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }

    /// Return the counters.
    pub fn get(&self) -> Counters {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
