//! The tools that were offered to the model.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::schema::{self, Types};
use crate::chat::Value;

/// The longest name of a tool or parameter, and the longest identifier of a call, in bytes.
pub(super) const MAX_NAME: usize = 256;
/// The depth of unions within each other in which properties are looked for.
const MAX_DEPTH: u32 = 8;

/// The most shapes that the arguments of a tool may have.
const MAX_SHAPES: usize = 16;

/// Keywords of a schema of parameters that say nothing about those that it does not list.
const NOTES: [&str; 11] = [
    "type",
    "title",
    "description",
    "default",
    "examples",
    "$schema",
    "$id",
    "id",
    "$comment",
    "$defs",
    "definitions",
];

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
    /// The schema of which this is a shape, if it is one of several.
    whole: Option<Value>,
}

impl Tools {
    /// Read descriptions of tools: a function with its `name` and `parameters`, alone or under
    /// `function`. What has no name is left out.
    pub(super) fn new(described: &[Value]) -> Self {
        let tool = |value: &Value| {
            let function = value.get("function").unwrap_or(value);
            let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())?;
            let parameters = function.get("parameters").or_else(|| function.get("input_schema"));
            Some(Tool::new(name, parameters.cloned().unwrap_or_default()))
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
    /// Make a tool with a schema of its arguments.
    pub(super) fn new(name: &str, parameters: Value) -> Self {
        Self { name: name.to_string(), parameters, whole: None }
    }

    /// Return the names and schemas of the parameters that calls may have.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.named_schemas("properties").filter(|(_, schema)| **schema != Value::Bool(false))
    }

    /// Return the names that no further parameter has: those of the parameters, and of those that
    /// are forbidden.
    pub(super) fn taken_names(&self) -> impl Iterator<Item = &str> {
        self.named_schemas("properties").map(|(name, _)| name)
    }

    /// Return the patterns of the names of further parameters.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &str> {
        self.named_schemas("patternProperties").map(|(pattern, _)| pattern)
    }

    /// Return the entries of a keyword that is a map of schemas.
    fn named_schemas(&self, keyword: &str) -> impl Iterator<Item = (&str, &Value)> {
        let entries = match self.parameters.get(keyword) {
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
        let lists = || self.parameters().next().is_some() || self.patterns().next().is_some();
        match self.further() {
            Some(further) => *further != Value::Bool(false),
            None => !entries.is_empty() && !is_without_parameters(entries) && !lists(),
        }
    }

    /// Return true if no parameter is both demanded and forbidden.
    fn is_possible(&self) -> bool {
        let mut forbidden =
            self.named_schemas("properties").filter(|(_, schema)| **schema == Value::Bool(false));
        !forbidden.any(|(name, _)| self.requires(name))
    }

    /// Return the schema of the values of further parameters, if there is one.
    pub(super) fn further(&self) -> Option<&Value> {
        self.parameters.get("additionalProperties")
    }

    /// Return the shapes that the arguments may have: an object schema without parts and
    /// alternatives for each way to choose among these, as far as calls can match it. If there are
    /// too many, the only one is an object with further parameters, unless the schema forbids them.
    pub(super) fn variants(&self) -> Vec<Self> {
        let tool =
            |parameters| Self { name: self.name.clone(), parameters, whole: Some(self.parameters.clone()) };
        let shapes = shapes(&self.parameters, 0).filter(|shapes| shapes.len() <= MAX_SHAPES);
        match shapes {
            Some(shapes) => {
                let mut shapes: Vec<Self> = shapes.into_iter().map(tool).collect();
                if shapes.iter().any(Self::is_possible) {
                    shapes.retain(Self::is_possible);
                }
                shapes
            }
            None => Vec::from([tool(without_unions(&self.parameters))]),
        }
    }

    /// Return the schema of the arguments, which are an object in any case.
    pub(super) fn schema(&self) -> Value {
        match &self.parameters {
            Value::Map(entries) => {
                let is_typed = entries.iter().any(|(key, _)| key == "type");
                let kind = (!is_typed).then(|| ("type".to_string(), Value::from("object")));
                let none = is_without_parameters(entries);
                let closed = none.then(|| ("additionalProperties".to_string(), Value::from(false)));
                Value::Map(kind.into_iter().chain(entries.iter().cloned()).chain(closed).collect())
            }
            _ => Value::map([("type", Value::from("object"))]),
        }
    }

    /// Return the schema of the values of a parameter.
    pub(super) fn value_schema(&self, name: &str) -> Option<&Value> {
        property(Some(&self.parameters), name)
    }

    /// Return the types that values of a parameter may have in any part or alternative of the
    /// schema: who reads a value does not know yet which alternative it is.
    pub(super) fn types(&self, name: &str) -> Types {
        let whole = self.whole.as_ref().unwrap_or(&self.parameters);
        let mut found = Vec::new();
        all_named(whole, name, 0, &mut found);
        match found.is_empty() {
            true => schema::types(whole.get("additionalProperties")),
            false => found.into_iter().fold(Types::NONE, |types, schema| types | schema::types(Some(schema))),
        }
    }

    /// Return the names of the parameters in all parts and alternatives of the schema.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        names(Some(self.whole.as_ref().unwrap_or(&self.parameters)), 0)
    }
}

/// Return true if a schema of parameters lists none. As that of a tool, it means that there are
/// none.
fn is_without_parameters(entries: &[(String, Value)]) -> bool {
    let is_silent = |key: &str, value: &Value| match key {
        key if NOTES.contains(&key) => true,
        "properties" => matches!(value, Value::Map(names) if names.is_empty()),
        "required" => value.as_list().is_some_and(<[Value]>::is_empty),
        _ => false,
    };
    entries.iter().any(|(key, _)| key == "properties")
        && entries.iter().all(|(key, value)| is_silent(key, value))
}

