//! Conversations: from the messages of any interface to the tokens of a prompt.
//!
//! OpenAI's chat completions, OpenAI's responses and Anthropic's messages say the same in three
//! ways. Each has a reader here that makes [`Message`]s and [`Tool`]s of its JSON; a [`Request`]
//! holds them with the choices of the client. A [`Template`] renders it to a [`Prompt`]: the text,
//! its tokens, and the places in it where messages end, so that the engine can return to them
//! cheaply.
//!
//! | submodule | content |
//! |---|---|
//! | `message` | the one form of messages, tools and choices |
//! | `chat`, `anthropic`, `responses` | readers of the three interfaces |
//! | `request` | what is common to all requests: prefill, thinking, variables of the template |
//! | `template` | a chat template with what it can express |
//! | `builtin` | templates by name, and ChatML for models without one |
//! | `capabilities` | probing of what a template can express |
//! | `demands` | probing of the form in which a template takes messages |
//! | `sequences` | probing of the order of messages that a template takes |
//! | `adapt` | messages in a form that a template can express |
//! | `arrange` | messages in an order that a template takes |
//! | `plain_schema` | schemas of tools in the plainest words |
//! | `written` | messages as values of templates |
//! | `fallback` | tools for templates that know none |
//! | `input` | the input of a template |
//! | `blame` | the part of a request that a template refuses |
//! | `prompt` | rendering and tokens |
//! | `begin` | an answer that has begun: reasoning switched off, messages to continue |
//! | `ends` | the places where messages end |
//! | `schema` | schemas of tools, made to stand alone |
//! | `values` | JSON as values of templates |
//! | `turn` | a request that is ready for the engine |
//! | `speaker` | what the model writes, taken apart |
//! | `meter` | counts and times of an answer under way |

mod adapt;
mod anthropic;
mod arrange;
mod begin;
mod blame;
mod builtin;
mod capabilities;
mod chat;
mod demands;
mod ends;
mod error;
mod fallback;
mod input;
mod message;
mod meter;
mod own_calls;
mod paths;
mod plain_schema;
mod prompt;
mod request;
mod responses;
mod schema;
mod sequences;
mod speaker;
mod template;
mod turn;
mod values;
mod written;

pub use builtin::{CHATML, builtin_names, builtin_template};
pub use capabilities::Capabilities;
pub use error::ConversationError;
pub use message::{Content, Continue, Message, Tool, ToolCall, ToolChoice};
pub use prompt::Prompt;
pub use request::{Request, Thinking};
pub use template::Template;

pub(crate) use meter::Meter;
pub(crate) use own_calls::OwnCalls;
pub(crate) use speaker::{Ending, Speaker};
pub(crate) use turn::{Turn, render};

#[cfg(test)]
mod tests;
