//! Schemas of tools, made to stand alone.
//!
//! Grammars of calls put the schemas of parameters inside of others, where their references lead
//! nowhere. They are followed here. Clients send whatever their libraries make of their types, so a
//! keyword or a reference that cannot be followed is no error: the values there may then be any.

use backstitch_models::Cancel;
use backstitch_models::grammar::{Relaxation, reference_target, relaxed_schema_with};
use serde_json::{Map, Value, json};

/// The references that are followed inside of each other; a type that contains itself ends there.
const MAX_REFERENCES: usize = 4;
/// The values of a schema whose references were followed.
const MAX_VALUES: usize = 20_000;
/// Keywords whose values are data.
const DATA: [&str; 2] = ["const", "enum"];
/// Keywords that only describe. Grammars have no use for them, and limits.
const NOTES: [&str; 5] = ["title", "description", "default", "examples", "$comment"];
/// Keywords of schemas that are only there to be referred to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Keywords whose value is a map of schemas, by names that are no keywords.
const MAPS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Return the schema of any object.
pub(super) fn any_object() -> Value {
    json!({"type": "object"})
}

/// Return `schema` without references, with all written out that it takes for granted, and the
/// places of what was left out. It is the schema of any object if that cannot be done.
pub(super) fn standalone(schema: &Value, cancel: &Cancel) -> (Value, Vec<Relaxation>) {
    let mut follower = Follower { root: schema, n_left: MAX_VALUES, n_cut: 0 };
    let followed = follower.value(schema, 0);
    let written = followed.and_then(|schema| relaxed_schema_with(&schema, cancel).ok());
    written.unwrap_or_else(|| (any_object(), Vec::new()))
}

/// Replaces references by what they refer to.
struct Follower<'s> {
    root: &'s Value,
    /// The values that may still be written.
    n_left: usize,
    /// The references that were not followed, in whose place any value stands.
    n_cut: usize,
}

impl Follower<'_> {
    /// Return `value` behind `n_references`, or `None` if it is too large.
    fn value(&mut self, value: &Value, n_references: usize) -> Option<Value> {
        self.n_left = self.n_left.checked_sub(1)?;
        match value {
            Value::Object(map) => match map.get("$ref") {
                Some(Value::String(reference)) => self.reference(reference, map, n_references),
                _ => self.object(map, n_references),
            },
            Value::Array(items) => items.iter().map(|item| self.value(item, n_references)).collect(),
            other => Some(other.clone()),
        }
    }

    /// Return what `reference` leads to, with the other keywords that stand beside it. What it
    /// leads to may be anything if it is not there.
    fn reference(
        &mut self,
        reference: &str,
        beside: &Map<String, Value>,
        n_references: usize,
    ) -> Option<Value> {
        let target = reference_target(self.root, reference);
        let found = match target.filter(|_| n_references < MAX_REFERENCES) {
            Some(target) => self.value(target, n_references + 1)?,
            None => {
                self.n_cut += 1;
                return Some(true.into());
            }
        };
        let mut beside = beside.clone();
        beside.remove("$ref");
        let beside = self.object(&beside, n_references)?;
        Some(joined(found, beside))
    }

    /// Return a schema without its definitions and notes.
    fn object(&mut self, map: &Map<String, Value>, n_references: usize) -> Option<Value> {
        let is_kept = |key: &str| !DEFINITIONS.contains(&key) && !NOTES.contains(&key);
        let kept = map.iter().filter(|(key, _)| is_kept(key));
        let entries: Option<Map<String, Value>> = kept
            .map(|(key, value)| {
                let value = match value {
                    value if DATA.contains(&key.as_str()) => value.clone(),
                    Value::Object(named) if MAPS.contains(&key.as_str()) => {
                        self.named(named, n_references)?
                    }
                    value if key == "not" => self.negated(value, n_references)?,
                    value => self.value(value, n_references)?,
                };
                Some((key.clone(), value))
            })
            .collect();
        entries.map(Value::Object)
    }

    /// Return the schema in a `not`. If any value stands in the place of one in it, more would be
    /// refused than meant, so nothing is said instead.
    fn negated(&mut self, schema: &Value, n_references: usize) -> Option<Value> {
        let n_cut = self.n_cut;
        let followed = self.value(schema, n_references)?;
        Some(if self.n_cut == n_cut { followed } else { json!({"$ref": ""}) })
    }

    /// Return schemas by name.
    fn named(&mut self, map: &Map<String, Value>, n_references: usize) -> Option<Value> {
        let entries: Option<Map<String, Value>> = map
            .iter()
            .map(|(name, schema)| Some((name.clone(), self.value(schema, n_references)?)))
            .collect();
        entries.map(Value::Object)
    }
}

