//! The methods of strings, as in Python. Each charges for the texts that it reads and makes.
//!
//! Positions in arguments and results count characters, as in Python, while the texts are UTF-8.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::arguments::Arguments;
use super::ast::MathOp;
use super::error::{Eval, Fault};
use super::format as formatting;
use super::heap::Val;
use super::lexer::is_space;
use super::machine::Machine;
use super::text::{Buf, Str};
use super::walk::is_unprintable;

/// The names of all methods.
pub(super) const NAMES: [&str; 44] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "isupper",
    "istitle",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

/// Call `text.name(…)`.
///
/// # Errors
/// [`Fault::Failed`] if there is no such method, or the arguments do not fit it.
pub(super) fn call(machine: &mut Machine<'_, '_>, text: &Str, name: &str, given: Arguments) -> Eval<Val> {
    match name {
        "upper" | "lower" | "capitalize" | "casefold" | "swapcase" => {
            given.none(name)?;
            machine.cased(text, name)
        }
        "title" => {
            given.none(name)?;
            machine.titled(text, |c| !c.is_alphabetic())
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = given.bind(name, ["chars"])?;
            machine.stripped(text, chars, name)
        }
        "split" | "rsplit" => {
            let [separator, most] = given.bind(name, ["sep", "maxsplit"])?;
            machine.split(text, separator, most, name == "rsplit")
        }
        "splitlines" => machine.split_lines(text, given),
        "partition" | "rpartition" => machine.partition(text, given, name == "rpartition"),
        "startswith" | "endswith" => machine.starts_or_ends(text, given, name == "endswith"),
        "replace" => {
            let [old, new, most] = given.bind(name, ["old", "new", "count"])?;
            machine.replaced(text, old, new, most)
        }
        "find" | "rfind" | "index" | "rindex" | "count" => machine.searched(text, given, name),
        "join" => {
            let items = given.one(name)?;
            machine.join(&items, text, true)
        }
        "removeprefix" | "removesuffix" => machine.without(text, given, name == "removesuffix"),
        "center" | "ljust" | "rjust" => {
            let [width, fill] = given.bind(name, ["width", "fillchar"])?;
            machine.padded(text, width, fill, name)
        }
        "zfill" => {
            let width = given.one(name)?;
            machine.zero_filled(text, width)
        }
        "expandtabs" => {
            let [width] = given.bind(name, ["tabsize"])?;
            machine.without_tabs(text, width)
        }
        "format" => formatting::braces(machine, text, given).map(Val::Str),
        "format_map" => {
            let given = machine.named_by(&given.one(name)?)?;
            formatting::braces(machine, text, given).map(Val::Str)
        }
        name if name.starts_with("is") => {
            given.none(name)?;
            machine.budget.bytes(text.len())?;
            is(text.as_str(), name)
                .map(Val::Bool)
                .ok_or_else(|| Fault::failed(format!("a string has no method {name:?}")))
        }
        _ => Err(Fault::failed(format!("a string has no method {name:?}"))),
    }
}

/// Evaluate Python's predicates of all characters of a text; `None` if there is none of this name.
fn is(text: &str, name: &str) -> Option<bool> {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    Some(match name {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdigit" | "isdecimal" => all(|c| c.is_ascii_digit() || (c.is_numeric() && !c.is_ascii())),
        "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_space),
        "isprintable" => !text.chars().any(|c| c.is_control() || is_unprintable(c)),
        "isidentifier" => all(|c| c.is_alphanumeric() || c == '_') && !text.starts_with(char::is_numeric),
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        "istitle" => is_title(text),
        _ => return None,
    })
}

/// Return true if all words begin with their only upper-case letter.
fn is_title(text: &str) -> bool {
    let (mut in_word, mut any) = (false, false);
    for c in text.chars() {
        if (c.is_uppercase() && in_word) || (c.is_lowercase() && !in_word) {
            return false;
        }
        in_word = c.is_uppercase() || c.is_lowercase();
        any |= in_word;
    }
    any
}

