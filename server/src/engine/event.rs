//! Events: what the engine tells of a request while it works on it.

use crate::error::Error;
use backstitch_models::Token;
use backstitch_models::session::{Finish, TokenLogprobs};
use std::time::Duration;

/// The reason that no more of a prompt was reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReuseLimit {
    /// Everything but the last token was reused, whose logits come from evaluating it.
    Complete,
    /// The longest prefix that is held differs from the prompt here.
    Differs,
    /// Nothing of this tenant begins like the prompt.
    #[default]
    NothingHeld,
    /// The request asked for no reuse.
    NotAsked,
    /// A window or recurrent state can return only to an earlier checkpoint.
    Checkpoint,
}

impl ReuseLimit {
    /// Return the reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            ReuseLimit::Complete => "complete",
            ReuseLimit::Differs => "differs",
            ReuseLimit::NothingHeld => "nothing_held",
            ReuseLimit::NotAsked => "not_asked",
            ReuseLimit::Checkpoint => "checkpoint",
        }
    }
}

/// The part of a prompt that was reused, and the work for the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reuse {
    /// The number of tokens at the beginning of the prompt that were not evaluated.
    pub n_reused: usize,
    /// The number of tokens of recurrences that were replayed from the journal, without running the
    /// model.
    pub n_replayed: usize,
    /// The number of tokens that were held but had to be re-evaluated, because no checkpoint was
    /// nearer.
    pub n_reevaluated: usize,
    /// The index of the first token of the prompt that the longest held prefix does not have.
    pub first_difference: usize,
    /// The number of reused tokens that came from the prompt cache on disk.
    pub n_from_disk: usize,
    /// The reason that no more was reused.
    pub limit: ReuseLimit,
    /// The number of the sequence in the context, as [`HeldSequence`](super::HeldSequence) has it.
    pub seq: u32,
}

/// A step of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Chunk {
    /// The text that can no longer change. May be empty.
    pub text: String,
    /// The tokens of the step.
    pub tokens: Vec<Token>,
    /// The log-probabilities of the tokens whose text this is, if they were asked for. Those of
    /// tokens whose text is held back, because it may become a stop string, come with that text.
    pub logprobs: Vec<TokenLogprobs>,
    /// With the first token: the time from the beginning of the evaluation to it.
    pub prompt_time: Option<Duration>,
}

/// Counts and times of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Timings {
    /// The number of tokens of the prompt that were reused.
    pub n_cached: usize,
    /// The number of tokens of the prompt that were evaluated.
    pub n_prompt: usize,
    /// The time from the beginning of evaluation to the first token.
    pub prompt: Duration,
    /// The number of tokens generated, with one that ended the text.
    pub n_generated: usize,
    /// The time from the first token to the last.
    pub generation: Duration,
    /// The time in the queue.
    pub queued: Duration,
    /// The number of drafts.
    pub n_drafts: usize,
    /// The number of tokens drafted and evaluated.
    pub n_drafted: usize,
    /// The number of drafted tokens that became part of the text.
    pub n_accepted: usize,
}

/// The end of a generation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ended {
    /// The reason.
    pub finish: Finish,
    /// Counts and times.
    pub timings: Timings,
    /// The number of tokens of the prompt.
    pub n_prompt: usize,
    /// The number of tokens of the sequence that are evaluated and held.
    pub n_held: usize,
    /// Tokens were removed from the sequence, because the context was full.
    pub is_shifted: bool,
}

/// A step of a request. [`Event::Ended`] or [`Event::Failed`] is the last one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The evaluation begins.
    Began {
        /// The slot in which the request is evaluated.
        slot: usize,
        /// The part of the prompt that was reused.
        reuse: Reuse,
    },
    /// A piece of the prompt was evaluated.
    Progress {
        /// The number of tokens of the prompt that are held now.
        n_done: usize,
        /// The time since the evaluation began.
        elapsed: Duration,
    },
    /// Scores of further tokens of the prompt.
    PromptLogprobs(Vec<TokenLogprobs>),
    /// Tokens were generated.
    Chunk(Chunk),
    /// The generation ended.
    Ended(Ended),
    /// The generation failed.
    Failed(Error),
}
