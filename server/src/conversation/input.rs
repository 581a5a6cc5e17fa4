//! The input of a template: messages, tools and variables in the form that it takes.

use super::adapt::adapt;
use super::error::ConversationError;
use super::fallback::with_tools_as_text;
use super::message::{Message, Tool};
use super::plain_schema::{full_parameters, plain_parameters};
use super::prompt::Text;
use super::request::Request;
use super::template::Template;
use super::values::template_value;
use super::written::{message_value, with_joined_results};
use backstitch_models::chat::{
    ChatError, ChatTemplate, Conversation, GenerationPrompt, Message as TemplateMessage, Origin,
};
use backstitch_models::vocab::Vocab;
use serde_json::Value;
use std::borrow::Cow;

/// All that a text is made of.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub request: &'a Request,
    /// The messages to write, which lack the one to continue.
    pub messages: &'a [Message],
    /// The message to continue.
    pub continued: Option<&'a Message>,
    pub is_thinking: bool,
    pub vocab: &'a Vocab,
    pub adds_prompt: bool,
}

/// A request as a template writes it.
pub(super) struct Written {
    /// The input of the template.
    pub conversation: Conversation,
    /// Its text.
    pub text: Text,
    /// The message to continue, with what was arranged to stand in it.
    pub continued: Option<Message>,
    /// The messages as they were arranged, without the one to continue.
    pub messages: Vec<Message>,
}

/// The roles beyond the usual ones that are tried for a request.
const MAX_ROLES: usize = 16;
/// Variables in which templates expect the day, and its format: Llama 3's and Firefunction's.
pub(super) const DATES: [(&str, &str); 2] =
    [("date_string", "%d %b %Y"), ("datetime", "%b %d %Y %H:%M:%S GMT")];

