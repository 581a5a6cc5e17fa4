//! A call, or a section of calls, by the parts of its format.

use alloc::string::String;

use super::cursor::{Cursor, Match, Step, is_name};
use super::json_calls::JsonCalls;
use super::literal::{self, Balance};
use super::output::Output;
use super::python_calls::PythonCalls;
use super::scanner::Scanner;
use super::syntax::{CallSyntax, Part};
use super::tags::TagReader;
use super::tools::Context;

/// The most white space between a list's bracket and its first item, in bytes.
const MAX_SPACE: usize = 64;

/// The reader of calls. All offsets count from the first byte of the marker that began the calls.
#[derive(Debug)]
pub(super) struct Calls {
    /// The format.
    syntax: &'static CallSyntax,
    /// The index of the part that is read; `None` between calls.
    part: Option<usize>,
    /// The reader of the part.
    body: Body,
    /// The offset of the position.
    at: usize,
    /// The offset up to which the text is in whole calls.
    accounted: usize,
    /// The offset behind the last call that is complete.
    complete: usize,
    /// The name of the tool.
    name: String,
    /// The identifier of the call.
    id: Option<String>,
    /// The arguments as JSON text, if they are complete and not passed on yet.
    arguments: Option<String>,
    /// The number of calls in the output when this reader began.
    n_before: usize,
    /// True if calls are whole with the end of the section only.
    is_unit: bool,
}

/// The reader of a part that takes more than a literal.
#[derive(Debug)]
enum Body {
    /// None was begun.
    None,
    /// A JSON object of arguments, passed on as it comes.
    Arguments(Scanner),
    /// Calls as JSON.
    Json(JsonCalls),
    /// Calls as in Python.
    Python(PythonCalls),
    /// Arguments between brackets, which begin at this offset.
    Bracketed(usize, Balance),
    /// Parameters between tags.
    Tags(TagReader),
}

/// The outcome of reading calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// More text has to come.
    More,
    /// No further call follows; the text goes on at this offset.
    Over(usize),
    /// The text between these offsets is no call, and the text goes on behind it.
    NoCall(usize, usize),
}

impl Calls {
    /// Make a reader behind the marker of a section, which has `n_marker` bytes, or at the first
    /// byte of a call if that is 0.
    pub(super) fn new(syntax: &'static CallSyntax, n_marker: usize, output: &Output) -> Self {
        Self {
            syntax,
            part: if n_marker == 0 { Some(0) } else { None },
            body: Body::None,
            at: n_marker,
            accounted: 0,
            complete: 0,
            name: String::new(),
            id: None,
            arguments: None,
            n_before: output.n_calls(),
            is_unit: n_marker > 0 && syntax.is_unit(),
        }
    }

    /// Return true if there was a call.
    pub(super) fn has_called(&self, output: &Output) -> bool {
        output.n_calls() > self.n_before
    }

    /// Read as far as there is text.
    pub(super) fn advance(
        &mut self,
        text: &str,
        ended: bool,
        context: Context<'_>,
        output: &mut Output,
    ) -> Outcome {
        let mut cursor = Cursor { text, at: self.at, ended };
        loop {
            let step = match self.part.map(|i| self.syntax.call.get(i)) {
                None => match self.between(&mut cursor, context, output) {
                    Some(step) => step,
                    None => return Outcome::Over(self.accounted),
                },
                Some(None) => {
                    self.end_call(&cursor, output);
                    Step::Done
                }
                Some(Some(part)) => {
                    let step = self.read(part, &mut cursor, context, output);
                    if step == Step::Done {
                        self.part = self.part.map(|i| i + 1);
                        self.body = Body::None;
                    }
                    step
                }
            };
            self.at = cursor.at;
            match step {
                Step::Done => {}
                Step::More => return Outcome::More,
                Step::Failed => {
                    self.fail(&cursor, output);
                    return Outcome::NoCall(self.accounted, cursor.at.max(self.accounted));
                }
            }
        }
    }

    /// Close the calls that are complete, unless the text ended before their end, and give up the
    /// others.
    fn fail(&mut self, cursor: &Cursor<'_>, output: &mut Output) {
        let is_cut = cursor.ended && cursor.rest().is_empty();
        if !is_cut {
            self.close_calls(output);
        }
        let is_begun = self.part.is_some()
            && match &self.body {
                Body::Json(calls) => calls.is_calling(),
                _ => !self.name.is_empty(),
            };
        output.cut_calls(is_cut && is_begun);
    }

