//! Schemas that no value matches, and those that only look so.

use serde_json::{Value, json};

use crate::grammar::GrammarError;
use crate::grammar::testing::{Work, compiler};

/// Return the place and the fault of a schema that is refused.
fn fault(schema: &Value) -> (String, String) {
    match compiler().json_schema_value(schema) {
        Err(GrammarError::Schema { pointer, problem }) => (pointer, problem),
        other => panic!("{schema}: {other:?}"),
    }
}

#[test]
fn the_place_of_a_contradiction_is_told() {
    let outer = |inner: Value| {
        let a = json!({"type": "object", "properties": {"b/c": inner}, "required": ["b/c"]});
        json!({"type": "object", "properties": {"a": a}, "required": ["a"]})
    };
    for (inner, keyword, words) in [
        (json!({"type": "integer", "minimum": 5, "maximum": 4}), "", "`minimum` and `maximum`"),
        (json!({"type": "number", "exclusiveMinimum": 4, "maximum": 4}), "", "`exclusiveMinimum`"),
        (json!({"type": "number", "minimum": 4, "exclusiveMinimum": true, "maximum": 4}), "", "`minimum`"),
        (json!({"type": "string", "minLength": 5, "maxLength": 4}), "", "`minLength` and `maxLength`"),
        (json!({"type": "array", "minItems": 5, "maxItems": 4}), "", "`minItems` and `maxItems`"),
        (json!({"type": "object", "minProperties": 5, "maxProperties": 4}), "", "`minProperties`"),
        (json!({"type": "array", "items": false, "minItems": 1}), "/items", "no value"),
        (json!({"enum": []}), "/enum", "no value"),
        (json!({"type": []}), "/type", "no value"),
        (json!({"not": {}}), "/not", "no value"),
        (json!(false), "", "no value"),
        (json!({"anyOf": [{"enum": []}, false]}), "/anyOf/0/enum", "no value"),
        (json!({"allOf": [{"type": "null"}, false]}), "/allOf/1", "no value"),
    ] {
        for (schema, place) in [(outer(inner.clone()), "#/properties/a/properties/b~1c"), (inner, "#")] {
            let (pointer, problem) = fault(&schema);
            assert_eq!(pointer, format!("{place}{keyword}"), "{schema}");
            assert!(problem.contains(words), "{schema}: {problem}");
        }
    }
    let through = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [false]}}});
    assert_eq!(fault(&through).0, "#/$defs/a/allOf/0");
}

#[test]
fn schemas_that_need_themselves_are_refused() {
    for (schema, pointer, words) in [
        (json!({"$ref": "#"}), "#/$ref", "itself and to nothing else"),
        (json!({"allOf": [{"$ref": "#"}]}), "#/allOf/0/$ref", "itself and to nothing else"),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "#/$defs/b/$ref",
            "itself and to nothing else",
        ),
        (
            json!({"properties": {"n": {"$ref": "#"}}, "required": ["n"]}),
            "#/properties/n/$ref",
            "without end",
        ),
        (
            json!({"type": "array", "items": {"anyOf": [{"$ref": "#"}]}, "minItems": 1}),
            "#/items/anyOf/0/$ref",
            "without end",
        ),
    ] {
        let (found, problem) = fault(&schema);
        assert_eq!(found, pointer, "{schema}");
        assert!(problem.contains(words), "{schema}: {problem}");
    }
}

#[test]
fn what_leaves_a_value_is_no_contradiction() {
    let empty = json!({"type": "string", "minLength": 5, "maxLength": 4});
    let node = |next: Value| json!({"type": "object", "properties": {"n": next}, "required": ["n"]});
    for (schema, text) in [
        (json!({"minimum": 5, "maximum": 4}), "null"),
        (json!({"type": ["integer", "null"], "minimum": 5, "maximum": 4}), "null"),
        (json!({"properties": {"a": empty, "b": {"type": "null"}}}), r#"{"b":null}"#),
        (json!({"anyOf": [empty, {"type": "null"}]}), "null"),
        (json!({"type": "array", "items": empty}), "[]"),
        (node(json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]})), r#"{"n":{"n":null}}"#),
        (node(json!({"type": "array", "items": {"$ref": "#"}})), r#"{"n":[]}"#),
        (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}, "b": {"$ref": "#/$defs/b"}}}), "null"),
    ] {
        let grammar =
            compiler().json_schema_value(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
        assert!(grammar.accepts(text), "{schema} should accept {text}");
    }
}

/// Each option leads to all others again.
#[test]
fn references_in_circles_end_soon() {
    let option = |i: usize| json!({"$ref": format!("#/$defs/d{}", i % 20)});
    let node =
        |i: usize| (format!("d{i}"), json!({"anyOf": (0..20).map(|j| option(i + j)).collect::<Value>()}));
    let definitions: serde_json::Map<String, Value> = (0..20).map(node).collect();
    let work = Work::begin();
    super::check(&json!({"$ref": "#/$defs/d0", "$defs": definitions})).unwrap();
    work.check_small("circles");
}
