//! Calls as text in a format: what its reader reads as these calls again.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::formats::HARMONY;
use super::raw;
use super::scanner::write_json;
use super::schema::Types;
use super::syntax::{Attribute, CallSyntax, Identifier, Keys, Part, Tags};
use super::tags::CDATA;
use super::tools::{Tool, Tools};
use super::{ToolCall, harmony};
use crate::chat::Value;

/// The identifier of a call that has none, where a format needs one.
const ANY_ID: &str = "000000000";

/// The most parameters whose names tell their beginnings from text; of more, every beginning does.
const MAX_BEGINS: usize = 8;

/// Return the text of calls, or `None` if the format has no text for one of them.
pub(super) fn calls(syntax: &CallSyntax, calls: &[ToolCall], tools: &Tools) -> Option<String> {
    if syntax.name == HARMONY {
        return calls.iter().map(|call| Some(harmony::written(&call.name, &call.arguments))).collect();
    }
    let (begin, end) = syntax.section.as_ref().map_or(("", ""), |section| (section.begin, section.end));
    let written: Option<Vec<String>> =
        calls.iter().enumerate().map(|(i, one)| call(syntax, one, i, tools)).collect();
    let written = written?;
    if !matches!(syntax.call.last(), Some(Part::Json | Part::JsonOrPython)) {
        return Some(format!("{begin}{}{end}", written.join("\n")));
    }
    if syntax.is_bare {
        return Some(written.join("; "));
    }
    let before: String = syntax.call.iter().map(|part| part.fixed()).collect();
    if syntax.is_list || syntax.is_python {
        return Some(format!("{begin}{before}[{}]{end}", written.join(", ")));
    }
    let lines = if begin.is_empty() { "" } else { "\n" };
    let each = written.iter().map(|one| format!("{begin}{lines}{before}{one}{lines}{end}"));
    Some(each.collect::<Vec<_>>().join("\n"))
}

/// Return the text of the `index`th call, without fixed parts before its JSON.
fn call(syntax: &CallSyntax, call: &ToolCall, index: usize, tools: &Tools) -> Option<String> {
    let arguments = Value::from_json(&call.arguments).ok().filter(is_finite)?;
    let Value::Map(entries) = &arguments else { return None };
    let tool = tools.get(&call.name)?;
    if matches!(syntax.call.last(), Some(Part::Json | Part::JsonOrPython)) {
        return match syntax.is_python {
            true => Some(format!("{}{}", call.name, keywords(entries)?)),
            false => Some(object(syntax, call, &arguments)),
        };
    }
    let mut out = String::new();
    for part in syntax.call {
        match part {
            Part::Name => out.push_str(&call.name),
            Part::NameLine => out.push_str(&format!("{}\n", call.name)),
            Part::Number => out.push_str(&(index + 1).to_string()),
            Part::NameInId => out.push_str(&format!("functions.{}:{index}", call.name)),
            Part::Id(before) => {
                let id = call.id.as_deref().or(before.is_empty().then_some(ANY_ID));
                id.into_iter().for_each(|id| out.push_str(&format!("{before}{id}")));
            }
            Part::Arguments => write_json(&arguments, &mut out),
            Part::Keywords => out.push_str(&keywords(entries)?),
            Part::Map(quote) => out.push_str(&marked(&arguments, quote)?),
            Part::Tags(tags) => {
                for (name, value) in entries {
                    out.push_str(&tagged(tags, tool, name, value)?);
                }
            }
            fixed => out.push_str(fixed.fixed()),
        }
    }
    Some(out)
}

/// Return true if all numbers of a value are finite: a text may have one that no float is.
fn is_finite(value: &Value) -> bool {
    match value {
        Value::Float(x) => x.is_finite(),
        Value::List(items) => items.iter().all(is_finite),
        Value::Map(entries) => entries.iter().all(|(_, value)| is_finite(value)),
        _ => true,
    }
}