    /// Make the complete calls whole.
    fn close_calls(&mut self, output: &mut Output) {
        output.close_calls();
        self.accounted = self.accounted.max(self.complete);
    }

    /// Look for the next call or the end of the section. `None` says that no call follows.
    fn between(
        &mut self,
        cursor: &mut Cursor<'_>,
        context: Context<'_>,
        output: &mut Output,
    ) -> Option<Step> {
        let has_called = self.has_called(output);
        cursor.skip_while(|c| c.is_whitespace() || (has_called && matches!(c, ',' | ';')));
        let mut next = Match::Missing;
        if let Some(section) = &self.syntax.section {
            match cursor.take(section.end) {
                Match::Found if has_called => {
                    output.close_calls();
                    self.accounted = cursor.at;
                    return None;
                }
                Match::Found => return Some(Step::Failed),
                found => next = found,
            }
        }
        if context.parallel || !has_called {
            let begin = match self.syntax.begin() {
                Some(begin) => cursor.look(begin),
                None => match cursor.peek() {
                    Some('{' | '[') => Match::Found,
                    Some(c) if is_name(c) && self.syntax.call.len() > 1 => Match::Found,
                    None if !cursor.ended => Match::Partial,
                    _ => Match::Missing,
                },
            };
            if begin != Match::Missing {
                next = begin;
            }
        }
        match next {
            Match::Found => {
                self.part = Some(0);
                Some(Step::Done)
            }
            Match::Partial => Some(Step::More),
            Match::Missing if !has_called => Some(Step::Failed),
            Match::Missing if self.is_unit && self.is_end_cut(cursor) => {
                cursor.at = cursor.text.len();
                Some(Step::Failed)
            }
            Match::Missing => {
                self.close_calls(output);
                None
            }
        }
    }

    /// Return true if the text ended before or within the end of the section.
    fn is_end_cut(&self, cursor: &Cursor<'_>) -> bool {
        let end = self.syntax.section.as_ref().map_or("", |section| section.end);
        cursor.ended && end.starts_with(cursor.rest())
    }

    /// End a call behind its last part.
    fn end_call(&mut self, cursor: &Cursor<'_>, output: &mut Output) {
        if let Some(arguments) = self.arguments.take() {
            output.begin_call(&self.name, self.id.take());
            output.arguments(&arguments);
        }
        output.complete_call();
        self.complete = cursor.at;
        if !self.is_unit {
            self.close_calls(output);
        }
        self.id = None;
        self.name.clear();
        self.part = None;
    }

    /// Read a part.
    fn read(
        &mut self,
        part: &'static Part,
        cursor: &mut Cursor<'_>,
        context: Context<'_>,
        output: &mut Output,
    ) -> Step {
        if matches!(self.body, Body::None) {
            cursor.skip_space();
        }
        match part {
            Part::Literal(text) => match cursor.take(text) {
                Match::Found => Step::Done,
                Match::Partial => Step::More,
                Match::Missing => Step::Failed,
            },
            Part::Optional(text) => match cursor.take(text) {
                Match::Partial => Step::More,
                Match::Found | Match::Missing => Step::Done,
            },
            Part::Number => {
                let mut number = String::new();
                match cursor.name(&mut number) {
                    Step::Done if !number.bytes().all(|byte| byte.is_ascii_digit()) => Step::Failed,
                    step => step,
                }
            }
            Part::Close(text) => self.close(text, cursor),
            Part::Id(before) => self.id(before, cursor),
            Part::Name | Part::NameLine | Part::NameInId => self.name(part, cursor, context),
            _ => {
                if matches!(self.body, Body::None) {
                    match self.begin(part, cursor, output) {
                        Step::Done => {}
                        step => return step,
                    }
                }
                self.body(cursor, context, output)
            }
        }
    }

    /// Read the end of a call, or see that it was left out before what may follow a call.
    fn close(&self, text: &str, cursor: &mut Cursor<'_>) -> Step {
        let section_end = self.syntax.section.as_ref().map(|section| section.end);
        let mut found = cursor.take(text);
        for other in [section_end, self.syntax.begin()].into_iter().flatten() {
            if found == Match::Missing {
                found = cursor.look(other);
            }
        }
        match found {
            Match::Found => Step::Done,
            Match::Partial => Step::More,
            Match::Missing => {
                if cursor.ended && text.starts_with(cursor.rest()) {
                    cursor.at = cursor.text.len();
                }
                Step::Failed
            }
        }
    }