/// Return the schema of values that match both `found` and what stood beside the reference to it.
fn joined(found: Value, beside: Value) -> Value {
    let (mut found, mut beside) = match (found, beside) {
        (Value::Object(found), Value::Object(beside)) => (found, beside),
        (found, _) => return found,
    };
    if beside.iter().all(|(key, value)| found.get(key).is_none_or(|own| own == value)) {
        found.extend(beside);
        return found.into();
    }
    // Both have something to say by the same keyword.
    let mut parts = vec![Value::Object(found)];
    match beside.remove("allOf") {
        Some(Value::Array(others)) => parts.extend(others),
        Some(other) => parts.push(json!({"allOf": other})),
        None => {}
    }
    let mut joined = Map::from_iter([("allOf".to_owned(), parts.into())]);
    joined.extend(beside);
    joined.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed() {
        let schema = json!({
            "$defs": {"Size": {"type": "integer"}},
            "type": "object",
            "properties": {
                "size": {"$ref": "#/$defs/Size", "minimum": 3, "description": "in m"},
                "$ref": {"type": "null"},
                "default": {"$ref": "#/$defs/Size"},
            },
            "additionalProperties": false,
        });
        let followed = standalone(&schema, &Cancel::new()).0;
        assert_eq!(followed["properties"]["size"]["type"], "integer");
        assert_eq!(followed["properties"]["size"]["minimum"], 3);
        assert_eq!(followed["properties"]["size"].get("description"), None);
        assert_eq!(followed["properties"]["default"]["type"], "integer");
        assert_eq!(followed["properties"]["$ref"]["type"], "null");
        assert!(followed.get("$defs").is_none());
    }

    #[test]
    fn references_and_what_stands_beside_them_are_joined() {
        let base = json!({"type": "object", "properties": {"id": {"type": "null"}}});
        let schema = json!({
            "definitions": {"Pick<Foo>": base},
            "properties": {"a": {
                "$ref": "#/definitions/Pick%3CFoo%3E",
                "type": "object",
                "properties": {"own": {"type": "integer"}},
            }},
        });
        let followed = standalone(&schema, &Cancel::new()).0;
        let both = &followed["properties"]["a"];
        assert_eq!(both.pointer("/allOf/0/properties/id/type"), Some(&json!("null")), "{both}");
        assert_eq!(both.pointer("/properties/own/type"), Some(&json!("integer")), "{both}");
        let itself = json!({"type": "object", "properties": {"next": {"$ref": "#/"}}});
        let next = standalone(&itself, &Cancel::new()).0;
        assert_eq!(next.pointer("/properties/next/type"), Some(&json!("object")), "{next}");
    }

    #[test]
    fn types_that_contain_themselves_end() {
        let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        let followed = standalone(&tree, &Cancel::new()).0;
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
    fn what_cannot_be_followed_allows_anything_there() {
        for (odd, wanted) in [
            (json!({"$ref": "#/$defs/none"}), json!(true)),
            (json!({"$ref": "https://example.org/a.json"}), json!(true)),
            (json!({"type": "array", "contains": {"const": "b"}}), json!({"type": "array"})),
            (
                json!({"type": "object", "propertyNames": {"format": "date", "anyOf": []}}),
                json!({"type": "object"}),
            ),
            (json!({"type": "string", "not": {"$ref": "#/$defs/none"}}), json!({"type": "string"})),
            (json!({"not": {}}), json!(false)),
            (json!({"if": {"type": "null"}, "then": {}, "else": {"const": 1}}), json!({})),
        ] {
            let schema = json!({"type": "object", "properties": {"a": odd, "b": {"type": "null"}}});
            let properties = json!({"a": wanted, "b": {"type": "null"}});
            assert_eq!(standalone(&schema, &Cancel::new()).0["properties"], properties, "{schema}");
        }
        let wide: Map<String, Value> = (0..200).map(|i| (format!("p{i}"), json!({"$ref": "#"}))).collect();
        for schema in [json!({"type": "object", "properties": wide}), json!([1])] {
            assert_eq!(standalone(&schema, &Cancel::new()).0, any_object(), "{schema}");
        }
    }
}
