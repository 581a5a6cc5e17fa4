//! The deltas that a parser makes, with white space where it belongs.
//!
//! Markers stand on lines of their own. The line breaks around them are no part of what the model
//! says: white space at both ends of reasoning, behind reasoning, and around calls is dropped.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem::take;

use super::{Delta, ReasoningFormat};

/// The deltas, and the white space whose place is not known yet.
#[derive(Debug)]
pub(super) struct Output {
    /// The deltas that the caller has not taken.
    deltas: Vec<Delta>,
    /// The treatment of reasoning.
    format: ReasoningFormat,
    /// True if white space of content may turn out to stand before a call or reasoning.
    holds_blanks: bool,
    /// White space of content that a call would drop, and reasoning before any other content.
    blank: String,
    /// True if there was other content than white space.
    has_said: bool,
    /// True if white space that comes next in content is dropped.
    skips_blank: bool,
    /// White space of reasoning that the end of the reasoning would drop.
    reasoning_blank: String,
    /// True within reasoning, once it has a first character.
    has_thought: bool,
    /// True if reasoning was made before.
    has_reasoning: bool,
    /// The number of calls that were begun.
    n_begun: usize,
    /// The number of calls that are whole.
    n_whole: usize,
    /// The number of calls behind these that are complete, but not closed yet.
    n_complete: usize,
    /// True within a call.
    is_calling: bool,
}

impl Output {
    /// Make an empty output. `holds_blanks` says that calls or reasoning may come.
    pub(super) fn new(format: ReasoningFormat, holds_blanks: bool) -> Self {
        Self {
            deltas: Vec::new(),
            format,
            holds_blanks,
            blank: String::new(),
            has_said: false,
            skips_blank: false,
            reasoning_blank: String::new(),
            has_thought: false,
            has_reasoning: false,
            n_begun: 0,
            n_whole: 0,
            n_complete: 0,
            is_calling: false,
        }
    }

    /// Move the deltas to `out`.
    pub(super) fn take(&mut self, out: &mut Vec<Delta>) {
        out.append(&mut self.deltas);
    }

    /// Return the number of calls, with those that are not closed yet.
    pub(super) fn n_calls(&self) -> usize {
        self.n_whole + self.n_complete + usize::from(self.is_calling)
    }

    /// Return the number of calls that are whole.
    pub(super) fn n_whole(&self) -> usize {
        self.n_whole
    }

    /// Add content.
    pub(super) fn content(&mut self, text: &str) {
        let text = if self.skips_blank { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.skips_blank = false;
        let said = if self.holds_blanks { text.trim_end() } else { text };
        if !said.is_empty() {
            self.has_said = true;
            let blank = take(&mut self.blank);
            self.push_content(&blank);
            self.push_content(said);
        }
        self.blank.push_str(text.get(said.len()..).unwrap_or(""));
    }

    /// Begin reasoning, behind the marker `open`.
    pub(super) fn begin_reasoning(&mut self, open: &str) {
        self.has_thought = false;
        if self.format == ReasoningFormat::Deepseek {
            self.drop_blank();
        } else {
            self.content(open);
        }
    }

    /// Drop white space before the beginning or the end of reasoning, where it is no content.
    fn drop_blank(&mut self) {
        if !self.has_said {
            self.blank.clear();
        }
    }

    /// Add reasoning.
    pub(super) fn reasoning(&mut self, text: &str) {
        if self.format != ReasoningFormat::Deepseek {
            self.content(text);
        }
        if self.format == ReasoningFormat::None {
            return;
        }
        let text = if self.has_thought { text } else { text.trim_start() };
        let said = text.trim_end();
        if !said.is_empty() {
            if !self.has_thought && self.has_reasoning {
                self.push_reasoning("\n");
            }
            (self.has_thought, self.has_reasoning) = (true, true);
            let blank = take(&mut self.reasoning_blank);
            self.push_reasoning(&blank);
            self.push_reasoning(said);
        }
        self.reasoning_blank.push_str(text.get(said.len()..).unwrap_or(""));
    }

    /// End reasoning, at the marker `close`.
    pub(super) fn end_reasoning(&mut self, close: &str) {
        self.reasoning_blank.clear();
        if self.format == ReasoningFormat::Deepseek {
            self.drop_blank();
            self.skips_blank = true;
        } else {
            self.content(close);
        }
    }

    /// Begin a call.
    pub(super) fn begin_call(&mut self, name: &str, id: Option<String>) {
        self.blank.clear();
        self.skips_blank = true;
        self.deltas.push(Delta::ToolCallBegin { index: self.n_begun, id, name: name.to_string() });
        self.n_begun += 1;
        self.is_calling = true;
    }

    /// Add arguments of the call that was begun last.
    pub(super) fn arguments(&mut self, more: &str) {
        let index = self.n_begun.saturating_sub(1);
        match self.deltas.last_mut() {
            _ if more.is_empty() => {}
            Some(Delta::ToolCallArguments { index: last, text }) if *last == index => text.push_str(more),
            _ => self.deltas.push(Delta::ToolCallArguments { index, text: more.to_string() }),
        }
    }

    /// End the call that was begun last, if it has not ended.
    pub(super) fn complete_call(&mut self) {
        self.n_complete += usize::from(take(&mut self.is_calling));
    }

    /// Make the complete calls whole.
    pub(super) fn close_calls(&mut self) {
        self.n_whole += take(&mut self.n_complete);
    }

    /// Give up the calls that are not whole. `is_cut` says that the text ended within a call that
    /// was not begun here.
    pub(super) fn cut_calls(&mut self, is_cut: bool) {
        let n = take(&mut self.n_complete) + usize::from(take(&mut self.is_calling));
        if n > 0 || is_cut {
            self.skips_blank = false;
            self.deltas.push(Delta::ToolCallsCut { n });
        }
    }

    /// Add the white space at the end of content.
    pub(super) fn finish(&mut self) {
        let blank = take(&mut self.blank);
        self.push_content(&blank);
    }

    /// Add to the last delta if it is content, or make one.
    fn push_content(&mut self, more: &str) {
        match self.deltas.last_mut() {
            _ if more.is_empty() => {}
            Some(Delta::Content(text)) => text.push_str(more),
            _ => self.deltas.push(Delta::Content(more.to_string())),
        }
    }

    /// Add to the last delta if it is reasoning, or make one.
    fn push_reasoning(&mut self, more: &str) {
        match self.deltas.last_mut() {
            _ if more.is_empty() => {}
            Some(Delta::Reasoning(text)) => text.push_str(more),
            _ => self.deltas.push(Delta::Reasoning(more.to_string())),
        }
    }
}
