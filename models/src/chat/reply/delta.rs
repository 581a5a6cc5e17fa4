//! The pieces of a reply, and the whole.

use alloc::string::String;
use alloc::vec::Vec;

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
