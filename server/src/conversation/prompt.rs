//! Rendering a request with a template, and the tokens of the text.

use super::capabilities::Capabilities;
use super::ends;
use super::error::ConversationError;
use super::fallback::with_tools_as_text;
use super::message::{Content, Continue, Message};
use super::request::{Request, Thinking};
use super::template::Template;
use super::values::template_value;
use backstitch_models::Token;
use backstitch_models::chat::{
    ChatTemplate, Conversation, GenerationPrompt, Message as TemplateMessage, Origin, Value,
};
use backstitch_models::vocab::{AddSpecial, Vocab};
use core::ops::Range;

/// The tags around reasoning in the templates of reasoning models.
const THINKING_TAGS: [(&str, &str); 4] = [
    ("<think>", "</think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
];

/// The text of a request, and its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Prompt {
    /// The text, without the beginning-of-sequence token that the vocabulary adds.
    pub text: String,
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The numbers of tokens before which messages end, ascending.
    pub message_ends: Vec<usize>,
    /// The end of the text that begins the assistant's message, with what is continued.
    pub generation_prompt: String,
}

/// Text with the byte ranges in which control tokens are recognised.
#[derive(Default)]
struct Text {
    text: String,
    trusted: Vec<Range<usize>>,
}

/// Variables in which templates expect the day, and its format: Llama 3's and Firefunction's.
const DATES: [(&str, &str); 2] = [("date_string", "%d %b %Y"), ("datetime", "%b %d %Y %H:%M:%S GMT")];

