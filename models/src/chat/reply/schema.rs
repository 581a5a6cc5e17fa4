//! The values that a schema allows, as alternatives that are written differently.
//!
//! Formats that write strings without quotes, or in quotes of their own, need to know which values
//! are strings. [`alternatives`] answers for the reader, the writer and the grammar alike: unions,
//! lists of constants and types become one list of [`Alternative`]s.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::{BitAnd, BitOr};

use crate::chat::Value;

/// The depth of unions within each other that are looked at.
const MAX_DEPTH: u32 = 8;
/// The most alternatives of a schema; more are any value.
const MAX_ALTERNATIVES: usize = 256;
/// The keywords that say something about strings.
const OF_STRINGS: [&str; 4] = ["minLength", "maxLength", "pattern", "format"];
/// The keywords that say something about values of other types, with the types.
const OF_OTHERS: [(&[&str], Types); 3] = [
    (&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"], Types::NUMBER),
    (&["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"], Types::LIST),
    (
        &[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
        ],
        Types::MAP,
    ),
];

/// A set of JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const NUMBER: Self = Self(4);
    pub(super) const STRING: Self = Self(8);
    pub(super) const LIST: Self = Self(16);
    pub(super) const MAP: Self = Self(32);
    pub(super) const ALL: Self = Self(63);

    /// Return the type of `value`.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Int(_) | Value::Float(_) => Self::NUMBER,
            Value::Str(_) => Self::STRING,
            Value::List(_) => Self::LIST,
            Value::Map(_) => Self::MAP,
        }
    }

    /// Return the type of this name in a schema; all for a name that is unknown.
    fn named(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" | "number" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::LIST,
            "object" => Self::MAP,
            _ => Self::ALL,
        }
    }

    /// Return the names of these types in a schema.
    pub(super) fn names(self) -> Vec<Value> {
        let named = [
            (Self::NULL, "null"),
            (Self::BOOLEAN, "boolean"),
            (Self::NUMBER, "number"),
            (Self::STRING, "string"),
            (Self::LIST, "array"),
            (Self::MAP, "object"),
        ];
        named.into_iter().filter(|(kind, _)| self.meet(*kind)).map(|(_, name)| name.into()).collect()
    }

    /// Return true if any of these types is among `others`.
    pub(super) fn meet(self, others: Self) -> bool {
        self & others != Self::NONE
    }

    /// Return these types without `others`.
    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl BitOr for Types {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Types {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Some of the values that a schema allows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Alternative {
    /// Any value.
    Any,
    /// One of these strings.
    Texts(Vec<String>),
    /// A string that all of these schemas allow.
    Text(Vec<Value>),
    /// A value of these types, no strings, that all of these schemas allow.
    Other(Types, Vec<Value>),
}

impl Alternative {
    /// Return alternatives that are any value, strings apart.
    pub(super) fn any() -> Vec<Self> {
        let others = Types::ALL.without(Types::STRING);
        Vec::from([Self::Text(Vec::new()), Self::Other(others, Vec::new())])
    }

    /// Return the types of the values.
    pub(super) fn types(&self) -> Types {
        match self {
            Self::Any => Types::ALL,
            Self::Texts(_) | Self::Text(_) => Types::STRING,
            Self::Other(types, _) => *types,
        }
    }

    /// Return the values that are in both.
    fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, other) | (other, Self::Any) => Some(other.clone()),
            (Self::Texts(own), Self::Texts(others)) => {
                let others: BTreeSet<&String> = others.iter().collect();
                let both = own.iter().filter(|text| others.contains(text)).cloned().collect();
                Some(Self::Texts(both)).filter(|both| *both != Self::Texts(Vec::new()))
            }
            (Self::Texts(texts), Self::Text(limits)) | (Self::Text(limits), Self::Texts(texts)) => {
                let fitting = texts.iter().filter(|text| limits.iter().all(|limit| fits(text, limit)));
                Some(Self::Texts(fitting.cloned().collect())).filter(|both| *both != Self::Texts(Vec::new()))
            }
            (Self::Text(own), Self::Text(others)) => Some(Self::Text([own.as_slice(), others].concat())),
            (Self::Other(types, own), Self::Other(others, more)) => {
                let types = *types & *others;
                (types != Types::NONE).then(|| Self::Other(types, [own.as_slice(), more].concat()))
            }
            _ => None,
        }
    }
}

/// Return the types of the values that `schema` allows.
pub(super) fn types(schema: Option<&Value>) -> Types {
    let alternatives = alternatives(schema);
    alternatives.iter().fold(Types::NONE, |types, alternative| types | alternative.types())
}

