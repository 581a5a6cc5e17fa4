//! Filters of texts. Any other value counts as the text that printing it writes.
//!
//! The characters of a result keep the origins of the characters that they come from. Characters
//! that a filter adds, such as an indent, come from its argument, or from the template.

use alloc::format;

use super::super::arguments::Arguments;
use super::super::error::{Eval, Fault};
use super::super::format as formatting;
use super::super::heap::Val;
use super::super::lexer::is_space;
use super::super::machine::Machine;
use super::super::methods::{ends_line, lines};
use super::super::text::{Buf, Origin, Str};

impl Machine<'_, '_> {
    /// Evaluate a filter of texts.
    ///
    /// # Errors
    /// [`Fault::Failed`] if there is no such filter, or the arguments do not fit it.
    pub(super) fn text_filter(&mut self, name: &str, value: &Val, given: Arguments) -> Eval<Val> {
        let text = self.text_of(value)?;
        match name {
            "upper" | "lower" | "capitalize" => {
                given.none(name)?;
                self.cased(&text, name)
            }
            "title" => {
                given.none(name)?;
                // `'old-time' | title` is `'Old-Time'`, in contrast to Python's method.
                self.titled(&text, |c| is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<'))
            }
            "trim" => {
                let [chars] = given.bind(name, ["chars"])?;
                self.stripped(&text, chars, "strip")
            }
            "replace" => {
                let [old, new, most] = given.bind(name, ["old", "new", "count"])?;
                let old = self.text_or_none(old)?;
                let new = self.text_or_none(new)?;
                self.replaced(&text, old, new, most)
            }
            "indent" => self.indented(&text, given),
            "center" => {
                let [width] = given.bind(name, ["width"])?;
                self.padded(&text, width, None, name)
            }
            "truncate" => self.truncated(&text, given),
            "wordcount" => {
                given.none(name)?;
                self.budget.bytes(text.len())?;
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let n = text.as_str().split(|c| !is_word(c)).filter(|word| !word.is_empty()).count();
                Ok(Val::Int(n as i64))
            }
            "wordwrap" => self.wrapped(&text, given),
            "format" => formatting::percent(self, &text, &given.list, &given.named).map(Val::Str),
            "e" | "escape" | "forceescape" => {
                given.none(name)?;
                self.escaped(&text)
            }
            "urlencode" => {
                given.none(name)?;
                self.urlencoded(&text)
            }
            "pprint" => {
                given.none(name)?;
                self.repr_of(value).map(Val::Str)
            }
            other => Err(Fault::failed(format!("there is no filter {other:?}"))),
        }
    }

    /// Return the text of an optional argument.
    fn text_or_none(&mut self, value: Option<Val>) -> Eval<Option<Val>> {
        match value {
            None => Ok(None),
            Some(value) => Ok(Some(Val::Str(self.text_of(&value)?))),
        }
    }

    /// Evaluate `indent`: `'a\nb' | indent(2)` is `'a\n  b'`. The first line and blank lines are
    /// indented on request.
    fn indented(&mut self, text: &Str, given: Arguments) -> Eval<Val> {
        let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
        let flag = |machine: &Self, flag: Option<Val>| flag.is_some_and(|flag| flag.is_true(&machine.heap));
        let (first, blank) = (flag(self, first), flag(self, blank));
        let indent = match width {
            Some(Val::Str(text)) => text,
            other => {
                let n = self.int_arg("indent", other, 4)?.max(0) as u64;
                self.budget.pay(n)?;
                Str::template(&" ".repeat(n as usize))
            }
        };
        self.budget.bytes(text.len().saturating_mul(2))?;
        // Jinja adds a line end before it splits, so behind the last one is an empty line, unless
        // the two are one.
        let ended = text.as_str().chars().next_back().is_none_or(|c| ends_line(c) && c != '\r');
        let (mut out, mut at) = (Buf::default(), 0);
        let mut before = None;
        for (line, end) in lines(text.as_str()).chain(ended.then_some(("", ""))) {
            match before {
                Some("\n" | "\r\n") => out.push_range(text, at - 1..at),
                Some(_) => out.push("\n", Origin::Template),
                None => {}
            }
            if if before.is_none() { first } else { blank || !line.is_empty() } {
                self.budget.bytes(indent.len())?;
                out.push_str(&indent);
            }
            out.push_range(text, at..at + line.len());
            at += line.len() + end.len();
            before = Some(end);
        }
        Ok(Val::Str(out.finish()))
    }

    /// Evaluate `truncate`: a text that is too long is cut before a word, and ends in `...`.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the leeway is negative, or the length is shorter than the ending.
    fn truncated(&mut self, text: &Str, given: Arguments) -> Eval<Val> {
        let [length, kill, end, leeway] = given.bind("truncate", ["length", "killwords", "end", "leeway"])?;
        let length = self.int_arg("truncate", length, 255)?;
        let Ok(leeway) = usize::try_from(self.int_arg("truncate", leeway, 5)?) else {
            return Err(Fault::failed("truncate: the leeway is negative"));
        };
        let kill = kill.is_some_and(|kill| kill.is_true(&self.heap));
        let end = self.str_arg("truncate", end)?.unwrap_or_else(|| Str::template("..."));
        self.budget.bytes(text.len().saturating_mul(2) + end.len())?;
        let n_end = end.as_str().chars().count();
        let too_short = || Fault::failed("truncate: the length is shorter than the end");
        let length = usize::try_from(length).map_err(|_| too_short())?;
        if text.as_str().chars().count() <= length.saturating_add(leeway) {
            return Ok(Val::Str(text.clone()));
        }
        let n_kept = length.checked_sub(n_end).ok_or_else(too_short)?;
        let cut = text.as_str().char_indices().nth(n_kept).map_or(text.len(), |(at, _)| at);
        let mut kept = text.as_str().get(..cut).unwrap_or("");
        if !kill {
            kept = kept.rsplit_once(' ').map_or(kept, |(words, _)| words);
        }
        let mut out = Buf::default();
        out.push_str(&text.subslice(kept));
        out.push_str(&end);
        Ok(Val::Str(out.finish()))
    }

    /// Return a text with the characters that HTML reserves escaped.
    fn escaped(&mut self, text: &Str) -> Eval<Val> {
        self.budget.bytes(text.len().saturating_mul(2))?;
        let mut out = Buf::default();
        for (c, origin) in text.chars() {
            let name = match c {
                '&' => "&amp;",
                '<' => "&lt;",
                '>' => "&gt;",
                '\'' => "&#39;",
                '"' => "&#34;",
                c => {
                    out.push_char(c, origin);
                    continue;
                }
            };
            self.budget.bytes(name.len())?;
            out.push(name, origin);
        }
        Ok(Val::Str(out.finish()))
    }

    /// Return a text with its bytes percent-encoded, as in URLs.
    fn urlencoded(&mut self, text: &Str) -> Eval<Val> {
        self.budget.bytes(text.len().saturating_mul(3))?;
        let mut out = Buf::default();
        for (span, origin) in text.spans() {
            for byte in span.bytes() {
                if byte.is_ascii_alphanumeric() || b"_.-~/".contains(&byte) {
                    out.push_char(char::from(byte), origin);
                } else {
                    out.push(&format!("%{byte:02X}"), origin);
                }
            }
        }
        Ok(Val::Str(out.finish()))
    }
}
