//! Schemas for the values that others refuse.
//!
//! `not` is written as a schema without `not`. A value breaks a schema if it breaks one of its
//! keywords. Most keywords say something about one type, so that only values of this type break
//! them. What no grammar can say stays refused: a list or an object that has to have a wrong value
//! in any place, numbers that are no integers or no multiples, and formats.
//!
//! What is written here holds to the letter: an object is not closed by the properties in it.

use alloc::{string::String, vec::Vec};

use serde_json::{Map, Value, json};

use super::copies::Copies;
use super::ecma::Others;
use super::excluded;
use super::keywords::{self, Keywords};
use super::kinds::Kinds;
use super::patterns::Patterns;
use super::{is_everything, is_nothing, n_values, numbers, plain, refs, shapes};

/// The schemas in one `not`, and how deep they are inside of each other.
const MAX_SCHEMAS: usize = 400;
const MAX_DEPTH: usize = 24;
/// The values of all schemas that are copied.
const MAX_COPIED: usize = 4000;
/// The options of a `oneOf`: each pair of them is one of what breaks it.
const MAX_PAIRED: usize = 4;
/// Keywords that forbid values. No other keyword says the opposite.
const UNSAID: [&str; 5] = ["uniqueItems", "minContains", "maxContains", "$dynamicRef", "$recursiveRef"];

/// Return a schema for those values of the types `kinds` that `schema` refuses; `None` if that
/// cannot be said. References in it lead into the schema `root`.
pub(super) fn negated(schema: &Value, kinds: Kinds, root: &Value, patterns: &mut Patterns) -> Option<Value> {
    let copies = Copies::new(MAX_COPIED);
    let mut negation = Negation { root, patterns, n_left: MAX_SCHEMAS, copies, depth: 0 };
    let found = negation.schema(schema, kinds);
    let n_copied = MAX_COPIED - negation.copies.n_left();
    patterns.charge(n_copied)?;
    found
}

/// Return the cost of [`negated`], in values, without that of what references lead to.
pub(super) fn weight(schema: &Value) -> usize {
    n_values(schema) / 4
}

/// Writes what a schema refuses.
struct Negation<'s> {
    root: &'s Value,
    patterns: &'s mut Patterns,
    /// The schemas that may still be looked at.
    n_left: usize,
    copies: Copies,
    /// The schemas inside of each other.
    depth: usize,
}

/// The ways to break a schema: a value breaks it if it matches one of these.
struct Ways {
    kinds: Kinds,
    options: Vec<Value>,
}

impl Ways {
    /// Add the values that match `schema`, which says all about their type `kind`.
    fn add(&mut self, kind: &'static str, mut schema: Value) {
        if Kinds::named(kind).meet(self.kinds)
            && let Value::Object(map) = &mut schema
        {
            map.insert("type".into(), kind.into());
            self.options.push(schema);
        }
    }

    /// Add values that match a schema about any types.
    fn add_any(&mut self, schema: Value) {
        self.options.push(schema);
    }
}