impl Machine<'_, '_> {
    /// Evaluate `upper`, `lower`, `capitalize`, `casefold` or `swapcase`: `'a b'.capitalize()` is
    /// `'A b'`.
    pub(super) fn cased(&mut self, text: &Str, how: &str) -> Eval<Val> {
        let change: fn(&str) -> String = match how {
            "upper" => str::to_uppercase,
            "lower" => str::to_lowercase,
            // Letters that differ in case alone have one capital, but for the dotless i.
            "casefold" => {
                |text: &str| text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
            }
            "swapcase" => |text: &str| text.chars().flat_map(other_case).collect(),
            _ => return self.titled(text, |_| false),
        };
        self.budget.bytes(text.len().saturating_mul(3))?;
        Ok(Val::Str(text.map_spans(change)))
    }

    /// Return a text with the first character of each word in upper case and the others in lower
    /// case. Words begin at the start and behind characters for which `separates` is true.
    pub(super) fn titled(&mut self, text: &Str, separates: impl Fn(char) -> bool) -> Eval<Val> {
        self.budget.bytes(text.len().saturating_mul(3))?;
        let (mut out, mut in_word) = (Buf::default(), false);
        for (c, origin) in text.chars() {
            if in_word {
                c.to_lowercase().for_each(|c| out.push_char(c, origin));
            } else {
                c.to_uppercase().for_each(|c| out.push_char(c, origin));
            }
            in_word = !separates(c);
        }
        Ok(Val::Str(out.finish()))
    }

    /// Evaluate `strip`, `lstrip` or `rstrip`, of white space or of the given characters:
    /// `'xay'.strip('xy')` is `'a'`.
    pub(super) fn stripped(&mut self, text: &Str, chars: Option<Val>, how: &str) -> Eval<Val> {
        let chars = self.str_arg(how, chars)?;
        let mut set: Vec<char> = Vec::new();
        if let Some(chars) = &chars {
            self.budget.bytes(chars.len().saturating_mul(16))?;
            set = chars.as_str().chars().collect();
            set.sort_unstable();
            set.dedup();
        }
        // Each character is looked up in a sorted list.
        self.budget.bytes(text.len().saturating_mul(if chars.is_some() { 4 } else { 1 }))?;
        let goes = |c: char| if chars.is_some() { set.binary_search(&c).is_ok() } else { is_space(c) };
        let mut rest = text.as_str();
        if how != "rstrip" {
            rest = rest.trim_start_matches(goes);
        }
        if how != "lstrip" {
            rest = rest.trim_end_matches(goes);
        }
        Ok(Val::Str(text.subslice(rest)))
    }

