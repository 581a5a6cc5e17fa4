//! Replies of chat models: content, reasoning, and calls of tools.
//!
//! A model writes one text. Which part of it is reasoning and which part calls a tool is a matter
//! of markers that the model was trained on, and its chat template shows them.
//! [`Format::of_template`] recognises the markers, [`Parser`] takes the text apart while it is
//! generated, and [`parse`] does so with a whole text.
//!
//! - `formats.rs` is the table of formats, as data in the terms of `syntax.rs`.
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
mod elements;
mod entries;
mod find;
mod formats;
mod grammar;
mod harmony;
mod json_calls;
mod literal;
mod marked;
mod names;
mod output;
mod parameters;
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

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use self::formats::{CALLS, HARMONY, REASONING, fits};
use self::harmony::Harmony;
use self::marked::Marked;
use self::output::Output;
use self::syntax::{CallSyntax, ReasoningSyntax};
use self::tools::{Context, Tools};
use super::Value;

/// The most of a prompt's end that is looked at, in bytes.
const MAX_PROMPT_END: usize = 256;

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
    calls: Option<&'static CallSyntax>,
    /// The way of writing reasoning, if there is one.
    reasoning: Option<&'static ReasoningSyntax>,
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

    /// Write calls as a model writes them in this format, so that [`parse`] reads them back. Return
    /// `None` if the format has no calls, or no text for one of these: a call of an unknown tool,
    /// or a string with the marker that ends strings.
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

/// The treatment of reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// Reasoning stays in the content, with its markers.
    None,
    /// Reasoning is apart from the content.
    #[default]
    Deepseek,
    /// Reasoning is apart, and also stays in the content with its markers.
    DeepseekLegacy,
}

/// The options of a [`Parser`].
///
/// ```
/// use backstitch_models::chat::Value;
/// use backstitch_models::chat::reply::{Format, Options, parse};
///
/// let format = Format::of_template("<tool_call>");
/// let tool = Value::from_json(r#"{"function": {"name": "time"}}"#)?;
/// let text = r#"<tool_call>{"name": "time", "arguments": {}}</tool_call>"#;
/// let reply = parse(text, &format, &Options::default().tools(&[tool]));
/// assert_eq!(reply.tool_calls[0].name, "time");
/// assert_eq!(parse(text, &format, &Options::default()).content, text); // no tools, no calls
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The treatment of reasoning.
    reasoning: ReasoningFormat,
    /// The tools that were offered.
    tools: Tools,
    /// True if there may be several calls.
    parallel: bool,
    /// True if the prompt ended within reasoning.
    in_reasoning: bool,
    /// The end of the prompt.
    prompt_end: String,
}

impl Default for Options {
    /// Split reasoning off, and allow several calls, but offer no tools.
    fn default() -> Self {
        Self {
            reasoning: ReasoningFormat::default(),
            tools: Tools::default(),
            parallel: true,
            in_reasoning: false,
            prompt_end: String::new(),
        }
    }
}

impl Options {
    /// Set the treatment of reasoning.
    #[must_use]
    pub fn reasoning(mut self, format: ReasoningFormat) -> Self {
        self.reasoning = format;
        self
    }

    /// Set the tools that were offered: `{"type": "function", "function": {"name": …,
    /// "parameters": …}}`, or the function alone. Only calls of these become calls; without tools
    /// none does. The schemas say which values are strings in formats that write no quotes.
    #[must_use]
    pub fn tools(mut self, tools: &[Value]) -> Self {
        self.tools = Tools::new(tools);
        self
    }

    /// Allow several calls, or one only; text of further calls becomes content then.
    #[must_use]
    pub fn parallel(mut self, parallel: bool) -> Self {
        self.parallel = parallel;
        self
    }

    /// Say that the prompt ended within reasoning, so that the text begins there.
    #[must_use]
    pub fn thinking_forced_open(mut self, forced: bool) -> Self {
        self.in_reasoning = forced;
        self
    }

