//! Values of keywords that are not of the kind that belongs there.

use serde_json::Value;

use super::keywords::Keywords;
use super::lost::Lost;
use super::plain::DEPENDENCIES;

/// The names of types.
const TYPES: [&str; 7] = ["integer", "number", "string", "boolean", "null", "array", "object"];
/// Keywords whose values are counts.
const COUNTS: [&str; 6] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

/// Remove keywords whose values are of the wrong kind, for which the library would refuse all of
/// the schema. Counts such as `1.0` become integers.
///
/// # Errors
/// Return one of the keywords that were removed.
pub(super) fn check(keywords: &mut Keywords<'_>) -> Result<(), Lost> {
    for keyword in COUNTS {
        let whole = keywords.get(keyword).filter(|count| count.is_f64()).and_then(whole);
        if let Some(count) = whole {
            keywords.set(keyword, count);
        }
    }
    let mut result = Ok(());
    let mut check = |wanted: &[&'static str], kind: &'static str, has_shape: fn(&Value) -> bool| {
        for &keyword in wanted {
            if keywords.get(keyword).is_some_and(|value| !has_shape(value)) {
                keywords.remove(keyword);
                result = Err(Lost::shape(keyword, kind));
            }
        }
    };
    check(&["allOf", "anyOf", "oneOf", "enum"], "a list", Value::is_array);
    check(&["$ref", "pattern", "format"], "a string", Value::is_string);
    check(&["properties", "patternProperties"], "a map of schemas", Value::is_object);
    check(&DEPENDENCIES, "a map of what properties need", Value::is_object);
    check(&COUNTS, "an integer from 0 on", Value::is_u64);
    check(&["minimum", "maximum"], "a number", Value::is_number);
    check(&["exclusiveMinimum", "exclusiveMaximum"], "a number", |it| it.is_number() || it.is_boolean());
    check(&["multipleOf"], "a number above 0", |it| it.as_f64().is_some_and(|step| step > 0.0));
    check(&["type"], "the name of a type of JSON, or a list of them", is_type);
    result
}

/// Return the integer that a count means.
fn whole(count: &Value) -> Option<u64> {
    let count = count.as_f64().filter(|count| count.fract() == 0.0)?;
    // Larger ones would be rounded.
    (0.0..=f64::from(u32::MAX)).contains(&count).then_some(count as u64)
}

fn is_type(value: &Value) -> bool {
    let is_name = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) => names.iter().all(is_name),
        name => is_name(name),
    }
}
