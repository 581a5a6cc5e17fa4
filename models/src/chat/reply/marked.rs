//! The parser of formats with markers in the text: all but [`super::harmony`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::calls::{Calls, Outcome};
use super::output::Output;
use super::syntax::{CallSyntax, ReasoningSyntax, WithinReasoning};
use super::tools::Context;

/// The most white space at the end that may turn out to end the text, in bytes.
const MAX_BLANK: usize = 64;

/// The parser.
#[derive(Debug)]
pub(super) struct Marked {
    /// The format of calls.
    syntax: Option<&'static CallSyntax>,
    /// The markers that mean something in content.
    in_content: Vec<(&'static str, Mark)>,
    /// The markers that mean something in reasoning.
    in_reasoning: Vec<(&'static str, Mark)>,
    /// True if reasoning may come behind content.
    repeats: bool,
    /// The position.
    state: State,
    /// True once there was content other than white space.
    has_answered: bool,
    /// True if calls are looked for.
    has_tools: bool,
    /// The number of bytes at the position that the prompt wrote.
    n_prompt: usize,
}

/// A position.
#[derive(Debug)]
enum State {
    /// In content.
    Content,
    /// In reasoning.
    Reasoning,
    /// In calls; true if they began within reasoning.
    Calls(Box<Calls>, bool),
}

/// The meaning of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Reasoning begins.
    Open,
    /// Reasoning ends.
    Close,
    /// A section of calls begins.
    Section,
    /// A call begins.
    Call,
    /// Nothing.
    Wrapper,
    /// The answer begins.
    Front,
    /// The answer ends.
    Back,
}

/// The first marker in a text.
enum Found {
    /// A marker at this offset.
    Mark(usize, &'static str, Mark),
    /// None before this offset, where one may begin.
    None(usize),
}

impl Marked {
    /// Make a parser.
    pub(super) fn new(
        syntax: Option<&'static CallSyntax>,
        reasoning: Option<&'static ReasoningSyntax>,
        has_tools: bool,
    ) -> Self {
        let mut calls = Vec::new();
        let mut in_content = Vec::new();
        let mut in_reasoning = Vec::new();
        if let Some(syntax) = syntax {
            if has_tools {
                calls.extend(syntax.section.as_ref().map(|section| (section.begin, Mark::Section)));
                calls.extend(syntax.begin().map(|begin| (begin, Mark::Call)));
            }
            in_content.extend(syntax.wrappers.iter().map(|wrapper| (*wrapper, Mark::Wrapper)));
            if let Some((front, back)) = syntax.envelope {
                in_content.extend([(front, Mark::Front), (back, Mark::Back)]);
            }
            if syntax.within_reasoning == WithinReasoning::Ends {
                in_reasoning.clone_from(&calls);
            }
        }
        in_content.append(&mut calls);
        if let Some(reasoning) = reasoning {
            in_content.extend([(reasoning.open, Mark::Open), (reasoning.close, Mark::Close)]);
            in_reasoning.push((reasoning.close, Mark::Close));
        }
        Self {
            syntax,
            in_content,
            in_reasoning,
            repeats: reasoning.is_some_and(|reasoning| reasoning.repeats),
            state: State::Content,
            has_answered: false,
            has_tools,
            n_prompt: 0,
        }
    }

    /// Begin within reasoning, behind the marker `open`.
    pub(super) fn begin_in_reasoning(&mut self, open: &str, output: &mut Output) {
        self.state = State::Reasoning;
        output.begin_reasoning(open);
    }

    /// Begin behind `prompt`, and return the marker of a call if the prompt ends with it. The text
    /// has to begin with this marker then.
    pub(super) fn begin_behind(&mut self, prompt: &str) -> &'static str {
        let begin = self.syntax.and_then(CallSyntax::begin).filter(|begin| prompt.ends_with(begin));
        self.n_prompt = begin.map_or(0, str::len);
        begin.unwrap_or("")
    }

    /// Read `text` as far as it is decided, and return the number of bytes that were read.
    pub(super) fn run(
        &mut self,
        text: &str,
        ended: bool,
        context: Context<'_>,
        output: &mut Output,
    ) -> usize {
        let mut at = 0;
        loop {
            let may_call = self.has_tools && (context.parallel || output.n_calls() == 0);
            let rest = text.get(at..).unwrap_or("");
            let (n, goes_on) = match &mut self.state {
                State::Calls(calls, _) => {
                    let outcome = calls.advance(rest, ended, context, output);
                    self.after_calls(outcome, rest, output)
                }
                State::Reasoning => self.reasoning(rest, ended, may_call, output),
                State::Content => self.content(rest, ended, may_call, output),
            };
            at += n;
            if !goes_on {
                return at;
            }
        }
    }

