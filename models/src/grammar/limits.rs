//! Limits of what is read of a grammar before anything is compiled.

use alloc::{string::String, vec::Vec};

use serde_json::Value;

use super::error::GrammarError;

/// The largest text of a grammar, in bytes.
pub(super) const MAX_TEXT: usize = 512 << 10;
/// The largest regular expression, in bytes. Each `\pL` of one takes 5 KB while it is read.
const MAX_PATTERN: usize = 16 << 10;

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
