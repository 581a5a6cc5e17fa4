//! Calls as a grammar in the Lark dialect of llguidance.
//!
//! The grammar has a rule for the calls of each tool, from the parts of the format and the schema
//! of the tool's parameters. `%json` embeds a schema, `<[7]>` is the token 7, and a rule with a
//! `suffix` reads text up to that suffix.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::formats::HARMONY;
use super::harmony::{self, RECIPIENT};
use super::pieces::{Piece, TokenOf, pieces};
use super::scanner::{write_json, write_text};
use super::syntax::{CallSyntax, Identifier, Keys, Part, ReasoningSyntax, Section, WithinReasoning};
use super::text_rules::{Condition, NAME};
use super::tools::{Tool, Tools};
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
    r#""coerce_one_of":true,"lenient":true,"json_allow_general_unicode_escapes":true}"#
);

/// The reasoning that may begin an answer.
#[derive(Clone, Copy)]
pub(super) struct Thoughts {
    /// The way of writing it.
    pub(super) syntax: &'static ReasoningSyntax,
    /// The way of writing calls.
    pub(super) calls: Option<&'static CallSyntax>,
    /// True if the prompt ended within it.
    pub(super) is_open: bool,
}

impl Thoughts {
    /// Return the texts that end reasoning: its marker, and those of calls where these end it.
    fn ends(&self) -> impl Iterator<Item = &'static str> {
        let calls = self.calls.filter(|calls| calls.within_reasoning == WithinReasoning::Ends);
        let is_harmony = self.calls.is_some_and(|calls| calls.name == HARMONY);
        let section = calls.and_then(|calls| calls.section.as_ref()).map(|section| section.begin);
        let begin = calls.and_then(CallSyntax::begin);
        let bodies: &[&str] = if is_harmony { &harmony::ENDS } else { &[] };
        [Some(self.syntax.close), section, begin].into_iter().flatten().chain(bodies.iter().copied())
    }
}

/// The parts of a request that the grammar depends on.
pub(super) struct Request<'r> {
    /// The format of calls.
    pub(super) syntax: &'static CallSyntax,
    /// The tools to call.
    pub(super) tools: &'r Tools,
    /// True if there may be several calls.
    pub(super) parallel: bool,
    /// The reasoning that may stand before the calls.
    pub(super) reasoning: Option<Thoughts>,
    /// True if the prompt ended with the marker of a call.
    pub(super) is_begun: bool,
    /// The identifier of a control token by its text.
    pub(super) token: TokenOf<'r>,
}

/// Return the grammar, or `None` without tools.
pub(super) fn write(request: &Request<'_>) -> Option<String> {
    if request.tools.is_empty() {
        return None;
    }
    let mut writer = Writer::new(request.token);
    let first = writer.calls(request);
    let is_harmony = request.syntax.name == HARMONY;
    let thought = request.reasoning.map(|thoughts| writer.thought(thoughts, is_harmony));
    let rules = writer.rules;
    Some(format!("start: {}{first}\n{rules}{SPACE}{ID}{INDEX}NAME: {NAME}\n", thought.unwrap_or_default()))
}

/// Return the grammar of answers with `content` behind reasoning, and behind the header of a
/// message in the format of gpt-oss.
pub(super) fn write_content(
    content: &str,
    thoughts: Thoughts,
    is_harmony: bool,
    token: TokenOf<'_>,
) -> String {
    let mut writer = Writer::new(token);
    let thought = writer.thought(thoughts, is_harmony);
    let header = if is_harmony {
        let (channel, message) = (writer.literal("<|channel|>"), writer.literal("<|message|>"));
        let kind = writer.harmony_kind();
        format!("{channel} \"final\" {kind} {message} ")
    } else {
        String::new()
    };
    format!("start: {thought}{header}{content}\n{}{SPACE}", writer.rules)
}

/// The writer: the rules so far.
pub(super) struct Writer<'w> {
    /// The identifier of a control token by its text.
    pub(super) token: TokenOf<'w>,
    /// The rules.
    rules: String,
    /// The names of the rules by what defines them.
    known: BTreeMap<String, String>,
    /// The number of rules with generated names.
    n_rules: usize,
    /// The quote of Gemma's notation.
    pub(super) quote: &'static str,
    /// The rule of any value in this notation, once there is one.
    pub(super) marked: Option<String>,
}

impl<'w> Writer<'w> {
    /// Make a writer without rules.
    fn new(token: TokenOf<'w>) -> Self {
        Self { token, rules: String::new(), known: BTreeMap::new(), n_rules: 0, quote: "", marked: None }
    }

    /// Return the symbols of a text of the format: its control tokens as such, and strings.
    pub(super) fn literal(&self, text: &str) -> String {
        symbols(&pieces(text, self.token))
    }

    /// Add a rule, unless there is one like it, and return its name.
    pub(super) fn rule(&mut self, attributes: &str, body: &str) -> String {
        self.named(attributes, body, String::to_string)
    }