/// Collect the schemas of a property in a schema and its parts and alternatives, within `depth`
/// others.
fn all_named<'s>(schema: &'s Value, name: &str, depth: u32, found: &mut Vec<&'s Value>) {
    found.extend(schema.get("properties").and_then(|properties| properties.get(name)));
    if depth < MAX_DEPTH {
        choices(schema).for_each(|choice| all_named(choice, name, depth + 1, found));
    }
}

/// Return the schema of objects with the own keywords of `schema`. They may have any further
/// properties, which its alternatives may name, unless it forbids them.
fn without_unions(schema: &Value) -> Value {
    let Value::Map(entries) = schema else { return schema.clone() };
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let is_kept = |key: &str| !["allOf", "anyOf", "oneOf", "additionalProperties"].contains(&key);
    let own = entries.iter().filter(|(key, _)| is_kept(key)).cloned();
    Value::Map(own.chain([("additionalProperties".to_string(), Value::Bool(!is_closed))]).collect())
}

/// Return the schemas of objects that `schema` allows, one for each choice among its alternatives;
/// `None` if there are too many or they are nested too deeply.
fn shapes(schema: &Value, depth: u32) -> Option<Vec<Value>> {
    let Value::Map(entries) = schema else { return Some(Vec::from([schema.clone()])) };
    if depth >= MAX_DEPTH {
        return None;
    }
    let is_union = |key: &str| ["allOf", "anyOf", "oneOf"].contains(&key);
    let own = entries.iter().filter(|(key, _)| !is_union(key)).cloned();
    let mut found = Vec::from([Value::Map(own.collect())]);
    let list = |key: &str| schema.get(key).and_then(Value::as_list).unwrap_or(&[]);
    let parts = list("allOf").iter().map(core::slice::from_ref);
    for choices in parts.chain([list("anyOf"), list("oneOf")]).filter(|choices| !choices.is_empty()) {
        let mut next = Vec::new();
        for choice in choices {
            for shape in shapes(choice, depth + 1)? {
                next.extend(found.iter().map(|own| merged(own, &shape)));
                if next.len() > MAX_SHAPES {
                    return None;
                }
            }
        }
        found = next;
    }
    Some(found)
}

/// Return the schema of objects that two schemas without alternatives describe together.
fn merged(own: &Value, other: &Value) -> Value {
    let (Value::Map(own), Value::Map(other)) = (own, other) else { return own.clone() };
    let mut found = own.clone();
    for (key, value) in other {
        let Some((_, known)) = found.iter_mut().find(|(known, _)| known == key) else {
            found.push((key.clone(), value.clone()));
            continue;
        };
        match (known, value) {
            (Value::List(known), Value::List(more)) if key == "required" => {
                known.extend(more.iter().cloned())
            }
            (Value::Map(known), Value::Map(more)) if key == "properties" => {
                for (name, schema) in more {
                    match known.iter_mut().find(|(other, _)| other == name) {
                        Some((_, both)) if *both == Value::Bool(false) => {}
                        Some((_, both)) if *schema == Value::Bool(false) => *both = false.into(),
                        Some((_, both)) if both != schema => {
                            let parts = Vec::from([both.clone(), schema.clone()]);
                            *both = Value::map([("allOf", Value::List(parts))]);
                        }
                        Some(_) => {}
                        None => known.push((name.clone(), schema.clone())),
                    }
                }
            }
            (known, value) if key == "additionalProperties" && *value == Value::Bool(false) => {
                *known = value.clone();
            }
            _ => {}
        }
    }
    Value::Map(found)
}

/// Return the schema of a property: its own, of any part or alternative that has it, or that of
/// further properties.
pub(super) fn property<'s>(schema: Option<&'s Value>, name: &str) -> Option<&'s Value> {
    named(schema, name, 0).or_else(|| schema?.get("additionalProperties"))
}

/// Return the schema of a property that a schema names, within `depth` unions.
fn named<'s>(schema: Option<&'s Value>, name: &str, depth: u32) -> Option<&'s Value> {
    let schema = schema.filter(|_| depth < MAX_DEPTH)?;
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| choices(schema).find_map(|choice| named(Some(choice), name, depth + 1)))
}

/// Return the schema of the items of a list, of any part or alternative that has items, within
/// `depth` unions.
pub(super) fn item(schema: Option<&Value>, depth: u32) -> Option<&Value> {
    let schema = schema.filter(|_| depth < MAX_DEPTH)?;
    schema.get("items").or_else(|| choices(schema).find_map(|choice| item(Some(choice), depth + 1)))
}

/// Return the names of the properties that a schema has, in any part or alternative within `depth`
/// unions.
pub(super) fn names(schema: Option<&Value>, depth: u32) -> Box<dyn Iterator<Item = &str> + '_> {
    let Some(schema) = schema.filter(|_| depth < MAX_DEPTH) else { return Box::new(core::iter::empty()) };
    let own = match schema.get("properties") {
        Some(Value::Map(entries)) => entries.as_slice(),
        _ => &[],
    };
    let inner = choices(schema).flat_map(move |choice| names(Some(choice), depth + 1));
    Box::new(own.iter().map(|(name, _)| name.as_str()).chain(inner))
}

/// Return the parts and alternatives of a schema.
fn choices(schema: &Value) -> impl Iterator<Item = &Value> {
    let list = |key: &str| schema.get(key).and_then(Value::as_list).unwrap_or(&[]).iter();
    list("allOf").chain(list("anyOf")).chain(list("oneOf"))
}
