//! Schemas of parameters in the plainest words, for templates that choke on others.
//!
//! Templates describe tools to the model, and some only know what their authors had in mind: that
//! every schema is an object with one type, by its name. What clients send is made so here, without
//! what cannot be said so.

use super::schema::any_object;
use backstitch_models::grammar::reference_target;
use serde_json::{Map, Value, json};

/// The names of types, without that of null.
const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "array", "object"];
/// The deepest schema that is described.
const MAX_DEPTH: usize = 16;
/// The most schemas that are described.
const MAX_SCHEMAS: usize = 10_000;

/// Return the schema of parameters with a type and properties, and otherwise as it is.
pub(super) fn full_parameters(schema: &Value) -> Value {
    let mut full = schema.as_object().cloned().unwrap_or_default();
    for (name, value) in [("type", json!("object")), ("properties", json!({})), ("required", json!([]))] {
        full.entry(name).or_insert(value);
    }
    Value::Object(full)
}

/// Return the schema of parameters in the plainest words: every schema in it has one type, a
/// description, words to choose from, properties or items, and nothing else.
pub(super) fn plain_parameters(schema: &Value) -> Value {
    let mut plain = Plain { root: schema, n_left: MAX_SCHEMAS };
    let properties = plain.properties(schema, 0);
    json!({"type": "object", "properties": properties, "required": required(schema)})
}

/// Return the names of properties that have to be there.
fn required(schema: &Value) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Writes schemas plainly.
struct Plain<'s> {
    root: &'s Value,
    /// The schemas that may still be written.
    n_left: usize,
}

impl<'s> Plain<'s> {
    /// Return the properties of a schema.
    fn properties(&mut self, schema: &'s Value, depth: usize) -> Map<String, Value> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flatten();
        properties.map(|(name, schema)| (name.clone(), self.schema(schema, depth + 1))).collect()
    }

    /// Return a schema.
    fn schema(&mut self, schema: &'s Value, depth: usize) -> Value {
        if depth > MAX_DEPTH || self.n_left == 0 {
            return any_object();
        }
        self.n_left -= 1;
        let target = self.target(schema);
        let kind = self.kind(target, depth);
        let mut plain = Map::new();
        plain.insert("type".into(), kind.into());
        let described = [schema, target].into_iter().find_map(|schema| schema.get("description"));
        if let Some(Value::String(text)) = described {
            plain.insert("description".into(), text.as_str().into());
        }
        match kind {
            "string" => {
                let words = target.get("enum").and_then(Value::as_array).into_iter().flatten();
                let words: Vec<_> = words.filter(|word| word.is_string()).cloned().collect();
                if !words.is_empty() {
                    plain.insert("enum".into(), words.into());
                }
            }
            "object" => {
                plain.insert("properties".into(), self.properties(target, depth).into());
                plain.insert("required".into(), required(target).into());
            }
            "array" => {
                let items = match target.get("items").or(target.get("prefixItems")) {
                    Some(Value::Array(items)) => items.first(),
                    items => items,
                };
                let items = items.map_or(json!({"type": "string"}), |items| self.schema(items, depth + 1));
                plain.insert("items".into(), items);
            }
            _ => {}
        }
        plain.into()
    }

    /// Return what a schema refers to, itself if to nothing.
    fn target(&self, schema: &'s Value) -> &'s Value {
        let mut target = schema;
        for _ in 0..MAX_DEPTH {
            let reference = target.get("$ref").and_then(Value::as_str);
            match reference.and_then(|reference| reference_target(self.root, reference)) {
                Some(next) => target = next,
                None => break,
            }
        }
        target
    }

    /// Return the name of a type that values of a schema have: the first of several.
    fn kind(&self, schema: &'s Value, depth: usize) -> &'static str {
        let known = |name: &Value| TYPES.into_iter().find(|known| name.as_str() == Some(known));
        let named = match schema.get("type") {
            Some(Value::Array(names)) => names.iter().find_map(known),
            Some(name) => known(name),
            None => None,
        };
        let of_value = |value: &Value| match value {
            Value::Null => None,
            Value::Bool(_) => Some("boolean"),
            Value::Number(number) if number.is_f64() => Some("number"),
            Value::Number(_) => Some("integer"),
            Value::String(_) => Some("string"),
            Value::Array(_) => Some("array"),
            Value::Object(_) => Some("object"),
        };
        let listed = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        let has = |names: &[&str]| names.iter().any(|name| schema.get(name).is_some());
        let chosen = || schema.get("const").into_iter().chain(listed("enum")).find_map(of_value);
        let part = || {
            let mut parts = ["anyOf", "oneOf", "allOf"].into_iter().flat_map(listed);
            let is_null = |part: &&Value| part.get("type").and_then(Value::as_str) == Some("null");
            let part = parts.find(|part| !is_null(part)).filter(|_| depth < MAX_DEPTH)?;
            Some(self.kind(self.target(part), depth + 1))
        };
        let shaped = || match () {
            () if has(&["properties", "additionalProperties"]) => Some("object"),
            () if has(&["items", "prefixItems"]) => Some("array"),
            () => None,
        };
        named.or_else(chosen).or_else(shaped).or_else(part).unwrap_or("string")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_said_with_one_type() {
        let schema = json!({
            "properties": {
                "any": true,
                "none": {"description": "Any."},
                "null": {"type": ["null", "integer"]},
                "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/words"}]},
                "numbers": {"enum": [null, 2.5, "x"]},
                "pair": {"type": "array", "items": [{"type": "boolean"}]},
                "loop": {"$ref": "#/$defs/loop"},
            },
            "required": ["any", 5],
            "$defs": {
                "words": {"enum": ["a", "b"], "minLength": 1},
                "loop": {"properties": {"again": {"$ref": "#"}}},
            },
        });
        let plain = plain_parameters(&schema);
        let found = |path: &str| plain.pointer(&format!("/properties/{path}")).unwrap();
        assert_eq!(*found("any"), json!({"type": "string"}));
        assert_eq!(*found("none"), json!({"type": "string", "description": "Any."}));
        assert_eq!(*found("null"), json!({"type": "integer"}));
        assert_eq!(*found("either"), json!({"type": "string"}));
        assert_eq!(*found("numbers"), json!({"type": "number"}));
        assert_eq!(*found("pair"), json!({"type": "array", "items": {"type": "boolean"}}));
        assert_eq!(*found("loop/properties/again/type"), json!("object"));
        assert_eq!(plain["required"], json!(["any"]));
        assert_eq!(plain_parameters(&json!({})), full_parameters(&json!({})));
        assert_eq!(full_parameters(&json!({"type": "object", "x": 1}))["x"], json!(1));
    }

    #[test]
    fn schemas_that_nest_or_refer_to_themselves_end() {
        let deep = (0..1000).fold(json!({}), |inner, _| json!({"type": "array", "items": inner}));
        assert!(plain_parameters(&json!({"properties": {"x": deep}})).to_string().len() < 2000);
        let itself = json!({"properties": {"x": {"$ref": "#/properties/x"}, "y": {"anyOf": [{"$ref": "#/properties/y"}]}}});
        assert_eq!(plain_parameters(&itself)["properties"]["y"]["type"], json!("string"));
        let wide: Map<String, Value> = (0..9).map(|i| (format!("p{i}"), json!({"$ref": "#"}))).collect();
        let text = plain_parameters(&json!({"properties": wide})).to_string();
        assert!(text.len() < 500 * MAX_SCHEMAS, "{}", text.len());
    }
}