/// Return the constants of these types that all `schemas` list, or `None` if none lists any.
pub(super) fn listed(types: Types, schemas: &[Value]) -> Option<Vec<&Value>> {
    let mut lists = schemas.iter().filter_map(|schema| schema.get("enum").and_then(Value::as_list));
    let first = lists.next()?;
    let others: Vec<&[Value]> = lists.collect();
    let is_everywhere = |value: &&Value| others.iter().all(|list| list.contains(value));
    Some(first.iter().filter(|value| types.meet(Types::of(value))).filter(is_everywhere).collect())
}

/// Return the values that `schema` allows; any value if there is none.
pub(super) fn alternatives(schema: Option<&Value>) -> Vec<Alternative> {
    within(schema, 0)
}

/// Return the alternatives of a schema within `depth` unions.
fn within(schema: Option<&Value>, depth: u32) -> Vec<Alternative> {
    let schema = match schema {
        Some(Value::Bool(false)) => return Vec::new(),
        Some(schema @ Value::Map(_)) if depth < MAX_DEPTH => schema,
        _ => return Vec::from([Alternative::Any]),
    };
    let list = |key: &str| schema.get(key).and_then(Value::as_list);
    let mut found = own(schema);
    for part in list("allOf").unwrap_or(&[]) {
        found = meet(&found, &within(Some(part), depth + 1));
    }
    for choices in ["anyOf", "oneOf"].into_iter().filter_map(list) {
        let choices: Vec<_> = choices.iter().flat_map(|choice| within(Some(choice), depth + 1)).collect();
        found = meet(&found, &joined(choices));
    }
    found
}

/// Return the alternatives of a schema by its own keywords.
fn own(schema: &Value) -> Vec<Alternative> {
    let declared = declared(schema);
    let listed = match (schema.get("enum").and_then(Value::as_list), schema.get("const")) {
        (_, Some(only)) => Some(core::slice::from_ref(only)),
        (list, None) => list,
    };
    if let Some(listed) = listed {
        return constants(listed, declared.unwrap_or(Types::ALL));
    }
    let Some(types) = declared.or_else(|| inferred(schema)) else {
        return Vec::from([Alternative::Any]);
    };
    if types == Types::ALL {
        return Vec::from([Alternative::Any]);
    }
    let mut found = Vec::new();
    if types.meet(Types::STRING) {
        found.push(Alternative::Text(limits(schema).into_iter().collect()));
    }
    let others = types.without(Types::STRING);
    if others != Types::NONE {
        found.push(Alternative::Other(others, Vec::from([without_strings(schema)])));
    }
    found
}

/// Return the types that a schema names.
fn declared(schema: &Value) -> Option<Types> {
    let named = |name: &Value| name.as_str().map_or(Types::ALL, Types::named);
    let kind = schema.get("type")?;
    Some(match kind.as_list() {
        Some(kinds) => kinds.iter().map(named).fold(Types::NONE, BitOr::bitor),
        None => named(kind),
    })
}

/// Return the types that follow from other keywords of a schema.
fn inferred(schema: &Value) -> Option<Types> {
    let has = |keys: &[&str]| keys.iter().any(|key| schema.get(key).is_some());
    let others = OF_OTHERS.iter().find(|(keys, _)| has(keys)).map(|(_, types)| *types);
    // A format may be one of numbers.
    others.or_else(|| has(&OF_STRINGS[..3]).then_some(Types::STRING))
}

/// Return the alternatives of a list of constants of these types.
fn constants(listed: &[Value], types: Types) -> Vec<Alternative> {
    let is_allowed = |value: &&Value| types.meet(Types::of(value));
    let (texts, others): (Vec<&Value>, Vec<&Value>) =
        listed.iter().filter(is_allowed).partition(|value| value.as_str().is_some());
    let mut found = Vec::new();
    if !texts.is_empty() {
        let texts = texts.iter().filter_map(|text| text.as_str()).map(ToString::to_string);
        found.push(Alternative::Texts(texts.collect()));
    }
    if !others.is_empty() {
        let types = others.iter().map(|value| Types::of(value)).fold(Types::NONE, BitOr::bitor);
        let list = Value::List(others.into_iter().cloned().collect());
        found.push(Alternative::Other(types, Vec::from([Value::map([("enum", list)])])));
    }
    found
}