impl Negation<'_> {
    /// Return a schema for the values of `kinds` that `schema` refuses.
    fn schema(&mut self, schema: &Value, kinds: Kinds) -> Option<Value> {
        self.n_left = self.n_left.checked_sub(1)?;
        let map = match schema {
            schema if is_everything(schema) => return Some(false.into()),
            schema if is_nothing(schema) => return Some(true.into()),
            schema => schema.as_object()?,
        };
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let mut ways = Ways { kinds, options: Vec::new() };
        let keywords = self.keywords(map)?;
        for (keyword, value) in keywords.iter() {
            self.keyword(keyword, value, &keywords, &mut ways)?;
        }
        self.depth -= 1;
        Some(any(ways.options))
    }

    /// Return the keywords of a schema in their plain forms; `None` if one of them has a value of
    /// the wrong kind, or none says its opposite.
    fn keywords<'m>(&mut self, map: &'m Map<String, Value>) -> Option<Keywords<'m>> {
        let n_named = map.get("properties").and_then(Value::as_object).map_or(0, Map::len);
        self.patterns.charge(1 + keywords::weight(map) + n_named / 16)?;
        let is_unsaid = |keyword: &&str| map.get(*keyword).is_some_and(|value| *value != Value::Bool(false));
        if !keywords::hides_others(map, self.root) && UNSAID.iter().any(is_unsaid) {
            return None;
        }
        let mut keywords = Keywords::of(map, self.root);
        let has_shape = shapes::check(&mut keywords).is_empty();
        numbers::split_flags(&mut keywords);
        (has_shape && plain::state_required(&mut keywords)).then_some(keywords)
    }

    /// Add the values that break a keyword.
    fn keyword(&mut self, keyword: &str, value: &Value, all: &Keywords<'_>, ways: &mut Ways) -> Option<()> {
        match keyword {
            "type" => ways.add_any(excluded::types(value, ways.kinds)?),
            "const" => {
                ways.add_any(self.excluded(core::slice::from_ref(value), ways.kinds)?);
            }
            "enum" => ways.add_any(self.excluded(value.as_array()?, ways.kinds)?),
            "$ref" | "allOf" | "anyOf" | "oneOf" | "not" | "if" => {
                let broken = self.parts(keyword, value, all, ways.kinds)?;
                ways.add_any(broken);
            }
            "then" | "else" => {}
            _ if !ways.kinds.meet(about(keyword)) => {}
            "pattern" => match self.patterns.others(value.as_str()?)? {
                Others::None => {}
                Others::Matching(pattern) => ways.add("string", json!({"pattern": pattern})),
            },
            "format" => return None,
            "minLength" => less("string", "maxLength", value, ways)?,
            "maxLength" => more("string", "minLength", value, ways)?,
            "minItems" => less("array", "maxItems", value, ways)?,
            "maxItems" => more("array", "minItems", value, ways)?,
            "minProperties" => less("object", "maxProperties", value, ways)?,
            "maxProperties" => more("object", "minProperties", value, ways)?,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                bound(keyword, value, ways)?;
            }
            "items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains" => {
                self.items(keyword, value, all, ways)?;
            }
            _ => self.properties(keyword, value, ways)?,
        }
        Some(())
    }

    /// Return the values that break schemas of the same value.
    fn parts(&mut self, keyword: &str, value: &Value, all: &Keywords<'_>, kinds: Kinds) -> Option<Value> {
        match keyword {
            "$ref" => {
                let (_, target) = refs::target(self.root, value.as_str()?)?;
                self.schema(target, kinds)
            }
            "not" => self.copies.copied(value),
            "if" => self.conditional(value, all, kinds),
            _ => {
                let schemas = value.as_array()?;
                let broken: Option<Vec<Value>> = schemas.iter().map(|it| self.schema(it, kinds)).collect();
                match keyword {
                    "allOf" => Some(any(broken?)),
                    "anyOf" => Some(every(broken?)),
                    _ => {
                        let pairs = self.pairs(schemas)?;
                        Some(any([every(broken?)].into_iter().chain(pairs).collect()))
                    }
                }
            }
        }
    }

    /// Return the values that break what holds under a condition. Only what is asked for where the
    /// condition fails needs the values that fail it.
    fn conditional(&mut self, condition: &Value, all: &Keywords<'_>, kinds: Kinds) -> Option<Value> {
        let mut options = Vec::new();
        if let Some(needed) = all.get("then").filter(|it| !is_everything(it)) {
            let holds = self.copies.copied(condition)?;
            options.push(every(Vec::from([holds, self.schema(needed, kinds)?])));
        }
        if let Some(needed) = all.get("else").filter(|it| !is_everything(it)) {
            let fails = self.schema(condition, kinds)?;
            options.push(every(Vec::from([fails, self.schema(needed, kinds)?])));
        }
        Some(any(options))
    }

    /// Return the values that match two of `schemas`, for each pair of them.
    fn pairs(&mut self, schemas: &[Value]) -> Option<Vec<Value>> {
        if schemas.len() > MAX_PAIRED {
            return None;
        }
        let mut pairs = Vec::new();
        for (i, first) in schemas.iter().enumerate() {
            for second in schemas.iter().skip(i + 1) {
                let both = Vec::from([self.copies.copied(first)?, self.copies.copied(second)?]);
                pairs.push(every(both));
            }
        }
        Some(pairs)
    }

    /// Return a schema for the values of `kinds` that are none of `values`.
    fn excluded(&mut self, values: &[Value], kinds: Kinds) -> Option<Value> {
        // Texts are compared by their characters.
        let cost = |value: &Value| 1 + value.as_str().map_or(0, str::len) / 16;
        self.patterns.charge(values.iter().map(cost).sum())?;
        excluded::values(values, kinds, &mut self.copies)
    }

    /// Add the lists that break a keyword about items.
    fn items(&mut self, keyword: &str, value: &Value, all: &Keywords<'_>, ways: &mut Ways) -> Option<()> {
        let listed = ["prefixItems", "items"].into_iter().find_map(|keyword| all.get(keyword)?.as_array());
        let n_listed = listed.map_or(0, Vec::len);
        match (keyword, value) {
            // It is about what `items` says nothing of, if that is a list.
            ("additionalItems", _) if !all.get("items").is_some_and(Value::is_array) => {}
            ("items" | "prefixItems", Value::Array(schemas)) => {
                for (i, schema) in schemas.iter().enumerate() {
                    let broken = self.schema(schema, Kinds::ALL)?;
                    if !is_nothing(&broken) {
                        ways.add("array", self.copies.with_item(i, broken)?);
                    }
                }
            }
            ("contains", schema) => match self.schema(schema, Kinds::ALL)? {
                broken if is_nothing(&broken) => ways.add("array", json!({"maxItems": 0})),
                broken => ways.add("array", json!({"items": broken})),
            },
            (_, schema) if is_everything(schema) => {}
            ("items" | "additionalItems", schema) if is_nothing(schema) => {
                ways.add("array", json!({"minItems": n_listed + 1}));
            }
            _ => return None,
        }
        Some(())
    }

    /// Add the objects that break a keyword about properties.
    fn properties(&mut self, keyword: &str, value: &Value, ways: &mut Ways) -> Option<()> {
        match (keyword, value) {
            ("required", Value::Array(names)) => {
                self.patterns.charge(names.len())?;
                for name in names {
                    ways.add("object", lacking(name.as_str()?));
                }
            }
            ("properties", Value::Object(schemas)) => {
                for (name, schema) in schemas {
                    let broken = self.schema(schema, Kinds::ALL)?;
                    if !is_nothing(&broken) {
                        let properties = Map::from_iter([(name.clone(), broken)]);
                        ways.add("object", json!({"properties": properties, "required": [name]}));
                    }
                }
            }
            ("patternProperties", Value::Object(schemas)) if schemas.values().all(is_everything) => {}
            ("propertyNames", schema) => self.names(schema, ways)?,
            ("dependencies" | "dependentRequired" | "dependentSchemas", Value::Object(map)) => {
                for (name, needs) in map {
                    let broken = match needs {
                        Value::Array(names) => {
                            self.patterns.charge(names.len())?;
                            let names = names.iter().map(|name| name.as_str().map(lacking));
                            any(names.collect::<Option<_>>()?)
                        }
                        schema => self.schema(schema, Kinds::OBJECT)?,
                    };
                    let has_name = json!({"required": [name], "type": "object"});
                    ways.add_any(every(Vec::from([has_name, broken])));
                }
            }
            (_, schema) if is_everything(schema) => {}
            _ => return None,
        }
        Some(())
    }

    /// Add the objects that have a name which breaks `schema`.
    fn names(&mut self, schema: &Value, ways: &mut Ways) -> Option<()> {
        let broken = self.schema(schema, Kinds::named("string"))?;
        let names = match (broken.get("const"), broken.get("enum")) {
            _ if is_nothing(&broken) => return Some(()),
            _ if is_everything(&broken) => {
                ways.add("object", json!({"minProperties": 1}));
                return Some(());
            }
            (Some(name), None) => core::slice::from_ref(name),
            (None, Some(Value::Array(names))) => names,
            _ => return None,
        };
        // Other keywords beside the list say that only some of the names are meant.
        let keywords = Keywords::of(broken.as_object()?, self.root);
        let is_alone = keywords.iter().all(|(keyword, _)| ["const", "enum", "type"].contains(&keyword));
        if !is_alone || broken.get("type").is_some_and(|kind| kind != "string") {
            return None;
        }
        self.patterns.charge(names.len())?;
        for name in names.iter().filter_map(Value::as_str) {
            ways.add("object", json!({"required": [name]}));
        }
        Some(())
    }
}

