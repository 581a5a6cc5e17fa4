//! Rendering a request with a template, and the tokens of the text.

use super::adapt::adapt;
use super::ends;
use super::error::ConversationError;
use super::fallback::with_tools_as_text;
use super::message::Message;
use super::request::{Request, Thinking};
use super::template::{Bounds, Template};
use super::values::template_value;
use super::written::{Form, message_value, with_joined_results};
use backstitch_models::Token;
use backstitch_models::chat::{
    ChatTemplate, Conversation, GenerationPrompt, Message as TemplateMessage, Origin,
};
use backstitch_models::vocab::{AddSpecial, TokenizeError, Vocab};
use core::ops::Range;

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
    /// True if it ends within reasoning that the message to continue began.
    pub in_reasoning: bool,
    /// True if it ends within the answer of the message to continue.
    pub in_answer: bool,
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

/// Return the end of `text` that `before` does not have: some templates write an end of the text in
/// place of a generation prompt.
fn behind_common<'t>(before: &str, text: &'t str) -> &'t str {
    let pairs = before.bytes().zip(text.bytes());
    let n_same = pairs.take_while(|(a, b)| a == b).count();
    text.get(text.floor_char_boundary(n_same)..).unwrap_or_default()
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
    fn tokenize(&self, vocab: &Vocab, bounds: &Bounds) -> Result<Vec<Token>, TokenizeError> {
        let mut tokens = Vec::new();
        let Bounds { most_tokens, cancel } = bounds;
        let add = AddSpecial::No;
        vocab.tokenize_at_most(&self.text, &self.trusted, add, *most_tokens, cancel, &mut tokens)?;
        if let Some(bos) = vocab.bos().filter(|bos| vocab.adds_bos() && tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }
}

impl Template {
    /// Render `request` and tokenise it with `vocab`. `thinking` decides where the request does
    /// not.
    ///
    /// # Errors
    /// [`ConversationError::Template`] if the template refuses the messages or fails;
    /// [`ConversationError::Tokens`] if the text is far longer than the context.
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
        let (mut generation_prompt, mut in_reasoning, mut in_answer) = (String::new(), false, false);
        if adds_prompt {
            if text.text.ends_with("<turn|>\n") && self.source().contains("<|turn>model") {
                // Gemma 4's template leaves this out behind a message with calls and a text.
                text.push_trusted("<|turn>model\n");
            }
            let before = self.render(&conversation, false).map(|text| text.text).unwrap_or_default();
            generation_prompt = behind_common(&before, &text.text).into();
            let added = match continued {
                None => self.begin_answer(&generation_prompt, is_thinking),
                Some((part, message)) => {
                    let (added, reasons) = self.continue_answer(&generation_prompt, part, message);
                    (in_reasoning, in_answer) = (reasons, !reasons);
                    added
                }
            };
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
        let tokens = text.tokenize(vocab, self.bounds())?;
        let offsets = ends::offsets(&text.text, &text.untrusted(), messages);
        let message_ends = ends::token_counts(&text.text, &tokens, vocab, &offsets);
        Ok(Prompt { text: text.text, tokens, message_ends, generation_prompt, in_reasoning, in_answer })
    }

    /// Return the input of the template.
    fn conversation(
        &self,
        request: &Request,
        messages: &[Message],
        is_thinking: bool,
        vocab: &Vocab,
    ) -> Conversation {
        let (capabilities, demands) = (self.capabilities(), self.demands());
        let messages = match self.writes_tools_as_text() {
            true => adapt(&with_tools_as_text(messages, request.tools_to_tell()), capabilities, demands),
            false => adapt(messages, capabilities, demands),
        };
        let form = Form::new(capabilities, demands.thoughts);
        let values: Vec<_> = match demands.joined_results {
            true => with_joined_results(&messages, &form),
            false => messages.iter().map(|message| message_value(message, &form)).collect(),
        };
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
}
