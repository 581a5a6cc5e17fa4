//! The tools that were offered to the model.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::chat::Value;

/// The names of tools, and the schemas of their parameters.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools(Vec<Tool>);

/// The calls that a model may make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'c> {
    /// The tools.
    pub(super) tools: &'c Tools,
    /// True if there may be more than one call.
    pub(super) parallel: bool,
}

/// One tool.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    /// The name, never empty.
    pub(super) name: String,
    /// The JSON schema of the arguments, or null.
    pub(super) parameters: Value,
}

/// The kind of a parameter's values, where a format writes strings without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A string, whatever it looks like.
    Text,
    /// Another JSON value.
    Json,
    /// The schema does not say.
    Unknown,
}

impl Tools {
    /// Read descriptions of tools: a function with its `name` and `parameters`, alone or under
    /// `function`. What has no name is left out.
    pub(super) fn new(described: &[Value]) -> Self {
        let tool = |value: &Value| {
            let function = value.get("function").unwrap_or(value);
            let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())?;
            let parameters = function.get("parameters").or_else(|| function.get("input_schema"));
            Some(Tool { name: name.to_string(), parameters: parameters.cloned().unwrap_or_default() })
        };
        Self(described.iter().filter_map(tool).collect())
    }

    /// Return true if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Return the tools in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.0.iter()
    }

    /// Return the tool of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.name == name)
    }
}

impl Tool {
    /// Return the names and schemas of the parameters.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&str, &Value)> {
        let entries = match self.parameters.get("properties") {
            Some(Value::Map(entries)) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|(name, schema)| (name.as_str(), schema))
    }

    /// Return true if calls must have this parameter.
    pub(super) fn requires(&self, name: &str) -> bool {
        let required = self.parameters.get("required").and_then(Value::as_list).unwrap_or(&[]);
        required.iter().any(|required| required.as_str() == Some(name))
    }

    /// Return true if calls may have parameters beside [those](Self::parameters) with names. A tool
    /// without a schema takes none.
    pub(super) fn is_open(&self) -> bool {
        let Value::Map(entries) = &self.parameters else {
            return false;
        };
        let has = |key: &str| entries.iter().any(|(name, _)| name == key);
        match self.parameters.get("additionalProperties") {
            _ if ["anyOf", "oneOf", "allOf", "patternProperties"].into_iter().any(has) => true,
            Some(further) => *further != Value::Bool(false),
            None => !entries.is_empty() && !has("properties"),
        }
    }

    /// Return the schema of the arguments, which are an object in any case.
    pub(super) fn schema(&self) -> Value {
        match &self.parameters {
            Value::Map(entries) => {
                let is_typed = entries.iter().any(|(key, _)| key == "type");
                let kind = (!is_typed).then(|| ("type".to_string(), Value::from("object")));
                Value::Map(kind.into_iter().chain(entries.iter().cloned()).collect())
            }
            _ => Value::map([("type", Value::from("object"))]),
        }
    }

    /// Return the schema of a parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(name)
    }
}

impl Kind {
    /// Return the kind of the values that `schema` allows. A union with a string is a string, as
    /// everything can be one.
    pub(super) fn of(schema: Option<&Value>) -> Self {
        Self::within(schema, 0)
    }

    /// Return the kind of the values that `schema` allows, within `depth` unions.
    fn within(schema: Option<&Value>, depth: u32) -> Self {
        let Some(schema) = schema.filter(|_| depth < 8) else {
            return Self::Unknown;
        };
        let named = |name: &Value| if name.as_str() == Some("string") { Self::Text } else { Self::Json };
        let literal = |value: &Value| if value.as_str().is_some() { Self::Text } else { Self::Json };
        let list = |key: &str| schema.get(key).and_then(Value::as_list);
        if let Some(kind) = schema.get("type") {
            return match kind.as_list() {
                Some(kinds) => Self::union(kinds.iter().map(named)),
                None => named(kind),
            };
        }
        if let Some(values) = list("enum") {
            return Self::union(values.iter().map(literal));
        }
        if let Some(value) = schema.get("const") {
            return literal(value);
        }
        let kinds = |schemas: &'_ [Value]| -> Vec<Self> {
            schemas.iter().map(|schema| Self::within(Some(schema), depth + 1)).collect()
        };
        if let Some(choices) = list("anyOf").or_else(|| list("oneOf")) {
            return Self::union(kinds(choices).into_iter());
        }
        // All parts have to hold, so the first that says something says it.
        let parts = kinds(list("allOf").unwrap_or(&[]));
        parts.into_iter().find(|kind| *kind != Self::Unknown).unwrap_or(Self::Unknown)
    }

    /// Return the kind of a union.
    fn union(kinds: impl Iterator<Item = Self>) -> Self {
        kinds.fold(Self::Unknown, |kind, next| match (kind, next) {
            (Self::Text, _) | (_, Self::Text) => Self::Text,
            (Self::Unknown, next) => next,
            (kind, _) => kind,
        })
    }
}

/// Return the JSON text of a value that was written without quotes: `text` itself if it is a JSON
/// value other than a string, what it means in Python if it has to be such a value, a string
/// otherwise.
pub(super) fn write_value(text: &str, kind: Kind, out: &mut String) {
    let bare = text.trim();
    let is_json = match kind {
        Kind::Text => false,
        Kind::Json => Value::from_json(bare).is_ok(),
        // A quoted string may be meant with its quotes, anything else is what it looks like.
        Kind::Unknown => Value::from_json(bare).is_ok_and(|value| value.as_str().is_none()),
    };
    if is_json {
        return out.push_str(bare);
    }
    match super::literal::value(bare).filter(|_| kind == Kind::Json) {
        Some(value) => out.push_str(&value),
        None => super::scanner::write_text(text, out),
    }
}
