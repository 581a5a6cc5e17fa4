//! The arguments of calls in a grammar, in the formats that do not write them as a JSON object.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::grammar::{Writer, json, quoted};
use super::raw;
use super::schema::{self, Alternative, Types, alternatives};
use super::syntax::{Attribute, Tags};
use super::tags::CDATA;
use super::text_rules::{self, Condition};
use super::tools::Tool;
use super::write;
use crate::chat::Value;

/// The number of required parameters that may come in any order. There is a rule for each set.
const MAX_PERMUTED: usize = 4;
/// The depth of nested values that follow a schema in Gemma's notation.
const MAX_DEPTH: u32 = 16;
/// The most items of a list that are counted.
const MAX_COUNTED: i64 = 1000;

impl Writer<'_> {
    /// Return the symbols of parameters between tags.
    pub(super) fn tags(&mut self, tags: &Tags, tool: &Tool) -> String {
        let (mut required, mut optional) = (Vec::new(), Vec::new());
        for (name, schema) in tool.parameters() {
            let tagged = self.tagged(tags, tool, Name::Known(name), schema);
            let list = if tool.requires(name) { &mut required } else { &mut optional };
            list.push(tagged);
        }
        let more = tool.is_open().then(|| self.further_tagged(tags, tool));
        format!("SPACE? {}", self.arranged(required, optional, more))
    }

    /// Return the rule of any further parameter between tags.
    fn further_tagged(&mut self, tags: &Tags, tool: &Tool) -> String {
        let name = self.further_name(tool);
        let any = Value::Map(Vec::new());
        self.tagged(tags, tool, Name::Any(&name), tool.further().unwrap_or(&any))
    }

    /// Return the rule of a parameter between tags.
    fn tagged(&mut self, tags: &Tags, tool: &Tool, name: Name<'_>, schema: &Value) -> String {
        let mut found = alternatives(Some(schema));
        if found.contains(&Alternative::Any) {
            found = Alternative::any();
        }
        let types = match name {
            Name::Known(name) => tool.types(name),
            Name::Any(_) => found.iter().fold(Types::NONE, |types, one| types | one.types()),
        };
        let is_told = tags.attribute != Attribute::None;
        let place = Place { tags, tool, name, types: if is_told { Types::STRING } else { types } };
        let has_texts = !is_told && found.iter().any(|one| matches!(one, Alternative::Text(_)));
        // The values behind each attribute.
        let mut values: Vec<(Types, Vec<String>)> = Vec::new();
        for alternative in &found {
            let more = match alternative {
                Alternative::Any => Vec::new(),
                Alternative::Texts(list) => self.listed(&place, list).into_iter().collect(),
                Alternative::Text(limits) => self.raw_text(&place, limits).into_iter().collect(),
                Alternative::Other(types, schemas) => self.raw_others(&place, *types, schemas, has_texts),
            };
            let types = if is_told { alternative.types() } else { Types::ALL };
            match values.iter_mut().find(|(known, _)| *known == types) {
                Some((_, known)) => known.extend(more),
                None => values.push((types, more)),
            }
        }
        let mut rules = Vec::new();
        for (types, values) in values.iter().filter(|(_, values)| !values.is_empty()) {
            let heads: Vec<String> = tags
                .attribute
                .texts(*types)
                .iter()
                .map(|attribute| self.head(tags, &name.symbol(tags), attribute))
                .collect();
            rules.push(format!("({}) ({}) {}SPACE?", heads.join(" | "), values.join(" | "), place.tail()));
        }
        // A value that no text can be is none that a grammar has.
        let body = if rules.is_empty() { "/[^\\x00-\\x{10FFFF}]/".into() } else { rules.join(" | ") };
        self.rule("", &body)
    }

    /// Return the symbols of the tag before a value, for the symbol of a name.
    fn head(&self, tags: &Tags, name: &str, attribute: &str) -> String {
        let (begin, after) = (self.literal(tags.begin), format!("{}{attribute}", tags.after_name));
        let line = if tags.own_lines { " \"\\n\"" } else { "" };
        match tags.before_value {
            before if before.starts_with('<') => {
                format!("{begin} {name} {} SPACE? {}{line}", self.literal(&after), self.literal(before))
            }
            before => format!("{begin} {name} {}{line}", self.literal(&format!("{after}{before}"))),
        }
    }

    /// Return the symbols of one of these strings and what stands behind it.
    fn listed(&mut self, place: &Place<'_>, texts: &[String]) -> Option<String> {
        let written: Vec<String> = texts.iter().filter_map(|text| place.written(text)).collect();
        let texts: Vec<String> = written.iter().map(|text| quoted(text)).collect();
        (!texts.is_empty()).then(|| format!("({}) {}", texts.join(" | "), self.literal(&place.behind())))
    }

    /// Return the symbols of values that are no strings, and what stands behind them. Beside any
    /// strings, those that are no lists or objects have to be of one piece with what stands behind
    /// them, or they could not be told from the beginning of a string.
    fn raw_others(
        &mut self,
        place: &Place<'_>,
        types: Types,
        schemas: &[Value],
        has_texts: bool,
    ) -> Vec<String> {
        let nested = if has_texts { types & (Types::LIST | Types::MAP) } else { types };
        let mut found = Vec::new();
        if has_texts && let Some(scalars) = text_rules::scalars(types.without(nested), schemas) {
            found.push(self.text_with(&[scalars], &place.behind()));
        }
        if nested != Types::NONE {
            let schema = json(&joined(nested, schemas));
            found.push(format!("%json {schema} {}", self.literal(&place.behind())));
        }
        found
    }

    /// Return the symbols of a string without quotes that all `limits` allow, and what stands
    /// behind it.
    fn raw_text(&mut self, place: &Place<'_>, limits: &[Value]) -> Option<String> {
        let mut conditions = text_rules::of_limits(limits);
        conditions.extend(place.conditions(!conditions.is_empty()));
        Some(self.text_with(&conditions, &place.behind()))
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
        let gap = if gap.is_empty() { gap } else { format!("{} ", self.rule("", &gap)) };
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

    /// Return the symbols of arguments as in Python, between brackets.
    pub(super) fn keywords(&mut self, tool: &Tool) -> String {
        let label = |name: &str| quoted(&format!("{name}="));
        let value = |_: &mut Self, schema: &Value| format!("%json {}", json(schema));
        let more = tool.is_open().then(|| {
            let schema = tool.further().map_or_else(|| "{}".into(), json);
            format!("{} \"=\" %json {schema}", self.further_name(tool))
        });
        let entries = self.separated(tool, "\",\" SPACE?", &label, &value, more);
        format!("\"(\" {entries} \")\"")
    }

    /// Return the symbols of a map in Gemma's notation, within `depth` values.
    pub(super) fn map(&mut self, tool: &Tool, depth: u32) -> String {
        let quote = self.quote;
        let label = |name: &str| quoted(&format!("{}:", write::marked_key(name, quote)));
        let value = |writer: &mut Self, schema: &Value| writer.marked(schema, depth);
        let more = tool.is_open().then(|| {
            let name = self.further_name(tool);
            let any = Value::Map(Vec::new());
            let value = self.marked(tool.further().unwrap_or(&any), depth);
            format!("{name} \":\" ({value})")
        });
        let entries = self.separated(tool, "\",\"", &label, &value, more);
        format!("\"{{\" {entries} \"}}\"")
    }

    /// Return the symbols of a value in Gemma's notation, within `depth` others.
    fn marked(&mut self, schema: &Value, depth: u32) -> String {
        let mut choices = Vec::new();
        for alternative in alternatives(Some(schema)) {
            match alternative {
                Alternative::Any => choices.push(self.any_marked()),
                Alternative::Texts(texts) => {
                    let (quote, mark) = (self.literal(self.quote), self.quote);
                    let texts = texts.iter().filter(|text| !text.contains(mark)).map(|text| quoted(text));
                    let texts: Vec<String> = texts.collect();
                    if !texts.is_empty() {
                        choices.push(format!("{quote} ({}) {quote}", texts.join(" | ")));
                    }
                }
                Alternative::Text(limits) => {
                    let mut conditions = text_rules::of_limits(&limits);
                    conditions.push(Condition::without(&[self.quote]));
                    let text = self.text_with(&conditions, self.quote);
                    choices.push(format!("{} {text}", self.literal(self.quote)));
                }
                Alternative::Other(types, schemas) => choices.extend(self.others(types, &schemas, depth)),
            }
        }
        if choices.is_empty() { self.any_marked() } else { format!("({})", choices.join(" | ")) }
    }

    /// Return the symbols of values in Gemma's notation that are no strings.
    fn others(&mut self, types: Types, schemas: &[Value], depth: u32) -> Vec<String> {
        let mut found = Vec::new();
        let nested = types & (Types::LIST | Types::MAP);
        let scalars = types.without(nested);
        if let Some(listed) = schema::listed(types, schemas) {
            let written = listed.into_iter().filter_map(|value| write::marked(value, self.quote));
            return written.map(|text| self.marked_literal(&text)).collect();
        }
        if scalars != Types::NONE {
            found.push(format!("%json {}", json(&joined(scalars, schemas))));
        }
        let first = |key: &str| schemas.iter().find_map(|schema| schema.get(key));
        if nested.meet(Types::LIST) {
            found.push(match depth < MAX_DEPTH {
                true => self.list(&joined(Types::LIST, schemas), first("items"), depth),
                false => self.any_list(),
            });
        }
        if nested.meet(Types::MAP) {
            let object = Tool::new("", joined(Types::MAP, schemas));
            let shapes = object.variants();
            found.extend(shapes.iter().filter(|_| depth < MAX_DEPTH).map(|shape| self.map(shape, depth + 1)));
        }
        found
    }

    /// Return the symbols of a text in Gemma's notation, in which only its quotes are the format's.
    fn marked_literal(&self, text: &str) -> String {
        let quote = self.literal(self.quote);
        let texts =
            text.split(self.quote).map(|text| if text.is_empty() { String::new() } else { quoted(text) });
        texts.collect::<Vec<_>>().join(&format!(" {quote} "))
    }

    /// Return the symbols of a list in Gemma's notation.
    fn list(&mut self, schema: &Value, items: Option<&Value>, depth: u32) -> String {
        let bound = |key: &str| match schema.get(key) {
            Some(Value::Int(n)) => Some(*n),
            _ => None,
        };
        if let Some(tuple) = schema.get("prefixItems").and_then(Value::as_list) {
            let items: Vec<String> = tuple.iter().map(|item| self.marked(item, depth + 1)).collect();
            return format!("\"[\" {} \"]\"", items.join(" \",\" "));
        }
        let item = match items {
            Some(items) => self.marked(items, depth + 1),
            None => self.any_marked(),
        };
        let item = self.rule("", &item);
        let least = bound("minItems").unwrap_or(0).clamp(0, MAX_COUNTED);
        let most = bound("maxItems").filter(|most| *most <= MAX_COUNTED);
        let more = match (least.max(1) - 1, most.map(|most| most - 1)) {
            (_, Some(most)) if most < 0 => return "\"[\" \"]\"".into(),
            (_, Some(0)) => String::new(),
            (least, Some(most)) => format!(" (\",\" {item}){{{least},{most}}}"),
            (0, None) => format!(" (\",\" {item})*"),
            (least, None) => format!(" (\",\" {item}){{{least},}}"),
        };
        let optional = if least == 0 { "?" } else { "" };
        format!("\"[\" ({item}{more}){optional} \"]\"")
    }

    /// Return the symbols of any list in Gemma's notation.
    fn any_list(&mut self) -> String {
        let any = self.any_marked();
        format!("\"[\" ({any} (\",\" {any})*)? \"]\"")
    }

    /// Return the rule of any value in Gemma's notation.
    fn any_marked(&mut self) -> String {
        if let Some(known) = &self.marked {
            return known.clone();
        }
        let name = self.name();
        self.marked = Some(name.clone());
        let text = self.text_with(&[Condition::without(&[self.quote])], self.quote);
        let text = format!("{} {text}", self.literal(self.quote));
        let plain = "%json {\"type\": [\"number\", \"boolean\", \"null\"]}";
        let list = format!("\"[\" ({name} (\",\" {name})*)? \"]\"");
        let map = format!("\"{{\" (NAME \":\" {name} (\",\" NAME \":\" {name})*)? \"}}\"");
        self.define(&name, "", &format!("{text} | {plain} | {list} | {map}"));
        name
    }

    /// Return the symbol of a name that the schema of a tool does not have.
    fn further_name(&mut self, tool: &Tool) -> String {
        let known = Condition::none_of(tool.taken_names(), tool.patterns());
        known.map_or_else(
            || "NAME".into(),
            |known| self.terminal(&text_rules::all(text_rules::NAME, &[known])),
        )
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
            None => ("\"\"".into(), "\"\"".into()),
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

/// The name of a parameter.
#[derive(Clone, Copy)]
enum Name<'n> {
    /// One of the schema.
    Known(&'n str),
    /// Any other, which this symbol stands for.
    Any(&'n str),
}

impl Name<'_> {
    /// Return the symbol of the name.
    fn symbol(self, tags: &Tags) -> String {
        match self {
            Self::Known(name) => quoted(&tags.written_name(name)),
            Self::Any(symbol) => symbol.into(),
        }
    }
}

/// A place between tags, where a value stands without quotes.
struct Place<'p> {
    tags: &'p Tags,
    tool: &'p Tool,
    name: Name<'p>,
    /// The types that a text there may mean.
    types: Types,
}

impl Place<'_> {
    /// Return the text behind the value. The name of any parameter is not in it.
    fn behind(&self) -> String {
        let end = match self.name {
            Name::Known(name) => self.tags.end_of(name),
            Name::Any(_) => self.tags.end.into(),
        };
        format!("{}{end}", if self.tags.own_lines { "\n" } else { "" })
    }

    /// Return the symbols behind that text: the name of any parameter, where tags have names.
    fn tail(&self) -> String {
        match self.name {
            Name::Any(symbol) if !self.tags.namespace.is_empty() => format!("{symbol} \">\" "),
            _ => String::new(),
        }
    }

    /// Return the text of a string, unless it would be read otherwise.
    fn written(&self, text: &str) -> Option<String> {
        let mut written = String::new();
        raw::write(text, self.types, &mut written);
        let is_free = self.tags.ends(self.tool).iter().all(|stop| !written.contains(stop));
        (is_free && !(self.tags.has_cdata && written.trim_start().starts_with(CDATA))).then_some(written)
    }

    /// Return the conditions of a string without quotes. `is_limited` says that the schema has
    /// others, which a string in quotes might miss.
    fn conditions(&self, is_limited: bool) -> Vec<Condition> {
        let ends = self.tags.ends(self.tool);
        let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
        let mut conditions = Vec::from([Condition::without(&ends)]);
        if self.tags.has_cdata {
            conditions.push(Condition::not_beginning(CDATA));
        }
        conditions.extend(Condition::no_other(self.types, is_limited));
        conditions
    }
}