    /// Read an identifier.
    fn id(&mut self, before: &str, cursor: &mut Cursor<'_>) -> Step {
        let start = cursor.at;
        match cursor.take(before) {
            Match::Partial if !before.is_empty() => return Step::More,
            Match::Missing => return Step::Done,
            _ => {}
        }
        let mut id = String::new();
        let step = cursor.name(&mut id);
        match step {
            Step::Done => self.id = Some(id),
            _ => cursor.at = start,
        }
        step
    }

    /// Read the name of a tool.
    fn name(&mut self, part: &Part, cursor: &mut Cursor<'_>, context: Context<'_>) -> Step {
        let start = cursor.at;
        let mut name = String::new();
        match cursor.name(&mut name) {
            Step::Done => {}
            step => return step,
        }
        if matches!(part, Part::NameInId) {
            let id = name.clone();
            let bare = name.strip_prefix("functions.").unwrap_or(&name);
            name = bare.rsplit_once(':').map_or(bare, |(name, _)| name).into();
            self.id = Some(id);
        }
        self.name = name;
        if context.tools.get(&self.name).is_some() {
            return Step::Done;
        }
        cursor.at = start;
        Step::Failed
    }

    /// Make the reader of a part by the first characters.
    fn begin(&mut self, part: &'static Part, cursor: &mut Cursor<'_>, output: &mut Output) -> Step {
        let Some(c) = cursor.peek() else {
            return cursor.more();
        };
        self.body = match (part, c) {
            (Part::Arguments, '{') => {
                output.begin_call(&self.name, self.id.take());
                Body::Arguments(Scanner::new())
            }
            (Part::Map(_), '{') | (Part::Keywords, '(') => {
                cursor.skip();
                Body::Bracketed(cursor.at, Balance::new())
            }
            (Part::Tags(_), _) => Body::Tags(TagReader::new()),
            (Part::Json, '{' | '[') | (Part::JsonOrPython, '{') => Body::Json(JsonCalls::new(self.syntax)),
            (Part::JsonOrPython, '[') => {
                let inner = cursor.rest().get(1..).unwrap_or("");
                let item = inner.trim_start();
                match item.chars().next() {
                    _ if inner.len() - item.len() > MAX_SPACE => return Step::Failed,
                    Some('{') => Body::Json(JsonCalls::new(self.syntax)),
                    Some(_) => Body::Python(PythonCalls::new()),
                    None => return cursor.more(),
                }
            }
            _ => return Step::Failed,
        };
        Step::Done
    }

    /// Read a part that has a reader.
    fn body(&mut self, cursor: &mut Cursor<'_>, context: Context<'_>, output: &mut Output) -> Step {
        let part = self.part.and_then(|i| self.syntax.call.get(i));
        let tool = context.tools.get(&self.name);
        match &mut self.body {
            Body::None => Step::Failed,
            Body::Arguments(scanner) => {
                let mut text = String::new();
                let step = scanner.advance(cursor, &mut text);
                output.arguments(&text);
                step
            }
            Body::Json(calls) => {
                let step = calls.advance(cursor, context, output);
                self.complete = self.complete.max(calls.complete);
                step
            }
            Body::Python(calls) => {
                let step = calls.advance(cursor, context, output);
                self.complete = self.complete.max(calls.complete);
                step
            }
            Body::Bracketed(start, balance) => match (balance.advance(cursor), tool) {
                (Step::Done, Some(tool)) => {
                    let text = cursor.text.get(*start..cursor.at - 1).unwrap_or("");
                    self.arguments = match part {
                        Some(Part::Map(_)) => literal::map(text, &tool.parameters),
                        _ => literal::keywords(text),
                    };
                    if self.arguments.is_some() { Step::Done } else { Step::Failed }
                }
                (Step::Done, None) => Step::Failed,
                (step, _) => step,
            },
            Body::Tags(reader) => match (part, tool) {
                (Some(Part::Tags(tags)), Some(tool)) => {
                    let step = reader.advance(cursor, tags, tool);
                    if step == Step::Done {
                        self.arguments = Some(reader.arguments());
                    }
                    step
                }
                _ => Step::Failed,
            },
        }
    }
}
