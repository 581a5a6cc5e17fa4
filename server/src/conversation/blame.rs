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

/// The longest conversation in bytes of which the message is looked for that a template refuses.
const MAX_BLAMED: usize = 1 << 20;

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
        let mut names = variables.keys().filter(|name| {
            let others = variables.iter().filter(|(other, _)| other != name);
            let others = others.map(|(name, value)| (name.clone(), value.clone())).collect();
            self.are_taken(&[], &others, messages)
        });
        match names.next().map(String::as_str) {
            Some("reasoning_effort") => "reasoning_effort".into(),
            Some(name) => format!("chat_template_kwargs.{name}"),
            None => "chat_template_kwargs".into(),
        }
    }

    /// Return the path of the first message that the template does not take behind those before it.
    fn message(&self) -> String {
        let Input { request, messages, .. } = self.input;
        let (mut n_taken, mut n_refused) = (0, messages.len());
        while n_taken + 1 < n_refused {
            let middle = usize::midpoint(n_taken, n_refused);
            let some = messages.get(..middle).unwrap_or_default();
            let is_taken = self.are_taken(&request.tools, &request.variables, some);
            *if is_taken { &mut n_taken } else { &mut n_refused } = middle;
        }
        n_refused.checked_sub(1).map_or("messages".into(), |at| request.path(at))
    }
}

impl Template {
    /// Return the error with the path of what the template refuses: a variable, a tool, or a
    /// message.
    pub(super) fn blamed(&self, input: &Input<'_>, error: ChatError) -> ConversationError {
        let texts = input.messages.iter().flat_map(|message| message.content.texts());
        let parts = Parts { template: self, input };
        let greeting = [Message::new("user", "Hello")];
        let (tools, variables) = (&input.request.tools, &input.request.variables);
        let is_long = texts.map(String::len).sum::<usize>() > MAX_BLAMED;
        if !is_refusal(&error) || is_long || !parts.are_taken(&[], &Map::new(), &greeting) {
            return error.into();
        }
        let field = if !parts.are_taken(&[], variables, &greeting) {
            parts.variable(&greeting)
        } else if !parts.are_taken(tools, variables, &greeting) {
            let is_refused =
                |tool: &Tool| !parts.are_taken(core::slice::from_ref(tool), variables, &greeting);
            tools.iter().position(is_refused).map_or("tools".into(), |at| format!("tools[{at}]"))
        } else {
            parts.message()
        };
        ConversationError::Refused { field, error }
    }
}
