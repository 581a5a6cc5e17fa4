//! What can go wrong with a chat template.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// The reason why a template gave no text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is longer than any real one.
    TooLong,
    /// The template cannot be read.
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// The fault.
        detail: Box<str>,
    },
    /// The template refuses the messages and says why.
    Raised {
        /// Its own words.
        message: Box<str>,
    },
    /// The template takes more steps or makes more text than any real one needs for such messages.
    TooMuchWork,
    /// The template takes longer than any real one needs for such messages.
    TooSlow,
    /// Rendering was cancelled.
    Cancelled,
    /// Something that the template does has no meaning.
    Failed {
        /// The line, counted from 1.
        line: usize,
        /// The fault.
        detail: Box<str>,
    },
    /// JSON text cannot be read.
    Json {
        /// The byte at which the fault lies.
        offset: usize,
        /// The fault.
        detail: &'static str,
    },
}

impl ChatError {
    pub(super) fn syntax(line: u32, detail: &str) -> Self {
        Self::Syntax { line: line as usize, detail: short(detail) }
    }
}

impl fmt::Display for ChatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the chat template is longer than 1 MiB; give another one"),
            Self::Syntax { line, detail } => {
                write!(f, "the chat template cannot be read: line {line}: {detail}; give another one")
            }
            Self::Raised { message } => write!(f, "the chat template refuses these messages: {message}"),
            Self::TooMuchWork => f.write_str(
                "the chat template does too much for such messages, it may loop; give another one",
            ),
            Self::TooSlow => {
                f.write_str("the chat template takes too long for such messages; give another one")
            }
            Self::Cancelled => f.write_str("rendering the chat template was cancelled"),
            Self::Failed { line, detail } => write!(f, "the chat template fails: line {line}: {detail}"),
            Self::Json { offset, detail } => write!(f, "JSON cannot be read: byte {offset}: {detail}"),
        }
    }
}

impl core::error::Error for ChatError {}

/// The reason why evaluation stops, before it knows its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The budget is spent.
    Work,
    /// The clock ran out.
    Time,
    /// Somebody said stop.
    Cancelled,
    /// The template raised an exception.
    Raised(Box<str>),
    /// What the template does has no meaning.
    Failed(Box<str>),
}

impl Fault {
    /// What the template does has no meaning, because of `detail`.
    pub(super) fn failed(detail: impl AsRef<str>) -> Self {
        Self::Failed(short(detail.as_ref()))
    }

    /// The template raised an exception.
    pub(super) fn raised(message: &str) -> Self {
        Self::Raised(short(message))
    }

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

/// At most 200 characters of `text`, fit for a terminal: it may quote the template or a message.
fn short(text: &str) -> Box<str> {
    text.chars().filter(|c| !c.is_control()).take(200).collect::<String>().into()
}
