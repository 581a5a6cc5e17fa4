//! Calls as a grammar in the Lark dialect of llguidance.
//!
//! The grammar has a rule for the calls of each tool, from the parts of the format and the schema
//! of the tool's parameters. `%json` embeds a schema, `<[7]>` is the token 7, and a rule with a
//! `suffix` reads text up to that suffix.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::scanner::{write_json, write_text};
use super::syntax::{CallSyntax, Identifier, Keys, Part, ReasoningSyntax, Tags};
use super::tools::{Kind, Tool, Tools};
use crate::chat::Value;

/// The white space that may stand between parts.
const SPACE: &str = "SPACE: /[ \\n]{1,2}/\n";
/// An identifier of a call.
const ID: &str = "ID: /[a-zA-Z0-9]{9}/\n";
/// The number of a call.
const INDEX: &str = "INDEX: /[0-9]{1,3}/\n";
/// The options of schemas.
const OPTIONS: &str = concat!(
    r#""x-guidance":{"whitespace_pattern":" | ?(\\r?\\n){1,2}[ \\t]{0,20}","#,
    r#""coerce_one_of":true,"lenient":true}"#
);
/// Any text.
const TEXT: &str = "/(?s:.*)/";

/// The parts of a request that the grammar depends on.
pub(super) struct Request<'r> {
    /// The format of calls.
    pub(super) syntax: &'static CallSyntax,
    /// The tools to call.
    pub(super) tools: &'r Tools,
    /// True if there may be several calls.
    pub(super) parallel: bool,
    /// The way of writing reasoning, if it may stand before the calls; true if the prompt ended
    /// within it.
    pub(super) reasoning: Option<(&'static ReasoningSyntax, bool)>,
    /// True if the prompt ended with the marker of a call.
    pub(super) is_begun: bool,
    /// The identifier of a control token by its text.
    pub(super) token: &'r dyn Fn(&str) -> Option<u32>,
}

/// Return the grammar, or `None` without tools.
pub(super) fn write(request: &Request<'_>) -> Option<String> {
    if request.tools.is_empty() {
        return None;
    }
    let mut writer = Writer { request, rules: String::new(), n_rules: 0 };
    let first = writer.calls();
    let thought = writer.reasoning();
    Some(format!("start: {thought}{first}\n{}{SPACE}{ID}{INDEX}", writer.rules))
}

/// The writer: the rules so far.
struct Writer<'w> {
    /// The request.
    request: &'w Request<'w>,
    /// The rules.
    rules: String,
    /// The number of rules with generated names.
    n_rules: usize,
}

