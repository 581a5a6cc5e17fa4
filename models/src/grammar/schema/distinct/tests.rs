//! Options that exclude each other, and those that may not.

use serde_json::{Value, json};

use super::super::relaxed_schema_with;
use crate::Cancel;

fn is_listed(schema: &Value) -> bool {
    let (_, relaxed) = relaxed_schema_with(schema, &Cancel::new()).unwrap();
    relaxed.iter().any(|part| part.keyword == "oneOf")
}

fn shape(kind: &Value, required: &Value) -> Value {
    json!({"type": "object", "properties": {"kind": kind, "x": true}, "required": required})
}

#[test]
fn options_that_exclude_each_other_are_followed() {
    let (circle, square) =
        (shape(&json!({"const": "c"}), &json!(["kind"])), shape(&json!({"enum": ["s", 1]}), &json!([])));
    for options in [
        json!([{"const": "a"}, {"const": "b"}]),
        json!([{"enum": ["a", null]}, {"enum": ["b", 2, 3.5]}, {"const": true}]),
        json!([{"type": "integer"}, {"type": "null"}]),
        json!([{"type": ["string", "boolean"]}, {"type": "array"}, {"type": "number"}]),
        json!([circle, square]),
        json!([circle, square, {"type": "null"}, {"$ref": "#/$defs/list"}]),
        json!([{"type": "null"}, {"const": "a"}, {"$ref": "#/$defs/b"}]),
        json!([{"type": "string"}]),
    ] {
        let definitions = json!({"list": {"type": "array"}, "b": {"enum": ["b"]}});
        let schema = json!({"oneOf": options, "$defs": definitions});
        assert!(!is_listed(&schema), "{schema}");
    }
    let typed = json!({"type": "object", "oneOf": [
        {"properties": {"kind": {"const": 1}}, "required": ["kind"]},
        {"properties": {"kind": {"const": 2}}, "required": ["kind"]},
    ]});
    assert!(!is_listed(&typed));
}

#[test]
fn options_that_may_meet_are_listed() {
    let any = json!({"properties": {"kind": {"const": 1}}, "required": ["kind"]});
    for options in [
        json!([{"const": "a"}, {"enum": ["a", "b"]}]),
        json!([{"const": 1}, {"const": 1.0}]),
        json!([{"type": "integer"}, {"type": "number"}]),
        json!([{"type": "string"}, {"const": "b"}]),
        json!([{"const": [1]}, {"const": [2]}]),
        json!([shape(&json!({"const": "c"}), &json!([])), shape(&json!({"const": "s"}), &json!(["x"]))]),
        json!([
            shape(&json!({"const": "c"}), &json!(["kind"])),
            shape(&json!({"type": "string"}), &json!(["kind"]))
        ]),
        // Other values than objects match both.
        json!([any, {"properties": {"kind": {"const": 2}}, "required": ["kind"]}]),
        json!([{"$ref": "#/$defs/none"}, {"$ref": "#/$defs/none"}]),
        json!([{}, {"type": "null"}]),
    ] {
        let schema = json!({"oneOf": options});
        assert!(is_listed(&schema), "{schema}");
    }
}
