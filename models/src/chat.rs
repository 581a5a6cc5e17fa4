//! Chat templates: from messages to the text a model was trained to continue.
//!
//! Model files carry a template in Jinja, a small programming language, written by whoever made the file.
//! [`ChatTemplate`] reads one, [`Conversation`] is what it is given, [`Rendered`] is what comes out: text
//! that knows which of its bytes are the template's.
//!
//! The interpreter is our own, because two things have to hold by construction. A template is a hostile
//! program, so everything that costs time or memory pays for it (`budget.rs`), nesting is bounded, and a
//! clock and a [`Cancel`](crate::Cancel) are asked as it goes. And what people type must never become control
//! tokens, so every text carries the origins of its bytes (`text.rs`).
//!
//! How to read this: `lexer.rs` and `parser.rs` make the tree of `ast.rs`, `machine.rs` runs it over the
//! values of `heap.rs`. `operators.rs`, `filters.rs`, `predicates.rs`, `methods.rs`, `containers.rs` and
//! `format.rs` are what templates can do with values, as in Python; `walk.rs` compares, orders and prints
//! values, `json.rs` writes them as JSON, `numbers.rs` and `date.rs` write what their names say. `value.rs`
//! and `conversation.rs` are the values of the caller's side, `json_text.rs` reads these from JSON.

mod ast;
mod budget;
mod clock;
mod containers;
mod conversation;
mod date;
mod error;
mod filters;
mod format;
mod heap;
mod json;
mod json_text;
mod lexer;
mod machine;
mod methods;
mod numbers;
mod operators;
mod parser;
mod predicates;
mod rendered;
mod text;
mod value;
mod walk;

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use self::error::Fault;
use self::machine::Machine;

pub use self::conversation::Conversation;
pub use self::error::ChatError;
pub use self::rendered::Rendered;
pub use self::text::Origin;
pub use self::value::Value;

/// The longest template. The longest known one has 40 kB.
const MAX_SOURCE: usize = 1 << 20;
/// The time a template gets, and what it gets beyond that for each value and each byte of its input. Real
/// ones need a thousandth.
const TIME: Duration = Duration::from_secs(2);
const TIME_PER_VALUE: Duration = Duration::from_micros(20);
const TIME_PER_BYTE: Duration = Duration::from_nanos(500);

/// One message of a conversation, of the simplest kind. Others are [`Value`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The speaker: `system`, `user`, `assistant`, or what else the template knows.
    pub role: &'a str,
    /// The text.
    pub content: &'a str,
}

/// The end of a rendered conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// It ends with the last message.
    No,
    /// It ends with the beginning of the assistant's next message.
    Yes,
}

/// The template of a model.
///
/// ```
/// use backstitch_models::chat::{ChatTemplate, Conversation, Message};
///
/// let template = ChatTemplate::from_source(
///     "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{{ eos_token }}",
/// )?;
/// let messages = [Message { role: "user", content: " Hello " }];
/// let conversation = Conversation::new(messages).tokens("<s>", "</s>");
/// assert_eq!(template.render(&conversation)?.as_str(), "<user>Hello</s>");
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    template: Arc<ast::Template>,
}

impl ChatTemplate {
    /// Read a template as it stands in `tokenizer.chat_template`. Takes time and memory linear in its length.
    ///
    /// # Errors
    /// [`ChatError::TooLong`] beyond 1 MiB, [`ChatError::Syntax`] for what is no template.
    pub fn from_source(source: &str) -> Result<Self, ChatError> {
        if source.len() > MAX_SOURCE {
            return Err(ChatError::TooLong);
        }
        let source = unix_lines(source);
        Ok(Self { template: Arc::new(parser::parse(&source)?) })
    }

    /// Return the text for a conversation.
    ///
    /// # Errors
    /// - [`ChatError::Raised`] if the template refuses the messages.
    /// - [`ChatError::Failed`] if the template does what has no meaning.
    /// - [`ChatError::TooMuchWork`] if the template takes many more steps or makes much more text than any
    ///   real one, and [`ChatError::TooSlow`] if it
    ///   takes longer than 2 seconds and a little for each byte of the conversation.
    /// - [`ChatError::Cancelled`] if the conversation's [`Cancel`](crate::Cancel) was asked for.
    pub fn render(&self, conversation: &Conversation) -> Result<Rendered, ChatError> {
        let (n_bytes, n_values) = conversation.size()?;
        let late = clock::deadline(
            TIME + TIME_PER_VALUE.saturating_mul(u32::try_from(n_values).unwrap_or(u32::MAX))
                + TIME_PER_BYTE.saturating_mul(u32::try_from(n_bytes).unwrap_or(u32::MAX)),
        );
        let interrupt = || match () {
            () if conversation.asked_to_stop() => Some(Fault::Cancelled),
            () if late() => Some(Fault::Time),
            () => None,
        };
        let budget = conversation.budget(&interrupt, (n_bytes, n_values));
        let mut machine = Machine::new(&self.template, budget, conversation.now());
        conversation.give(&mut machine).map_err(|fault| fault.at(0))?;
        machine.run().map(Rendered::new)
    }
}

/// `source` with `\n` at the end of every line.
fn unix_lines(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

#[cfg(test)]
mod tests;
