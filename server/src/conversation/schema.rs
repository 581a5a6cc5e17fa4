//! Schemas of tools, made to stand alone.
//!
//! Grammars of calls put the schemas of parameters inside of others, where their references lead
//! nowhere. They are followed here. Clients send whatever their libraries make of their types, so a
//! schema that cannot be followed is no error: the call may then have any arguments.

use backstitch_models::grammar::explicit_schema;
use serde_json::{Map, Value, json};

/// The references that are followed inside of each other; a type that contains itself ends there.
const MAX_REFERENCES: usize = 4;
/// The values of a schema whose references were followed.
const MAX_VALUES: usize = 20_000;
/// Keywords whose values are data.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords of schemas that are only there to be referred to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Return the schema of any object.
pub(super) fn any_object() -> Value {
    json!({"type": "object"})
}

/// Return `schema` without references, with all written out that it takes for granted; the schema
/// of any object if that cannot be done.
pub(super) fn standalone(schema: &Value) -> Value {
    let mut follower = Follower { root: schema, n_left: MAX_VALUES };
    let followed = follower.value(schema, 0);
    followed.and_then(|schema| explicit_schema(&schema).ok()).unwrap_or_else(any_object)
}

/// Replaces references by what they refer to.
struct Follower<'s> {
    root: &'s Value,
    /// The values that may still be written.
    n_left: usize,
}

impl Follower<'_> {
    /// Return `value` behind `n_references`, or `None` if it is too large or refers to nothing.
    fn value(&mut self, value: &Value, n_references: usize) -> Option<Value> {
        self.n_left = self.n_left.checked_sub(1)?;
        match value {
            Value::Object(map) => match map.get("$ref") {
                Some(Value::String(pointer)) => self.reference(pointer, map, n_references),
                _ => self.object(map, core::ptr::eq(value, self.root), n_references),
            },
            Value::Array(items) => items.iter().map(|item| self.value(item, n_references)).collect(),
            other => Some(other.clone()),
        }
    }

    /// Return what `pointer` refers to, with the other keywords that stand beside it.
    fn reference(
        &mut self,
        pointer: &str,
        beside: &Map<String, Value>,
        n_references: usize,
    ) -> Option<Value> {
        if n_references == MAX_REFERENCES {
            return Some(true.into());
        }
        let target = self.root.pointer(pointer.strip_prefix('#')?)?;
        let mut found = self.value(target, n_references + 1)?;
        if let Value::Object(found) = &mut found {
            for (key, value) in beside.iter().filter(|(key, _)| *key != "$ref") {
                let value = self.value(value, n_references)?;
                found.entry(key.as_str()).or_insert(value);
            }
        }
        Some(found)
    }

    /// Return an object, the root without its definitions.
    fn object(&mut self, map: &Map<String, Value>, is_root: bool, n_references: usize) -> Option<Value> {
        let kept = map.iter().filter(|(key, _)| !is_root || !DEFINITIONS.contains(&key.as_str()));
        let entries: Option<Map<String, Value>> = kept
            .map(|(key, value)| {
                let value = match DATA.contains(&key.as_str()) {
                    true => value.clone(),
                    false => self.value(value, n_references)?,
                };
                Some((key.clone(), value))
            })
            .collect();
        entries.map(Value::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed() {
        let schema = json!({
            "$defs": {"Size": {"type": "integer"}},
            "type": "object",
            "properties": {"size": {"$ref": "#/$defs/Size", "description": "in m"}, "$ref": {"type": "null"}},
            "additionalProperties": false,
        });
        let followed = standalone(&schema);
        assert_eq!(followed["properties"]["size"]["type"], "integer");
        assert_eq!(followed["properties"]["size"]["description"], "in m");
        assert_eq!(followed["properties"]["$ref"]["type"], "null");
        assert!(followed.get("$defs").is_none());
    }

    #[test]
    fn types_that_contain_themselves_end() {
        let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        let followed = standalone(&tree);
        let depth = |mut at: &Value| {
            let mut n = 0;
            while let Some(left) = at.pointer("/properties/left") {
                (at, n) = (left, n + 1);
            }
            n
        };
        assert_eq!(depth(&followed), MAX_REFERENCES + 1);
    }

    #[test]
    fn what_cannot_be_followed_allows_anything() {
        let wide: Map<String, Value> = (0..200).map(|i| (format!("p{i}"), json!({"$ref": "#"}))).collect();
        for schema in [
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}),
            json!({"type": "object", "properties": wide}),
            json!({"not": {"type": "string"}}),
            json!([1]),
        ] {
            assert_eq!(standalone(&schema), any_object(), "{schema}");
        }
    }
}