    /// Evaluate `split` or `rsplit`: `'a,b,c'.rsplit(',', 1)` is `['a,b', 'c']`. Without a
    /// separator, the text is split at white space.
    ///
    /// # Errors
    /// [`Fault::Failed`] for an empty separator.
    fn split(&mut self, text: &Str, separator: Option<Val>, most: Option<Val>, from_end: bool) -> Eval<Val> {
        let most = self.int_arg("split", most, -1)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX - 1);
        let separator = self.str_arg("split", separator)?;
        let separator = separator.as_ref().map(Str::as_str);
        // A search first reads the whole separator.
        self.budget.bytes(text.len().saturating_mul(2) + separator.map_or(0, str::len))?;
        let string = text.as_str();
        let mut parts = match separator {
            Some("") => return Err(Fault::failed("split needs a separator that is not empty")),
            Some(separator) if from_end => self.parts(text, string.rsplitn(most + 1, separator))?,
            Some(separator) => self.parts(text, string.splitn(most + 1, separator))?,
            None => self.parts(text, Words { rest: string, most, from_end })?,
        };
        if from_end {
            parts.reverse();
        }
        self.new_list(parts)
    }

    /// Return slices of `text`, each charged before the next one is searched for.
    fn parts<'s>(&mut self, text: &Str, parts: impl Iterator<Item = &'s str>) -> Eval<Vec<Val>> {
        let mut values = Vec::new();
        for part in parts {
            self.budget.values(5)?;
            values.push(Val::Str(text.subslice(part)));
        }
        Ok(values)
    }

    /// Evaluate `splitlines`, at all line ends that Python knows.
    fn split_lines(&mut self, text: &Str, given: Arguments) -> Eval<Val> {
        let [keep] = given.bind("splitlines", ["keepends"])?;
        let keep = keep.is_some_and(|keep| keep.is_true(&self.heap));
        self.budget.bytes(text.len().saturating_mul(2))?;
        let mut at = 0;
        let lines = lines(text.as_str()).map(|(line, end)| {
            let start = at;
            at += line.len() + end.len();
            if keep { text.as_str().get(start..at).unwrap_or(line) } else { line }
        });
        let lines = self.parts(text, lines)?;
        self.new_list(lines)
    }

    /// Evaluate `partition` or `rpartition`: `'a=b'.partition('=')` is `('a', '=', 'b')`.
    ///
    /// # Errors
    /// [`Fault::Failed`] for an empty separator.
    fn partition(&mut self, text: &Str, given: Arguments, last: bool) -> Eval<Val> {
        let separator = given.one("partition")?;
        let Some(separator) = self.str_arg("partition", Some(separator))?.filter(|text| !text.is_empty())
        else {
            return Err(Fault::failed("partition needs a separator that is not empty"));
        };
        self.budget.bytes(text.len().saturating_mul(2) + separator.len())?;
        let (string, middle) = (text.as_str(), separator.as_str());
        let found = if last { string.rfind(middle) } else { string.find(middle) };
        let empty = || Str::template("");
        let parts = match found {
            Some(at) => {
                let end = at + separator.len();
                [text.slice(0..at), text.slice(at..end), text.slice(end..text.len())]
            }
            None if last => [empty(), empty(), text.clone()],
            None => [text.clone(), empty(), empty()],
        };
        self.new_tuple(parts.map(Val::Str).into())
    }

    /// Evaluate `startswith` or `endswith`, of one text or of a tuple of texts.
    fn starts_or_ends(&mut self, text: &Str, given: Arguments, ends: bool) -> Eval<Val> {
        let [wanted, start, stop] = given.bind("startswith", ["prefix", "start", "end"])?;
        let text = self.range_of(text, start, stop)?;
        let wanted = match wanted {
            Some(tuple @ Val::Tuple(_)) => self.items_of(&tuple)?,
            other => Vec::from_iter(other),
        };
        let mut found = false;
        for wanted in wanted {
            let Val::Str(wanted) = wanted else {
                return Err(Fault::failed(format!(
                    "startswith and endswith need strings, not {}",
                    wanted.kind()
                )));
            };
            self.budget.scan(wanted.len().min(text.len()))?;
            let (text, wanted) = (text.as_str(), wanted.as_str());
            found |= if ends { text.ends_with(wanted) } else { text.starts_with(wanted) };
        }
        Ok(Val::Bool(found))
    }

    /// Return the slice of a text that the optional arguments of a search select.
    fn range_of(&mut self, text: &Str, start: Option<Val>, stop: Option<Val>) -> Eval<Str> {
        if start.is_none() && stop.is_none() {
            return Ok(text.clone());
        }
        let start = self.int_arg("start", start.filter(|value| !matches!(value, Val::None)), 0)?;
        let stop = self.int_arg("end", stop.filter(|value| !matches!(value, Val::None)), i64::MAX)?;
        match self.sliced(&Val::Str(text.clone()), [Some(start), Some(stop), None])? {
            Val::Str(text) => Ok(text),
            _ => Ok(text.clone()),
        }
    }

    /// Evaluate `replace`, at most `most` times: `'aab'.replace('a', 'c', 1)` is `'cab'`.
    pub(super) fn replaced(
        &mut self,
        text: &Str,
        old: Option<Val>,
        new: Option<Val>,
        most: Option<Val>,
    ) -> Eval<Val> {
        let (Some(old), Some(new)) = (self.str_arg("replace", old)?, self.str_arg("replace", new)?) else {
            return Err(Fault::failed("replace needs two strings"));
        };
        let most = most.filter(|most| !matches!(most, Val::None));
        let most = usize::try_from(self.int_arg("replace", most, -1)?).unwrap_or(usize::MAX);
        self.budget.bytes(text.len().saturating_mul(2) + old.len())?;
        let mut out = Buf::default();
        let mut at = 0;
        for (start, found) in text.as_str().match_indices(old.as_str()).take(most) {
            self.budget.bytes(new.len() + 4)?;
            out.push_range(text, at..start);
            out.push_str(&new);
            at = start + found.len();
        }
        out.push_range(text, at..text.len());
        Ok(Val::Str(out.finish()))
    }

    /// Evaluate `find`, `rfind`, `index`, `rindex` or `count`: `'banana'.find('na')` is 2.
    ///
    /// # Errors
    /// [`Fault::Failed`] if `index` or `rindex` finds nothing.
    fn searched(&mut self, text: &Str, given: Arguments, name: &str) -> Eval<Val> {
        let [wanted, start, stop] = given.bind(name, ["sub", "start", "end"])?;
        let Some(wanted) = self.str_arg(name, wanted)? else {
            return Err(Fault::failed(format!("{name} needs a string")));
        };
        let skipped = match &start {
            Some(start) => chars_before(text.as_str(), start.as_int().unwrap_or(0)),
            None => 0,
        };
        let text = self.range_of(text, start, stop)?;
        self.budget.bytes(text.len() + wanted.len())?;
        let (string, wanted) = (text.as_str(), wanted.as_str());
        if name == "count" {
            return Ok(Val::Int(string.matches(wanted).count() as i64));
        }
        let at = if name.starts_with('r') { string.rfind(wanted) } else { string.find(wanted) };
        match at {
            Some(at) => {
                let before = string.get(..at).unwrap_or("");
                Ok(Val::Int((before.chars().count() + skipped) as i64))
            }
            None if name.ends_with("index") => Err(Fault::failed(format!("{name} finds nothing"))),
            None => Ok(Val::Int(-1)),
        }
    }

    /// Join the texts of `items` with `separator` between them: `', '.join(['a', 'b'])` is `'a,
    /// b'`. With `strict`, only strings are allowed.
    ///
    /// # Errors
    /// [`Fault::Failed`] if `items` cannot be iterated, or an item is not a string where it must
    /// be.
    pub(super) fn join(&mut self, items: &Val, separator: &Str, strict: bool) -> Eval<Val> {
        let mut out = Buf::default();
        for (i, item) in self.items_of(items)?.into_iter().enumerate() {
            if strict && !matches!(item, Val::Str(_)) {
                return Err(Fault::failed(format!("join needs strings, not {}", item.kind())));
            }
            let item = self.text_of(&item)?;
            self.budget.bytes(item.len() + separator.len())?;
            if i > 0 {
                out.push_str(separator);
            }
            out.push_str(&item);
        }
        Ok(Val::Str(out.finish()))
    }

    /// Evaluate `removeprefix` or `removesuffix`: `'abc'.removeprefix('a')` is `'bc'`.
    fn without(&mut self, text: &Str, given: Arguments, end: bool) -> Eval<Val> {
        let part = given.one("removeprefix")?;
        let Some(part) = self.str_arg("removeprefix", Some(part))? else { return Ok(Val::Str(text.clone())) };
        self.budget.bytes(text.len())?;
        let (string, part) = (text.as_str(), part.as_str());
        let rest = if end { string.strip_suffix(part) } else { string.strip_prefix(part) };
        Ok(Val::Str(rest.map_or_else(|| text.clone(), |rest| text.subslice(rest))))
    }

    /// Evaluate `center`, `ljust` or `rjust`: `'a'.rjust(3, '-')` is `'--a'`.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the fill is not one character.
    pub(super) fn padded(
        &mut self,
        text: &Str,
        width: Option<Val>,
        fill: Option<Val>,
        how: &str,
    ) -> Eval<Val> {
        let width = self.int_arg(how, width, 80)?;
        let fill = self.str_arg(how, fill)?.unwrap_or_else(|| Str::template(" "));
        if fill.as_str().chars().count() != 1 {
            return Err(Fault::failed(format!("{how} fills with one character")));
        }
        self.budget.scan(text.len())?;
        let missing = width.saturating_sub(text.as_str().chars().count() as i64).max(0);
        self.budget.pay((missing as u64).saturating_mul(fill.len() as u64))?;
        let left = match how {
            "ljust" => 0,
            "rjust" => missing,
            _ => missing / 2 + (missing & width & 1),
        };
        let mut out = Buf::default();
        (0..left).for_each(|_| out.push_str(&fill));
        out.push_str(text);
        (left..missing).for_each(|_| out.push_str(&fill));
        self.budget.bytes(text.len())?;
        Ok(Val::Str(out.finish()))
    }
}

