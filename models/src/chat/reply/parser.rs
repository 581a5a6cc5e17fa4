//! The parser of a reply that arrives in pieces.

use super::formats::HARMONY;
use super::harmony::Harmony;
use super::marked::Marked;
use super::output::Output;
use super::tools::{Context, Tools};
use super::{Delta, Format, Options, Reply};
use alloc::string::String;
use alloc::vec::Vec;

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
