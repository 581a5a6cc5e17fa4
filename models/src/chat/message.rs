//! Messages of the simplest kind, and the end of a rendered conversation.
//!
//! Messages with tool calls, reasoning or several parts are [`Value`](super::Value)s, because every
//! family of models has its own fields for them.

/// A message of the simplest kind. Others are [`Value`](super::Value)s.
///
/// # Example
/// ```
/// use backstitch_models::chat::{Message, Value};
///
/// let message = Message { role: "user", content: "Hello" };
/// assert_eq!(Value::from(message).get("content"), Some(&"Hello".into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The speaker: `system`, `user`, `assistant`, or any other role that the template knows.
    pub role: &'a str,
    /// The text of the message.
    pub content: &'a str,
}

/// The end of a rendered conversation.
///
/// # Example
/// ```
/// use backstitch_models::chat::{ChatTemplate, Conversation, GenerationPrompt, Message};
///
/// let template = ChatTemplate::from_source(
///     "{{ messages[0].content }}{% if add_generation_prompt %}<assistant>{% endif %}",
/// )?;
/// let conversation = Conversation::new([Message { role: "user", content: "Hi" }]);
/// assert_eq!(template.render(&conversation)?.as_str(), "Hi<assistant>");
/// let conversation = conversation.prompt(GenerationPrompt::No);
/// assert_eq!(template.render(&conversation)?.as_str(), "Hi");
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// The text ends with the last message.
    No,
    /// The text ends with the beginning of the assistant's next message.
    Yes,
}
