//! The markers that a model writes, and what follows from them.

use super::formats::{CALLS, HARMONY, REASONING, fits};
use super::syntax::{CallSyntax, ReasoningSyntax};
use super::tools::Tools;
use super::{Options, ToolCall, find, grammar, harmony, names, pieces, triggers, write};
use crate::chat::Value;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// The markers that a model writes around reasoning and calls.
///
/// ```
/// use backstitch_models::chat::reply::{Format, Trigger};
///
/// let format = Format::of_template("... <think></think> ... <tool_call>{}</tool_call>");
/// assert_eq!(format.name(), Some("hermes"));
/// assert_eq!(format.reasoning(), Some(("<think>", "</think>")));
/// assert_eq!(format.triggers(&[]), [Trigger::Anywhere("<tool_call>".into())]);
/// ```
#[derive(Clone, Copy)]
pub struct Format {
    /// The way of writing calls, if there is one.
    pub(super) calls: Option<&'static CallSyntax>,
    /// The way of writing reasoning, if there is one.
    pub(super) reasoning: Option<&'static ReasoningSyntax>,
}

impl Format {
    /// Recognise the format of a chat template by its source. This takes time linear in the source
    /// for each known format.
    pub fn of_template(source: &str) -> Self {
        let calls = CALLS.iter().find(|row| fits(row.evidence, source));
        let reasoning = REASONING.iter().find(|row| fits(row.evidence, source));
        Self { calls: calls.map(|row| &row.syntax), reasoning: reasoning.map(|row| &row.syntax) }
    }

    /// Return the formats of all known ways of writing calls, without reasoning.
    pub fn all() -> impl Iterator<Item = Self> {
        CALLS.iter().map(|row| Self { calls: Some(&row.syntax), reasoning: None })
    }

    /// Return the first name of `tools`, described as in [`Options::tools`], that calls in this
    /// format cannot have: formats without quotes around names read them up to the first character
    /// that names do not have.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::Value;
    /// use backstitch_models::chat::reply::Format;
    ///
    /// let format = Format::of_template("<function= <parameter=");
    /// let tool = Value::from_json(r#"{"function": {"name": "what time?"}}"#)?;
    /// let name = format.unwritable_name(&[tool]);
    /// assert_eq!(name.map(|name| (name.tool, name.parameter)), Some((0, None)));
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    pub fn unwritable_name(&self, tools: &[Value]) -> Option<UnwritableName> {
        let syntax = self.calls?;
        tools.iter().enumerate().find_map(|(tool, described)| {
            let parameter = names::unwritable(syntax, self.reasoning, described)?;
            Some(UnwritableName { tool, parameter })
        })
    }

    /// Write calls as a model writes them in this format, so that [`parse`](super::parse) reads
    /// them back. Return `None` if the format has no calls, or no text for one of these: a call of
    /// an unknown tool, or a string with the marker that ends strings.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::Value;
    /// use backstitch_models::chat::reply::{Format, ToolCall};
    ///
    /// let format = Format::of_template("<|tool_call>call:");
    /// let tool = Value::from_json(r#"{"function": {"name": "time"}}"#)?;
    /// let call = ToolCall { name: "time".into(), arguments: r#"{"n": 5}"#.into(), id: None };
    /// let text = format.write_calls(&[call], &[tool]);
    /// assert_eq!(text.as_deref(), Some("<|tool_call>call:time{n:5}<tool_call|>"));
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    pub fn write_calls(&self, calls: &[ToolCall], tools: &[Value]) -> Option<String> {
        write::calls(self.calls?, calls, &Tools::new(tools))
    }

    /// Return the calls of `tools` in a text, with the places of the markers around them. Calls in
    /// sections of their own are found one by one. The work is linear in the text: where much of it
    /// looks like calls and is none, later calls may be missed.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::Value;
    /// use backstitch_models::chat::reply::Format;
    ///
    /// let format = Format::of_template("<tool_call>");
    /// let tool = Value::from_json(r#"{"function": {"name": "time"}}"#)?;
    /// let text = r#"What time? <tool_call>{"name": "time", "arguments": {}}</tool_call> Noon."#;
    /// let found = format.find_calls(text, &[tool]);
    /// assert_eq!(&text[found[0].range.end..], " Noon.");
    /// assert_eq!(found[0].calls[0].name, "time");
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    pub fn find_calls(&self, text: &str, tools: &[Value]) -> Vec<FoundCalls> {
        self.calls.map_or_else(Vec::new, |calls| find::all(calls, text, &Tools::new(tools)))
    }

