//! The options of a parser.

use super::syntax::ReasoningSyntax;
use super::tools::Tools;
use crate::chat::Value;
use alloc::string::{String, ToString};

/// The most of a prompt's end that is looked at, in bytes.
const MAX_PROMPT_END: usize = 256;

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

/// The options of a [`Parser`](super::Parser).
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
    pub(super) reasoning: ReasoningFormat,
    /// The tools that were offered.
    pub(super) tools: Tools,
    /// True if there may be several calls.
    pub(super) parallel: bool,
    /// True if the prompt ended within reasoning.
    pub(super) in_reasoning: bool,
    /// The end of the prompt.
    pub(super) prompt_end: String,
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
    pub(super) fn opened(&self, reasoning: &ReasoningSyntax) -> Option<String> {
        let end = self.prompt_end.trim_end();
        if end.ends_with(reasoning.open) {
            let from = end.len() - reasoning.open.len();
            return self.prompt_end.get(from..).map(ToString::to_string);
        }
        self.in_reasoning.then(|| reasoning.open.to_string())
    }
}
