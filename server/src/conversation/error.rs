//! Errors in messages.

use backstitch_models::chat::ChatError;
use backstitch_models::vocab::TokenizeError;

/// The reason that messages give no prompt.
///
/// # Example
/// ```
/// use backstitch_server::conversation::ConversationError;
///
/// let error = ConversationError::wrong("messages[0].role", "a string");
/// assert_eq!(error.to_string(), "'messages[0].role' must be a string");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConversationError {
    /// A field that is needed is absent.
    #[error("'{field}' is required")]
    Missing {
        /// The path of the field.
        field: String,
    },
    /// A field has a value of another type, or one that is not known.
    #[error("'{field}' must be {expected}")]
    Wrong {
        /// The path of the field.
        field: String,
        /// The values that are taken.
        expected: String,
    },
    /// Images, sounds and videos, which the model cannot see.
    #[error("{kind} input is not supported: '{field}' must be text, which is all that the model takes")]
    Media {
        /// The path of the part.
        field: String,
        /// The kind of the part: `image`, `audio`, `video`.
        kind: &'static str,
    },
    /// A field that makes no sense beside the others, or asks for what this server does not offer.
    #[error("{reason}")]
    Conflict {
        /// The path of the field.
        field: &'static str,
        /// The reason in words.
        reason: &'static str,
    },
    /// The text is far too long.
    #[error(transparent)]
    Tokens(#[from] TokenizeError),
    /// The template gives no text for these messages.
    #[error(transparent)]
    Template(#[from] ChatError),
    /// The template gives text for what comes before, but not for this message or these tools.
    #[error("'{field}' cannot be written in the model's format: {error}")]
    Refused {
        /// The path of the message, or of the tools.
        field: String,
        /// The error of the template.
        error: ChatError,
    },
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
