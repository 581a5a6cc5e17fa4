//! Strings without quotes in a grammar: what their schema and their place allow.
//!
//! A string is read up to the first text that ends it, so a grammar must not allow that text within
//! it. The other conditions are those of the schema: lengths, patterns, formats.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::grammar::{Writer, quoted};
use super::pieces::{Piece, pieces};
use super::ranges;
use super::scanner::write_json;
use super::schema::{self, Types};
use crate::chat::Value;

/// Any text.
const ANY: &str = "/(?s:.*)/";
/// A name of a parameter that no schema tells.
pub(super) const NAME: &str = "/[a-zA-Z0-9_.$-]{1,64}/";
/// The longest string whose characters are counted.
const MAX_COUNTED: i64 = 2000;

/// A condition of a string: an expression of terminals in the Lark dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition(String);

impl Condition {
    /// The string contains none of these texts. One expression for all: the library's work grows
    /// with the product of conditions, and with the sum of what is in one.
    pub(super) fn without(texts: &[&str]) -> Self {
        let texts: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
        Self(format!("~/(?s:.*)({})(?s:.*)/", texts.join("|")))
    }

    /// The string does not begin with `text`, behind white space.
    pub(super) fn not_beginning(text: &str) -> Self {
        Self(format!("~/\\s*{}(?s:.*)/", escaped(text)))
    }

    /// The string is none of these texts, and matches none of these patterns; `None` if there are
    /// none that a grammar can follow.
    pub(super) fn none_of<'t>(
        texts: impl Iterator<Item = &'t str>,
        patterns: impl Iterator<Item = &'t str>,
    ) -> Option<Self> {
        let all: Vec<String> = texts.map(escaped).chain(patterns.filter_map(whole_pattern)).collect();
        (!all.is_empty()).then(|| Self(format!("~/({})/", all.join("|"))))
    }

    /// The string means no value of another type where one may stand. `is_limited` says that it
    /// must not be one in quotes either, which would be read without them.
    pub(super) fn no_other(types: Types, is_limited: bool) -> Vec<Self> {
        let mut words = Vec::new();
        for (kind, word) in [
            (Types::NULL, "null"),
            (Types::BOOLEAN, "true|false"),
            (Types::NUMBER, r"-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?"),
            (Types::LIST, r"\[(?s:.*)"),
            (Types::MAP, r"\{(?s:.*)"),
        ] {
            if types.meet(kind) {
                words.push(word);
            }
        }
        if words.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::from([Self(format!(r"~/\s*({})\s*/", words.join("|")))]);
        if is_limited {
            found.push(Self(r#"~/\s*"(?s:.*)"\s*/"#.into()));
        }
        found
    }
}

/// Return the conditions of strings that all of these schemas allow. Patterns that no grammar can
/// follow are left out.
pub(super) fn of_limits(limits: &[Value]) -> Vec<Condition> {
    let mut found = Vec::new();
    for limit in limits {
        let bound = |key: &str| match limit.get(key) {
            Some(Value::Int(n)) => Some(*n).filter(|n| (0..=MAX_COUNTED).contains(n)),
            _ => None,
        };
        match (bound("minLength"), bound("maxLength")) {
            (None | Some(0), None) => {}
            (least, None) => found.push(Condition(format!("/(?s:.{{{},}})/", least.unwrap_or(0)))),
            (least, Some(most)) => {
                found.push(Condition(format!("/(?s:.{{{},{most}}})/", least.unwrap_or(0))));
            }
        }
        let pattern = limit.get("pattern").and_then(Value::as_str).and_then(whole_pattern);
        found.extend(pattern.map(|whole| Condition(format!("/{whole}/"))));
        let format = limit.get("format").and_then(Value::as_str).and_then(format_pattern);
        found.extend(format.map(|whole| Condition(format!("/{whole}/"))));
    }
    found
}

/// Return the condition of texts that are values of these types, no lists or objects, that all
/// `schemas` allow; `None` if there are none. Bounds of numbers are those of integers.
pub(super) fn scalars(types: Types, schemas: &[Value]) -> Option<Condition> {
    let mut words: Vec<String> = Vec::new();
    if let Some(listed) = schema::listed(types, schemas) {
        for value in listed {
            let mut text = String::new();
            write_json(value, &mut text);
            words.push(escaped(&text));
        }
    } else {
        if types.meet(Types::NULL) {
            words.push("null".into());
        }
        if types.meet(Types::BOOLEAN) {
            words.push("true|false".into());
        }
        if types.meet(Types::NUMBER) {
            words.extend(numbers(schemas));
        }
    }
    (!words.is_empty()).then(|| Condition(format!("/({})/", words.join("|"))))
}

/// Return the regular expression of numbers that all `schemas` allow.
fn numbers(schemas: &[Value]) -> Option<String> {
    let is_integer = |schema: &Value| {
        let kind = schema.get("type");
        let list = kind.and_then(Value::as_list).or_else(|| kind.map(core::slice::from_ref)).unwrap_or(&[]);
        let has = |name: &str| list.iter().any(|kind| kind.as_str() == Some(name));
        has("integer") && !has("number")
    };
    if !schemas.iter().any(is_integer) {
        return Some(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?".into());
    }
    let bounds = |key: &'static str, by: i64| {
        schemas.iter().filter_map(move |schema| match schema.get(key) {
            Some(Value::Int(n)) => n.checked_add(by),
            _ => None,
        })
    };
    let least = bounds("minimum", 0).chain(bounds("exclusiveMinimum", 1)).max();
    let most = bounds("maximum", 0).chain(bounds("exclusiveMaximum", -1)).min();
    ranges::integers(least, most)
}

/// Return the regular expression of the strings of a format.
fn format_pattern(name: &str) -> Option<String> {
    const DATE: &str = concat!(
        r"[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])",
        r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-9]))",
    );
    const TIME: &str = concat!(
        r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?",
        r"(Z|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])",
    );
    const BYTE: &str = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    const LABEL: &str = r"[a-zA-Z0-9]([a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])?";
    Some(match name {
        "date" => DATE.into(),
        "time" => TIME.into(),
        "date-time" => format!("{DATE}T{TIME}"),
        "uuid" => "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}".into(),
        "ipv4" => format!(r"({BYTE}\.){{3}}{BYTE}"),
        "email" => format!(r"[a-zA-Z0-9_+\-]+(\.[a-zA-Z0-9_+\-]+)*@{LABEL}(\.{LABEL})*"),
        "hostname" => format!(r"{LABEL}(\.{LABEL})*"),
        _ => return None,
    })
}