    /// Show the parser the prompt, by whose end it sees where the text begins: within reasoning, or
    /// behind the marker of a message.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::reply::{Format, Options, parse};
    ///
    /// let format = Format::of_template("<think>");
    /// let options = Options::default().prompt("<|im_start|>assistant\n<think>\n");
    /// let reply = parse("Hm.\n</think>\n\nYes.", &format, &options);
    /// assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("Hm.", "Yes."));
    /// ```
    #[must_use]
    pub fn prompt(mut self, prompt: &str) -> Self {
        let start = prompt.len().saturating_sub(MAX_PROMPT_END);
        let start = (start..=prompt.len()).find(|i| prompt.is_char_boundary(*i)).unwrap_or(0);
        self.prompt_end = prompt.get(start..).unwrap_or("").to_string();
        self
    }

    /// Return the opening marker of reasoning and the text behind it, if the prompt ends with them.
    fn opened(&self, reasoning: &ReasoningSyntax) -> Option<String> {
        let end = self.prompt_end.trim_end();
        if end.ends_with(reasoning.open) {
            let from = end.len() - reasoning.open.len();
            return self.prompt_end.get(from..).map(ToString::to_string);
        }
        self.in_reasoning.then(|| reasoning.open.to_string())
    }
}

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// More content.
    Content(String),
    /// More reasoning.
    Reasoning(String),
    /// The beginning of a call.
    ToolCallBegin {
        /// The number of calls that were begun before this one.
        index: usize,
        /// The identifier that the model gave to the call, if its format has one.
        id: Option<String>,
        /// The name of the tool, one of those that were offered.
        name: String,
    },
    /// More of the arguments of a call, as JSON text.
    ToolCallArguments {
        /// The number of calls that were begun before this one.
        index: usize,
        /// The next piece of the text.
        text: String,
    },
    /// The last calls have no end, and so are none: the text ended within them, or went on
    /// otherwise. Their text comes as content behind this.
    ToolCallsCut {
        /// The number of these calls; 0 if none was begun by a delta yet.
        n: usize,
    },
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The identifier that the model gave to the call, if its format has one.
    pub id: Option<String>,
    /// The name of the tool, one of those that were offered.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The content.
    pub content: String,
    /// The reasoning.
    pub reasoning: String,
    /// The calls in order. A call whose end was not read is none, and its text is content.
    pub tool_calls: Vec<ToolCall>,
    /// True if a call was begun and not ended.
    pub is_cut: bool,
}

impl Reply {
    /// Add a piece.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::reply::{Delta, Reply};
    ///
    /// let mut reply = Reply::default();
    /// reply.add(&Delta::Content("Hel".into()));
    /// reply.add(&Delta::Content("lo".into()));
    /// assert_eq!(reply.content, "Hello");
    /// ```
    pub fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::Content(text) => self.content.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::ToolCallBegin { id, name, .. } => {
                let (id, name) = (id.clone(), name.clone());
                self.tool_calls.push(ToolCall { id, name, arguments: String::new() });
            }
            Delta::ToolCallArguments { text, .. } => {
                if let Some(call) = self.tool_calls.last_mut() {
                    call.arguments.push_str(text);
                }
            }
            Delta::ToolCallsCut { n } => {
                self.tool_calls.truncate(self.tool_calls.len().saturating_sub(*n));
                self.is_cut = true;
            }
        }
    }
}

/// A parser of a reply that arrives in pieces.
///
/// The deltas together are the same reply however the text is cut. Text that may be the beginning
/// of a marker is held back until it is known. Arguments are passed on as they come where the
/// format writes JSON, and whole where they are converted.
///
/// ```
/// use backstitch_models::chat::Value;
/// use backstitch_models::chat::reply::{Delta, Format, Options, Parser};
///
/// let format = Format::of_template("<think> <tool_call>");
/// let tool = Value::from_json(r#"{"function": {"name": "time"}}"#)?;
/// let mut parser = Parser::new(&format, &Options::default().tools(&[tool]));
/// let mut deltas = Vec::new();
/// parser.push("Let me see. <tool", &mut deltas);
/// assert_eq!(deltas, [Delta::Content("Let me see.".into())]);
/// deltas.clear();
/// parser.push("_call>{\"name\": \"time\", \"arguments\": {\"in\"", &mut deltas);
/// let begin = Delta::ToolCallBegin { index: 0, id: None, name: "time".into() };
/// let arguments = Delta::ToolCallArguments { index: 0, text: "{\"in\"".into() };
/// assert_eq!(deltas, [begin, arguments]);
/// parser.push(": \"Oslo\"}}</tool_call>", &mut deltas);
/// parser.finish(&mut deltas);
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Debug)]
pub struct Parser {
    /// The tools that were offered.
    tools: Tools,
    /// True if there may be several calls.
    parallel: bool,
    /// The text that is not decided yet.
    text: String,
    /// The parser of the format.
    machine: Machine,
    /// The deltas.
    output: Output,
}

