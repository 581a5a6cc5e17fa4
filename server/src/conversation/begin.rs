//! The beginning of an answer behind the generation prompt: an end of reasoning that is switched
//! off, or a message to continue.

use super::message::{Continue, Message};
use super::template::Template;

/// Text behind the generation prompt: pieces, with true for those in which control tokens are
/// recognised.
pub(super) type Pieces = Vec<(String, bool)>;

/// The texts around reasoning, and before what follows it.
struct Markers {
    /// The text before reasoning.
    open: &'static str,
    /// White space between that and the reasoning.
    blank: &'static str,
    /// The text behind reasoning.
    close: &'static str,
    /// The beginning of another message, where reasoning is one of its own.
    next: &'static str,
    /// The text before the answer.
    answer: &'static str,
}

impl Markers {
    /// Return the markers of a template, `None` if its model does not reason.
    fn of(template: &Template) -> Option<Self> {
        let (open, close) = template.reply_format(false).reasoning()?;
        let plain = Markers { open, blank: "", close, next: "", answer: "" };
        let has = |text: &str| template.source().contains(text);
        Some(match open {
            "<|channel|>analysis<|message|>" => {
                Markers { next: "<|start|>assistant", answer: "<|channel|>final<|message|>", ..plain }
            }
            " to=self<|message|>" => {
                Markers { next: "<|start|>assistant", answer: " to=user<|message|>", ..plain }
            }
            "<|think|>" => Markers { next: "<|begin|>assistant", answer: "<|content|>", ..plain },
            "<|channel>thought" => Markers { blank: "\n", ..plain },
            "<|START_THINKING|>" if has("<|START_TEXT|>") => Markers { answer: "<|START_TEXT|>", ..plain },
            "<|START_THINKING|>" if has("<|START_RESPONSE|>") => {
                Markers { answer: "<|START_RESPONSE|>", ..plain }
            }
            _ => plain,
        })
    }

    /// Return true if an answer may follow an empty pair of markers at once. Models whose markers
    /// are words, or headers of messages, would be surprised.
    fn may_be_empty(&self, template: &Template) -> bool {
        let are_written = [self.open, self.close].iter().all(|text| template.source().contains(text));
        are_written && self.next.is_empty() && self.open.starts_with(['<', '['])
    }
}

impl Template {
    /// Return what stands behind the generation prompt of an answer from its beginning: the end of
    /// reasoning that is switched off in a template that does not know how.
    pub(super) fn begin_answer(&self, generation_prompt: &str, is_thinking: bool) -> Pieces {
        let Some(markers) = Markers::of(self).filter(|_| !is_thinking) else { return Vec::new() };
        let written = generation_prompt.trim_end();
        if written.ends_with(markers.open) {
            return vec![(markers.close.into(), true)];
        }
        let is_known = self.capabilities().thinking || written.ends_with(markers.close);
        match !is_known && markers.may_be_empty(self) {
            true => vec![(format!("{}{}", markers.open, markers.close), true)],
            false => Vec::new(),
        }
    }

    /// Return what stands behind the generation prompt when `message` is continued, and true if
    /// that ends within reasoning.
    pub(super) fn continue_answer(
        &self,
        generation_prompt: &str,
        part: Continue,
        message: &Message,
    ) -> (Pieces, bool) {
        let reasons = part == Continue::Reasoning
            || (part == Continue::Whatever && message.content.is_empty() && !message.reasoning.is_empty());
        let written = generation_prompt.trim_end();
        let mut pieces = Vec::new();
        let markers = Markers::of(self);
        if let Some(markers) = &markers {
            let is_open = written.ends_with(markers.open);
            // Some templates have closed the reasoning before it began.
            let may_think = !message.reasoning.is_empty() && !written.ends_with(markers.close);
            let has_thoughts = is_open || reasons || may_think;
            if has_thoughts && !is_open {
                pieces.push((format!("{}{}", markers.open, markers.blank), true));
            }
            if has_thoughts {
                pieces.push((message.reasoning.clone(), false));
            }
            if has_thoughts && !reasons {
                pieces.push((format!("{}{}", markers.close, markers.next), true));
            }
            if !reasons && !written.ends_with(markers.answer) {
                pieces.push((markers.answer.into(), true));
            }
        }
        if !reasons {
            pieces.push((message.content.joined("\n\n"), false));
        }
        (pieces, reasons && markers.is_some())
    }
}
