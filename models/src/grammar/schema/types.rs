//! Types that follow from other keywords, and the order of properties.

use alloc::{format, vec::Vec};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::relaxed_schema_with;
use crate::Cancel;
use crate::grammar::testing::compiler;

/// Values of each type.
const VALUES: [&str; 6] = ["1", "null", "true", "\"ab\"", "[1]", "{\"a\":1}"];

fn check(schema: &Value, accepted: &[&str], refused: &[&str]) {
    let grammar = compiler().json_schema_value(schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    for text in accepted {
        assert!(grammar.accepts(text), "{schema} should accept {text}");
    }
    for text in refused {
        assert!(!grammar.accepts(text), "{schema} should refuse {text}");
    }
}

#[test]
fn unknown_formats_are_ignored() {
    check(&json!({"format": "int32"}), &VALUES, &[]);
    check(
        &json!({"properties": {"n": {"format": "positiveInteger"}}}),
        &["{\"n\":2}", "{\"n\":[1]}"],
        &["1"],
    );
    check(&json!({"format": "date"}), &["\"2020-01-01\""], &["2", "\"x\""]);
}

#[test]
fn a_stated_type_takes_precedence() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    check(
        &json!({"allOf": [list, {"properties": {"a": {"type": "null"}}}]}),
        &["[1]", "[]"],
        &["{}", "[null]"],
    );
    check(
        &json!({"allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/l"}], "$defs": {"l": list}}),
        &["[1]"],
        &["1"],
    );
    let either = json!({"type": ["array", "object"], "allOf": [{"properties": {"a": {"type": "null"}}}]});
    check(&either, &["[1]", "{\"a\":null}"], &["1", "{\"a\":1}"]);
    // Keywords for two types mean neither.
    let both = json!({"allOf": [{"items": {"type": "integer"}}, {"properties": {"a": {"type": "null"}}}]});
    check(&both, &["[1]", "{\"a\":null}", "2"], &["[null]", "{\"a\":1}"]);
    // In old drafts, a reference hides what stands beside it.
    let hidden = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"x": {"type": "string", "$ref": "#/definitions/d"}},
        "definitions": {"d": {"type": "integer"}},
    });
    check(&hidden, &["{\"x\":1}"], &["{\"x\":\"a\"}"]);
}