/// Return one schema of values of these types that all `schemas` allow.
fn joined(types: Types, schemas: &[Value]) -> Value {
    let mut names = types.names();
    let kind = match (names.len(), names.pop()) {
        (1, Some(only)) => only,
        (_, last) => Value::List(names.into_iter().chain(last).collect()),
    };
    let typed = |schema: &Value| match schema {
        // Integers are numbers.
        Value::Map(entries) if entries.iter().any(|(key, _)| key == "enum") => schema.clone(),
        Value::Map(entries) if types == Types::NUMBER && schema.get("type").is_some_and(is_integer) => {
            let rest = entries.iter().filter(|(key, _)| key != "type").cloned();
            Value::Map(core::iter::once(("type".into(), "integer".into())).chain(rest).collect())
        }
        Value::Map(entries) => {
            let rest = entries.iter().filter(|(key, _)| key != "type").cloned();
            Value::Map(core::iter::once(("type".into(), kind.clone())).chain(rest).collect())
        }
        other => other.clone(),
    };
    match schemas {
        [] => Value::map([("type", kind)]),
        [only] => typed(only),
        several => Value::map([("allOf", Value::List(several.iter().map(typed).collect()))]),
    }
}

/// Return true if numbers of a type have to be integers.
fn is_integer(kind: &Value) -> bool {
    let is = |kind: &Value, name: &str| kind.as_str() == Some(name);
    match kind.as_list() {
        Some(kinds) => {
            kinds.iter().any(|kind| is(kind, "integer")) && !kinds.iter().any(|kind| is(kind, "number"))
        }
        None => is(kind, "integer"),
    }
}
