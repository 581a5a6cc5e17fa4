//! Schemas of tools, made to stand alone.
//!
//! Grammars of calls put the schemas of parameters inside of others, where their references lead
//! nowhere. They are followed here. Clients send whatever their libraries make of their types, so
//! a keyword or a reference that cannot be followed is no error: the values there may then be any,
//! and the place is listed.

use backstitch_models::Cancel;
use backstitch_models::grammar::{reference_target, relaxed_schema_with};
use serde_json::{Map, Value, json};

/// The references that are followed inside of each other; a type that contains itself ends there.
const MAX_REFERENCES: usize = 4;
/// The values of a schema whose references were followed.
const MAX_VALUES: usize = 20_000;
/// The types of values that are no objects.
const OTHER_TYPES: [&str; 6] = ["null", "boolean", "integer", "number", "string", "array"];
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
/// places of what was left out. It is the schema of any object if that cannot be done, and the
/// place is then that of the whole schema.
pub(super) fn standalone(schema: &Value, cancel: &Cancel) -> (Value, Vec<String>) {
    let mut follower = Follower { root: schema, n_left: MAX_VALUES };
    let followed = follower.value(schema, 0);
    match followed.and_then(|schema| relaxed_schema_with(&schema, cancel).ok()) {
        Some((written, relaxed)) => (written, relaxed.iter().map(ToString::to_string).collect()),
        None => (any_object(), vec!["#".to_owned()]),
    }
}

/// Return true if the schema `root` states types of its values, and no objects are among them.
pub(super) fn excludes_objects(root: &Value) -> bool {
    let mut schema = root;
    for _ in 0..MAX_REFERENCES {
        let reference = schema.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| reference_target(root, reference)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    let is_other = |name: &Value| name.as_str().is_some_and(|name| OTHER_TYPES.contains(&name));
    match schema.get("type") {
        Some(Value::Array(names)) => !names.is_empty() && names.iter().all(is_other),
        Some(name) => is_other(name),
        None => false,
    }
}

/// Replaces references by what they refer to.
struct Follower<'s> {
    root: &'s Value,
    /// The values that may still be written.
    n_left: usize,
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

    /// Return what `reference` leads to, with the other keywords that stand beside it. If it is not
    /// followed, a reference to nothing stands in its place, which is listed as left out.
    fn reference(
        &mut self,
        reference: &str,
        beside: &Map<String, Value>,
        n_references: usize,
    ) -> Option<Value> {
        let target = reference_target(self.root, reference);
        let found = match target.filter(|_| n_references < MAX_REFERENCES) {
            Some(target) => self.value(target, n_references + 1)?,
            None => json!({"$ref": ""}),
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
                    value => self.value(value, n_references)?,
                };
                Some((key.clone(), value))
            })
            .collect();
        entries.map(Value::Object)
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
        let closed = json!({"type": "object", "properties": {"x": true}, "additionalProperties": false});
        for (odd, keyword, wanted) in [
            (json!({"$ref": "#/$defs/none"}), "$ref", json!({})),
            (json!({"$ref": "https://example.org/a.json"}), "$ref", json!({})),
            (json!({"$ref": "#/$defs/none", "type": "null"}), "$ref", json!({"type": "null"})),
            (json!({"type": "array", "contains": {"const": "b"}}), "contains", json!({"type": "array"})),
            (
                json!({"type": "object", "propertyNames": {"format": "date", "anyOf": []}}),
                "propertyNames",
                json!({"type": "object"}),
            ),
            (json!({"type": "string", "not": {"$ref": "#/$defs/none"}}), "not", json!({"type": "string"})),
            (json!({"not": {}}), "", json!(false)),
            (json!({"properties": {"x": 5}}), "properties/x", closed),
            (json!({"if": {"type": "null"}, "then": {}, "else": {"const": 1}}), "if", json!({})),
        ] {
            let schema = json!({"type": "object", "properties": {"a": odd, "b": {"type": "null"}}});
            let properties = json!({"a": wanted, "b": {"type": "null"}});
            let (written, ignored) = standalone(&schema, &Cancel::new());
            assert_eq!(written["properties"], properties, "{schema}");
            let place = Some(format!("#/properties/a/{keyword}")).filter(|_| !keyword.is_empty());
            assert_eq!(ignored, Vec::from_iter(place), "{schema}");
        }
        let wide: Map<String, Value> = (0..200).map(|i| (format!("p{i}"), json!({"$ref": "#"}))).collect();
        for schema in [json!({"type": "object", "properties": wide}), json!([1])] {
            let (written, ignored) = standalone(&schema, &Cancel::new());
            assert_eq!((written, ignored), (any_object(), vec!["#".to_owned()]), "{schema}");
        }
    }

    #[test]
    fn parts_that_are_not_followed_leave_objects_open() {
        let known = json!({"properties": {"b": {"type": "null"}}});
        let schema = json!({"type": "object", "allOf": [{"$ref": "#/$defs/none"}, known]});
        let (written, ignored) = standalone(&schema, &Cancel::new());
        assert_eq!(ignored, ["#/allOf/0/$ref"]);
        assert!(!written.to_string().contains("false"), "{written}");
    }

    #[test]
    fn schemas_of_other_types_are_known() {
        for (schema, excludes) in [
            (json!({"type": "string"}), true),
            (json!({"type": ["array", "null"]}), true),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}}), true),
            (json!({"type": ["object", "null"]}), false),
            (json!({"type": "OBJECT"}), false),
            (json!({"type": null}), false),
            (json!({"$ref": "#"}), false),
            (json!({}), false),
        ] {
            assert_eq!(excludes_objects(&schema), excludes, "{schema}");
        }
    }
}