    /// Return the name of the way of writing calls, such as `hermes`, or `None` if the template has
    /// no tools.
    pub fn name(&self) -> Option<&'static str> {
        self.calls.map(|calls| calls.name)
    }

    /// Return the markers around reasoning, or `None` if the model does not reason.
    pub fn reasoning(&self) -> Option<(&'static str, &'static str)> {
        self.reasoning.map(|reasoning| (reasoning.open, reasoning.close))
    }

    /// Return the texts with which a [grammar](Self::grammar) of calls of `tools` begins, for
    /// samplers that wait for one. There is none if calls have no marker. A text that answers may
    /// have for other reasons comes with the name of a tool.
    pub fn triggers(&self, tools: &[Value]) -> Vec<Trigger> {
        self.calls.map_or_else(Vec::new, |calls| triggers::of(calls, &Tools::new(tools)))
    }

    /// Return the control tokens that markers consist of, alone or among text. Whoever leaves
    /// control tokens out of the text has to keep these for the parser. `token` returns the
    /// identifier of a control token by its text.
    pub fn marker_tokens(&self, token: &dyn Fn(&str) -> Option<u32>) -> Vec<u32> {
        self.markers().into_iter().flat_map(|marker| pieces::tokens_within(marker, token)).collect()
    }

    /// Return all markers.
    pub fn markers(&self) -> Vec<&'static str> {
        let mut markers = Vec::new();
        if let Some(calls) = self.calls {
            if calls.name == HARMONY {
                markers.extend(harmony::MARKERS);
            }
            if let Some(section) = &calls.section {
                markers.extend([section.begin, section.end]);
            }
            markers.extend(calls.call.iter().flat_map(|part| part.markers()));
            markers.extend(calls.wrappers);
            markers.extend(calls.envelope.iter().flat_map(|(begin, end)| [*begin, *end]));
        }
        if let Some(reasoning) = self.reasoning {
            markers.extend([reasoning.open, reasoning.close]);
        }
        markers
    }

    /// Describe calls of tools as a grammar in the Lark dialect of llguidance, which begins with
    /// the [trigger](Self::triggers) of the first call.
    ///
    /// `tools` are descriptions as in [`Options::tools`]. `parallel` allows several calls. `token`
    /// returns the identifier of a control token by its text, so that the grammar asks for the
    /// token where a marker is one. Return `None` if the format has no calls or no tool is given.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::Value;
    /// use backstitch_models::chat::reply::Format;
    ///
    /// let format = Format::of_template("<tool_call>");
    /// let tool = Value::from_json(r#"{"function": {"name": "time"}}"#)?;
    /// let token = |text: &str| (text == "<tool_call>").then_some(7);
    /// let lark = format.grammar(&[tool], false, &token);
    /// assert!(lark.is_some_and(|lark| lark.contains("<[7]> SPACE? ")));
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    pub fn grammar(
        &self,
        tools: &[Value],
        parallel: bool,
        token: &dyn Fn(&str) -> Option<u32>,
    ) -> Option<String> {
        grammar::write(&grammar::Request {
            syntax: self.calls?,
            tools: &Tools::new(tools),
            parallel,
            reasoning: None,
            is_begun: false,
            token,
        })
    }

    /// Describe whole answers that call the tools of `options`, as [`grammar`](Self::grammar) does
    /// from a trigger on: reasoning may stand before the calls, and what the end of the prompt
    /// began goes on. A server uses it to require a call.
    pub fn answer_grammar(&self, options: &Options, token: &dyn Fn(&str) -> Option<u32>) -> Option<String> {
        let syntax = self.calls?;
        grammar::write(&grammar::Request {
            syntax,
            tools: &options.tools,
            parallel: options.parallel,
            reasoning: self.thoughts(options),
            is_begun: syntax.begin().is_some_and(|begin| options.prompt_end.ends_with(begin)),
            token,
        })
    }

    /// Describe whole answers in which `content`, a symbol of the Lark dialect of llguidance,
    /// stands where content does: behind reasoning, which may come first or goes on if the prompt
    /// ended within it, and behind the header of its message. Return `None` if the answer is
    /// nothing but the content.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::reply::{Format, Options};
    ///
    /// let format = Format::of_template("<think>");
    /// let options = Options::default().prompt("<think>\n");
    /// let lark = format.content_grammar("@body", &options, &|_| None).unwrap_or_default();
    /// assert!(lark.starts_with("start: r0 SPACE? @body\nr0[suffix=\"</think>\"]: "));
    /// ```
    pub fn content_grammar(
        &self,
        content: &str,
        options: &Options,
        token: &dyn Fn(&str) -> Option<u32>,
    ) -> Option<String> {
        let thoughts = self.thoughts(options)?;
        Some(grammar::write_content(content, thoughts, self.name() == Some(HARMONY), token))
    }

    /// Return true if the prompt of `options` ended within reasoning.
    pub fn is_reasoning(&self, options: &Options) -> bool {
        self.reasoning.is_some_and(|reasoning| options.opened(reasoning).is_some())
    }

    /// Return the reasoning that may begin an answer.
    fn thoughts(&self, options: &Options) -> Option<grammar::Thoughts> {
        let syntax = self.reasoning?;
        let is_open = self.is_reasoning(options);
        // Behind the end of reasoning, or within a message, comes the answer itself.
        let end = options.prompt_end.trim_end();
        let is_over = end.contains(syntax.close) || end.ends_with(harmony::MESSAGE);
        (is_open || !is_over).then_some(grammar::Thoughts { syntax, calls: self.calls, is_open })
    }
}

/// Calls in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCalls {
    /// The bytes of the calls, with the markers around them.
    pub range: Range<usize>,
    /// The calls in order.
    pub calls: Vec<ToolCall>,
}

/// A name that calls in a format cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwritableName {
    /// The index of the tool.
    pub tool: usize,
    /// The name of the parameter, or `None` if it is the name of the tool itself.
    pub parameter: Option<String>,
}

/// A text from which on a [grammar of calls](Format::grammar) applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The text, wherever it appears.
    Anywhere(String),
    /// The text as the beginning of the answer.
    AtStart(String),
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Format").field("calls", &self.name()).field("reasoning", &self.reasoning()).finish()
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.reasoning() == other.reasoning()
    }
}

impl Eq for Format {}
