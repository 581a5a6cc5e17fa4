//! JSON schemas: what the library lacks is refused, and what it reads differently from llama.cpp is
//! written out.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};

use serde_json::{Map, Value, json};

use super::error::GrammarError;

/// The depth to which schemas may be nested.
const MAX_DEPTH: usize = 64;
/// The number of values in a schema.
const MAX_VALUES: usize = 100_000;
/// The first integer with more digits than llama.cpp accepts.
const INTEGER_END: i64 = 10_000_000_000_000_000;
/// White space between the parts of a value: a space, or line breaks and indentation. Small models
/// write nothing else any more where they may write more.
const SPACE: &str = r"\x20|\x20?(\x0D?\x0A){1,2}[\x20\x09]{0,20}";

/// Keywords that the library ignores or gets wrong, so that an output could break the schema. Those
/// that it ignores and that are not here break nothing but counts: `uniqueItems`, and the bounds of
/// the number of properties where some are optional.
const REFUSED: [&str; 13] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a schema.
const SCHEMA: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
/// Keywords whose value is a list of schemas. `items` can be one too.
const SCHEMAS: [&str; 5] = ["prefixItems", "items", "anyOf", "oneOf", "allOf"];
/// Keywords whose value is a map of schemas.
const SCHEMA_MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords that say which values are meant without a `type`.
const DECIDED: [&str; 7] = ["type", "$ref", "anyOf", "oneOf", "allOf", "const", "enum"];

/// Return `schema` as the library needs it.
///
/// # Errors
/// [`GrammarError::Schema`] and [`GrammarError::TooLarge`].
pub(super) fn adapted(schema: &Value) -> Result<Value, GrammarError> {
    let mut adapted = explicit_schema(schema)?;
    if let Value::Object(map) = &mut adapted {
        let options = json!({
            "whitespace_pattern": SPACE,
            "coerce_one_of": true,
            "lenient": true,
            "json_allow_general_unicode_escapes": true,
        });
        map.insert("x-guidance".to_owned(), options);
    }
    Ok(adapted)
}

/// Write out what llama.cpp takes for granted in a schema: types that follow from other keywords,
/// objects without further properties, integers of bounded size. Schemas that stand inside of a
/// Lark grammar get their usual meaning so.
///
/// # Errors
/// [`GrammarError::Schema`] for what is no schema and for keywords that are not supported,
/// [`GrammarError::TooLarge`].
pub fn explicit_schema(schema: &Value) -> Result<Value, GrammarError> {
    written_out(schema, true)
}

/// Write out what llama.cpp takes for granted in a schema, as [`explicit_schema`] does, without the
/// keywords that are not supported: each of them only forbids values, so the schema allows more
/// then.
///
/// # Errors
/// [`GrammarError::Schema`] for what is no schema, [`GrammarError::TooLarge`].
///
/// # Example
/// ```
/// use backstitch_models::grammar::relaxed_schema;
/// use serde_json::json;
///
/// let schema = json!({"type": "string", "not": {"const": "no"}});
/// assert_eq!(relaxed_schema(&schema)?, json!({"type": "string"}));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn relaxed_schema(schema: &Value) -> Result<Value, GrammarError> {
    written_out(schema, false)
}

fn written_out(schema: &Value, refuses: bool) -> Result<Value, GrammarError> {
    check_size(schema)?;
    // The parts of an `allOf` describe one object together, so none of them may be closed.
    let closes = !mentions(schema, "allOf");
    let mut adapted = schema.clone();
    adapt(&mut adapted, "#", Choices { closes, refuses })?;
    Ok(adapted)
}

/// The ways to adapt a schema.
#[derive(Clone, Copy)]
struct Choices {
    /// Objects with properties have no others.
    closes: bool,
    /// Keywords that are not supported are errors.
    refuses: bool,
}

