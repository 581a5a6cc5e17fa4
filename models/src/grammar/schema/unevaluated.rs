//! `unevaluatedProperties` and `unevaluatedItems` beside parts that know more.

use alloc::format;

use serde_json::{Value, json};

use super::relaxed_schema_with;
use crate::Cancel;
use crate::grammar::GrammarError;
use crate::grammar::testing::compiler;

/// Check which texts a schema accepts, and what is left out of it.
fn check(schema: &Value, accepted: &[&str], refused: &[&str], left_out: &[&str]) {
    let grammar = compiler().json_schema_value(schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    for text in accepted {
        assert!(grammar.accepts(text), "{schema} should accept {text}");
    }
    for text in refused {
        assert!(!grammar.accepts(text), "{schema} should refuse {text}");
    }
    let found: alloc::vec::Vec<_> = grammar.relaxed().iter().map(|it| format!("{it}")).collect();
    assert_eq!(found, left_out, "{schema}");
}

/// A part in which all properties are known leaves none for the schema around it.
#[test]
fn parts_that_know_all_properties_open_the_object() {
    let outside = json!({
        "properties": {"a": {"type": "string"}},
        "allOf": [{"unevaluatedProperties": true}],
        "unevaluatedProperties": false,
    });
    check(&outside, &["{}", r#"{"a":"x"}"#, r#"{"a":"x","b":1}"#], &[r#"{"a":1}"#], &[]);
    let inside = json!({
        "allOf": [{"properties": {"a": {"type": "string"}}, "unevaluatedProperties": true}],
        "unevaluatedProperties": false,
    });
    check(&inside, &[r#"{"a":"x","b":1}"#], &[r#"{"a":1}"#], &[]);
}

/// A name that is only asked for is not described.
#[test]
fn names_that_are_asked_for_stay_unevaluated() {
    let needs = json!({
        "type": "object",
        "properties": {"a": true},
        "dependentRequired": {"b": ["a"]},
        "unevaluatedProperties": false,
    });
    check(&needs, &["{}", r#"{"a":1}"#], &[r#"{"b":1}"#, r#"{"a":1,"b":1}"#], &[]);
}

/// Names that are described under a condition are listed.
#[test]
fn conditions_are_listed() {
    let needs = json!({
        "properties": {"a": {"type": "string"}},
        "dependentSchemas": {"a": {"properties": {"b": {"const": "b"}}, "required": ["b"]}},
        "unevaluatedProperties": false,
    });
    check(
        &needs,
        &["{}", r#"{"a":"x","b":"b"}"#],
        &[r#"{"a":"x"}"#, r#"{"c":1}"#],
        &["#/unevaluatedProperties"],
    );
    let options = json!({
        "type": "object",
        "anyOf": [
            {"properties": {"a": {"const": 1}}, "required": ["a"]},
            {"required": ["b"], "properties": {"b": {"const": 2}}},
        ],
        "unevaluatedProperties": false,
    });
    check(&options, &[r#"{"a":1}"#, r#"{"b":2}"#], &[r#"{"a":2,"b":2}"#, r#"{"a":1,"b":3}"#, "{}"], &[]);
}

/// An option that describes nothing allows only what is described beside it.
#[test]
fn options_of_anything_are_closed() {
    for anything in [json!(true), json!({}), json!({"title": "x"})] {
        let schema = json!({
            "type": "object",
            "properties": {"b": {"type": "integer"}},
            "anyOf": [anything, {"properties": {"a": {"type": "integer"}}}],
            "unevaluatedProperties": false,
        });
        check(&schema, &["{}", r#"{"b":1}"#, r#"{"a":1}"#], &[r#"{"c":1}"#, r#"{"b":1,"c":1}"#], &[]);
    }
}

/// A `not` describes nothing.
#[test]
fn a_not_evaluates_nothing() {
    let names = json!({
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "not": {"required": ["b"]},
        "unevaluatedProperties": {"type": "integer"},
    });
    check(&names, &["{}", r#"{"a":"x","c":1}"#], &[r#"{"b":1}"#, r#"{"c":"x"}"#], &["#/not"]);
    let items = json!({
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "minItems": 0,
        "not": {"const": [1]},
        "unevaluatedItems": false,
    });
    check(&items, &["[]", "[2]"], &["[1]", "[2,3]"], &[]);
}

/// Items that a keyword tells of which is left out are no others.
#[test]
fn items_are_unknown_behind_what_is_left_out() {
    for (keyword, value) in [("contains", json!({"const": 1})), ("if", json!({"prefixItems": [true]}))] {
        let schema = json!({"type": "array", keyword: value, "unevaluatedItems": false});
        let (written, relaxed) = relaxed_schema_with(&schema, &Cancel::new()).unwrap();
        assert_eq!(written, json!({"type": "array"}));
        let found: alloc::vec::Vec<_> = relaxed.iter().map(|it| format!("{it}")).collect();
        assert_eq!(found, [format!("#/{keyword}"), "#/unevaluatedItems".into()]);
    }
    let properties =
        json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "unevaluatedItems": false});
    let (written, _) = relaxed_schema_with(&properties, &Cancel::new()).unwrap();
    assert_eq!(written["items"], false);
}

/// A condition alone says which names and items are known.
#[test]
fn conditions_alone_are_refused() {
    for (schema, wanted) in [
        (
            json!({"if": {"patternProperties": {"a": {"type": "string"}}}, "unevaluatedProperties": false}),
            "#/if",
        ),
        (json!({"if": {"prefixItems": [{"const": "a"}]}, "unevaluatedItems": false}), "#/if"),
    ] {
        match compiler().json_schema_value(&schema) {
            Err(GrammarError::Schema { pointer, .. }) => assert_eq!(pointer, wanted),
            other => panic!("{schema}: {other:?}"),
        }
    }
}
