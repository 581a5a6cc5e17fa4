//! Schemas with `not`, compared with a validator.

use alloc::{format, string::String, vec, vec::Vec};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::relaxed_schema;
use crate::grammar::GrammarError;
use crate::grammar::testing::{Work, compiler};

/// Values of all types, with the names of properties in order.
const VALUES: [&str; 24] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "2",
    "7",
    "-3",
    "1.5",
    "2.25",
    "\"\"",
    "\"a\"",
    "\"b\"",
    "\"ab\"",
    "\"ba\"",
    "[]",
    "[1]",
    "[\"a\"]",
    "[1,\"a\"]",
    "{}",
    "{\"a\":1}",
    "{\"a\":\"a\"}",
    "{\"b\":2}",
    "{\"a\":1,\"b\":\"b\"}",
];

/// Return true if `value` matches `schema`, to the letter.
fn is_valid(schema: &Value, value: &Value) -> bool {
    let all = |list: &Value, value: &Value| list.as_array().unwrap().iter().all(|it| is_valid(it, value));
    let n_valid = |list: &Value| list.as_array().unwrap().iter().filter(|it| is_valid(it, value)).count();
    let Value::Object(map) = schema else { return *schema == Value::Bool(true) };
    let number = value.as_f64();
    let n_chars = value.as_str().map(|text| text.chars().count());
    let holds = |(keyword, given): (&String, &Value)| match keyword.as_str() {
        "type" => match given.as_str().unwrap() {
            "integer" => number.is_some_and(|it| it.fract() == 0.0),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "array" => value.is_array(),
            _ => value.is_object(),
        },
        "const" => value == given,
        "enum" => given.as_array().unwrap().contains(value),
        "not" => !is_valid(given, value),
        "allOf" => all(given, value),
        "anyOf" => n_valid(given) > 0,
        "oneOf" => n_valid(given) == 1,
        "minimum" => number.is_none_or(|number| number >= given.as_f64().unwrap()),
        "exclusiveMaximum" => number.is_none_or(|number| number < given.as_f64().unwrap()),
        "minLength" => n_chars.is_none_or(|n| n as u64 >= given.as_u64().unwrap()),
        "pattern" => value.as_str().is_none_or(|text| match given.as_str().unwrap() {
            "^a" => text.starts_with('a'),
            _ => text.contains('b'),
        }),
        "maxItems" => value.as_array().is_none_or(|list| list.len() as u64 <= given.as_u64().unwrap()),
        "contains" => value.as_array().is_none_or(|list| list.iter().any(|item| is_valid(given, item))),
        "required" => value.as_object().is_none_or(|object| {
            given.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(name, value)| given.get(name).is_none_or(|schema| is_valid(schema, value)))
        }),
        keyword => panic!("{keyword}"),
    };
    map.iter().all(holds)
}

fn leaf() -> impl Strategy<Value = Value> {
    prop::sample::select(Vec::from([
        json!(true),
        json!({"type": "string"}),
        json!({"type": "number"}),
        json!({"type": "object"}),
        json!({"type": "null"}),
        json!({"const": 1}),
        json!({"const": "a"}),
        json!({"const": []}),
        json!({"const": [1]}),
        json!({"enum": [true, "b", 2.25, null]}),
        json!({"minimum": 1}),
        json!({"exclusiveMaximum": 2}),
        json!({"minLength": 2}),
        json!({"type": "string", "pattern": "^a"}),
        json!({"pattern": "b"}),
        json!({"maxItems": 1}),
        json!({"required": ["a"]}),
        json!({"required": ["a", "b"]}),
    ]))
}