/// The parser of a format.
#[derive(Debug)]
enum Machine {
    /// Markers in the text.
    Marked(Marked),
    /// Messages with headers.
    Harmony(Harmony),
}

impl Parser {
    /// Make a parser of one reply.
    pub fn new(format: &Format, options: &Options) -> Self {
        let has_tools = !options.tools.is_empty() && format.calls.is_some();
        let mut output = Output::new(options.reasoning, has_tools || format.reasoning.is_some());
        let opened = format.reasoning.and_then(|reasoning| options.opened(reasoning));
        let mut text = String::new();
        let machine = if format.name() == Some(HARMONY) {
            let mut harmony = Harmony::new();
            if let Some(open) = &opened {
                harmony.begin_in_reasoning(open, &mut output);
            }
            Machine::Harmony(harmony)
        } else {
            let mut marked = Marked::new(format.calls, format.reasoning, has_tools);
            match &opened {
                Some(open) => marked.begin_in_reasoning(open, &mut output),
                None => text.push_str(marked.begin_behind(&options.prompt_end)),
            }
            Machine::Marked(marked)
        };
        Self { tools: options.tools.clone(), parallel: options.parallel, text, machine, output }
    }

    /// Add text, and append what is known by it to `out`.
    pub fn push(&mut self, text: &str, out: &mut Vec<Delta>) {
        self.text.push_str(text);
        self.run(false, out);
    }

    /// End the text, and append the rest to `out`. A call that is cut becomes content.
    pub fn finish(&mut self, out: &mut Vec<Delta>) {
        self.run(true, out);
        self.output.finish();
        self.output.take(out);
    }

    /// Return the number of calls that are whole: their end was read, and that of the section or
    /// list that they stand in. Later text cannot [cut](Delta::ToolCallsCut) them.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::Value;
    /// use backstitch_models::chat::reply::{Format, Options, Parser};
    ///
    /// let format = Format::of_template("<tool_call>");
    /// let tool = Value::from_json(r#"{"function": {"name": "time"}}"#)?;
    /// let mut parser = Parser::new(&format, &Options::default().tools(&[tool]));
    /// let mut deltas = Vec::new();
    /// parser.push("<tool_call>{\"name\": \"time\", \"arguments\": {}}", &mut deltas);
    /// assert_eq!(parser.n_whole(), 0);
    /// parser.push("</tool_call>", &mut deltas);
    /// assert_eq!(parser.n_whole(), 1);
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    pub fn n_whole(&self) -> usize {
        self.output.n_whole()
    }

    /// Read the text as far as it is decided.
    fn run(&mut self, ended: bool, out: &mut Vec<Delta>) {
        let context = Context { tools: &self.tools, parallel: self.parallel };
        let n = match &mut self.machine {
            Machine::Marked(marked) => marked.run(&self.text, ended, context, &mut self.output),
            Machine::Harmony(harmony) => harmony.run(&self.text, ended, context, &mut self.output),
        };
        self.text.drain(..n);
        self.output.take(out);
    }
}

/// Parse a whole reply.
pub fn parse(text: &str, format: &Format, options: &Options) -> Reply {
    let mut parser = Parser::new(format, options);
    let mut deltas = Vec::new();
    parser.push(text, &mut deltas);
    parser.finish(&mut deltas);
    let mut reply = Reply::default();
    deltas.iter().for_each(|delta| reply.add(delta));
    reply
}
