//! The messages of a conversation, wherever they come from: their limit, and the check that they
//! are text.

/// Longest message, in bytes. No context holds as much.
pub const MAX_BYTES: usize = 16 << 20;

/// An event at the input of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A message, or a command that begins with a slash.
    Message(String),
    /// Input that cannot be a message; the text says why and what to do.
    Invalid(String),
    /// Ctrl-C, at an empty prompt or in the middle of a message.
    CtrlC {
        /// True if nothing was typed.
        is_empty: bool,
    },
    /// The end of the input.
    End,
}

impl Event {
    /// Make a message of these bytes, or say why they cannot be one.
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.len() > MAX_BYTES {
            return Self::Invalid(format!("the message is longer than {} MiB; shorten it", MAX_BYTES >> 20));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Message(text.into()),
            Err(error) => Self::Invalid(format!(
                "the message is not valid UTF-8 at byte {}; convert it first",
                error.valid_up_to()
            )),
        }
    }
}
