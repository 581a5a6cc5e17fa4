//! JSON schemas: what the library lacks is refused, and what it reads differently from llama.cpp is
//! written out.
//!
//! A schema is written anew, from its root on, in these steps for each schema in it:
//!
//! - `keywords.rs` reads its keywords, without those that say nothing about values.
//! - `plain.rs` expresses keywords by others (`names.rs` those about the names of properties), and
//!   drops those that cannot be expressed (`lost.rs` says why); `shapes.rs` knows the kinds of
//!   their values, `numbers.rs` and `patterns.rs` what the library can take of bounds and regular
//!   expressions, which `ecma.rs` writes in its dialect.
//!   `negation.rs` and `excluded.rs` write `not` as what it leaves, `exclusive.rs` parts some
//!   options of `oneOf`, and `distinct.rs` finds those that need no parting.
//! - `parts.rs` finds the schemas that describe the same value (`allOf`, `anyOf`, `$ref`), and the
//!   names of properties in them.
//! - `plan.rs` chooses the part that closes the object, over the names that all parts have.
//! - `write.rs` writes the schema, and `notes.rs` notes what it leaves out.
//!
//! References (`refs.rs`) become plain names in new `$defs`. A reference with other keywords
//! becomes what it leads to, since the library could not join the two where they are inside of each
//! other, and only the object as a whole is closed.
//!
//! `contradiction.rs` finds schemas that no value matches.

mod contradiction;
mod copies;
mod distinct;
mod ecma;
mod excluded;
mod exclusive;
#[cfg(test)]
mod hostile;
mod keywords;
mod kinds;
mod lost;
mod names;
mod negation;
mod notes;
mod numbers;
mod parts;
mod path;
mod patterns;
mod plain;
mod plan;
mod refs;
mod relaxation;
mod shapes;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod types;
#[cfg(test)]
mod unevaluated;
mod write;

use alloc::{borrow::ToOwned, vec::Vec};

use serde_json::{Map, Value, json};

pub use self::relaxation::Relaxation;
use self::write::Writer;
use super::error::GrammarError;
use super::limits::check_schema;
use crate::Cancel;

/// The depth to which schemas may be nested.
const MAX_DEPTH: usize = 64;
/// The number of values in a schema.
const MAX_VALUES: usize = 100_000;
/// White space between the parts of a value: a space, or line breaks and indentation. Small models
/// write nothing else any more where they may write more.
const SPACE: &str = r"\x20|\x20?(\x0D?\x0A){1,2}[\x20\x09]{0,20}";

/// Return `schema` as the library needs it, and what was left out of it.
///
/// # Errors
/// [`GrammarError::Schema`], [`GrammarError::TooLarge`] and [`GrammarError::Cancelled`].
pub(super) fn adapted(schema: &Value, cancel: &Cancel) -> Result<(Value, Vec<Relaxation>), GrammarError> {
    let (mut adapted, relaxed) = written(schema, true, cancel)?;
    contradiction::check(schema)?;
    if let Value::Object(map) = &mut adapted {
        let options = json!({
            "whitespace_pattern": SPACE,
            "coerce_one_of": true,
            "lenient": true,
            "json_allow_general_unicode_escapes": true,
        });
        map.insert("x-guidance".to_owned(), options);
    }
    Ok((adapted, relaxed))
}

/// Write a schema anew, and list what was left out of it. With `refuses`, keywords that are not
/// supported are errors.
fn written(schema: &Value, refuses: bool, cancel: &Cancel) -> Result<(Value, Vec<Relaxation>), GrammarError> {
    check_schema(schema)?;
    check_size(schema)?;
    Writer::new(schema, refuses, cancel).write()
}

/// Write out what llama.cpp takes for granted in a schema: types that follow from other keywords,
/// objects without further properties, lists as long as their `prefixItems`, integers of bounded
/// size. Schemas that stand inside of a Lark grammar get their usual meaning so.
///
/// Only what says something about values is kept. Patterns that no grammar can follow (look-around,
/// word boundaries) are left out, as llama.cpp does.
///
/// # Errors
/// [`GrammarError::Schema`] for what is no schema and for keywords that are not supported,
/// [`GrammarError::TooLarge`].
pub fn explicit_schema(schema: &Value) -> Result<Value, GrammarError> {
    Ok(written(schema, true, &Cancel::new())?.0)
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
/// let schema = json!({"type": "array", "contains": {"const": "no"}});
/// assert_eq!(relaxed_schema(&schema)?, json!({"type": "array"}));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn relaxed_schema(schema: &Value) -> Result<Value, GrammarError> {
    Ok(relaxed_schema_with(schema, &Cancel::new())?.0)
}

/// Write out a schema as [`relaxed_schema`] does, and list what was left out. `cancel` ends the
/// work.
///
/// # Errors
/// Those of [`relaxed_schema`], and [`GrammarError::Cancelled`].
///
/// # Example
/// ```
/// use backstitch_models::Cancel;
/// use backstitch_models::grammar::relaxed_schema_with;
/// use serde_json::json;
///
/// let schema = json!({"properties": {"a": {"type": "array", "contains": {"const": "no"}}}});
/// let (_, relaxed) = relaxed_schema_with(&schema, &Cancel::new())?;
/// assert_eq!(relaxed[0].to_string(), "#/properties/a/contains");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn relaxed_schema_with(
    schema: &Value,
    cancel: &Cancel,
) -> Result<(Value, Vec<Relaxation>), GrammarError> {
    written(schema, false, cancel)
}

/// Return a pattern of a schema in the dialect of the library, if that can follow it.
#[cfg(feature = "chat")]
pub(super) fn translated_pattern(pattern: &str) -> Option<String> {
    ecma::translated(pattern).ok()
}

/// Return the value that a reference such as `#/$defs/size` leads to in the schema `root`, as
/// [`explicit_schema`] finds it: characters may be escaped as in addresses, and `#/` is the root.
///
/// # Example
/// ```
/// use backstitch_models::grammar::reference_target;
/// use serde_json::json;
///
/// let schema = json!({"definitions": {"List<Item>": {"type": "array"}}});
/// let found = reference_target(&schema, "#/definitions/List%3CItem%3E");
/// assert_eq!(found, Some(&json!({"type": "array"})));
/// ```
pub fn reference_target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    refs::target(root, reference).map(|(_, value)| value)
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

/// Return true for the schema of any value.
fn is_everything(schema: &Value) -> bool {
    *schema == Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

/// Return true for the schema of no value.
fn is_nothing(schema: &Value) -> bool {
    *schema == Value::Bool(false) || schema.get("not").is_some_and(is_everything)
}

/// Return the number of values in a value, itself included, with each 64 bytes of a text as one.
fn n_values(value: &Value) -> usize {
    1 + match value {
        Value::Object(map) => map.iter().map(|(name, value)| name.len() / 64 + n_values(value)).sum(),
        Value::Array(values) => values.iter().map(n_values).sum::<usize>(),
        Value::String(text) => text.len() / 64,
        _ => 0,
    }
}
