//! Requests to the engine: what a client wants generated, embedded or scored.

use super::queue::Owner;
use backstitch_models::Token;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::sampler::Chain;
use std::sync::Arc;
use std::time::Duration;

/// The owner of prefixes: sequences of one tenant are never reused for another, so that no client
/// can learn from the time of an answer what another has asked.
///
/// # Example
/// ```
/// use backstitch_server::engine::Tenant;
///
/// assert_eq!(Tenant::of(&["key", "salt"]), Tenant::of(&["key", "salt"]));
/// assert_ne!(Tenant::of(&["key", "salt"]), Tenant::of(&["keys", "alt"]));
/// assert_eq!(Tenant::default(), Tenant::of(&[]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tenant {
    id: Option<[u8; 16]>,
    /// The identity without the salt, if there is one.
    unsalted: Option<Owner>,
}

impl Tenant {
    /// Return the tenant of some secrets, such as an API key and a salt; with none, the tenant of
    /// clients that have none.
    pub fn of(secrets: &[&str]) -> Self {
        if secrets.is_empty() {
            return Tenant::default();
        }
        let mut hasher = blake3::Hasher::new();
        for secret in secrets {
            // The length keeps ("ab", "c") apart from ("a", "bc").
            hasher.update(&(secret.len() as u64).to_le_bytes()).update(secret.as_bytes());
        }
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        Tenant { id: Some(id), unsalted: None }
    }

    /// Return the tenant of the requests with a salt among those of `secrets`. Anybody can make as
    /// many salts as they like, so nothing is stored on disk for them unasked.
    pub fn salted(secrets: &[&str], salt: &str) -> Self {
        let unsalted = Some(Tenant::of(secrets).id);
        Tenant { unsalted, ..Tenant::of(&[secrets, &["salt", salt]].concat()) }
    }

    /// Return true for the tenant of a salt.
    pub(crate) fn is_salted(&self) -> bool {
        self.unsalted.is_some()
    }

    /// Return the client whose tenant this is, whatever the salt.
    pub(super) fn owner(&self) -> Owner {
        self.unsalted.unwrap_or(self.id)
    }

    /// Return the name of a folder for this tenant's files; `None` for the tenant of clients
    /// without secrets.
    pub fn folder(&self) -> Option<String> {
        self.id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The way in which a generation goes on when its context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// End the generation.
    #[default]
    End,
    /// Remove the oldest tokens behind the first `n_keep`, and move the others to their positions
    /// (llama.cpp's context shift). Later logits differ from those of the shortened text.
    Shift {
        /// The number of tokens at the beginning that stay.
        n_keep: usize,
        /// The number of tokens removed at a time; 0 for half of the others.
        n_discard: usize,
    },
}

impl WhenFull {
    /// Return the number of tokens at the beginning that stay; 0 if nothing is removed.
    pub(crate) fn n_keep(&self) -> usize {
        match self {
            WhenFull::End => 0,
            WhenFull::Shift { n_keep, .. } => *n_keep,
        }
    }
}

/// A text to generate behind a prompt.
#[derive(Debug)]
#[non_exhaustive]
pub struct Generate {
    /// The tokens of the prompt; for an encoder-decoder, the input of the encoder.
    pub prompt: Vec<Token>,
    /// The samplers. They accept the prompt's tokens when the engine begins.
    pub chain: Chain,
    /// The owner of the prefixes that this request may reuse and leaves behind.
    pub tenant: Tenant,
    /// The adapters to evaluate with. Prefixes of other sets are never reused.
    pub adapters: AdapterSet,
    /// Of the requests of one client, those of higher priority are evaluated first.
    pub priority: i32,
    /// The slot that the client asked for; `None` for any.
    pub slot: Option<usize>,
    /// Reuse the longest prefix that is held; without it, all tokens are evaluated anew.
    pub cache_prompt: bool,
    /// The numbers of tokens before which messages of the prompt end, ascending. A rollback to
    /// these places stays cheap.
    pub message_ends: Vec<usize>,
    /// The most tokens drafted in a step, if the engine drafts.
    pub n_draft: usize,
    /// The most tokens to generate; `None` for no limit but the context. 0 only evaluates the
    /// prompt.
    pub limit: Option<usize>,
    /// Strings that end the text before them.
    pub stops: Arc<[String]>,
    /// The time from the first token on after which a line break ends the text.
    pub line_time: Option<Duration>,
    /// The number of spaces and tabs that every line but the first begins with; one with fewer ends
    /// the text.
    pub n_indent: usize,
    /// Go on behind end-of-generation tokens.
    pub ignore_eos: bool,
    /// Control tokens that are part of the text: the marks around reasoning and calls, which who
    /// reads the text has to see.
    pub shown: Vec<Token>,
    /// The number of likeliest tokens to list beside each token, 0 for the log-probability of the
    /// token alone; `None` for neither.
    pub logprobs: Option<usize>,
    /// List probabilities after the samplers, not those of the model.
    pub probs_after_sampling: bool,
    /// The number of likeliest tokens to list beside each token of the prompt; `None` for no scores
    /// of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// Report every evaluated piece of the prompt ([`Event::Progress`](super::Event::Progress)).
    pub progress: bool,
    /// The way to go on when the context is full.
    pub when_full: WhenFull,
}

impl Generate {
    /// Return a request to generate behind `prompt` with `chain`, without a limit and with nothing
    /// else asked for.
    pub fn new(prompt: Vec<Token>, chain: Chain) -> Self {
        Generate {
            prompt,
            chain,
            tenant: Tenant::default(),
            adapters: AdapterSet::default(),
            priority: 0,
            slot: None,
            cache_prompt: true,
            message_ends: Vec::new(),
            n_draft: usize::MAX,
            limit: None,
            stops: Arc::default(),
            line_time: None,
            n_indent: 0,
            ignore_eos: false,
            shown: Vec::new(),
            logprobs: None,
            probs_after_sampling: false,
            prompt_logprobs: None,
            progress: false,
            when_full: WhenFull::End,
        }
    }
}