    /// Take the outcome of calls, and return the number of bytes that were read and true if the
    /// text goes on.
    fn after_calls(&mut self, outcome: Outcome, rest: &str, output: &mut Output) -> (usize, bool) {
        let State::Calls(calls, was_reasoning) = &self.state else {
            return (0, true);
        };
        let was_reasoning = *was_reasoning && !calls.has_called(output);
        match outcome {
            Outcome::More => (0, false),
            Outcome::Over(n) => {
                self.n_prompt = 0;
                self.state = State::Content;
                (n, true)
            }
            Outcome::NoCall(from, to) => {
                // The first character at least is no call, so that the parser gets on.
                let to = to.max(rest.chars().next().map_or(0, char::len_utf8));
                let text = rest.get(from..to).unwrap_or("");
                if was_reasoning {
                    self.state = State::Reasoning;
                    output.reasoning(text);
                } else {
                    self.state = State::Content;
                    self.say(text, output);
                }
                (to, true)
            }
        }
    }

    /// Read reasoning.
    fn reasoning(&mut self, rest: &str, ended: bool, may_call: bool, output: &mut Output) -> (usize, bool) {
        match find(rest, &self.in_reasoning, ended) {
            Found::None(n) => {
                output.reasoning(rest.get(..n).unwrap_or(""));
                (n, false)
            }
            Found::Mark(n, marker, mark) => {
                output.reasoning(rest.get(..n).unwrap_or(""));
                if mark == Mark::Close {
                    output.end_reasoning(marker);
                    self.state = State::Content;
                    (n + marker.len(), true)
                } else if may_call {
                    self.begin_calls(marker, mark, true, output);
                    (n, true)
                } else {
                    output.reasoning(marker);
                    (n + marker.len(), true)
                }
            }
        }
    }

    /// Read content.
    fn content(&mut self, rest: &str, ended: bool, may_call: bool, output: &mut Output) -> (usize, bool) {
        if may_call && !self.has_answered && self.syntax.is_some_and(|syntax| syntax.is_bare) {
            let n = rest.len() - rest.trim_start().len();
            let begins = rest.trim_start().starts_with(['{', '[']);
            if begins {
                output.content(rest.get(..n).unwrap_or(""));
                self.begin_calls("", Mark::Call, false, output);
                return (n, true);
            }
        }
        let (n, found) = match find(rest, &self.in_content, ended) {
            Found::None(n) => (n, None),
            Found::Mark(n, marker, mark) => (n, Some((marker, mark))),
        };
        self.say(rest.get(..n).unwrap_or(""), output);
        let Some((marker, mark)) = found else {
            return (n, false);
        };
        let behind = rest.get(n + marker.len()..).unwrap_or("");
        let may_end = behind.trim_start().is_empty() && behind.len() < MAX_BLANK;
        if mark == Mark::Back && may_end && !ended {
            return (n, false);
        }
        if matches!(mark, Mark::Open | Mark::Close | Mark::Wrapper) {
            self.n_prompt = 0;
        }
        match mark {
            // Behind the beginning of an answer, its text may speak of the marker.
            Mark::Open if self.has_answered && !self.repeats => self.say(marker, output),
            Mark::Front if self.has_answered => self.say(marker, output),
            Mark::Back if !may_end => self.say(marker, output),
            Mark::Front | Mark::Back => {}
            Mark::Open => {
                output.begin_reasoning(marker);
                self.state = State::Reasoning;
            }
            // Reasoning that was not opened ends at the beginning of the answer only.
            Mark::Close if self.has_answered => self.say(marker, output),
            Mark::Close => output.end_reasoning(marker),
            Mark::Wrapper => {}
            Mark::Section | Mark::Call if !may_call => self.say(marker, output),
            Mark::Section | Mark::Call => {
                self.begin_calls(marker, mark, false, output);
                return (n, true);
            }
        }
        (n + marker.len(), true)
    }

    /// Begin to read calls at a marker.
    fn begin_calls(&mut self, marker: &str, mark: Mark, was_reasoning: bool, output: &Output) {
        if let Some(syntax) = self.syntax {
            let n_marker = if mark == Mark::Section { marker.len() } else { 0 };
            self.state = State::Calls(Box::new(Calls::new(syntax, n_marker, output)), was_reasoning);
        }
    }

    /// Add content.
    fn say(&mut self, text: &str, output: &mut Output) {
        let n_prompt = self.n_prompt.min(text.len());
        self.n_prompt -= n_prompt;
        let text = text.get(n_prompt..).unwrap_or("");
        self.has_answered |= !text.trim_start().is_empty();
        output.content(text);
    }
}

/// Find the first marker in `text`, the longest if several begin at its place.
fn find(text: &str, marks: &[(&'static str, Mark)], ended: bool) -> Found {
    for (i, byte) in text.bytes().enumerate() {
        let begins = |marker: &str| marker.as_bytes().first() == Some(&byte);
        if !marks.iter().any(|(marker, _)| begins(marker)) {
            continue;
        }
        // A marker begins with the first byte of a character, so this is a boundary.
        let rest = text.get(i..).unwrap_or("");
        let mut longest: Option<(&'static str, Mark)> = None;
        let mut may_grow = false;
        for &(marker, mark) in marks {
            if rest.starts_with(marker) {
                longest = longest.filter(|(other, _)| other.len() >= marker.len()).or(Some((marker, mark)));
            } else if !ended && marker.starts_with(rest) {
                may_grow = true;
            }
        }
        match longest {
            _ if may_grow => return Found::None(i),
            Some((marker, mark)) => return Found::Mark(i, marker, mark),
            None => {}
        }
    }
    Found::None(text.len())
}