impl Writer<'_> {
    /// Return the symbol of a text that the model has to write: a token, or a string.
    fn literal(&self, text: &str) -> String {
        if let Some(token) = (self.request.token)(text.trim()) {
            return format!("<[{token}]>");
        }
        let mut out = String::new();
        write_text(text, &mut out);
        out
    }

    /// Add a rule and return its name.
    fn rule(&mut self, attributes: &str, body: &str) -> String {
        let name = format!("r{}", self.n_rules);
        self.n_rules += 1;
        self.rules.push_str(&format!("{name}{attributes}: {body}\n"));
        name
    }

    /// Return the symbols of any text and the marker behind it.
    fn text_before(&mut self, end: &str) -> String {
        match (self.request.token)(end.trim()) {
            // Text has no control tokens, so it ends at the first one.
            Some(token) => format!("{} <[{token}]>", self.rule("", TEXT)),
            None => {
                let mut suffix = String::new();
                write_text(end, &mut suffix);
                self.rule(&format!("[suffix={suffix}]"), TEXT)
            }
        }
    }

    /// Return the symbols of reasoning before the calls.
    fn reasoning(&mut self) -> String {
        let Some((reasoning, is_open)) = self.request.reasoning else {
            return String::new();
        };
        let text = self.text_before(reasoning.close);
        if is_open {
            return format!("{text} SPACE? ");
        }
        format!("({} {text} SPACE?)? ", self.literal(reasoning.open))
    }

    /// Return the symbols of all calls.
    fn calls(&mut self) -> String {
        let syntax = self.request.syntax;
        let call = self.call(self.request.is_begun);
        let further = if self.request.is_begun { self.call(false) } else { call.clone() };
        // A section of tagged calls has several; one of JSON is repeated or has a list.
        let is_json = matches!(syntax.call, [Part::Json | Part::JsonOrPython]);
        let repeats = self.request.parallel && !syntax.is_list && !syntax.is_bare;
        let repeated = |inner: &str, further: &str| {
            if repeats { format!("{inner} (SPACE? {further})*") } else { inner.to_string() }
        };
        match &syntax.section {
            Some(section) if !syntax.is_bare => {
                let (begin, end) = (self.literal(section.begin), self.literal(section.end));
                let whole = |inner: &str| format!("{begin} SPACE? {inner} SPACE? {end}");
                if is_json {
                    let block = self.rule("", &whole(&call));
                    repeated(&block, &block)
                } else {
                    whole(&repeated(&call, &further))
                }
            }
            _ => repeated(&call, &further),
        }
    }

    /// Return the rule of a call, without its first literal if the prompt has it already.
    fn call(&mut self, is_begun: bool) -> String {
        let syntax = self.request.syntax;
        if syntax.name == super::formats::HARMONY {
            return self.harmony();
        }
        let skipped = usize::from(is_begun);
        let parts = syntax.call.get(skipped..).unwrap_or(&[]);
        if let Some((Part::Json | Part::JsonOrPython, before)) = parts.split_last()
            && !syntax.is_python
        {
            let mut body: Vec<String> = before.iter().map(|part| self.fixed(part)).collect();
            body.push(format!("%json {}", json(&self.schema())));
            return self.rule("", &body.join(" "));
        }
        let tools: Vec<Tool> = self.request.tools.iter().cloned().collect();
        let calls: Vec<String> = tools
            .iter()
            .map(|tool| {
                let body: Vec<String> = parts.iter().map(|part| self.part(part, tool)).collect();
                self.rule("", &body.join(" "))
            })
            .collect();
        let choice = calls.join(" | ");
        let choice = self.rule("", &choice);
        if syntax.is_python {
            let more = if self.request.parallel { format!(" (\", \" {choice})*") } else { String::new() };
            return self.rule("", &format!("\"[\" {choice}{more} \"]\""));
        }
        choice
    }

    /// Return the rule of a call in a message of its own.
    fn harmony(&mut self) -> String {
        let (channel, constrain) = (self.literal("<|channel|>"), self.literal("<|constrain|>"));
        let message = self.literal("<|message|>");
        let tools: Vec<Tool> = self.request.tools.iter().cloned().collect();
        let calls: Vec<String> = tools
            .iter()
            .map(|tool| {
                let header = self.literal(&format!("commentary to=functions.{} ", tool.name));
                let schema = json(&tool.schema());
                self.rule("", &format!("{channel} {header} {constrain} \"json\" {message} %json {schema}"))
            })
            .collect();
        let choice = calls.join(" | ");
        self.rule("", &choice)
    }

    /// Return the symbols of a part that is the same for all tools.
    fn fixed(&self, part: &Part) -> String {
        match part {
            Part::Literal(text) | Part::Close(text) => format!("{} SPACE?", self.literal(text)),
            Part::Optional(text) => format!("{}? SPACE?", self.literal(text)),
            Part::Id("") => "ID".to_string(),
            Part::Id(before) => format!("({} ID)?", self.literal(before)),
            _ => String::new(),
        }
    }

    /// Return the symbols of a part of a tool's call.
    fn part(&mut self, part: &Part, tool: &Tool) -> String {
        match part {
            Part::Name => self.literal(&tool.name),
            Part::NameLine => self.literal(&format!("{}\n", tool.name)),
            Part::NameInId => format!("{} INDEX", self.literal(&format!("functions.{}:", tool.name))),
            Part::Arguments => format!("%json {} SPACE?", json(&tool.schema())),
            Part::Map => {
                let entries = self.separated(tool, ",", &|name| format!("{name}:"), true);
                format!("\"{{\" {entries} \"}}\"")
            }
            Part::Json | Part::JsonOrPython => {
                let entries = self.separated(tool, ", ", &|name| format!("{name}="), false);
                format!("{} \"(\" {entries} \")\"", self.literal(&tool.name))
            }
            Part::Tags(tags) => {
                let parameters: Vec<String> =
                    tool.parameters().map(|(name, schema)| self.tagged(tags, tool, name, schema)).collect();
                format!("SPACE? {}", parameters.join(" "))
            }
            Part::Elements(elements) => {
                let space = elements.namespace;
                let parameters: Vec<String> = tool
                    .parameters()
                    .map(|(name, schema)| {
                        let end = format!("{space}</{name}>");
                        let value = self.value(schema, &end, "");
                        let element = format!("{} {value}", self.literal(&format!("{space}<{name}>")));
                        optional(tool, name, &element)
                    })
                    .collect();
                parameters.join(" ")
            }
            fixed => self.fixed(fixed),
        }
    }

    /// Return the symbols of a parameter between tags.
    fn tagged(&mut self, tags: &Tags, tool: &Tool, name: &str, schema: &Value) -> String {
        let is_text = Kind::of(Some(schema)) == Kind::Text;
        let typed = match (tags.is_typed, is_text) {
            (true, true) => " string=\"true\"",
            (true, false) => " string=\"false\"",
            _ => "",
        };
        // Only tags without attributes are tokens.
        let begin = match (self.request.token)(tags.begin) {
            Some(_) => {
                let before = if tags.before_value.is_empty() {
                    String::new()
                } else {
                    format!(" SPACE? {}", self.literal(tags.before_value))
                };
                let (begin, after) = (self.literal(tags.begin), self.literal(tags.after_name));
                format!("{begin} {} {after}{before}", self.literal(name))
            }
            None => {
                let line = if tags.before_value.starts_with('<') { "\n" } else { "" };
                let text =
                    format!("{}{name}{}{typed}{line}{}", tags.begin, tags.after_name, tags.before_value);
                self.literal(&text)
            }
        };
        let line = if tags.own_lines { "\n" } else { "" };
        let before = if tags.own_lines { "\"\\n\" " } else { "" };
        let value = self.value(schema, tags.end, line);
        optional(tool, name, &format!("{begin} {before}{value} SPACE?"))
    }

    /// Return the symbols of a value and the marker behind it, on lines of its own if `line` is a
    /// line break. Strings have no quotes.
    fn value(&mut self, schema: &Value, end: &str, line: &str) -> String {
        let choices = schema.get("enum").and_then(Value::as_list);
        let texts: Option<Vec<&str>> = choices.map(|list| list.iter().filter_map(Value::as_str).collect());
        let after = |writer: &Self| match (writer.request.token)(end) {
            Some(_) if !line.is_empty() => format!("\"\\n\" {}", writer.literal(end)),
            _ => writer.literal(&format!("{line}{end}")),
        };
        match texts {
            Some(texts) if choices.is_some_and(|list| list.len() == texts.len()) && !texts.is_empty() => {
                let texts: Vec<String> = texts.into_iter().map(|text| self.literal(text)).collect();
                format!("({}) {}", texts.join(" | "), after(self))
            }
            _ if Kind::of(Some(schema)) == Kind::Text => self.text_before(&format!("{line}{end}")),
            _ => format!("%json {} {}", json(schema), after(self)),
        }
    }

    /// Return the symbols of parameters with separators, each behind `label` of its name.
    /// Parameters that are not required may be left out. Strings stand in Gemma's quotes if
    /// `marked`.
    fn separated(
        &mut self,
        tool: &Tool,
        separator: &str,
        label: &dyn Fn(&str) -> String,
        marked: bool,
    ) -> String {
        let parameters: Vec<(&str, &Value)> = tool.parameters().collect();
        // From the last parameter to the first: the rest of the list behind another parameter, and
        // the rest that begins the list.
        let (mut behind, mut first) = ("\"\"".to_string(), "\"\"".to_string());
        for (name, schema) in parameters.into_iter().rev() {
            let quote = self.literal("<|\"|>");
            let value = if marked && Kind::of(Some(schema)) == Kind::Text {
                format!("{quote} {}", self.text_before("<|\"|>"))
            } else {
                format!("%json {}", json(schema))
            };
            let entry = format!("{} {value} {behind}", self.literal(&label(name)));
            let entry = self.rule("", &entry);
            let (mut then, mut start) = (format!("{} {entry}", self.literal(separator)), entry);
            if !tool.requires(name) {
                then = format!("{then} | {behind}");
                start = format!("{start} | {first}");
            }
            (behind, first) = (self.rule("", &then), self.rule("", &start));
        }
        first
    }

    /// Return the schema of calls as JSON.
    fn schema(&self) -> Value {
        let syntax = self.request.syntax;
        let call = |tool: &Tool| {
            let constant = Value::map([("const", Value::from(tool.name.as_str()))]);
            let text = || Value::map([("type", Value::from("string"))]);
            match &syntax.keys {
                Keys::NameIsKey => object([(tool.name.as_str(), tool.schema())].into()),
                Keys::Named(name, arguments, id) => {
                    let mut entries = Vec::from([(*name, constant), (*arguments, tool.schema())]);
                    match id {
                        Identifier::None => {}
                        Identifier::Before(key) => entries.insert(0, (key, text())),
                        Identifier::Behind(key) => entries.push((key, text())),
                    }
                    object(entries)
                }
            }
        };
        let mut calls: Vec<Value> = self.request.tools.iter().map(call).collect();
        let call = match (calls.len(), calls.pop()) {
            (1, Some(only)) => only,
            (_, last) => Value::map([("anyOf", Value::List(calls.into_iter().chain(last).collect()))]),
        };
        if !syntax.is_list {
            return call;
        }
        let mut list = Vec::from([("type", "array".into()), ("items", call), ("minItems", 1.into())]);
        if !self.request.parallel {
            list.push(("maxItems", 1.into()));
        }
        Value::map(list)
    }
}

/// Return the schema of an object with exactly these keys.
fn object(entries: Vec<(&str, Value)>) -> Value {
    let required = entries.iter().map(|(key, _)| Value::from(*key)).collect();
    Value::map([
        ("type", "object".into()),
        ("properties", Value::map(entries)),
        ("required", Value::List(required)),
        ("additionalProperties", false.into()),
    ])
}

/// Return `symbols`, in brackets with a question mark unless the tool requires the parameter.
fn optional(tool: &Tool, name: &str, symbols: &str) -> String {
    if tool.requires(name) { symbols.to_string() } else { format!("({symbols})?") }
}

/// Return the JSON text of a schema, with the options of a grammar's own schemas: keywords that
/// only describe are ignored, and white space has an end.
fn json(schema: &Value) -> String {
    let mut out = String::new();
    write_json(schema, &mut out);
    if let Some(rest) = out.strip_prefix('{') {
        let comma = if rest == "}" { "" } else { "," };
        out = format!("{{{OPTIONS}{comma}{rest}");
    }
    out
}
