//! Limits of what is read of a grammar before anything is compiled.

use alloc::{string::String, vec::Vec};

use serde_json::{Map, Value};

use super::error::GrammarError;

/// The largest text of a grammar, in bytes.
pub(super) const MAX_TEXT: usize = 512 << 10;
/// The largest regular expression, in bytes. Each `\pL` of one takes 5 KB while it is read.
const MAX_PATTERN: usize = 16 << 10;
/// The properties of one object that may be missing. The library takes time for each pair.
const MAX_OPTIONAL: usize = 2000;

/// Check the size of a text.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check_text(text: &str) -> Result<(), GrammarError> {
    check(text.len())
}

/// Check the size of several texts together.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check_texts<'t>(texts: impl Iterator<Item = &'t str>) -> Result<(), GrammarError> {
    check(texts.map(str::len).fold(0, usize::saturating_add))
}

fn check(found: usize) -> Result<(), GrammarError> {
    match found {
        0..=MAX_TEXT => Ok(()),
        _ => Err(GrammarError::TooLarge { what: "bytes of text", found, limit: MAX_TEXT }),
    }
}

/// Check the size of a regular expression.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check_pattern(pattern: &str) -> Result<(), GrammarError> {
    let (found, limit) = (pattern.len(), MAX_PATTERN);
    if found > limit {
        let what = "bytes in one regular expression";
        return Err(GrammarError::TooLarge { what, found, limit });
    }
    Ok(())
}

/// Check the texts of a JSON schema together, and its regular expressions.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check_schema(schema: &Value) -> Result<(), GrammarError> {
    let (mut todo, mut texts) = (Vec::from([schema]), Vec::new());
    while let Some(value) = todo.pop() {
        match value {
            Value::String(text) => texts.push(text.as_str()),
            Value::Array(values) => todo.extend(values),
            Value::Object(map) => {
                texts.extend(map.keys().map(String::as_str));
                todo.extend(map.values());
                if let Some(Value::String(pattern)) = map.get("pattern") {
                    check_pattern(pattern)?;
                }
                if let Some(Value::Object(schemas)) = map.get("patternProperties") {
                    schemas.keys().try_for_each(|pattern| check_pattern(pattern))?;
                }
            }
            _ => {}
        }
    }
    check_texts(texts.into_iter())
}

/// Check the number of properties that may be missing in each object of a schema.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check_optional(schema: &Value) -> Result<(), GrammarError> {
    let mut todo = Vec::from([schema]);
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(values) => todo.extend(values),
            Value::Object(map) => {
                let n_named = map.get("properties").and_then(Value::as_object).map_or(0, Map::len);
                let n_required = map.get("required").and_then(Value::as_array).map_or(0, Vec::len);
                let (found, limit) = (n_named.saturating_sub(n_required), MAX_OPTIONAL);
                if found > limit {
                    let what = "optional properties in one object";
                    return Err(GrammarError::TooLarge { what, found, limit });
                }
                todo.extend(map.values());
            }
            _ => {}
        }
    }
    Ok(())
}