    /// Add a terminal, unless there is one like it, and return its name.
    pub(super) fn terminal(&mut self, body: &str) -> String {
        self.named("", body, |name| name.to_uppercase())
    }

    /// Add what its name, made from a new one, tells to be a rule or a terminal.
    fn named(&mut self, attributes: &str, body: &str, made: impl Fn(&String) -> String) -> String {
        let name = made(&self.name());
        let kind = name.get(..1).unwrap_or_default();
        let key = format!("{kind}{attributes}: {body}");
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        self.define(&name, attributes, body);
        self.known.insert(key, name.clone());
        name
    }

    /// Return the name of a rule that is defined later.
    pub(super) fn name(&mut self) -> String {
        self.n_rules += 1;
        format!("r{}", self.n_rules - 1)
    }

    /// Add the rule of this name.
    pub(super) fn define(&mut self, name: &str, attributes: &str, body: &str) {
        self.rules.push_str(&format!("{name}{attributes}: {body}\n"));
    }

    /// Return the symbols of reasoning at the beginning. Reasoning in the format of gpt-oss is
    /// messages of their own, of any number, and the role of the next one stands behind each.
    fn thought(&mut self, thoughts: Thoughts, is_harmony: bool) -> String {
        let Thoughts { syntax, is_open, .. } = thoughts;
        let ends: Vec<&str> = thoughts.ends().collect();
        let text = self.text_with(&[Condition::without(&ends)], syntax.close);
        // Calls may begin alike, so that the channel is a terminal of its own.
        let open = match is_harmony {
            true => ["<|channel|>", "analysis", "<|message|>"].map(|text| self.literal(text)).join(" "),
            false => self.literal(syntax.open),
        };
        let role = self.literal("<|start|>assistant");
        match (is_harmony, is_open) {
            (false, true) => format!("{text} SPACE? "),
            (false, false) => format!("(SPACE? {open} {text} SPACE?)? "),
            (true, true) => format!("{text} {role} ({open} {text} {role})* "),
            (true, false) => format!("({open} {text} {role})* "),
        }
    }

    /// Return the symbols of all calls.
    fn calls(&mut self, request: &Request<'_>) -> String {
        let syntax = request.syntax;
        let (call, further) = match syntax.name == HARMONY {
            true => (self.harmony(request.tools, true), self.harmony(request.tools, false)),
            false => {
                let call = self.call(request, request.is_begun);
                let further = if request.is_begun { self.call(request, false) } else { call.clone() };
                (call, further)
            }
        };
        let repeats = request.parallel && !syntax.is_list && !syntax.is_bare;
        let repeated = |inner: &str, further: &str| {
            if repeats { format!("{inner} (SPACE? {further})*") } else { inner.to_string() }
        };
        let Some(Section { begin, end, .. }) = &syntax.section else {
            return repeated(&call, &further);
        };
        let (begin, end) = (self.literal(begin), self.literal(end));
        if syntax.is_bare {
            return format!("({begin} SPACE?)? {call}");
        }
        // A section of JSON is repeated, or has a list; one of other calls may also have several.
        let is_json = matches!(syntax.call, [Part::Json | Part::JsonOrPython]);
        let is_single = is_json || syntax.is_section_optional;
        let inner = if is_single { call } else { repeated(&call, &further) };
        let block = match syntax.is_section_optional {
            false => format!("{begin} SPACE? {inner} SPACE? {end}"),
            true => format!("({begin} SPACE?)? {inner} SPACE? ({end})?"),
        };
        let block = self.rule("", &block);
        repeated(&block, &block)
    }

    /// Return the rule of a call, without its first literal if the prompt has it already.
    fn call(&mut self, request: &Request<'_>, is_begun: bool) -> String {
        let syntax = request.syntax;
        let parts = syntax.call.get(usize::from(is_begun)..).unwrap_or(&[]);
        if let Some((Part::Json | Part::JsonOrPython, before)) = parts.split_last()
            && !syntax.is_python
        {
            let mut body: Vec<String> = before.iter().map(|part| self.fixed(part)).collect();
            body.push(format!("%json {}", json(&schema(request))));
            return self.rule("", &body.join(" "));
        }
        let calls: Vec<String> = request
            .tools
            .iter()
            .map(|tool| {
                let shapes = tool.variants();
                let bodies: Vec<String> = shapes.iter().map(|shape| self.body(parts, shape)).collect();
                self.rule("", &bodies.join(" | "))
            })
            .collect();
        let choice = self.rule("", &calls.join(" | "));
        if syntax.is_python {
            let more = if request.parallel { format!(" (\",\" SPACE? {choice})*") } else { String::new() };
            return self.rule("", &format!("\"[\" {choice}{more} \"]\""));
        }
        choice
    }

    /// Return the symbols of the parts of a tool's call.
    fn body(&mut self, parts: &'static [Part], tool: &Tool) -> String {
        parts.iter().map(|part| self.part(part, tool)).collect::<Vec<_>>().join(" ")
    }