/// Return a call as JSON object.
fn object(syntax: &CallSyntax, call: &ToolCall, arguments: &Value) -> String {
    let name = || Value::from(call.name.as_str());
    let entries = match &syntax.keys {
        Keys::NameIsKey => Vec::from([(call.name.as_str(), arguments.clone())]),
        Keys::Named(key, arguments_key, id) => {
            let mut entries = Vec::from([(*key, name()), (*arguments_key, arguments.clone())]);
            let text = Value::from(call.id.as_deref().unwrap_or(ANY_ID));
            match id {
                Identifier::None => {}
                Identifier::Before(key) => entries.insert(0, (key, text)),
                Identifier::Behind(key) => entries.push((key, text)),
            }
            entries
        }
    };
    let mut out = String::new();
    write_json(&Value::map(entries), &mut out);
    out
}

/// Return arguments as in Python, between brackets.
fn keywords(entries: &[(String, Value)]) -> Option<String> {
    let written = entries.iter().map(|(name, value)| {
        let mut out = format!("{name}=");
        write_json(value, &mut out);
        out
    });
    Some(format!("({})", written.collect::<Vec<_>>().join(", ")))
}

/// Return a value in Gemma's notation, or `None` if it has no text there.
pub(super) fn marked(value: &Value, quote: &str) -> Option<String> {
    Some(match value {
        Value::Str(text) if text.contains(quote) => return None,
        Value::Str(text) => format!("{quote}{text}{quote}"),
        Value::List(items) => {
            let items: Option<Vec<String>> = items.iter().map(|item| marked(item, quote)).collect();
            format!("[{}]", items?.join(","))
        }
        Value::Map(entries) => {
            let entry = |(name, value): &(String, Value)| {
                Some(format!("{}:{}", marked_key(name, quote), marked(value, quote)?))
            };
            let entries: Option<Vec<String>> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries?.join(","))
        }
        scalar => {
            let mut out = String::new();
            write_json(scalar, &mut out);
            out
        }
    })
}

/// Return a key in Gemma's notation: bare, unless its characters mean something there.
pub(super) fn marked_key(name: &str, quote: &str) -> String {
    let has_meaning = name.contains([',', ':', '(', ')', '{', '}', '[', ']', '"', '\'', '<', '\\']);
    if has_meaning || name.trim() != name || name.is_empty() {
        format!("{quote}{name}{quote}")
    } else {
        name.to_string()
    }
}

/// Return a parameter between tags, or `None` if its value has no text there.
fn tagged(tags: &Tags, tool: &Tool, name: &str, value: &Value) -> Option<String> {
    let Tags { begin, after_name, before_value, .. } = tags;
    let mut text = String::new();
    match value {
        Value::Str(string) if tags.attribute != Attribute::None => text.push_str(string),
        Value::Str(string) => raw::write(string, tool.types(name), &mut text),
        other => write_json(other, &mut text),
    }
    let is_text = value.as_str().is_some();
    let is_plain = !is_text || tags.ends(tool).iter().all(|end| !text.contains(end));
    if !is_plain || (is_text && tags.has_cdata && text.trim_start().starts_with(CDATA)) {
        return None;
    }
    let line = if tags.own_lines { "\n" } else { "" };
    let attribute = tags.attribute.texts(Types::of(value)).pop().unwrap_or_default();
    let (end, name) = (tags.end_of(name), tags.written_name(name));
    Some(format!("{begin}{name}{after_name}{attribute}{before_value}{line}{text}{line}{end}"))
}

impl Tags {
    /// Return the texts that end a string without quotes, or begin another parameter.
    pub(super) fn ends(&self, tool: &Tool) -> Vec<String> {
        if !self.namespace.is_empty() {
            return Vec::from([self.namespace.into()]);
        }
        let mut begins: Vec<String> = tool
            .names()
            .map(|other| format!("{}{}{}", self.begin, self.written_name(other), self.after_name))
            .take(MAX_BEGINS + 1)
            .collect();
        if begins.len() > MAX_BEGINS {
            begins = Vec::from([self.begin.into()]);
        }
        core::iter::once(self.end.into()).chain(begins).collect()
    }
}

impl Part {
    /// Return the text of a part that is the same in all calls; none for others.
    fn fixed(&self) -> &'static str {
        match self {
            Self::Literal(text) | Self::Optional(text) | Self::Close(text) => text,
            _ => "",
        }
    }
}
