//! Replies of chat models: content, reasoning, and calls of tools.
//!
//! A model writes one text. Which part of it is reasoning and which part calls a tool is a matter
//! of markers that the model was trained on, and its chat template shows them.
//! [`Format::of_template`] recognises the markers, [`Parser`] takes the text apart while it is
//! generated, and [`parse`] does so with a whole text.
//!
//! - `format.rs` is what a format can do, and `formats.rs` the table of formats, as data in the
//!   terms of `syntax.rs`. `options.rs` is what goes into a `parser.rs`, `delta.rs` what comes out.
//! - `marked.rs` reads text with markers, `calls.rs` a call or a section of calls by the parts of
//!   its format, and `json_calls.rs`, `python_calls.rs`, `tags.rs`, `elements.rs` and `literal.rs`
//!   the parts. `harmony.rs` reads the channels of gpt-oss.
//! - `scanner.rs` checks JSON as it arrives, and `output.rs` makes the deltas.
//! - `grammar.rs` describes calls for constrained generation, with `parameters.rs` for their
//!   arguments; `pieces.rs` finds the control tokens in the texts of a format.
//!
//! Text that looks like a call but is none becomes content: nothing that a model writes is lost but
//! markers and white space around them. The work is linear in the text, however it is cut, and
//! nesting is bounded.

mod calls;
mod cursor;
mod delta;
mod elements;
mod entries;
mod find;
mod format;
mod formats;
mod grammar;
mod harmony;
mod json_calls;
mod literal;
mod marked;
mod names;
mod options;
mod output;
mod parameters;
mod parser;
mod pieces;
mod python_calls;
mod ranges;
mod raw;
mod scanner;
mod schema;
mod syntax;
mod tags;
mod text_rules;
mod tools;
mod triggers;
mod write;

pub use self::delta::{Delta, Reply, ToolCall};
pub use self::format::{Format, FoundCalls, Trigger, UnwritableName};
pub use self::options::{Options, ReasoningFormat};
pub use self::parser::{Parser, parse};