/// Return a regular expression of the whole strings that match `pattern` somewhere.
#[cfg(feature = "grammar")]
fn whole_pattern(pattern: &str) -> Option<String> {
    crate::grammar::whole_pattern(pattern)
}

/// Return `None`: patterns are read by the library for grammars.
#[cfg(not(feature = "grammar"))]
fn whole_pattern(_: &str) -> Option<String> {
    None
}

/// Return `text` as a regular expression of itself.
fn escaped(text: &str) -> String {
    text.chars().map(|c| format!("\\x{{{:X}}}", u32::from(c))).collect()
}

impl Writer<'_> {
    /// Return the symbols of a text that has all these properties, and of the marker behind it.
    /// Text has no control tokens, so it ends at the first one.
    pub(super) fn text_with(&mut self, conditions: &[Condition], end: &str) -> String {
        let end = pieces(end, self.token);
        let at = end.iter().position(|piece| matches!(piece, Piece::Token(_)));
        let (before, behind) = end.split_at(at.unwrap_or(end.len()));
        let before: String = before.iter().map(|piece| piece.text()).collect();
        let body = all(ANY, conditions);
        if at.is_none() {
            return self.rule(&format!("[suffix={}]", quoted(&before)), &body);
        }
        let before = if before.is_empty() { before } else { format!(" {}", quoted(&before)) };
        let text = self.terminal(&format!("{body}{before}"));
        format!("{text} {}", super::grammar::symbols(behind))
    }
}

/// Return the expression of texts of `body` with these conditions.
pub(super) fn all(body: &str, conditions: &[Condition]) -> String {
    if conditions.is_empty() {
        return body.into();
    }
    let mut parts: Vec<&str> = conditions.iter().map(|condition| condition.0.as_str()).collect();
    if body != ANY || parts.iter().all(|part| part.starts_with('~')) {
        parts.insert(0, body);
    }
    format!("({})", parts.join(" & "))
}
