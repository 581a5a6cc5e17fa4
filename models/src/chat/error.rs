//! Errors of chat templates.
//!
//! [`ChatError`] is the public error. [`Fault`] is the error inside of the interpreter, which does
//! not know its line yet.

use alloc::boxed::Box;
use alloc::string::String;

/// The reason that a template gave no text.
///
/// # Example
/// ```
/// use backstitch_models::chat::{ChatError, ChatTemplate};
///
/// let error = ChatTemplate::from_source("Hello\n{% for %}").unwrap_err();
/// assert!(matches!(error, ChatError::Syntax { line: 2, .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is longer than any real one.
    #[error("the chat template is longer than 1 MiB; give another one")]
    TooLong,
    /// The template cannot be parsed.
    #[error("the chat template cannot be read: line {line}: {detail}; give another one")]
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// The fault in words.
        detail: Box<str>,
    },
    /// The template refuses the messages with `raise_exception`.
    #[error("the chat template refuses these messages: {message}")]
    Raised {
        /// The message of the template.
        message: Box<str>,
    },
    /// The template takes more steps or makes more text than any real one needs for such messages.
    #[error("the chat template does too much for such messages, it may loop")]
    TooMuchWork,
    /// The template takes longer than any real one needs for such messages.
    #[error("the chat template takes too long for such messages")]
    TooSlow,
    /// Rendering was cancelled.
    #[error("rendering the chat template was cancelled")]
    Cancelled,
    /// The template applies an operation to values that it is not defined for.
    #[error("the chat template fails: line {line}: {detail}")]
    Failed {
        /// The line, counted from 1.
        line: usize,
        /// The fault in words.
        detail: Box<str>,
    },
    /// JSON text cannot be parsed.
    #[error("JSON cannot be read: byte {offset}: {detail}")]
    Json {
        /// The byte offset of the fault.
        offset: usize,
        /// The fault in words.
        detail: &'static str,
    },
}

impl ChatError {
    /// Return a syntax error at `line`.
    pub(super) fn syntax(line: u32, detail: &str) -> Self {
        Self::Syntax { line: line as usize, detail: short(detail) }
    }
}

/// The reason that evaluation stops, before its line is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The budget is spent.
    Work,
    /// The time limit has passed.
    Time,
    /// The request to cancel was made.
    Cancelled,
    /// The template raised an exception.
    Raised(Box<str>),
    /// The template applied an operation to values that it is not defined for.
    Failed(Box<str>),
}

impl Fault {
    /// Return a fault of an operation that is not defined, because of `detail`.
    pub(super) fn failed(detail: impl AsRef<str>) -> Self {
        Self::Failed(short(detail.as_ref()))
    }

    /// Return a fault of an exception that the template raised.
    pub(super) fn raised(message: &str) -> Self {
        Self::Raised(short(message))
    }

    /// Return the public error of this fault on `line`.
    pub(super) fn at(self, line: u32) -> ChatError {
        match self {
            Self::Work => ChatError::TooMuchWork,
            Self::Time => ChatError::TooSlow,
            Self::Cancelled => ChatError::Cancelled,
            Self::Raised(message) => ChatError::Raised { message },
            Self::Failed(detail) => ChatError::Failed { line: line as usize, detail },
        }
    }
}

/// The result of a step of evaluation.
pub(super) type Eval<T> = Result<T, Fault>;

/// Return at most 200 characters of `text`, without control characters. It may quote the template
/// or a message, so it must be fit for a terminal.
fn short(text: &str) -> Box<str> {
    text.chars().filter(|c| !c.is_control()).take(200).collect::<String>().into()
}
