//! The part of a request that a template refuses.
//!
//! A template says what it misses in its own words, and not where. Rendering less of the request
//! tells: it names the field that the client can change.

use super::error::ConversationError;
use super::input::{Input, is_refusal};
use super::message::{Message, Tool};
use super::request::Request;
use super::template::Template;
use backstitch_models::chat::ChatError;
use serde_json::{Map, Value};

/// The longest request in bytes of which the part is looked for that a template refuses.
const MAX_BLAMED: usize = 1 << 20;
/// The variables that are left out one at a time. Messages and tools are halved, so that a request
/// is rendered a few dozen times at most.
const MAX_VARIABLES: usize = 16;

/// Return the size of a request in bytes, as far as it grows with what the client sends.
fn size(input: &Input<'_>) -> usize {
    let message = |message: &Message| {
        let texts: usize = message.content.texts().iter().map(String::len).sum();
        let arguments: usize = message.tool_calls.iter().map(|call| call.arguments.len()).sum();
        texts + arguments + message.reasoning.len()
    };
    let tool = |tool: &Tool| tool.description.len() + tool.parameters.to_string().len();
    let messages: usize = input.messages.iter().map(message).sum();
    let tools: usize = input.request.tools.iter().map(tool).sum();
    let variables: usize = input.request.variables.values().map(|value| value.to_string().len()).sum();
    messages + tools + variables
}

/// Return the length of the shortest beginning of `n` parts that is refused, as all of them are.
fn shortest_refused(n: usize, is_taken: impl Fn(usize) -> bool) -> usize {
    let (mut n_taken, mut n_refused) = (0, n);
    while n_taken + 1 < n_refused {
        let middle = usize::midpoint(n_taken, n_refused);
        *if is_taken(middle) { &mut n_taken } else { &mut n_refused } = middle;
    }
    n_refused
}

/// Renderings of parts of a request.
struct Parts<'a> {
    template: &'a Template,
    input: &'a Input<'a>,
}

impl Parts<'_> {
    /// Return true if the template takes these parts of the request.
    fn are_taken(&self, tools: &[Tool], variables: &Map<String, Value>, messages: &[Message]) -> bool {
        let request = Request {
            tools: tools.to_vec(),
            variables: variables.clone(),
            tool_choice: self.input.request.tool_choice.clone(),
            ..Request::default()
        };
        self.template.rendered(&Input { request: &request, messages, ..*self.input }).is_ok()
    }

    /// Return the path of the variable without which the template takes `messages`.
    fn variable(&self, messages: &[Message]) -> String {
        let variables = &self.input.request.variables;
        let mut names = variables.keys().take(MAX_VARIABLES).filter(|name| {
            let others = variables.iter().filter(|(other, _)| other != name);
            let others = others.map(|(name, value)| (name.clone(), value.clone())).collect();
            self.are_taken(&[], &others, messages)
        });
        match names.next().map(String::as_str) {
            Some(name) => self.input.request.paths.variable(name),
            None => "chat_template_kwargs".into(),
        }
    }

    /// Return the path of the first message that the template does not take behind those before it.
    fn message(&self) -> String {
        let Input { request, messages, .. } = self.input;
        let n_refused = shortest_refused(messages.len(), |n| {
            self.are_taken(&request.tools, &request.variables, messages.get(..n).unwrap_or_default())
        });
        n_refused.checked_sub(1).map_or("messages".into(), |at| request.paths.message(at))
    }
}

impl Template {
    /// Return the error with the path of what the template refuses: a variable, a tool, or a
    /// message.
    pub(super) fn blamed(&self, input: &Input<'_>, error: ChatError) -> ConversationError {
        let parts = Parts { template: self, input };
        let greeting = [Message::new("user", "Hello")];
        let (tools, variables) = (&input.request.tools, &input.request.variables);
        let is_long = size(input) > MAX_BLAMED;
        if !is_refusal(&error) || is_long || !parts.are_taken(&[], &Map::new(), &greeting) {
            return error.into();
        }
        let field = if !parts.are_taken(&[], variables, &greeting) {
            parts.variable(&greeting)
        } else if !parts.are_taken(tools, variables, &greeting) {
            let n_refused = shortest_refused(tools.len(), |n| {
                parts.are_taken(tools.get(..n).unwrap_or_default(), variables, &greeting)
            });
            n_refused.checked_sub(1).map_or("tools".into(), |at| input.request.paths.tool(at).tool)
        } else {
            parts.message()
        };
        ConversationError::Refused { field, error }
    }
}