/// Return the present day in a format, as templates that ask for it themselves get it.
fn today(format: &str) -> Option<String> {
    let clock = ChatTemplate::from_source(&format!("{{{{ strftime_now('{format}') }}}}")).ok()?;
    let nothing = Conversation::new([] as [TemplateMessage<'_>; 0]);
    Some(clock.render(&nothing).ok()?.as_str().to_owned())
}

/// Return true if other messages or tools may help.
pub(super) fn is_refusal(error: &ChatError) -> bool {
    matches!(error, ChatError::Raised { .. } | ChatError::Failed { .. })
}

impl Template {
    /// Return what the template is given and its text.
    ///
    /// # Errors
    /// [`ConversationError::Refused`] names what the template cannot take.
    pub(super) fn written(&self, input: &Input<'_>) -> Result<Written, ConversationError> {
        let messages = self.with_known_roles(input)?;
        let input = &Input { messages: &messages, ..*input };
        self.rendered(input).map_err(|error| self.blamed(input, error))
    }

    /// Return messages whose roles the template knows. OpenAI's former role of results becomes that
    /// of today, which is arranged for the template as all results are.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] names a role that the template refuses.
    fn with_known_roles<'m>(&self, input: &Input<'m>) -> Result<Cow<'m, [Message]>, ConversationError> {
        const KNOWN: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
        let mut messages = Cow::Borrowed(input.messages);
        let mut taken: Vec<&str> = KNOWN.into();
        for (i, message) in input.messages.iter().enumerate() {
            let role = message.role.as_str();
            if taken.contains(&role) {
                continue;
            }
            if role == "function" {
                messages.to_mut().get_mut(i).into_iter().for_each(|message| message.role = "tool".into());
            } else if taken.len() < MAX_ROLES && self.takes_role(role) {
                taken.push(role);
            } else if !self.demands().any_role {
                let expected =
                    "\"system\", \"user\", \"assistant\" or \"tool\": the model knows no such role";
                return Err(ConversationError::wrong(
                    format!("{}.role", input.request.paths.message(i)),
                    expected,
                ));
            }
        }
        Ok(messages)
    }

    /// Return what the template is given and its text. If the template fails with the tools as they
    /// are, they are described plainly.
    pub(super) fn rendered(&self, input: &Input<'_>) -> Result<Written, ChatError> {
        let (messages, continued) = self.arranged(input);
        let conversation = self.conversation(input, &messages, self.demands().full_schemas, false);
        let error = match self.render(&conversation, input.adds_prompt) {
            Ok(text) => return Ok(Written { conversation, text, continued, messages }),
            Err(error) => error,
        };
        if !is_refusal(&error) || input.request.tools.is_empty() {
            return Err(error);
        }
        let conversation = self.conversation(input, &messages, true, true);
        let text = self.render(&conversation, input.adds_prompt).map_err(|_| error)?;
        Ok(Written { conversation, text, continued, messages })
    }

    /// Return the messages in a form that the template can express, apart from the one to continue:
    /// that takes part in their order, but the template writes no more than what begins it.
    fn arranged(&self, input: &Input<'_>) -> (Vec<Message>, Option<Message>) {
        let Input { request, continued, .. } = *input;
        let (capabilities, demands) = (self.capabilities(), self.demands());
        let told = if self.writes_tools_as_text() { request.tools_to_tell() } else { &[] };
        let mut messages: Vec<Message> = input.messages.iter().chain(continued).cloned().collect();
        if self.writes_calls_as_text() {
            messages = with_tools_as_text(&messages, told);
        }
        let has_tools = !request.tools.is_empty();
        let mut messages = adapt(messages, has_tools, continued.is_some(), capabilities, demands);
        let continued = continued.and_then(|_| messages.pop());
        if continued.is_some() && messages.is_empty() && !demands.turns.no_messages {
            messages.push(Message::new("user", ""));
        }
        (messages, continued)
    }

    /// Return the input of the template with these messages. Schemas of tools get a type and
    /// properties if they are to be `full`, and are said in the plainest words if they are to be
    /// `plain`.
    fn conversation(&self, input: &Input<'_>, messages: &[Message], full: bool, plain: bool) -> Conversation {
        let Input { request, is_thinking, vocab, .. } = *input;
        let demands = self.demands();
        let has_tools = !request.tools.is_empty();
        let form = demands.form;
        let values: Vec<_> = match demands.joined_results {
            true => with_joined_results(messages, &form),
            false => messages.iter().map(|message| message_value(message, &form)).collect(),
        };
        let mut conversation = Conversation::new(values).tokens_of(vocab).set("enable_thinking", is_thinking);
        conversation = conversation.cancel(self.bounds().cancel.clone());
        if has_tools {
            let tools = request.tools.iter().map(|tool| {
                let parameters = match (full, plain) {
                    (_, true) => plain_parameters(&tool.parameters),
                    (true, false) => full_parameters(&tool.parameters),
                    (false, false) => tool.parameters.clone(),
                };
                template_value(&Tool { parameters, ..tool.clone() }.to_json())
            });
            conversation = conversation.tools(tools);
        }
        conversation = demands.lists.fill(conversation, has_tools);
        for (name, format) in DATES {
            if self.source().contains(name)
                && let Some(today) = today(format)
            {
                conversation = conversation.set(name, today);
            }
        }
        // Firefunction's template writes the tools from a variable of text.
        if demands.lists.functions && has_tools {
            let tools: Vec<_> = request.tools.iter().map(|tool| tool.to_json()).collect();
            conversation = conversation.set("functions", Value::from(tools).to_string());
        }
        for (name, value) in &request.variables {
            conversation = conversation.set(name, template_value(value));
        }
        conversation
    }

    /// Render a conversation.
    pub(super) fn render(&self, conversation: &Conversation, adds_prompt: bool) -> Result<Text, ChatError> {
        let prompt = if adds_prompt { GenerationPrompt::Yes } else { GenerationPrompt::No };
        let rendered = self.parsed().render(&conversation.clone().prompt(prompt))?;
        let mut text = Text::default();
        for (span, origin) in rendered.spans() {
            match origin {
                Origin::Template => text.push_trusted(span),
                Origin::Value => text.text += span,
            }
        }
        Ok(text)
    }
}
