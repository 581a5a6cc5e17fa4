//! Values as JSON text, as Python's `json.dumps` writes it.
//!
//! Chat templates write tools and arguments of calls this way. Spaces and the order of keys reach
//! the model, so they have to be those of the training data: a space behind commas and colons, and
//! keys in order of insertion. Texts keep their origins, so JSON text of a message cannot become
//! control tokens.

use alloc::format;
use alloc::string::String;

use super::arguments::Arguments;
use super::conversation;
use super::error::{Eval, Fault};
use super::heap::Val;
use super::machine::Machine;
use super::numbers;
use super::text::{Buf, Origin, Str};
use super::value::Value;
use super::walk::MAX_DEPTH;

/// The price of a byte of JSON text that is parsed: the memory of the values that it may make.
const PARSED: usize = 24;

/// The style of JSON text.
struct Style {
    /// The indent of a level; `None` writes everything on one line.
    indent: Option<Str>,
    /// The separator between items.
    between: Str,
    /// The separator between a key and its value.
    after_key: Str,
    /// True to escape characters outside of ASCII.
    ascii: bool,
    /// True to sort keys.
    sorted: bool,
}

/// Evaluate the filter `tojson`, with the arguments that chat templates pass.
///
/// # Errors
/// [`Fault::Failed`] if a value has no form in JSON, values nest too deep, or the arguments do not
/// fit.
pub(super) fn tojson(machine: &mut Machine<'_, '_>, value: &Val, given: Arguments) -> Eval<Val> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    // Jinja's own filter has the indent first; a number there can only be the indent.
    let [ascii, indent, separators, sorted] = given.bind("tojson", names)?;
    let (ascii, indent) = match (ascii, indent) {
        (Some(Val::Int(n)), None) => (None, Some(Val::Int(n))),
        other => other,
    };
    let indent = match indent {
        None | Some(Val::None) => None,
        Some(Val::Str(text)) => Some(text),
        other => {
            let n = machine.int_arg("tojson", other, 0)?.max(0) as u64;
            machine.budget.pay(n)?;
            Some(Str::template(&" ".repeat(n as usize)))
        }
    };
    let mut style = Style {
        between: Str::template(if indent.is_some() { "," } else { ", " }),
        after_key: Str::template(": "),
        ascii: ascii.is_some_and(|ascii| ascii.is_true(&machine.heap)),
        sorted: sorted.is_some_and(|sorted| sorted.is_true(&machine.heap)),
        indent,
    };
    if let Some(separators) = separators.filter(|given| !matches!(given, Val::None)) {
        match machine.items_of(&separators)?.as_slice() {
            [Val::Str(between), Val::Str(after_key)] => {
                (style.between, style.after_key) = (between.clone(), after_key.clone());
            }
            _ => return Err(Fault::failed("tojson: separators are two strings")),
        }
    }
    let mut out = Buf::default();
    machine.write_json(value, &style, &mut out, 0)?;
    Ok(Val::Str(out.finish()))
}

/// Evaluate the filter `from_json`: `'{"a": 1}' | from_json` is `{'a': 1}`. Its texts count as a
/// message's, whatever their origins, because JSON has escapes.
///
/// # Errors
/// [`Fault::Failed`] if the value is no text, or the text is no JSON.
pub(super) fn from_json(machine: &mut Machine<'_, '_>, value: &Val) -> Eval<Val> {
    let Val::Str(text) = value else {
        return Err(Fault::failed(format!("from_json needs a string, not {}", value.kind())));
    };
    machine.budget.bytes(text.len().saturating_mul(PARSED))?;
    match Value::from_json(text.as_str()) {
        Ok(value) => conversation::value(machine, &value, false),
        Err(error) => Err(Fault::failed(format!("from_json: {error}"))),
    }
}

impl Machine<'_, '_> {
    /// Append a value at this depth.
    fn write_json(&mut self, value: &Val, style: &Style, out: &mut Buf, depth: u32) -> Eval<()> {
        self.budget.pay(super::budget::STEP)?;
        let number;
        let word = match value {
            Val::None => "null",
            Val::Bool(true) => "true",
            Val::Bool(false) => "false",
            Val::Int(n) => {
                number = format!("{n}");
                &number
            }
            Val::Float(x) => {
                number = json_float(*x);
                &number
            }
            Val::Str(text) => return self.write_json_text(text, style.ascii, out),
            // Python refuses views and generators, but templates are written for engines that have
            // lists in their place.
            Val::List(list) | Val::Tuple(list) | Val::View(_, list) => {
                return self.write_json_list(*list, style, out, depth + 1);
            }
            Val::Iter(_) => {
                let items = self.items_of(value)?;
                let list = self.heap.new_list(items);
                return self.write_json_list(list, style, out, depth + 1);
            }
            Val::Dict(dict) => return self.write_json_dict(*dict, style, out, depth + 1),
            other => return Err(Fault::failed(format!("{} cannot be written as JSON", other.kind()))),
        };
        self.budget.bytes(word.len())?;
        out.push(word, Origin::Template);
        Ok(())
    }

