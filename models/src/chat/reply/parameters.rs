//! The arguments of calls in a grammar, in the formats that do not write them as a JSON object.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::grammar::{Writer, json, quoted};
use super::syntax::{Elements, Tags};
use super::tools::{Kind, Tool};
use crate::chat::Value;

/// The number of required parameters that may come in any order. There is a rule for each set.
const MAX_PERMUTED: usize = 4;
/// The depth of nested values that follow a schema in Gemma's notation.
const MAX_DEPTH: u32 = 16;

impl Writer<'_> {
    /// Return the symbols of parameters between tags.
    pub(super) fn tags(&mut self, tags: &Tags, tool: &Tool) -> String {
        let (mut required, mut optional) = (Vec::new(), Vec::new());
        for (name, schema) in tool.parameters() {
            let tagged = self.tagged(tags, name, schema);
            if tool.requires(name) { required.push(tagged) } else { optional.push(tagged) }
        }
        let more = tool.is_open().then(|| self.any_tagged(tags));
        format!("SPACE? {}", self.arranged(required, optional, more))
    }

    /// Return the symbols of a parameter between tags.
    fn tagged(&mut self, tags: &Tags, name: &str, schema: &Value) -> String {
        let is_text = Kind::of(Some(schema)) != Kind::Json;
        let kind = if !tags.is_typed {
            ""
        } else if is_text {
            " string=\"true\""
        } else {
            " string=\"false\""
        };
        let head = self.head(tags, &quoted(name), kind);
        let line = if tags.own_lines { "\n" } else { "" };
        let value = self.value(schema, tags.end, line);
        self.rule("", &format!("{head} {value} SPACE?"))
    }

    /// Return the symbols of the tag before a value, for the symbol of a name.
    fn head(&self, tags: &Tags, name: &str, kind: &str) -> String {
        let (begin, after) = (self.literal(tags.begin), format!("{}{kind}", tags.after_name));
        let line = if tags.own_lines { " \"\\n\"" } else { "" };
        match tags.before_value {
            before if before.starts_with('<') => {
                format!("{begin} {name} {} SPACE? {}{line}", self.literal(&after), self.literal(before))
            }
            before => format!("{begin} {name} {}{line}", self.literal(&format!("{after}{before}"))),
        }
    }

    /// Return the symbols of any parameter between tags.
    fn any_tagged(&mut self, tags: &Tags) -> String {
        let line = if tags.own_lines { "\n" } else { "" };
        let text = self.text_before(&format!("{line}{}", tags.end));
        let any = if tags.is_typed {
            let (text_head, json_head) =
                (self.head(tags, "NAME", " string=\"true\""), self.head(tags, "NAME", " string=\"false\""));
            format!("{text_head} {text} SPACE? | {json_head} %json {{}} {} SPACE?", self.literal(tags.end))
        } else {
            format!("{} {text} SPACE?", self.head(tags, "NAME", ""))
        };
        self.rule("", &any)
    }

    /// Return the symbols of nested elements.
    pub(super) fn elements(&mut self, elements: &Elements, tool: &Tool) -> String {
        let space = elements.namespace;
        let (mut required, mut optional) = (Vec::new(), Vec::new());
        for (name, schema) in tool.parameters() {
            let value = self.value(schema, &format!("{space}</{name}>"), "");
            let element = format!("{} {value}", self.literal(&format!("{space}<{name}>")));
            let element = self.rule("", &element);
            if tool.requires(name) { required.push(element) } else { optional.push(element) }
        }
        self.arranged(required, optional, None)
    }

    /// Return the symbols of parameters in any order; of many required ones in theirs. The others
    /// stand anywhere, those without a name in the schema as often as the model likes.
    fn arranged(&mut self, required: Vec<String>, optional: Vec<String>, more: Option<String>) -> String {
        let n = optional.len();
        let others: Vec<String> = optional.into_iter().chain(more.clone()).collect();
        let gap = match (others.is_empty(), more) {
            (true, _) => String::new(),
            (false, Some(_)) => format!("({})* ", others.join(" | ")),
            (false, None) => format!("({}){{0,{n}}} ", others.join(" | ")),
        };
        if required.len() > MAX_PERMUTED {
            return required.iter().map(|one| format!("{gap}{one} ")).chain([gap.clone()]).collect();
        }
        let required: Vec<String> = required.iter().map(|one| self.rule("", one)).collect();
        // The rule for each set of those that are left, as bits of its index.
        let mut rests = Vec::from([gap.clone()]);
        for set in 1..1_usize << required.len() {
            let first = required.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
            let choices: Vec<String> = first
                .map(|(i, one)| {
                    let rest = rests.get(set & !(1 << i)).map_or("", String::as_str);
                    format!("{gap}{one} {rest}")
                })
                .collect();
            let rest = self.rule("", &choices.join(" | "));
            rests.push(rest);
        }
        rests.pop().unwrap_or_default()
    }

    /// Return the symbols of a value and the marker behind it, on lines of its own if `line` is a
    /// line break. Strings have no quotes.
    fn value(&mut self, schema: &Value, end: &str, line: &str) -> String {
        let end = format!("{line}{end}");
        match (choices(schema), Kind::of(Some(schema))) {
            (Some(choices), _) => format!("({choices}) {}", self.literal(&end)),
            (None, Kind::Json) => format!("%json {} {}", json(schema), self.literal(&end)),
            (None, _) => self.text_before(&end),
        }
    }

    /// Return the symbols of arguments as in Python, between brackets.
    pub(super) fn keywords(&mut self, tool: &Tool) -> String {
        let label = |name: &str| quoted(&format!("{name}="));
        let value = |_: &mut Self, schema: &Value| format!("%json {}", json(schema));
        let more = tool.is_open().then(|| "NAME \"=\" %json {}".to_string());
        let entries = self.separated(tool, "\",\" SPACE?", &label, &value, more);
        format!("\"(\" {entries} \")\"")
    }

    /// Return the symbols of a map in Gemma's notation, within `depth` values.
    pub(super) fn map(&mut self, tool: &Tool, depth: u32) -> String {
        let label = |name: &str| quoted(&format!("{name}:"));
        let value = |writer: &mut Self, schema: &Value| writer.marked(schema, depth);
        let more = tool.is_open().then(|| format!("NAME \":\" {}", self.any_marked()));
        let entries = self.separated(tool, "\",\"", &label, &value, more);
        format!("\"{{\" {entries} \"}}\"")
    }

    /// Return the symbols of a value in Gemma's notation, within `depth` others.
    fn marked(&mut self, schema: &Value, depth: u32) -> String {
        let quote = self.literal(self.quote);
        if let Some(choices) = choices(schema) {
            return format!("{quote} ({choices}) {quote}");
        }
        let kind = schema.get("type").and_then(Value::as_str);
        match (Kind::of(Some(schema)), kind) {
            (Kind::Text, _) => format!("{quote} {}", self.text_before(self.quote)),
            (_, Some("array")) if depth < MAX_DEPTH => {
                let item = match schema.get("items") {
                    Some(items) => self.marked(items, depth + 1),
                    None => self.any_marked(),
                };
                let item = self.rule("", &item);
                format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
            }
            (_, Some("object")) if depth < MAX_DEPTH => {
                let object = Tool { name: String::new(), parameters: schema.clone() };
                self.map(&object, depth + 1)
            }
            (_, Some("integer" | "number" | "boolean" | "null")) => format!("%json {}", json(schema)),
            _ => self.any_marked(),
        }
    }

    /// Return the rule of any value in Gemma's notation.
    fn any_marked(&mut self) -> String {
        if let Some(known) = &self.marked {
            return known.clone();
        }
        let name = self.name();
        self.marked = Some(name.clone());
        let text = format!("{} {}", self.literal(self.quote), self.text_before(self.quote));
        let plain = "%json {\"type\": [\"number\", \"boolean\", \"null\"]}";
        let list = format!("\"[\" ({name} (\",\" {name})*)? \"]\"");
        let map = format!("\"{{\" (NAME \":\" {name} (\",\" NAME \":\" {name})*)? \"}}\"");
        self.define(&name, "", &format!("{text} | {plain} | {list} | {map}"));
        name
    }

    /// Return the symbols of parameters in the order of the schema with separators, each behind
    /// `label` of its name, and of any number of `more` behind them. Parameters that are not
    /// required may be left out.
    fn separated(
        &mut self,
        tool: &Tool,
        separator: &str,
        label: &dyn Fn(&str) -> String,
        value: &dyn Fn(&mut Self, &Value) -> String,
        more: Option<String>,
    ) -> String {
        // From the last parameter to the first: the rest of the list behind another parameter, and
        // the rest that begins the list.
        let (mut behind, mut first) = match more {
            None => ("\"\"".to_string(), "\"\"".to_string()),
            Some(more) => (format!("({separator} {more})*"), format!("({more} ({separator} {more})*)?")),
        };
        let parameters: Vec<(&str, &Value)> = tool.parameters().collect();
        for (name, schema) in parameters.into_iter().rev() {
            let value = value(self, schema);
            let entry = self.rule("", &format!("{} {value} {behind}", label(name)));
            let (mut then, mut start) = (format!("{separator} {entry}"), entry);
            if !tool.requires(name) {
                then = format!("{then} | {behind}");
                start = format!("{start} | {first}");
            }
            (behind, first) = (self.rule("", &then), self.rule("", &start));
        }
        first
    }
}

/// Return the texts that a schema of strings lists, as symbols.
fn choices(schema: &Value) -> Option<String> {
    let listed = match (schema.get("enum").and_then(Value::as_list), schema.get("const")) {
        (Some(list), _) => list,
        (None, Some(only)) => core::slice::from_ref(only),
        (None, None) => return None,
    };
    let texts: Option<Vec<String>> = listed.iter().map(|value| value.as_str().map(quoted)).collect();
    texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join(" | "))
}
