//! Rendering a request with a template, and the tokens of the text.

use super::ends;
use super::error::ConversationError;
use super::input::{Input, Written};
use super::request::{Continued, Request, Thinking};
use super::template::{Bounds, Template};
use backstitch_models::Token;
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
    /// The parts of the text, as byte ranges, that the template wrote.
    pub trusted: Vec<Range<usize>>,
    /// The texts of the assistant, as byte ranges, if calls are written into them.
    pub with_calls: Vec<Range<usize>>,
}

/// Text with the byte ranges in which control tokens are recognised.
#[derive(Default)]
pub(super) struct Text {
    pub text: String,
    trusted: Vec<Range<usize>>,
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
    pub fn push_trusted(&mut self, text: &str) {
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
    /// [`ConversationError::Refused`] or [`ConversationError::Wrong`] with the path of what the
    /// template cannot take; [`ConversationError::Template`] if it fails for a greeting too;
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
        let (to_continue, messages) = request.split_continued()?;
        let adds_prompt = request.add_generation_prompt || to_continue.is_some();
        let continued = to_continue.map(|continued| continued.message);
        let input = Input { request, messages, continued, is_thinking, vocab, adds_prompt };
        let Written { conversation, mut text, continued, messages: arranged } = self.written(&input)?;
        let (mut generation_prompt, mut in_reasoning, mut in_answer) = (String::new(), false, false);
        if adds_prompt {
            if text.text.ends_with("<turn|>\n") && self.source().contains("<|turn>model") {
                // Gemma 4's template leaves this out behind a message with calls and a text.
                text.push_trusted("<|turn>model\n");
            }
            let before = self.render(&conversation, false).map(|text| text.text).unwrap_or_default();
            generation_prompt = behind_common(&before, &text.text).into();
            let added = match to_continue.zip(continued.as_ref()) {
                None => self.begin_answer(&generation_prompt, is_thinking),
                Some((Continued { part, .. }, message)) => {
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
        let has_calls_as_text = self.writes_calls_as_text();
        let messages = if has_calls_as_text { &arranged } else { messages };
        let spans = ends::spans(&text.text, &text.untrusted(), messages);
        let message_ends = ends::token_counts(&text.text, &tokens, vocab, &ends::offsets(&spans));
        let of_assistant =
            spans.into_iter().filter(|(message, _)| has_calls_as_text && message.role == "assistant");
        let with_calls = of_assistant.map(|(_, span)| span).collect();
        let Text { text, trusted } = text;
        Ok(Prompt {
            text,
            tokens,
            message_ends,
            generation_prompt,
            in_reasoning,
            in_answer,
            trusted,
            with_calls,
        })
    }
}
