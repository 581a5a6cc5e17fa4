//! Filters of texts. Any other value counts as the text that printing it writes.
//!
//! The characters of a result keep the origins of the characters that they come from. Characters
//! that a filter adds, such as an indent, come from its argument, or from the template.

use alloc::format;
use alloc::vec::Vec;

use super::super::arguments::Arguments;
use super::super::error::{Eval, Fault};
use super::super::format as formatting;
use super::super::heap::Val;
use super::super::lexer::is_space;
use super::super::machine::Machine;
use super::super::text::{Buf, Str};

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
                self.title(&text)
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
                self.padded(
                    &text,
                    Arguments { list: Vec::from_iter(width), ..Arguments::default() },
                    "center",
                )
            }
            "truncate" => self.truncated(&text, given),
            "wordcount" => {
                given.none(name)?;
                self.budget.bytes(text.len())?;
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let n = text.as_str().split(|c| !is_word(c)).filter(|word| !word.is_empty()).count();
                Ok(Val::Int(n as i64))
            }
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

    /// Evaluate `title`: `'old-time' | title` is `'Old-Time'`. Words begin after white space, a
    /// hyphen or an opening bracket, in contrast to Python's method.
    fn title(&mut self, text: &Str) -> Eval<Val> {
        self.budget.bytes(text.len().saturating_mul(3))?;
        let (mut out, mut in_word) = (Buf::default(), false);
        for (c, origin) in text.chars() {
            if in_word {
                c.to_lowercase().for_each(|c| out.push_char(c, origin));
            } else {
                c.to_uppercase().for_each(|c| out.push_char(c, origin));
            }
            in_word = !(is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<'));
        }
        Ok(Val::Str(out.finish()))
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
        let (mut out, mut at) = (Buf::default(), 0);
        for (i, line) in text.as_str().split('\n').enumerate() {
            if i > 0 {
                out.push_range(text, at - 1..at);
            }
            at += line.len() + 1;
            let line = line.strip_suffix('\r').unwrap_or(line);
            if (i > 0 || first) && (blank || !line.is_empty()) || (i == 0 && first) {
                self.budget.bytes(indent.len())?;
                out.push_str(&indent);
            }
            out.push_str(&text.subslice(line));
        }
        Ok(Val::Str(out.finish()))
    }

    /// Evaluate `truncate`: a text that is too long is cut before a word, and ends in `...`.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the length is shorter than the ending.
    fn truncated(&mut self, text: &Str, given: Arguments) -> Eval<Val> {
        let [length, kill, end, leeway] = given.bind("truncate", ["length", "killwords", "end", "leeway"])?;
        let length = usize::try_from(self.int_arg("truncate", length, 255)?).unwrap_or(0);
        let leeway = usize::try_from(self.int_arg("truncate", leeway, 5)?).unwrap_or(0);
        let kill = kill.is_some_and(|kill| kill.is_true(&self.heap));
        let end = self.str_arg("truncate", end)?.unwrap_or_else(|| Str::template("..."));
        self.budget.bytes(text.len().saturating_mul(2) + end.len())?;
        let n_end = end.as_str().chars().count();
        if text.as_str().chars().count() <= length.saturating_add(leeway) {
            return Ok(Val::Str(text.clone()));
        }
        if length < n_end {
            return Err(Fault::failed("truncate: the length is shorter than the end"));
        }
        let cut = text.as_str().char_indices().nth(length - n_end).map_or(text.len(), |(at, _)| at);
        let mut kept = text.as_str().get(..cut).unwrap_or("");
        if !kill {
            kept = kept.rsplit_once(' ').map_or(kept, |(words, _)| words);
        }
        let mut out = Buf::default();
        out.push_str(&text.subslice(kept));
        out.push_str(&end);
        Ok(Val::Str(out.finish()))
    }
}
