//! Small schemas that would take minutes or gigabytes.

use alloc::{format, string::String, vec, vec::Vec};

use serde_json::{Map, Value, json};

use super::{explicit_schema, relaxed_schema};
use crate::grammar::GrammarError;
use crate::grammar::testing::Work;

/// Check that `schema` is refused for its size, soon.
fn check_too_large(schema: &Value) {
    let work = Work::begin();
    for result in [relaxed_schema(schema), explicit_schema(schema)] {
        let is_refused = matches!(result, Err(GrammarError::TooLarge { .. }));
        assert!(is_refused, "{:.200}", format!("{schema}"));
    }
    work.check_small(schema);
}

#[test]
fn long_patterns_are_not_read() {
    check_too_large(&json!({"type": "string", "pattern": r"\pL".repeat(1_000_000)}));
    check_too_large(&json!({"patternProperties": {r"\pL".repeat(6000): true}}));
}

#[test]
fn many_keywords_are_not_read_often() {
    let references = |name: &str| vec![json!({"$ref": format!("#/{name}")}); 100];
    let unknown: Map<String, Value> = (0..90_000).map(|i| (format!("{i}"), true.into())).collect();
    let mut schema = json!({
        "properties": {"a": {"$ref": "#/d3"}},
        "d1": {"anyOf": references("big")},
        "d2": {"anyOf": references("d1")},
        "d3": {"anyOf": references("d2")},
    });
    schema["big"] = unknown.into();
    let work = Work::begin();
    _ = relaxed_schema(&schema);
    schema["big"] = json!({"enum": vec![1; 90_000]});
    _ = relaxed_schema(&schema);
    work.check_small(&schema);
}

#[test]
fn patterns_are_read_once() {
    let pattern = json!({"type": "string", "pattern": r"\pL".repeat(5461)});
    let schema = json!({"$defs": {"p": pattern}, "allOf": vec![json!({"$ref": "#/$defs/p"}); 2900]});
    check_too_large(&schema);
    let patterns: Vec<Value> =
        (0..30).map(|i| json!({"pattern": format!("{}{i}", r"\pL".repeat(5400))})).collect();
    check_too_large(&json!({"anyOf": patterns}));
    let short = json!({"type": "string", "pattern": "^[a-z]+$", "format": "date"});
    let schema = json!({"$defs": {"p": short}, "allOf": vec![json!({"$ref": "#/$defs/p"}); 5000]});
    assert!(explicit_schema(&schema).is_ok());
}

#[test]
fn listed_names_are_not_copied_often() {
    let names: Vec<String> = (0..10_000).map(|i| format!("{i}")).collect();
    let strict = json!({"propertyNames": {"enum": names}, "additionalProperties": false});
    let parts = vec![json!({"$ref": "#/$defs/n"}); 25_000];
    check_too_large(&json!({"$defs": {"n": strict}, "allOf": parts}));
}

#[test]
fn what_a_not_refers_to_is_not_read_often() {
    let long = json!({"allOf": vec![json!({"type": "string", "minLength": 3}); 390]});
    let names = json!({"required": vec!["a"; 50_000]});
    for big in [long, names] {
        let parts = vec![json!({"$ref": "#/n"}); 20_000];
        check_too_large(&json!({"n": {"not": {"$ref": "#/big"}}, "big": big, "allOf": parts}));
    }
}

#[test]
fn long_lists_of_names_are_not_compared() {
    let names: Vec<String> = (0..30_000).map(|i| format!("{i}")).collect();
    let schema = json!({"oneOf": [{"required": names}, {"required": names}], "required": names});
    let work = Work::begin();
    _ = relaxed_schema(&schema);
    work.check_small(&schema);
}

#[test]
fn parts_that_are_closed_are_compared_once() {
    let closed = json!({"properties": {"a": true}, "required": ["a"], "additionalProperties": false});
    let schema = json!({"a": closed, "allOf": vec![json!({"$ref": "#/a"}); 15_000]});
    let work = Work::begin();
    assert!(explicit_schema(&schema).is_ok());
    work.check_small(&schema);
}