/// Return the keywords of a schema that limit strings, if there are any.
fn limits(schema: &Value) -> Option<Value> {
    let limits: Vec<(&str, Value)> =
        OF_STRINGS.into_iter().filter_map(|key| schema.get(key).map(|value| (key, value.clone()))).collect();
    (!limits.is_empty()).then(|| Value::map(limits))
}

/// Return a schema without strings and without unions, which have alternatives of their own.
fn without_strings(schema: &Value) -> Value {
    let Value::Map(entries) = schema else { return schema.clone() };
    let is_kept = |key: &str| !OF_STRINGS.contains(&key) && !["allOf", "anyOf", "oneOf"].contains(&key);
    let kept = entries.iter().filter(|(key, _)| is_kept(key)).map(|(key, value)| match value.as_list() {
        Some(kinds) if key == "type" => {
            let kinds = kinds.iter().filter(|kind| kind.as_str() != Some("string"));
            (key.clone(), Value::List(kinds.cloned().collect()))
        }
        _ => (key.clone(), value.clone()),
    });
    Value::Map(kept.collect())
}

/// Return the values that are in an alternative of both lists.
fn meet(own: &[Alternative], others: &[Alternative]) -> Vec<Alternative> {
    if own.len().saturating_mul(others.len()) > MAX_ALTERNATIVES {
        return Vec::from([Alternative::Any]);
    }
    joined(own.iter().flat_map(|one| others.iter().filter_map(|other| one.meet(other))).collect())
}

/// Return the alternatives with all lists of strings as one.
fn joined(alternatives: Vec<Alternative>) -> Vec<Alternative> {
    let (mut texts, mut known, mut found) = (Vec::new(), BTreeSet::new(), Vec::new());
    for alternative in alternatives {
        match alternative {
            Alternative::Texts(more) => {
                texts.extend(more.into_iter().filter(|text| known.insert(text.clone())))
            }
            other => found.push(other),
        }
    }
    if !texts.is_empty() {
        found.insert(0, Alternative::Texts(texts));
    }
    found
}

/// Return true if the length of `text` is within the limits of a schema. Patterns of listed strings
/// are not looked at.
fn fits(text: &str, limits: &Value) -> bool {
    let n = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let bound = |key: &str| match limits.get(key) {
        Some(Value::Int(n)) => Some(*n),
        _ => None,
    };
    bound("minLength").is_none_or(|least| n >= least) && bound("maxLength").is_none_or(|most| n <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: &str) -> Vec<Alternative> {
        alternatives(Some(&Value::from_json(schema).unwrap()))
    }

    #[test]
    fn unions_become_alternatives() {
        let texts = |texts: &[&str]| Alternative::Texts(texts.iter().map(ToString::to_string).collect());
        let text = |limits: &str| match limits {
            "" => Alternative::Text(Vec::new()),
            limits => Alternative::Text(vec![Value::from_json(limits).unwrap()]),
        };
        let other = |types, schema: &str| Alternative::Other(types, vec![Value::from_json(schema).unwrap()]);
        let cases = [
            ("{}", vec![Alternative::Any]),
            ("true", vec![Alternative::Any]),
            ("false", vec![]),
            (r#"{"type":"string","title":"T"}"#, vec![text("")]),
            (r#"{"minLength":2}"#, vec![text(r#"{"minLength":2}"#)]),
            (r#"{"format":"int32"}"#, vec![Alternative::Any]),
            (r#"{"type":["string","null"]}"#, vec![text(""), other(Types::NULL, r#"{"type":["null"]}"#)]),
            (
                r#"{"enum":["a",1,null]}"#,
                vec![texts(&["a"]), other(Types::NUMBER | Types::NULL, r#"{"enum":[1,null]}"#)],
            ),
            (r#"{"type":"string","enum":["a",1]}"#, vec![texts(&["a"])]),
            (r#"{"anyOf":[{"const":"a"},{"enum":["b","a"]}]}"#, vec![texts(&["a", "b"])]),
            (
                r#"{"oneOf":[{"type":"string"},{"type":"integer"}]}"#,
                vec![text(""), other(Types::NUMBER, r#"{"type":"integer"}"#)],
            ),
            (r#"{"type":"string","anyOf":[{"const":"a"},{"const":1}]}"#, vec![texts(&["a"])]),
            (r#"{"allOf":[{"type":"string"},{"maxLength":1},{"enum":["a","bc"]}]}"#, vec![texts(&["a"])]),
            (r#"{"allOf":[{"type":"string"},{"type":"null"}]}"#, vec![]),
        ];
        for (schema, wanted) in cases {
            assert_eq!(of(schema), wanted, "{schema}");
        }
    }
}
