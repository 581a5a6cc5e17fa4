//! Chat templates: from messages to the text that a model was trained to continue.
//!
//! Model files carry a template in Jinja, a small programming language. [`ChatTemplate`] is the
//! parsed template, [`Conversation`] its input, and [`Rendered`] its output: text that knows which
//! of its bytes the template wrote.
//!
//! The interpreter is our own, because two properties have to hold by construction:
//!
//! - A template is an untrusted program. Everything that costs time or memory is charged to a
//!   budget (`budget.rs`), nesting is bounded, and a clock and a [`Cancel`](crate::Cancel) are
//!   checked as it runs.
//! - Text that users type must never become control tokens. Therefore every text carries the
//!   origins of its bytes (`text.rs`).
//!
//! The parts of the module:
//!
//! - `lexer.rs` and `parser.rs` build the tree of `ast.rs`. `machine.rs` runs it over the values of
//!   `heap.rs`.
//! - `operators.rs`, `filters.rs`, `predicates.rs`, `methods.rs`, `containers.rs` and `format.rs`
//!   are the operations of templates on values, as in Python.
//! - `walk.rs` compares, orders and prints values, `json.rs` writes them as JSON, and `numbers.rs`
//!   and `date.rs` write numbers and dates.
//! - `value.rs` and `conversation.rs` are the values of the caller, which `json_text.rs` reads from
//!   JSON.
//! - `capabilities.rs` finds what a template renders.
//! - [`reply`] goes in the other direction: from the text that a model writes to content, reasoning
//!   and calls.
//!
//! A template goes through these steps:
//!
//! 1. [`ChatTemplate::from_source`] cuts the source into tokens and parses them. This happens once;
//!    the tree is shared by all renderings and threads.
//! 2. [`ChatTemplate::render`] sizes the budget and the deadline by the input, and defines the
//!    variables of the conversation as values with the origin [`Origin::Value`].
//! 3. The interpreter runs the statements. Literals and text outside of tags have the origin
//!    [`Origin::Template`], and every operation on texts preserves origins.
//! 4. The output becomes a [`Rendered`], whose [`tokenize`](Rendered::tokenize) recognises control
//!    tokens in spans of the template only.
//!
//! The language is that of Jinja 3 (<https://jinja.palletsprojects.com/templates/>) in the
//! environment that the transformers library sets up for chat templates.

mod arguments;
mod ast;
mod budget;
mod capabilities;
mod clock;
mod containers;
mod conversation;
mod date;
pub(crate) mod error;
mod filters;
mod format;
mod heap;
mod indices;
mod json;
mod json_text;
mod lexer;
mod machine;
mod message;
mod methods;
mod numbers;
mod operators;
mod parser;
mod predicates;
mod rendered;
pub mod reply;
mod text;
mod value;
mod walk;

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use self::error::Fault;
use self::machine::Machine;

pub use self::capabilities::Capabilities;
pub use self::conversation::Conversation;
pub use self::error::ChatError;
pub use self::message::{GenerationPrompt, Message};
pub use self::rendered::Rendered;
pub use self::text::Origin;
pub use self::value::Value;

/// The longest template in bytes. The longest known one has 40 kB.
const MAX_SOURCE: usize = 1 << 20;
/// The time limit of a template without input. Real templates need a thousandth of it.
const TIME: Duration = Duration::from_secs(2);
/// The further time for each value of the input.
const TIME_PER_VALUE: Duration = Duration::from_micros(20);
/// The further time for each byte of the input.
const TIME_PER_BYTE: Duration = Duration::from_nanos(500);

/// The chat template of a model, parsed. Clones share the tree.
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
    /// Parse a template, the value of `tokenizer.chat_template`. This takes time and memory linear
    /// in its length.
    ///
    /// # Errors
    /// [`ChatError::TooLong`] beyond 1 MiB; [`ChatError::Syntax`] if it is not a template.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    /// use backstitch_models::chat::ChatTemplate;
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// assert!(model.chat_template().is_none()); // the demo model was trained on stories
    /// let source = model.chat_template().unwrap_or("{{ messages }}");
    /// let template = ChatTemplate::from_source(source)?;
    /// # drop(template);
    /// # Ok::<(), backstitch_models::Error>(())
    /// ```
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
    /// - [`ChatError::Failed`] if the template applies an operation to values that it is not
    ///   defined for.
    /// - [`ChatError::TooMuchWork`] if the template takes many more steps or makes much more text
    ///   than any real one.
    /// - [`ChatError::TooSlow`] if the template takes longer than 2 seconds and a little for each
    ///   byte of the conversation.
    /// - [`ChatError::Cancelled`] if the conversation's [`Cancel`](crate::Cancel) was made.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::{ChatError, ChatTemplate, Conversation, Message};
    ///
    /// let template = ChatTemplate::from_source(
    ///     "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
    /// )?;
    /// let messages = [Message { role: "system", content: "Be brief." }];
    /// let error = template.render(&Conversation::new(messages)).unwrap_err();
    /// assert_eq!(error, ChatError::Raised { message: "no system".into() });
    /// # Ok::<(), ChatError>(())
    /// ```
    pub fn render(&self, conversation: &Conversation) -> Result<Rendered, ChatError> {
        let (n_bytes, n_values) = conversation.size()?;
        let deadline = clock::Deadline::new(
            TIME + TIME_PER_VALUE.saturating_mul(u32::try_from(n_values).unwrap_or(u32::MAX))
                + TIME_PER_BYTE.saturating_mul(u32::try_from(n_bytes).unwrap_or(u32::MAX)),
        );
        let interrupt = || match () {
            // A request to cancel may let other work go first before it answers.
            () if deadline.pause(|| conversation.is_cancelled()) => Some(Fault::Cancelled),
            () if deadline.is_over() => Some(Fault::Time),
            () => None,
        };
        let budget = conversation.budget(&interrupt, (n_bytes, n_values));
        let mut machine = Machine::new(&self.template, budget, conversation.now());
        conversation.bind_to(&mut machine).map_err(|fault| fault.at(0))?;
        machine.run().map(Rendered::new)
    }
}

/// Return `source` with `\n` at the end of every line.
fn unix_lines(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

#[cfg(test)]
mod tests;