impl Machine<'_, '_> {
    /// Evaluate `zfill`: `'-5'.zfill(4)` is `'-005'`.
    fn zero_filled(&mut self, text: &Str, width: Val) -> Eval<Val> {
        let sign = usize::from(text.as_str().starts_with(['+', '-']));
        let width = self.int_arg("zfill", Some(width), 0)?.saturating_sub(sign as i64);
        let digits = text.slice(sign..text.len());
        let zero = Val::Str(Str::template("0"));
        let filled = self.padded(&digits, Some(Val::Int(width)), Some(zero), "rjust")?;
        self.calculate(MathOp::Add, &Val::Str(text.slice(0..sign)), &filled)
    }

    /// Evaluate `expandtabs`: `'a\tb'.expandtabs(4)` is `'a   b'`.
    fn without_tabs(&mut self, text: &Str, width: Option<Val>) -> Eval<Val> {
        let width = self.int_arg("expandtabs", width, 8)?.max(0) as u64;
        let (mut out, mut column) = (Buf::default(), 0);
        self.budget.bytes(text.len().saturating_mul(2))?;
        for (c, origin) in text.chars() {
            match c {
                '\t' => {
                    let missing = if width == 0 { 0 } else { width - column % width };
                    self.budget.pay(missing)?;
                    (0..missing).for_each(|_| out.push_char(' ', origin));
                    column += missing;
                }
                c => {
                    out.push_char(c, origin);
                    column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
                }
            }
        }
        Ok(Val::Str(out.finish()))
    }

