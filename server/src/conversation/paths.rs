//! The paths of what a request is made of, in the body that the client sent.

use std::collections::BTreeMap;

/// The paths of messages, tools and variables, for errors. A request that was not read from a body
/// has none; its parts are named as in chat completions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Paths {
    /// The paths of messages.
    pub messages: Vec<String>,
    /// The paths of tools.
    pub tools: Vec<ToolPaths>,
    /// The path of the name of the tool to call, if the request names one.
    pub choice: Option<String>,
    /// The paths and names of tools that cannot run here, and are left out.
    pub left_out: Vec<(String, String)>,
    /// The paths of variables that are no entries of `chat_template_kwargs`.
    pub variables: BTreeMap<String, String>,
}

/// The paths of a tool and of its fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ToolPaths {
    /// The path of the tool.
    pub tool: String,
    /// The path of its name.
    pub name: String,
    /// The path of the schema of its parameters.
    pub parameters: String,
}

impl Paths {
    /// Return the path of a message.
    pub fn message(&self, index: usize) -> String {
        self.messages.get(index).cloned().unwrap_or_else(|| format!("messages[{index}]"))
    }

    /// Return the paths of a tool.
    pub fn tool(&self, index: usize) -> ToolPaths {
        self.tools.get(index).cloned().unwrap_or_else(|| ToolPaths {
            tool: format!("tools[{index}]"),
            name: format!("tools[{index}].function.name"),
            parameters: format!("tools[{index}].function.parameters"),
        })
    }

    /// Return the path of a variable.
    pub fn variable(&self, name: &str) -> String {
        self.variables.get(name).cloned().unwrap_or_else(|| format!("chat_template_kwargs.{name}"))
    }
}