    /// Begin a line within `depth` lists and dicts, if the style has lines.
    fn json_line(&mut self, style: &Style, out: &mut Buf, depth: u32) -> Eval<()> {
        if let Some(indent) = &style.indent {
            self.budget.bytes(1 + indent.len().saturating_mul(depth as usize))?;
            out.push("\n", Origin::Template);
            (0..depth).for_each(|_| out.push_str(indent));
        }
        Ok(())
    }

    /// Append a list.
    fn write_json_list(&mut self, list: u32, style: &Style, out: &mut Buf, depth: u32) -> Eval<()> {
        if depth > MAX_DEPTH {
            return Err(Fault::failed("values nest too deep"));
        }
        out.push("[", Origin::Template);
        let mut i = 0;
        while let Some(item) = self.heap.list(list).get(i).cloned() {
            self.json_separator(i, style, out, depth)?;
            self.write_json(&item, style, out, depth)?;
            i += 1;
        }
        if i > 0 {
            self.json_line(style, out, depth - 1)?;
        }
        out.push("]", Origin::Template);
        Ok(())
    }

    /// Append the separator before item `i`.
    fn json_separator(&mut self, i: usize, style: &Style, out: &mut Buf, depth: u32) -> Eval<()> {
        if i > 0 {
            self.budget.bytes(style.between.len())?;
            out.push_str(&style.between);
        }
        self.json_line(style, out, depth)
    }

    /// Append a dict.
    fn write_json_dict(&mut self, dict: u32, style: &Style, out: &mut Buf, depth: u32) -> Eval<()> {
        if depth > MAX_DEPTH {
            return Err(Fault::failed("values nest too deep"));
        }
        self.budget.values(self.heap.dict(dict).len() * 2)?;
        let mut entries = self.heap.dict(dict).to_vec();
        if style.sorted {
            let mut pairs = alloc::vec::Vec::new();
            for (key, value) in entries {
                let pair = self.new_tuple([key.clone(), value].into())?;
                pairs.push((key, pair));
            }
            entries = alloc::vec::Vec::new();
            for pair in self.sorted(pairs, false)? {
                if let Val::Tuple(pair) = pair
                    && let [key, value] = self.heap.list(pair)
                {
                    entries.push((key.clone(), value.clone()));
                }
            }
        }
        out.push("{", Origin::Template);
        let is_empty = entries.is_empty();
        for (i, (key, value)) in entries.into_iter().enumerate() {
            self.json_separator(i, style, out, depth)?;
            let key = self.json_key(&key)?;
            self.write_json_text(&key, style.ascii, out)?;
            self.budget.bytes(style.after_key.len())?;
            out.push_str(&style.after_key);
            self.write_json(&value, style, out, depth)?;
        }
        if !is_empty {
            self.json_line(style, out, depth - 1)?;
        }
        out.push("}", Origin::Template);
        Ok(())
    }

    /// Return the text of a key.
    fn json_key(&mut self, key: &Val) -> Eval<Str> {
        match key {
            Val::Str(text) => Ok(text.clone()),
            Val::None => Ok(Str::template("null")),
            Val::Bool(truth) => Ok(Str::template(if *truth { "true" } else { "false" })),
            Val::Int(n) => Ok(Str::template(&format!("{n}"))),
            Val::Float(x) => Ok(Str::template(&json_float(*x))),
            other => Err(Fault::failed(format!("{} cannot be a key in JSON", other.kind()))),
        }
    }

    /// Append a text in quotes, with its origins.
    fn write_json_text(&mut self, text: &Str, ascii: bool, out: &mut Buf) -> Eval<()> {
        self.budget.bytes(text.len().saturating_mul(2) + 2)?;
        out.push("\"", Origin::Template);
        for (run, origin) in text.spans() {
            let mut rest = run;
            while let Some(at) = rest.find(|c| needs_escape(c, ascii)) {
                let (plain, from) = rest.split_at(at);
                out.push(plain, origin);
                let mut chars = from.chars();
                chars.next().into_iter().for_each(|c| out.push(&escape(c), origin));
                rest = chars.as_str();
            }
            out.push(rest, origin);
        }
        out.push("\"", Origin::Template);
        Ok(())
    }
}

/// Return the text of a float.
fn json_float(x: f64) -> String {
    match x {
        x if x.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        x => numbers::repr(x),
    }
}

/// Return true if a character has to be escaped.
fn needs_escape(c: char, ascii: bool) -> bool {
    matches!(c, '"' | '\\' | '\0'..='\u{1f}') || (ascii && !('\u{20}'..='\u{7e}').contains(&c))
}

/// Return the escape of a character.
fn escape(c: char) -> String {
    match c {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        '\u{8}' => "\\b".into(),
        '\u{c}' => "\\f".into(),
        c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    }
}