/// Parts that only name properties describe none.
#[test]
fn properties_come_in_the_order_of_the_schema() {
    let schema = json!({
        "type": "object",
        "anyOf": [{"required": ["z"]}, {"required": ["y"]}],
        "properties": {"a": {"type": "integer"}, "y": {"type": "integer"}, "z": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": false,
    });
    check(
        &schema,
        &["{\"a\":1,\"y\":2}", "{\"a\":1,\"z\":2}", "{\"a\":1,\"y\":2,\"z\":3}"],
        &["{\"y\":2,\"a\":1}", "{\"a\":1}"],
    );
    let described = json!({"allOf": [{"properties": {"b": true}}], "properties": {"a": true}});
    check(&described, &["{\"b\":1,\"a\":1}"], &["{\"a\":1,\"b\":1}"]);
}

#[test]
fn names_are_held_beside_properties() {
    let schema = json!({
        "propertyNames": {"pattern": "^[a-z]+$"},
        "properties": {"a": {"type": "integer"}, "B": {"type": "integer"}},
        "patternProperties": {".*": {"type": "null"}},
    });
    check(&schema, &["{\"b\":null}", "{}"], &["{\"B\":1}", "{\"1\":null}"]);
    let listed = json!({"propertyNames": {"pattern": "^[a-z]+$"}, "properties": {"a": {"type": "integer"}}});
    check(&listed, &["{\"a\":1}", "{\"a\":1,\"b\":null}"], &["{\"a\":null}", "{\"B\":1}"]);
}

#[test]
fn patterns_with_one_schema_are_one() {
    let pattern = |i: usize| (format!("^{}$", "a".repeat(i)), json!({"type": "null"}));
    let schema = json!({"patternProperties": (1..300).map(pattern).collect::<serde_json::Map<_, _>>(), "additionalProperties": false});
    check(&schema, &["{\"aaa\":null}"], &["{\"b\":null}", "{\"a\":1}"]);
    let apart = |i: usize| (format!("^a{i}$"), json!({"const": i}));
    let schema = json!({"patternProperties": (1..102).map(apart).collect::<serde_json::Map<_, _>>()});
    let error = compiler().json_schema_value(&schema).map(drop).unwrap_err();
    assert!(format!("{error}").contains("patternProperties"), "{error}");
}

/// Limits are told when a grammar is compiled.
#[test]
fn masks_that_cannot_be_computed_are_told_early() {
    let words = |max: usize| json!({"type": "string", "maxLength": max, "pattern": r"^(?:\S+\s+){0,99}\S+$"});
    let error = compiler().json_schema_value(&words(5000)).map(drop).unwrap_err();
    assert!(format!("{error}").contains("#/pattern") && format!("{error}").contains("maxLength"), "{error}");
    let mut parted = words(5000);
    let length = parted.as_object_mut().unwrap().remove("maxLength").unwrap();
    let parted = json!({"allOf": [parted, {"type": "string", "maxLength": length}]});
    assert!(compiler().json_schema_value(&parted).is_err());
    let inside = format!("start: %json {}", json!({"type": "array", "items": words(5000)}));
    assert!(compiler().lark(&inside).is_err());
    check(&json!({"const": words(5000)}), &[], &["1"]);
    let optional = |n: usize| {
        let properties = (0..n).map(|i| (format!("p{i}"), json!({"type": "null"})));
        json!({"type": "object", "properties": properties.collect::<serde_json::Map<_, _>>()})
    };
    check(&optional(600), &["{}", "{\"p3\":null,\"p599\":null}"], &["{\"p\":null}"]);
    let error = compiler().json_schema_value(&optional(5000)).map(drop).unwrap_err();
    assert!(format!("{error}").contains("optional properties"), "{error}");
    let literals: Vec<_> = (0..10_000).map(|i| format!("\"w{i}x\"")).collect();
    let grammar = compiler().gbnf(&format!("root ::= {}", literals.join(" | "))).unwrap();
    assert!(grammar.accepts("w9999x") && !grammar.accepts("w10000x"));
}

#[test]
fn what_is_left_out_is_listed() {
    let schema = json!({
        "properties": {"a/b": {"type": "array", "uniqueItems": true}, "c": {"pattern": "^(?!a)", "not": {"format": "date"}}},
        "oneOf": [{"required": ["c"]}, {"required": ["a/b"], "minProperties": 2}],
        "minProperties": 1,
        "dependencies": {"c": 5},
        "dependentSchemas": [],
        "maximum": "5",
    });
    let (_, relaxed) = relaxed_schema_with(&schema, &Cancel::new()).unwrap();
    let mut found: Vec<_> = relaxed.iter().map(|it| format!("{it}")).collect();
    found.sort();
    let wanted = [
        "#/dependencies",
        "#/dependentSchemas",
        "#/maximum",
        "#/minProperties",
        "#/oneOf",
        "#/oneOf/1/minProperties",
        "#/properties/a~1b/uniqueItems",
        "#/properties/c/not",
        "#/properties/c/pattern",
    ];
    assert_eq!(found, wanted);
    let plain = json!({"properties": {"a": {"type": "string", "pattern": "^a"}}});
    assert!(compiler().json_schema_value(&plain).unwrap().relaxed().is_empty());
}

fn part() -> impl Strategy<Value = Value> {
    prop::sample::select(Vec::from([
        json!({"properties": {"a": {"type": "integer"}}}),
        json!({"items": {"type": "integer"}}),
        json!({"pattern": "b$"}),
        json!({"format": "int32"}),
        json!({"minLength": 1}),
        json!({"type": "array"}),
        json!({"type": ["object", "string"]}),
        json!({"type": "object"}),
        json!({"anyOf": [{"type": "string"}, {"items": {}}]}),
        json!({"title": "x"}),
    ]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Each value matches each of the parts without a type, so that adding one refuses nothing.
    #[test]
    fn a_part_without_type_refuses_nothing(
        parts in prop::collection::vec(part(), 1..4),
        added in prop::sample::select(Vec::from([
            json!({"properties": {"a": {"type": "integer"}}}),
            json!({"items": {"type": "integer"}}),
            json!({"pattern": "b$"}),
            json!({"format": "int32"}),
        ])),
    ) {
        let grammar = |parts: &[Value]| compiler().json_schema_value(&json!({"allOf": parts})).ok();
        let Some(before) = grammar(&parts) else { return Ok(()) };
        let is_told = VALUES.iter().any(|value| !before.accepts(value));
        let mut parts = parts;
        parts.push(added);
        let after = grammar(&parts);
        for value in VALUES.iter().filter(|value| is_told && before.accepts(value)) {
            let is_accepted = after.as_ref().is_some_and(|after| after.accepts(value));
            prop_assert!(is_accepted, "{} refuses {}", json!({"allOf": parts}), value);
        }
    }
}