/// Return the types that a keyword is about.
fn about(keyword: &str) -> Kinds {
    Kinds::named(match keyword {
        "minLength" | "maxLength" | "pattern" | "format" => "string",
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => "number",
        "items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains" | "minItems"
        | "maxItems" => "array",
        _ => "object",
    })
}

/// Return the schema of objects without a property.
fn lacking(name: &str) -> Value {
    json!({"type": "object", "properties": Map::from_iter([(String::from(name), Value::Bool(false))])})
}

/// Return the schema of values that match one of `options`.
pub(super) fn any(options: Vec<Value>) -> Value {
    joined("anyOf", true, options)
}

/// Return the schema of values that match all of `schemas`.
pub(super) fn every(schemas: Vec<Value>) -> Value {
    joined("allOf", false, schemas)
}

/// Return the schema whose `keyword` lists `schemas`, of which one that matches everything (or
/// nothing, if not `decided`) decides for all, and its opposite adds nothing.
fn joined(keyword: &str, decided: bool, mut schemas: Vec<Value>) -> Value {
    let is = |schema: &Value, truth| if truth { is_everything(schema) } else { is_nothing(schema) };
    if schemas.iter().any(|schema| is(schema, decided)) {
        return decided.into();
    }
    schemas.retain(|schema| !is(schema, !decided));
    match (schemas.pop(), schemas.is_empty()) {
        (None, _) => (!decided).into(),
        (Some(only), true) => only,
        (Some(last), false) => {
            schemas.push(last);
            Map::from_iter([(keyword.into(), schemas.into())]).into()
        }
    }
}

/// Add the values of a type that have fewer characters, items or properties than `count`.
fn less(kind: &'static str, keyword: &str, count: &Value, ways: &mut Ways) -> Option<()> {
    if let Some(most) = count.as_u64()?.checked_sub(1) {
        ways.add(kind, Map::from_iter([(keyword.into(), most.into())]).into());
    }
    Some(())
}

/// Add the values of a type that have more characters, items or properties than `count`.
fn more(kind: &'static str, keyword: &str, count: &Value, ways: &mut Ways) -> Option<()> {
    let least = count.as_u64()?.checked_add(1)?;
    ways.add(kind, Map::from_iter([(keyword.into(), least.into())]).into());
    Some(())
}

/// Add the numbers beyond a bound.
fn bound(keyword: &str, bound: &Value, ways: &mut Ways) -> Option<()> {
    let other = match keyword {
        "minimum" => "exclusiveMaximum",
        "maximum" => "exclusiveMinimum",
        "exclusiveMinimum" => "maximum",
        "exclusiveMaximum" => "minimum",
        _ => return None,
    };
    ways.add("number", Map::from_iter([(other.into(), bound.clone())]).into());
    Some(())
}

#[cfg(test)]
mod tests;
