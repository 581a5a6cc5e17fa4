//! The error type of the border: reasons for which a function gave its failure value.

use backstitch_models::chat::ChatError;
use backstitch_models::grammar::GrammarError;

/// Reasons for which a function of the interface did nothing.
///
/// C sees the failure value that the function documents; the text goes to the log and to
/// `bst_last_error`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pointer is null that has to point to something.
    #[error("{what} is null")]
    Null {
        /// The argument.
        what: &'static str,
    },
    /// A pointer is not aligned for the type that it should point to.
    #[error("{what} is not aligned")]
    Unaligned {
        /// The argument.
        what: &'static str,
    },
    /// A handle is none that the library gave out.
    #[error("the handle is no {wanted} of this library")]
    Foreign {
        /// The kind of handle that the function takes.
        wanted: &'static str,
    },
    /// A handle was freed before.
    #[error("the {wanted} was freed before")]
    Stale {
        /// The kind of handle.
        wanted: &'static str,
    },
    /// A number is out of range.
    #[error("{what} is {found}, not {wanted}")]
    Range {
        /// The argument.
        what: &'static str,
        /// The number.
        found: i64,
        /// A description of the numbers that would do.
        wanted: &'static str,
    },
    /// A buffer is too short.
    #[error("{what} has room for {found}, and {wanted} are needed")]
    Short {
        /// The argument.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length that it needs.
        wanted: usize,
    },
    /// A text is not UTF-8.
    #[error("{what} is not UTF-8")]
    Text {
        /// The argument.
        what: &'static str,
    },
    /// A sampler belongs to a chain.
    #[error("the sampler belongs to a chain")]
    Owned,
    /// The context is in use by the callback that made this call.
    #[error("the context is in use by the callback that makes this call")]
    Busy,
    /// The function asks for something that the library does not do.
    #[error("{what}: this library does not do that")]
    Absent {
        /// A description of it.
        what: &'static str,
    },
    /// The model was loaded for its vocabulary alone.
    #[error("the model was loaded for its vocabulary alone")]
    VocabOnly,
    /// A state was changed since it was saved, or belongs to another model.
    #[error("the state cannot be used: {what}")]
    Seal {
        /// A description of what does not fit.
        what: &'static str,
    },
    /// A batch contradicts itself.
    #[error("the batch cannot be used: {what}")]
    Batch {
        /// A description of the contradiction.
        what: &'static str,
    },
    /// An output was asked for that the last batch did not have.
    #[error("the last batch has no output {index}; it has {n_outputs}")]
    NoOutput {
        /// The index.
        index: i32,
        /// The number of outputs.
        n_outputs: usize,
    },
    /// Every token is banned, or a sampler chose none.
    #[error("every token is banned")]
    NoToken,
    /// The function panicked, which is a bug of the library.
    #[error("the library panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// The engine refused.
    #[error(transparent)]
    Model(#[from] backstitch_models::Error),
    /// A grammar cannot be used.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// A chat template cannot be used.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// A model cannot be quantised.
    #[error(transparent)]
    Quantize(#[from] backstitch_quantize::Error),
    /// A prompt cache cannot be used.
    #[error(transparent)]
    Cache(#[from] backstitch_models::prompt_cache::Error),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] backstitch_kv::file::FileError),
    /// The system refused to write.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