/// Check the depth and the number of values, without recursion.
fn check_size(schema: &Value) -> Result<(), GrammarError> {
    let (mut todo, mut n) = (Vec::from([(schema, 0)]), 0);
    // A schema takes two levels: a keyword's value, and the map or list in it.
    let limit = 2 * MAX_DEPTH;
    while let Some((value, depth)) = todo.pop() {
        n += 1;
        if depth > limit {
            return Err(GrammarError::TooLarge { what: "levels of nesting", found: depth, limit });
        }
        if n > MAX_VALUES {
            return Err(GrammarError::TooLarge { what: "values", found: n, limit: MAX_VALUES });
        }
        match value {
            Value::Object(map) => todo.extend(map.values().map(|value| (value, depth + 1))),
            Value::Array(values) => todo.extend(values.iter().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// Return true if any object of `value` has the key `key`.
fn mentions(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(map) => map.contains_key(key) || map.values().any(|value| mentions(value, key)),
        Value::Array(values) => values.iter().any(|value| mentions(value, key)),
        _ => false,
    }
}

fn adapt(schema: &mut Value, pointer: &str, choices: Choices) -> Result<(), GrammarError> {
    if schema.get("not").is_some_and(is_everything) {
        *schema = Value::Bool(false);
    }
    let map = match schema {
        Value::Object(map) => map,
        Value::Bool(_) => return Ok(()),
        other => {
            let problem = format!("found {}; a schema is an object, `true` or `false`", kind(other));
            return Err(GrammarError::Schema { pointer: pointer.to_owned(), problem });
        }
    };
    map.retain(|keyword, value| !is_void(keyword, value));
    if !choices.refuses {
        map.retain(|keyword, _| !REFUSED.contains(&keyword.as_str()));
    }
    if let Some(keyword) = REFUSED.iter().find(|&&keyword| map.contains_key(keyword)) {
        let problem = format!("`{keyword}` is not supported; remove it or express it in another way");
        return Err(GrammarError::Schema { pointer: format!("{pointer}/{keyword}"), problem });
    }
    let inside = |key: &str| format!("{pointer}/{key}");
    for keyword in SCHEMA_MAPS {
        if let Some(Value::Object(schemas)) = map.get_mut(keyword) {
            for (name, schema) in schemas {
                adapt(schema, &inside(&format!("{keyword}/{}", escaped(name))), choices)?;
            }
        }
    }
    for keyword in SCHEMAS {
        if let Some(Value::Array(schemas)) = map.get_mut(keyword) {
            for (i, schema) in schemas.iter_mut().enumerate() {
                adapt(schema, &inside(&format!("{keyword}/{i}")), choices)?;
            }
        }
    }
    for keyword in SCHEMA {
        match map.get_mut(keyword) {
            None | Some(Value::Array(_)) => {}
            Some(schema) => adapt(schema, &inside(keyword), choices)?,
        }
    }
    complete(map, choices.closes);
    Ok(())
}

/// Return true if a keyword allows everything: the name of a property is a string in any case.
fn is_void(keyword: &str, value: &Value) -> bool {
    match keyword {
        "propertyNames" => is_everything(value) || *value == json!({"type": "string"}),
        "not" => *value == Value::Bool(false),
        "if" | "then" | "else" | "unevaluatedItems" | "unevaluatedProperties" => is_everything(value),
        _ => false,
    }
}

/// Return true for the schema of any value.
fn is_everything(schema: &Value) -> bool {
    *schema == Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

/// Write out what llama.cpp takes for granted.
fn complete(map: &mut Map<String, Value>, closes: bool) {
    if !DECIDED.iter().any(|&keyword| map.contains_key(keyword)) {
        let has = |keyword: &str| map.contains_key(keyword);
        let is_open = map.get("additionalProperties").is_none_or(|value| *value == Value::Bool(true));
        let found = match () {
            () if has("properties") || has("patternProperties") || !is_open => Some("object"),
            () if has("items") || has("prefixItems") => Some("array"),
            () if has("pattern") || has("format") => Some("string"),
            () => None,
        };
        if let Some(found) = found {
            map.insert("type".to_owned(), found.into());
        }
    }
    if closes && map.contains_key("properties") && !map.contains_key("additionalProperties") {
        map.insert("additionalProperties".to_owned(), false.into());
    }
    if map.get("type").is_some_and(|value| value == "integer") && !map.contains_key("multipleOf") {
        for (inclusive, exclusive, end) in
            [("minimum", "exclusiveMinimum", -INTEGER_END), ("maximum", "exclusiveMaximum", INTEGER_END)]
        {
            if !map.contains_key(inclusive) && !map.contains_key(exclusive) {
                map.insert(exclusive.to_owned(), end.into());
            }
        }
    }
}

/// Return a key as a JSON pointer writes it.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
