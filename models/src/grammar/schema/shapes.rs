//! Values of keywords that are not of the kind that belongs there.

use alloc::{string::String, vec::Vec};

use serde_json::{Map, Value};

use super::keywords::Keywords;
use super::lost::Lost;

/// The names of types.
const TYPES: [&str; 7] = ["integer", "number", "string", "boolean", "null", "array", "object"];
/// Keywords whose values are counts.
const COUNTS: [&str; 6] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

/// Keywords whose value is a schema.
const SCHEMAS: [&str; 8] = [
    "not",
    "if",
    "contains",
    "propertyNames",
    "additionalProperties",
    "unevaluatedProperties",
    "additionalItems",
    "unevaluatedItems",
];

/// Remove keywords whose values are of the wrong kind, for which the library would refuse all of
/// the schema. Counts such as `1.0` become integers.
///
/// Return the keywords that were removed.
pub(super) fn check(keywords: &mut Keywords<'_>) -> Vec<Lost> {
    for keyword in COUNTS {
        let whole = keywords.get(keyword).filter(|count| count.is_f64()).and_then(whole);
        if let Some(count) = whole {
            keywords.set(keyword, count);
        }
    }
    let mut lost = Vec::new();
    let mut check = |wanted: &[&'static str], kind: &'static str, has_shape: fn(&Value) -> bool| {
        for &keyword in wanted {
            if keywords.get(keyword).is_some_and(|value| !has_shape(value)) {
                keywords.remove(keyword);
                lost.push(Lost::shape(keyword, kind));
            }
        }
    };
    check(&["allOf", "anyOf", "oneOf", "enum"], "a list", Value::is_array);
    check(&["$ref", "pattern", "format"], "a string", Value::is_string);
    check(&["properties", "patternProperties"], "a map of schemas", Value::is_object);
    check(&SCHEMAS, "a schema: an object, `true` or `false`", is_schema);
    // llama.cpp takes a single schema from `prefixItems` too.
    check(&["items", "prefixItems"], "a schema or a list of schemas", |it| is_schema(it) || it.is_array());
    check(&["dependentRequired"], "a map of lists of names", |it| is_map_of(it, is_names));
    check(&["dependentSchemas"], "a map of schemas", |it| is_map_of(it, is_schema));
    check(&["dependencies"], "a map of schemas and lists of names", |it| {
        is_map_of(it, |needs| is_schema(needs) || is_names(needs))
    });
    check(&COUNTS, "an integer from 0 on", Value::is_u64);
    check(&["minimum", "maximum"], "a number", Value::is_number);
    check(&["exclusiveMinimum", "exclusiveMaximum"], "a number", |it| it.is_number() || it.is_boolean());
    check(&["multipleOf"], "a number above 0", |it| it.as_f64().is_some_and(|step| step > 0.0));
    check(&["type"], "the name of a type of JSON, or a list of them", is_type);
    lost
}

/// Return the keywords of `map` with values of the wrong kind among those that are not followed.
pub(super) fn check_ignored(map: &Map<String, Value>) -> Vec<Lost> {
    let mut lost = Vec::new();
    let mut check = |wanted: &[&'static str], kind: &'static str, has_shape: fn(&Value) -> bool| {
        let is_wrong = |keyword: &&&'static str| map.get(**keyword).is_some_and(|value| !has_shape(value));
        lost.extend(wanted.iter().filter(is_wrong).map(|keyword| Lost::shape(keyword, kind)));
    };
    check(&["$defs", "definitions"], "a map of schemas", Value::is_object);
    check(&["uniqueItems"], "`true` or `false`", Value::is_boolean);
    check(&["minContains", "maxContains"], "an integer from 0 on", |it| it.is_u64() || whole(it).is_some());
    lost
}

/// Return the integer that a count means.
fn whole(count: &Value) -> Option<u64> {
    let count = count.as_f64().filter(|count| count.fract() == 0.0)?;
    // Larger ones would be rounded.
    (0.0..=f64::from(u32::MAX)).contains(&count).then_some(count as u64)
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}

fn is_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

fn is_map_of(value: &Value, has_shape: fn(&Value) -> bool) -> bool {
    value.as_object().is_some_and(|map| map.values().all(has_shape))
}

fn is_type(value: &Value) -> bool {
    let is_name = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) => names.iter().all(is_name),
        name => is_name(name),
    }
}
