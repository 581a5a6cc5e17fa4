//! Errors of the engine.

use std::sync::Arc;

/// Anything that can go wrong with a request in the engine. Other requests are untouched.
///
/// # Example
/// ```
/// use backstitch_server::Error;
///
/// let error = Error::PromptTooLong { n_prompt_tokens: 300, n_ctx: 256 };
/// assert_eq!(error.to_string(), "the prompt has 300 tokens, but the context holds 256");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The prompt has no tokens.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// The prompt does not fit into the context of a request.
    #[error("the prompt has {n_prompt_tokens} tokens, but the context holds {n_ctx}")]
    PromptTooLong {
        /// The number of tokens of the prompt.
        n_prompt_tokens: usize,
        /// The number of tokens that a sequence can hold.
        n_ctx: usize,
    },
    /// The input of an encoder does not fit into one physical batch.
    #[error(
        "the input has {n_prompt_tokens} tokens, which is too large for a physical batch of {n_ubatch}; \
         raise --ubatch-size, and --batch-size if it is smaller"
    )]
    InputTooLong {
        /// The number of tokens of the input.
        n_prompt_tokens: usize,
        /// The size of a physical batch.
        n_ubatch: usize,
    },
    /// The input of an encoder does not fit into the context of an input.
    #[error(
        "the input has {n_prompt_tokens} tokens, which is too large for the context of an input, \
         {n_ctx} tokens; raise --ctx-size, or lower --parallel, which shares it out"
    )]
    InputBeyondContext {
        /// The number of tokens of the input.
        n_prompt_tokens: usize,
        /// The number of tokens that an input may have.
        n_ctx: usize,
    },
    /// The queue is full.
    #[error("the queue is full: requests that wait are {limit} at most")]
    Busy {
        /// The most requests that may wait.
        limit: usize,
    },
    /// There is no such slot.
    #[error("there is no slot {slot}: slots are 0 to {}", .n_slots - 1)]
    Slot {
        /// The slot asked for.
        slot: usize,
        /// The number of slots.
        n_slots: usize,
    },
    /// The slot evaluates a request.
    #[error("slot {slot} evaluates a request")]
    BusySlot {
        /// The slot.
        slot: usize,
    },
    /// The samplers ban every token.
    #[error("the samplers and the grammar ban every token")]
    NoToken,
    /// The grammar allows no token, for the reason that it gives.
    #[error("{0}")]
    Grammar(String),
    /// A file cannot be read or written.
    #[error("{name}: {kind}")]
    File {
        /// The name of the file, without its folder.
        name: String,
        /// The reason.
        kind: std::io::ErrorKind,
    },
    /// The name of a saved slot leads to a link, a pipe or a device, which is neither read nor
    /// replaced.
    #[error("{name}: not a file; links, pipes and devices are neither read nor written")]
    NoFile {
        /// The name, without its folder.
        name: String,
    },
    /// The engine has stopped.
    #[error("the server is stopping")]
    Stopped,
    /// The model or its memory failed.
    #[error(transparent)]
    Engine(Arc<backstitch_models::Error>),
}

impl Error {
    /// Return the error of a file. Clients do not learn its folder.
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Error::File { name, kind: error.kind() }
    }
}

impl From<backstitch_models::Error> for Error {
    fn from(error: backstitch_models::Error) -> Self {
        Error::Engine(Arc::new(error))
    }
}