/// Return the present day in a format, as templates that ask for it themselves get it.
fn today(format: &str) -> Option<String> {
    let clock = ChatTemplate::from_source(&format!("{{{{ strftime_now('{format}') }}}}")).ok()?;
    let nothing = Conversation::new([] as [TemplateMessage<'_>; 0]);
    Some(clock.render(&nothing).ok()?.as_str().to_owned())
}

impl Text {
    /// Append text of the template.
    fn push_trusted(&mut self, text: &str) {
        self.trusted.push(self.text.len()..self.text.len() + text.len());
        self.text += text;
    }

    /// Remove `text` at the beginning, if it stands there.
    fn strip(&mut self, text: &str) {
        if text.is_empty() || !self.text.starts_with(text) {
            return;
        }
        self.text.drain(..text.len());
        for range in &mut self.trusted {
            *range = range.start.saturating_sub(text.len())..range.end.saturating_sub(text.len());
        }
        self.trusted.retain(|range| !range.is_empty());
    }

    /// Return the byte ranges that come from messages, in order.
    fn untrusted(&self) -> Vec<Range<usize>> {
        let ends = self.trusted.iter().map(|range| range.start).chain([self.text.len()]);
        let starts = [0].into_iter().chain(self.trusted.iter().map(|range| range.end));
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect()
    }

    /// Return the tokens, with those that the vocabulary adds.
    fn tokenize(&self, vocab: &Vocab) -> Vec<Token> {
        let mut tokens = Vec::new();
        vocab.tokenize_trusted(&self.text, &self.trusted, AddSpecial::No, &mut tokens);
        if let Some(bos) = vocab.bos().filter(|bos| vocab.adds_bos() && tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        tokens
    }
}

impl Template {
    /// Render `request` and tokenise it with `vocab`. `thinking` decides where the request does
    /// not.
    ///
    /// # Errors
    /// [`ConversationError::Template`] if the template refuses the messages or fails.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    /// use backstitch_server::conversation::{Message, Request, Template, Thinking};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let template = Template::of(model.chat_template())?;
    /// let request = Request::new(vec![Message::new("user", "Hello")]);
    /// let prompt = template.prompt(&request, model.vocab(), Thinking::Auto)?;
    /// assert_eq!(prompt.text, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prompt(
        &self,
        request: &Request,
        vocab: &Vocab,
        thinking: Thinking,
    ) -> Result<Prompt, ConversationError> {
        let is_thinking = request.thinking.unwrap_or(thinking != Thinking::Off);
        let (continued, messages) = match request.continues {
            Some(part) => match request.messages.split_last() {
                Some((last, before)) => (Some((part, last)), before),
                None => (None, request.messages.as_slice()),
            },
            None => (None, request.messages.as_slice()),
        };
        let adds_prompt = request.add_generation_prompt || continued.is_some();
        let conversation = self.conversation(request, messages, is_thinking, vocab);
        let mut text = self.render(&conversation, adds_prompt)?;
        let mut generation_prompt = String::new();
        if adds_prompt {
            let before = self.render(&conversation, false).map(|text| text.text).unwrap_or_default();
            generation_prompt = text.text.strip_prefix(&*before).unwrap_or_default().into();
            let added = self.begin_answer(&generation_prompt, is_thinking, continued);
            for (piece, is_trusted) in &added {
                if *is_trusted {
                    text.push_trusted(piece)
                } else {
                    text.text += piece
                }
                generation_prompt += piece;
            }
        }
        if vocab.adds_bos() {
            let bos = vocab.bos().map(|bos| String::from_utf8_lossy(vocab.piece(bos)).into_owned());
            text.strip(&bos.unwrap_or_default());
        }
        let tokens = text.tokenize(vocab);
        let offsets = ends::offsets(&text.text, &text.untrusted(), messages);
        let message_ends = ends::token_counts(&text.text, &tokens, vocab, &offsets);
        Ok(Prompt { text: text.text, tokens, message_ends, generation_prompt })
    }

    /// Return the input of the template.
    fn conversation(
        &self,
        request: &Request,
        messages: &[Message],
        is_thinking: bool,
        vocab: &Vocab,
    ) -> Conversation {
        let capabilities = self.capabilities();
        let messages = match self.writes_tools_as_text() {
            true => adapt(&with_tools_as_text(messages, request.tools_to_tell()), capabilities),
            false => adapt(messages, capabilities),
        };
        let only_typed = capabilities.typed_content && !capabilities.string_content;
        let values = messages.iter().map(|message| {
            let joins = !capabilities.typed_content;
            message_value(message, capabilities.object_arguments, joins, only_typed)
        });
        let mut conversation = Conversation::new(values).tokens_of(vocab).set("enable_thinking", is_thinking);
        if !request.tools.is_empty() {
            conversation =
                conversation.tools(request.tools.iter().map(|tool| template_value(&tool.to_json())));
        }
        for (name, format) in DATES {
            if self.source().contains(name)
                && let Some(today) = today(format)
            {
                conversation = conversation.set(name, today);
            }
        }
        // Firefunction's template writes the tools from a variable of text.
        if self.source().contains("functions") {
            let tools: Vec<_> = request.tools.iter().map(|tool| tool.to_json()).collect();
            let text =
                if tools.is_empty() { String::new() } else { serde_json::Value::from(tools).to_string() };
            conversation = conversation.set("functions", text);
        }
        for (name, value) in &request.variables {
            conversation = conversation.set(name, template_value(value));
        }
        conversation
    }

    /// Render a conversation.
    fn render(&self, conversation: &Conversation, adds_prompt: bool) -> Result<Text, ConversationError> {
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

    /// Return what stands behind the generation prompt: pieces, with true for text in which control
    /// tokens are recognised. That is the end of reasoning that is switched off in a template that
    /// does not know how, and the message to continue.
    fn begin_answer(
        &self,
        generation_prompt: &str,
        is_thinking: bool,
        continued: Option<(Continue, &Message)>,
    ) -> Vec<(String, bool)> {
        let trimmed = generation_prompt.trim_end();
        let open = THINKING_TAGS.iter().find(|(start, _)| trimmed.ends_with(start));
        let known = THINKING_TAGS
            .iter()
            .find(|(start, end)| self.source().contains(start) && self.source().contains(end));
        let Some((part, message)) = continued else {
            return match (is_thinking, open, known) {
                (false, Some((_, end)), _) => vec![(end.to_string(), true)],
                (false, None, Some((start, end)))
                    if !self.capabilities().thinking && !trimmed.ends_with(end) =>
                {
                    vec![(format!("{start}{end}"), true)]
                }
                _ => Vec::new(),
            };
        };
        let reasons = part == Continue::Reasoning
            || (part == Continue::Whatever && message.content.is_empty() && !message.reasoning.is_empty());
        let mut pieces = Vec::new();
        if let Some((start, end)) = open.or(known.filter(|_| !message.reasoning.is_empty())) {
            if open.is_none() {
                pieces.push((start.to_string(), true));
            }
            pieces.push((message.reasoning.clone(), false));
            if !reasons {
                pieces.push((end.to_string(), true));
            }
        }
        if !reasons {
            pieces.push((message.content.joined("\n\n"), false));
        }
        pieces
    }
}

/// Return the messages in a form that the template can express.
fn adapt(messages: &[Message], capabilities: &Capabilities) -> Vec<Message> {
    let mut adapted: Vec<Message> = Vec::with_capacity(messages.len());
    let mut system: Option<String> = None;
    for message in messages {
        let mut message = message.clone();
        if message.role == "developer" && !capabilities.developer_role {
            message.role = "system".into();
        }
        if message.role == "system" && !capabilities.system_role {
            let text = message.content.joined("\n");
            system = Some(system.map_or(text.clone(), |before| format!("{before}\n{text}")));
            continue;
        }
        if let Some(text) = system.take() {
            if message.role == "user" {
                message.content = Content::Text(format!("{text}\n{}", message.content.joined("\n")));
            } else {
                adapted.push(Message::new("user", text));
            }
        }
        adapted.push(message);
    }
    adapted.extend(system.map(|text| Message::new("user", text)));
    adapted
}

/// Return a message as templates see it. `objects` makes objects of the arguments of calls, `joins`
/// a text of parts, `only_typed` parts of a text.
pub(super) fn message_value(message: &Message, objects: bool, joins: bool, only_typed: bool) -> Value {
    let part = |text: &String| Value::map([("type", "text".into()), ("text", text.as_str().into())]);
    let parts = || Value::List(message.content.texts().iter().map(part).collect());
    let content = match &message.content {
        Content::Text(_) | Content::Parts(_) if only_typed => parts(),
        Content::Parts(_) if !joins => parts(),
        content => content.joined("\n").into(),
    };
    let mut entries = vec![("role", message.role.as_str().into()), ("content", content)];
    if !message.reasoning.is_empty() {
        entries.push(("reasoning_content", message.reasoning.as_str().into()));
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &super::message::ToolCall| {
            let arguments = match Value::from_json(&call.arguments) {
                Ok(arguments) if objects => arguments,
                _ => call.arguments.as_str().into(),
            };
            let function = Value::map([("name", call.name.as_str().into()), ("arguments", arguments)]);
            let mut entries = vec![("type", "function".into()), ("function", function)];
            if !call.id.is_empty() {
                entries.push(("id", call.id.as_str().into()));
            }
            Value::map(entries)
        };
        entries.push(("tool_calls", Value::List(message.tool_calls.iter().map(call).collect())));
    }
    let names = [("tool_call_id", &message.tool_call_id), ("name", &message.name)];
    for (name, value) in names {
        entries.extend(value.as_ref().map(|value| (name, value.as_str().into())));
    }
    Value::map(entries)
}