    /// Return the entries of a dict as arguments with names.
    ///
    /// # Errors
    /// [`Fault::Failed`] if it is no dict, or has other keys than texts.
    fn named_by(&mut self, dict: &Val) -> Eval<Arguments> {
        let Val::Dict(dict) = dict else {
            return Err(Fault::failed(format!("format_map needs a dict, not {}", dict.kind())));
        };
        self.budget.values(self.heap.dict(*dict).len() * 2)?;
        let mut given = Arguments::default();
        for (key, value) in self.heap.dict(*dict) {
            let Val::Str(name) = key else { return Err(Fault::failed("format_map needs names as keys")) };
            given.named.push((name.clone(), value.clone()));
        }
        Ok(given)
    }
}

/// Return a character in its other case.
fn other_case(c: char) -> impl Iterator<Item = char> {
    let (upper, lower) =
        (c.is_lowercase().then(|| c.to_uppercase()), c.is_uppercase().then(|| c.to_lowercase()));
    let neither = (upper.is_none() && lower.is_none()).then_some(c);
    upper.into_iter().flatten().chain(lower.into_iter().flatten()).chain(neither)
}

/// The words of a text: at most `most` from the start or the end, then the rest. From the end they
/// come in reverse.
struct Words<'t> {
    /// The text left.
    rest: &'t str,
    /// The number of words to split off.
    most: usize,
    /// True to split from the end.
    from_end: bool,
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let rest = if self.from_end {
            self.rest.trim_end_matches(is_space)
        } else {
            self.rest.trim_start_matches(is_space)
        };
        let cut = if self.from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(at) = cut.filter(|_| self.most > 0) else {
            self.rest = "";
            return Some(rest).filter(|rest| !rest.is_empty());
        };
        self.most -= 1;
        let (before, after) = rest.split_at(at);
        let (word, rest) =
            if self.from_end { (after.trim_start_matches(is_space), before) } else { (before, after) };
        self.rest = rest;
        Some(word)
    }
}

/// Return the number of characters before index `n`, which counts from the end if negative.
fn chars_before(text: &str, n: i64) -> usize {
    let len = text.chars().count() as i64;
    let n = if n < 0 { n.saturating_add(len) } else { n };
    n.clamp(0, len) as usize
}

/// Return true for the characters that end a line in Python.
pub(super) fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Return the lines of a text, each as far as its end and from there on.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let at = rest.find(ends_line).or((!rest.is_empty()).then_some(rest.len()))?;
        let (line, tail) = rest.split_at_checked(at)?;
        let n_end = if tail.starts_with("\r\n") { 2 } else { tail.chars().next().map_or(0, char::len_utf8) };
        let (end, tail) = tail.split_at_checked(n_end)?;
        rest = tail;
        Some((line, end))
    })
}