    /// Return the rule of a call in a message of its own. The recipient stands behind the channel,
    /// or behind the role, as in the calls that the template writes; the prompt may have written
    /// the role of the first message.
    fn harmony(&mut self, tools: &Tools, is_first: bool) -> String {
        let (channel, message) = (self.literal("<|channel|>"), self.literal("<|message|>"));
        let role = self.literal("<|start|>assistant");
        let role = if is_first { format!("({role})?") } else { role };
        let channel = self.rule("", &format!("{channel} (\"commentary\" | \"analysis\")"));
        let kind = self.harmony_kind();
        let recipient = quoted(RECIPIENT);
        let calls: Vec<String> = tools
            .iter()
            .map(|tool| {
                let (name, schema) = (quoted(&tool.name), json(&tool.schema()));
                let header = format!("{channel} {recipient} {name} | {role} {recipient} {name} {channel}");
                self.rule("", &format!("({header}) {kind} {message} %json {schema}"))
            })
            .collect();
        self.rule("", &calls.join(" | "))
    }

    /// Return the symbols of what a header may say of the type of the body.
    fn harmony_kind(&self) -> String {
        format!("((\" \"? {} | \" \") \"json\")?", self.literal("<|constrain|>"))
    }

    /// Return the symbols of a part that is the same for all tools.
    fn fixed(&self, part: &Part) -> String {
        match part {
            Part::Literal(text) | Part::Close(text) => format!("{} SPACE?", self.literal(text)),
            Part::Optional(text) => format!("({})? SPACE?", self.literal(text)),
            Part::Id("") => "ID".to_string(),
            Part::Id(before) => format!("({} ID)?", self.literal(before)),
            _ => String::new(),
        }
    }

    /// Return the symbols of a part of a tool's call.
    fn part(&mut self, part: &'static Part, tool: &Tool) -> String {
        match part {
            Part::Name => quoted(&tool.name),
            Part::NameLine => quoted(&format!("{}\n", tool.name)),
            Part::Number => "INDEX".into(),
            Part::NameInId => format!("{} INDEX", quoted(&format!("functions.{}:", tool.name))),
            Part::Arguments => format!("%json {} SPACE?", json(&tool.schema())),
            Part::Map(quote) => {
                self.quote = quote;
                self.map(tool, 0)
            }
            Part::Keywords => self.keywords(tool),
            Part::Json | Part::JsonOrPython => format!("{} {}", quoted(&tool.name), self.keywords(tool)),
            Part::Tags(tags) => self.tags(tags, tool),
            fixed => self.fixed(fixed),
        }
    }
}

/// Return the symbols of pieces of a text.
pub(super) fn symbols(pieces: &[Piece<'_>]) -> String {
    let symbols: Vec<String> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Token(id) => format!("<[{id}]>"),
            Piece::Text(text) => quoted(text),
        })
        .collect();
    symbols.join(" ")
}

/// Return the symbol of a text that has no control tokens.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_text(text, &mut out);
    out
}

/// Return the schema of calls as JSON.
fn schema(request: &Request<'_>) -> Value {
    let syntax = request.syntax;
    let call = |tool: &Tool| {
        let constant = Value::map([("const", Value::from(tool.name.as_str()))]);
        let id = |pattern: &str| Value::map([("type", Value::from("string")), ("pattern", pattern.into())]);
        match &syntax.keys {
            Keys::NameIsKey => object([(tool.name.as_str(), tool.schema())].into()),
            Keys::Named(name, arguments, key) => {
                let mut entries = Vec::from([(*name, constant), (*arguments, tool.schema())]);
                match key {
                    Identifier::None => {}
                    Identifier::Before(key) => entries.insert(0, (key, id("^[a-zA-Z0-9_-]{1,40}$"))),
                    Identifier::Behind(key) => entries.push((key, id("^[a-zA-Z0-9]{9}$"))),
                }
                object(entries)
            }
        }
    };
    let mut calls: Vec<Value> = request.tools.iter().map(call).collect();
    let call = match (calls.len(), calls.pop()) {
        (1, Some(only)) => only,
        (_, last) => Value::map([("anyOf", Value::List(calls.into_iter().chain(last).collect()))]),
    };
    if !syntax.is_list {
        return call;
    }
    let mut list = Vec::from([("type", "array".into()), ("items", call), ("minItems", 1.into())]);
    if !request.parallel {
        list.push(("maxItems", 1.into()));
    }
    Value::map(list)
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

/// Return the JSON text of a schema, with the options of a grammar's own schemas: keywords that
/// only describe are ignored, and white space has an end.
pub(super) fn json(schema: &Value) -> String {
    let mut out = String::new();
    write_json(schema, &mut out);
    if let Some(rest) = out.strip_prefix('{') {
        let comma = if rest == "}" { "" } else { "," };
        out = format!("{{{OPTIONS}{comma}{rest}");
    }
    out
}
