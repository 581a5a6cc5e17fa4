//! The error type of the border: reasons for which a function gave its failure value.

use backstitch_models::chat::ChatError;
use backstitch_models::grammar::GrammarError;

/// Reasons for which a function of the interface did nothing.
///
/// C sees the failure value that the function documents; the text goes to the log and to
/// `bst_last_error`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A pointer is null that has to point to something.
    Null {
        /// The argument.
        what: &'static str,
    },
    /// A pointer is not aligned for the type that it should point to.
    Unaligned {
        /// The argument.
        what: &'static str,
    },
    /// A handle is none that the library gave out.
    Foreign {
        /// The kind of handle that the function takes.
        wanted: &'static str,
    },
    /// A handle was freed before.
    Stale {
        /// The kind of handle.
        wanted: &'static str,
    },
    /// A number is out of range.
    Range {
        /// The argument.
        what: &'static str,
        /// The number.
        found: i64,
        /// A description of the numbers that would do.
        wanted: &'static str,
    },
    /// A buffer is too short.
    Short {
        /// The argument.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length that it needs.
        wanted: usize,
    },
    /// A text is not UTF-8.
    Text {
        /// The argument.
        what: &'static str,
    },
    /// A sampler belongs to a chain.
    Owned,
    /// The context is in use by the callback that made this call.
    Busy,
    /// The function asks for something that the library does not do.
    Absent {
        /// A description of it.
        what: &'static str,
    },
    /// The model was loaded for its vocabulary alone.
    VocabOnly,
    /// A state was changed since it was saved, or belongs to another model.
    Seal {
        /// A description of what does not fit.
        what: &'static str,
    },
    /// A batch contradicts itself.
    Batch {
        /// A description of the contradiction.
        what: &'static str,
    },
    /// An output was asked for that the last batch did not have.
    NoOutput {
        /// The index.
        index: i32,
        /// The number of outputs.
        n_outputs: usize,
    },
    /// Every token is banned, or a sampler chose none.
    NoToken,
    /// The function panicked, which is a bug of the library.
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// The engine refused.
    Model(backstitch_models::Error),
    /// A grammar cannot be used.
    Grammar(GrammarError),
    /// A chat template cannot be used.
    Chat(ChatError),
    /// A model cannot be quantised.
    Quantize(backstitch_quantize::Error),
    /// A prompt cache cannot be used.
    Cache(backstitch_models::prompt_cache::Error),
    /// A file cannot be read or written.
    Io(std::io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Null { what } => write!(f, "{what} is null"),
            Error::Unaligned { what } => write!(f, "{what} is not aligned"),
            Error::Foreign { wanted } => write!(f, "the handle is no {wanted} of this library"),
            Error::Stale { wanted } => write!(f, "the {wanted} was freed before"),
            Error::Range { what, found, wanted } => write!(f, "{what} is {found}, not {wanted}"),
            Error::Short { what, found, wanted } => {
                write!(f, "{what} has room for {found}, and {wanted} are needed")
            }
            Error::Text { what } => write!(f, "{what} is not UTF-8"),
            Error::Owned => f.write_str("the sampler belongs to a chain"),
            Error::Busy => f.write_str("the context is in use by the callback that makes this call"),
            Error::Absent { what } => write!(f, "{what}: this library does not do that"),
            Error::VocabOnly => f.write_str("the model was loaded for its vocabulary alone"),
            Error::Seal { what } => write!(f, "the state cannot be used: {what}"),
            Error::Batch { what } => write!(f, "the batch cannot be used: {what}"),
            Error::NoOutput { index, n_outputs } => {
                write!(f, "the last batch has no output {index}; it has {n_outputs}")
            }
            Error::NoToken => f.write_str("every token is banned"),
            Error::Panicked { message } => write!(f, "the library panicked: {message}"),
            Error::Model(error) => error.fmt(f),
            Error::Grammar(error) => error.fmt(f),
            Error::Chat(error) => error.fmt(f),
            Error::Quantize(error) => error.fmt(f),
            Error::Cache(error) => error.fmt(f),
            Error::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

macro_rules! from {
    ($($source:ty => $variant:ident,)*) => {$(
        impl From<$source> for Error {
            fn from(error: $source) -> Self {
                Error::$variant(error)
            }
        }
    )*};
}

from! {
    backstitch_models::Error => Model,
    GrammarError => Grammar,
    ChatError => Chat,
    backstitch_quantize::Error => Quantize,
    backstitch_models::prompt_cache::Error => Cache,
    std::io::Error => Io,
}
