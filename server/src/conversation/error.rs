//! Errors in messages.

use backstitch_models::chat::ChatError;
use core::fmt;

/// The reason that messages give no prompt.
///
/// # Example
/// ```
/// use backstitch_server::conversation::ConversationError;
///
/// let error = ConversationError::wrong("messages[0].role", "a string");
/// assert_eq!(error.to_string(), "'messages[0].role' must be a string");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConversationError {
    /// A field that is needed is absent.
    Missing {
        /// The path of the field.
        field: String,
    },
    /// A field has a value of another type, or one that is not known.
    Wrong {
        /// The path of the field.
        field: String,
        /// The values that are taken.
        expected: String,
    },
    /// Images, sounds and videos, which the model cannot see.
    Media {
        /// The kind of the part: `image`, `audio`, `video`.
        kind: &'static str,
    },
    /// A combination that makes no sense, in words.
    Conflict(&'static str),
    /// Something that this server does not offer, in words.
    Unsupported(&'static str),
    /// The template gives no text for these messages.
    Template(ChatError),
}

impl ConversationError {
    /// Return the error of a field that is absent.
    pub fn missing(field: impl Into<String>) -> Self {
        ConversationError::Missing { field: field.into() }
    }

    /// Return the error of a field whose value is not `expected`.
    pub fn wrong(field: impl Into<String>, expected: impl Into<String>) -> Self {
        ConversationError::Wrong { field: field.into(), expected: expected.into() }
    }
}

impl fmt::Display for ConversationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConversationError::Missing { field } => write!(f, "'{field}' is required"),
            ConversationError::Wrong { field, expected } => write!(f, "'{field}' must be {expected}"),
            ConversationError::Media { kind } => {
                write!(f, "{kind} input is not supported: the model takes text alone")
            }
            ConversationError::Conflict(text) | ConversationError::Unsupported(text) => f.write_str(text),
            ConversationError::Template(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConversationError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            ConversationError::Template(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ChatError> for ConversationError {
    fn from(error: ChatError) -> Self {
        ConversationError::Template(error)
    }
}