/// Random schemas with `not` in any place.
fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            3 => inner.clone().prop_map(|schema| json!({"not": schema})),
            1 => list.clone().prop_map(|schemas| json!({"allOf": schemas})),
            1 => list.clone().prop_map(|schemas| json!({"anyOf": schemas})),
            1 => list.prop_map(|schemas| json!({"not": {"oneOf": schemas}})),
            1 => inner.clone().prop_map(|schema| json!({"not": {"contains": schema}})),
            2 => ("[ab]", inner).prop_map(|(name, schema)| {
                json!({"not": {"properties": Map::from_iter([(name, schema)])}})
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Nothing is accepted that a schema refuses, whatever is left out is listed; and a `not` alone
    /// refuses nothing that it leaves, if no type follows from other keywords.
    #[test]
    fn values_match_or_break_a_schema(schema in schema()) {
        let written = format!("{schema}");
        // Elsewhere, a type may follow from a keyword.
        let is_plain = written.starts_with("{\"not\"") && written.matches("\"not\"").count() == 1
            || !written.contains("\"properties\"") && !written.contains("{\"pattern\"");
        let is_valid = |text| is_valid(&schema, &serde_json::from_str(text).unwrap());
        match compiler().json_schema_value(&schema) {
            Ok(grammar) => for text in VALUES {
                let (is_accepted, is_valid) = (grammar.accepts(text), is_valid(text));
                // None of the texts has an escaped name.
                let is_listed = !grammar.relaxed().is_empty() && written.contains("\"oneOf\"");
                prop_assert!(is_valid || !is_accepted || is_listed, "{schema} accepts {text}");
                // Objects have their properties in one order.
                let is_plain = is_plain && text.matches(':').count() < 2;
                prop_assert!(is_accepted || !is_valid || !is_plain, "{schema} refuses {text}");
            },
            Err(GrammarError::Schema { .. }) => {}
            Err(error) => prop_assert!(!is_plain || !VALUES.into_iter().any(is_valid), "{schema}: {error}"),
        }
    }
}

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
fn constants_are_excluded() {
    let names = json!({"type": "string", "not": {"enum": ["null", "nil", "", "Ünï\n"]}});
    check(
        &names,
        &[r#""nul""#, r#""nulls""#, r#""x""#],
        &[r#""null""#, r#""nil""#, r#""""#, r#""Ünï\n""#, "1"],
    );
    let numbers = json!({"type": "integer", "not": {"enum": [0, 5, -1]}});
    check(&numbers, &["1", "4", "6", "-2", "50"], &["0", "5", "-1", "1.5"]);
    check(&json!({"type": ["boolean", "null"], "not": {"const": false}}), &["true", "null"], &["false"]);
    check(&json!({"not": {"type": ["object", "null"]}}), &["1", "[]"], &["{}", "null"]);
    check(&json!({"type": ["integer", "string"], "not": {"type": "integer"}}), &["\"a\""], &["1"]);
}

/// Keywords imply beside a `not` what they imply alone.
#[test]
fn bounds_stay_beside_a_not() {
    let long = "1234567890123456";
    let number = json!({"type": "integer", "not": {"const": 5}});
    check(&number, &["4", long, &format!("-{long}")], &["5", &format!("{long}7"), &format!("-{long}7")]);
    let pair = json!({
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "integer"}],
        "not": {"const": [1, 2]},
    });
    check(&pair, &["[2,2]", "[1,1]"], &["[1,2]", "[2]", "[]", "[2,2,2]"]);
}

#[test]
fn texts_are_excluded() {
    let plain = json!({"type": "string", "not": {"pattern": "[^a-z0-9]"}, "maxLength": 4});
    check(&plain, &[r#""a1""#, r#""""#], &[r#""A""#, r#""a b""#, r#""abcde""#]);
    let name = json!({"type": "string", "pattern": "^[a-z]+$", "not": {"anyOf": [{"const": "new"}, {"pattern": "^x"}]}});
    check(&name, &[r#""news""#, r#""ax""#], &[r#""new""#, r#""xa""#, r#""A""#]);
}

/// A `not` names properties that may not be there, and describes none.
#[test]
fn properties_are_excluded() {
    let either = json!({
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "not": {"required": ["a", "b"]},
    });
    check(&either, &["{}", r#"{"a":1}"#, r#"{"b":1}"#], &[r#"{"a":1,"b":1}"#, r#"{"c":1}"#]);
    let listed = json!({"properties": {"a": {"type": "integer"}}, "not": {"required": ["x", "y"]}});
    check(&listed, &["{}", r#"{"a":1}"#], &[r#"{"x":1}"#, r#"{"y":1}"#, r#"{"a":1,"x":1}"#]);
    let asked = json!({"properties": {"a": {"type": "integer"}}, "not": {"not": {"required": ["x"]}}});
    check(&asked, &[r#"{"x":1}"#, r#"{"a":1,"x":1}"#], &["{}", r#"{"a":1}"#, r#"{"x":1,"y":1}"#]);
    let open = json!({"type": "object", "not": {"required": ["a"]}});
    check(&open, &["{}", r#"{"c":1}"#], &[r#"{"a":1}"#, r#"{"b":1,"a":1}"#]);
    let kind = json!({
        "properties": {"kind": {"type": "string"}},
        "not": {"properties": {"kind": {"enum": ["x", "y"]}}},
    });
    check(&kind, &[r#"{"kind":"z"}"#], &[r#"{"kind":"x"}"#, "{}", r#"{"kind":"z","a":1}"#]);
    let inner = json!({"properties": {"b": {"const": 1}}, "required": ["b"]});
    let inner = json!({"required": ["a"], "not": {"properties": {"a": inner}}});
    check(&inner, &[r#"{"a":{}}"#, r#"{"a":{"b":2,"c":3}}"#, r#"{"a":{"c":3}}"#], &[r#"{"a":{"b":1}}"#]);
}

#[test]
fn what_a_not_asks_for_stays_unevaluated() {
    let schema = json!({
        "properties": {"a": {"type": "integer"}},
        "not": {"properties": {"b": {"const": 1}}},
        "unevaluatedProperties": false,
    });
    let found = compiler().json_schema_value(&schema);
    assert!(found.is_err() || !found.unwrap().accepts(r#"{"b":2}"#));
}

#[test]
fn references_are_followed() {
    let schema = json!({
        "$defs": {"color": {"enum": ["red", "blue"]}, "loop": {"not": {"$ref": "#/$defs/loop"}}},
        "type": "string",
        "not": {"$ref": "#/$defs/color"},
    });
    check(&schema, &[r#""green""#], &[r#""red""#]);
    let mut endless = schema;
    endless["not"] = json!({"allOf": [{"$ref": "#/not"}]});
    assert!(matches!(compiler().json_schema_value(&endless), Err(GrammarError::Schema { .. })));
}

/// A `not` that no grammar can say is an error, and is left out where errors are not wanted.
#[test]
fn what_cannot_be_said_is_refused() {
    for not in [
        json!({"type": "integer"}),
        json!({"items": {"type": "string"}}),
        json!({"const": {"a": 1}}),
        json!({"multipleOf": 3}),
        json!({"format": "date"}),
        json!({"uniqueItems": true}),
        json!({"patternProperties": {"^a": false}}),
        // Of the wrong kind.
        json!({"anyOf": {"const": 1}}),
        json!({"type": "text"}),
        json!({"type": ["string", "text"]}),
        json!({"required": "a"}),
        json!({"required": ["a", 1]}),
        json!({"enum": 1}),
        json!({"minLength": "1"}),
        json!({"dependentRequired": {"a": [1]}}),
    ] {
        match compiler().json_schema_value(&json!({"not": not})) {
            Err(GrammarError::Schema { pointer, .. }) => assert_eq!(pointer, "#/not", "{not}"),
            other => panic!("{not}: {other:?}"),
        }
        assert_eq!(relaxed_schema(&json!({"not": not})).unwrap(), json!({}), "{not}");
    }
}

/// Places inside of a rewritten `not` do not exist in the schema.
#[test]
fn what_is_left_out_of_a_not_is_the_not() {
    for not in [json!({"maxProperties": 0}), json!({"anyOf": [{"const": 1}, {"not": {"maxProperties": 1}}]})]
    {
        let schema = json!({"type": "object", "properties": {"a": true, "b": true}, "not": not});
        let relaxed = compiler().json_schema_value(&schema).unwrap().relaxed().to_vec();
        assert_eq!(relaxed.iter().map(|it| format!("{it}")).collect::<Vec<_>>(), ["#/not"], "{schema}");
    }
}

/// A name with escaped characters passes for another, where there may be others.
#[test]
fn escaped_names_are_listed() {
    let not = json!({"required": ["a"]});
    let needs = json!({"a": ["b"]});
    for (schema, wanted) in [
        (json!({"type": "object", "not": not}), "#/not"),
        (json!({"properties": {"a": false}, "additionalProperties": true}), "#/properties"),
        (json!({"type": "object", "dependentRequired": needs}), "#/dependentRequired"),
        (json!({"type": "object", "oneOf": [not, {"required": ["b"]}]}), "#/oneOf"),
        (json!({"type": "array", "items": {"type": "object", "not": not}}), "#/items/not"),
    ] {
        let relaxed = compiler().json_schema_value(&schema).unwrap().relaxed().to_vec();
        assert_eq!(relaxed.iter().map(|it| format!("{it}")).collect::<Vec<_>>(), [wanted], "{schema}");
    }
    for schema in [
        json!({"properties": {"b": true}, "not": not}),
        json!({"properties": {"a": false, "b": true}}),
        json!({"properties": {"a": true, "b": true}, "dependentRequired": needs}),
        json!({"properties": {"a": true, "b": true}, "oneOf": [not, {"required": ["b"]}]}),
    ] {
        assert!(compiler().json_schema_value(&schema).unwrap().relaxed().is_empty(), "{schema}");
    }
}

/// The types in a `not` are those that it names.
#[test]
fn no_type_follows_in_a_not() {
    let both = json!({"not": {"oneOf": [{"minimum": 1}, {"pattern": "b"}]}});
    check(&both, &["null", "[]", "2", "\"b\""], &["0", "\"a\""]);
    check(&json!({"not": {"not": {"pattern": "b"}}}), &["null", "\"b\""], &["\"a\""]);
    let beside = json!({"properties": {"a": {"type": "integer"}}, "not": {"not": {"pattern": "b"}}});
    check(&beside, &[r#"{"a":1}"#], &["null", "\"b\""]);
}

/// A `not` needs the opposite only of what it is broken by.
#[test]
fn only_what_is_needed_has_to_be_said() {
    let condition = json!({"type": "integer", "not": {"if": {"multipleOf": 3}, "then": {"const": 6}}});
    check(&condition, &["9", "3"], &["6", "7"]);
    let noted =
        json!({"type": "object", "not": {"propertyNames": {"not": {"enum": ["a"], "description": "x"}}}});
    check(&noted, &[r#"{"a":1}"#], &["{}", r#"{"b":1}"#]);
    let flagged =
        json!({"type": "object", "not": {"properties": {"a": {"type": "string", "required": true}}}});
    check(&flagged, &["{}", r#"{"a":1}"#, r#"{"b":1}"#], &[r#"{"a":"x"}"#]);
    let unflagged =
        json!({"type": "object", "not": {"properties": {"a": {"type": "string", "required": false}}}});
    check(&unflagged, &[r#"{"a":1}"#], &["{}", r#"{"a":"x"}"#]);
}

/// `oneOf` means one of the sets of properties, and is not listed as left out.
#[test]
fn options_that_ask_for_properties_are_parted() {
    let names = |names: &[&str]| json!({"required": names});
    let mut schema = json!({
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
        "oneOf": [names(&["a", "b"]), names(&["c"])],
    });
    check(
        &schema,
        &[r#"{"c":1}"#, r#"{"a":1,"b":2}"#, r#"{"a":1,"c":1}"#],
        &["{}", r#"{"a":1,"b":2,"c":3}"#],
    );
    assert!(compiler().json_schema_value(&schema).unwrap().relaxed().is_empty());
    // All of them are demanded, so that one of them alone cannot be meant.
    let mut flagged = schema.clone();
    for name in ["a", "b", "c"] {
        flagged["properties"][name]["required"] = true.into();
    }
    schema["required"] = json!(["a", "b", "c"]);
    // Nothing would ask for the same names only once.
    let equal = json!({"properties": {"a": true, "b": true, "c": true}, "oneOf": [names(&["a", "b"]), names(&["b", "a"])]});
    for (schema, accepted) in
        [(schema, r#"{"a":1,"b":2,"c":3}"#), (flagged, r#"{"a":1,"b":2,"c":3}"#), (equal, r#"{"a":1,"b":2}"#)]
    {
        check(&schema, &[accepted], &["{}"]);
        let relaxed = compiler().json_schema_value(&schema).unwrap().relaxed().to_vec();
        assert_eq!(relaxed.iter().map(|it| format!("{it}")).collect::<Vec<_>>(), ["#/oneOf"]);
    }
}

#[test]
fn hostile_negations_end_soon() {
    let words: Vec<String> = (0..5000).map(|i| format!("w{i}")).collect();
    let deep = (0..14).fold(json!({"const": 1}), |inner, _| json!({"not": {"allOf": [inner, inner]}}));
    let wide: Vec<Value> = (0..300).map(|i| json!({"pattern": format!("^.{{{i}}}a")})).collect();
    let pairs: Vec<Value> =
        (0..200).map(|i| json!({"required": [format!("a{i}"), format!("b{i}")]})).collect();
    let nested = (0..12)
        .fold(json!({"const": 1}), |inner, i| json!({"oneOf": [inner, {"const": i}, {"type": "null"}]}));
    let list = vec![1; 90_000];
    let lists: Vec<Value> = (0..400).map(|i| json!(vec![i; 200])).collect();
    let mut last = vec![json!(true); 300];
    last.push(json!({"type": "null"}));
    let hostile = [
        json!({"enum": words}),
        deep,
        json!({"anyOf": wide}),
        json!({"anyOf": pairs}),
        nested,
        // Each place of a list is an option, with all places before it.
        json!({"const": list}),
        json!({"const": [[list]]}),
        json!({"enum": lists}),
        json!({"prefixItems": vec![json!({"type": "null"}); 90_000]}),
        json!({"anyOf": vec![json!({"items": last}); 300]}),
    ];
    for not in hostile {
        let work = Work::begin();
        _ = relaxed_schema(&json!({"not": not}));
        work.check_small(&not);
        _ = compiler().json_schema_value(&json!({"not": not}));
    }
}
