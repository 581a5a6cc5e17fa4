//! Schemas as the libraries of clients write them.

use alloc::{format, string::String, vec::Vec};

use serde_json::{Map, Value, json};

use super::{explicit_schema, relaxed_schema};
use crate::grammar::GrammarError;
use crate::grammar::testing::{Work, compiler};

fn check(schema: &Value, accepted: &[&str], refused: &[&str]) {
    let grammar = compiler().json_schema_value(schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    for text in accepted {
        assert!(grammar.accepts(text), "{schema} should accept {text}");
    }
    for text in refused {
        assert!(!grammar.accepts(text), "{schema} should refuse {text}");
    }
}

/// Check that a keyword is an error, and is left out where errors are not wanted.
fn check_unsupported(schema: &Value, pointer: &str, relaxed: &Value) {
    match compiler().json_schema_value(schema) {
        Err(GrammarError::Schema { pointer: found, .. }) => assert_eq!(found, pointer, "{schema}"),
        other => panic!("{schema}: {other:?}"),
    }
    assert_eq!(relaxed_schema(schema).unwrap(), *relaxed, "{schema}");
}

/// Return the schema of objects with properties that are all required.
fn object(properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

#[test]
fn options_of_an_object_have_its_properties() {
    let options = json!([
        object(&json!({"radius": {"type": "integer"}})),
        object(&json!({"side": {"type": "integer"}}))
    ]);
    for keyword in ["anyOf", "oneOf"] {
        let mut shape = object(&json!({"kind": {"type": "string"}}));
        shape[keyword] = options.clone();
        check(
            &shape,
            &[r#"{"kind":"a","radius":1}"#, r#"{"kind":"a","side":1}"#],
            &[r#"{"kind":"a"}"#, r#"{"kind":"a","radius":1,"side":1}"#, r#"{"kind":"a","side":1,"x":2}"#],
        );
        // The library drops an optional property that no value can match.
        check(
            &json!({"properties": {"shape": shape}}),
            &[r#"{"shape":{"kind":"a","side":1}}"#, "{}"],
            &[r#"{"shape":{"kind":"a"}}"#],
        );
    }
    let modes = json!({
        "properties": {"mode": {"type": "string"}, "x": {"type": "integer"}},
        "anyOf": [
            {"properties": {"mode": {"const": "x"}}, "required": ["x"]},
            {"properties": {"mode": {"const": "y"}}},
        ],
    });
    check(
        &modes,
        &[r#"{"mode":"x","x":1}"#, r#"{"mode":"y"}"#],
        &[r#"{"mode":"x"}"#, r#"{"mode":"z"}"#, r#"{"mode":"y","a":1}"#],
    );
}

#[test]
fn parts_of_an_object_are_closed_together() {
    let definitions = json!({
        "Base": object(&json!({"id": {"type": "integer"}})),
        "Named": {"$ref": "#/$defs/Base", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    });
    check(
        &json!({
            "$defs": definitions,
            "properties": {"base": {"$ref": "#/$defs/Base"}, "named": {"$ref": "#/$defs/Named"}},
        }),
        &[r#"{"base":{"id":1},"named":{"id":1,"name":"a"}}"#],
        &[
            r#"{"base":{"id":1,"name":"a"}}"#,
            r#"{"named":{"id":1}}"#,
            r#"{"named":{"id":1,"name":"a","b":1}}"#,
        ],
    );
    // Options that are references.
    check(
        &json!({
            "$defs": definitions,
            "properties": {"tag": {"type": "null"}},
            "oneOf": [{"$ref": "#/$defs/Base"}, {"$ref": "#/$defs/Named"}],
        }),
        &[r#"{"tag":null,"id":1}"#, r#"{"tag":null,"id":1,"name":"a"}"#],
        &[r#"{"tag":null}"#, r#"{"tag":null,"id":1,"b":1}"#],
    );
    let mut parts = [object(&json!({"a": {"type": "integer"}})), object(&json!({"b": {"type": "null"}}))];
    check(&json!({"allOf": parts}), &[r#"{"a":1,"b":null}"#], &[r#"{"a":1}"#, r#"{"a":1,"b":null,"c":1}"#]);
    // As zod 4 writes `.and()`.
    for part in &mut parts {
        part["additionalProperties"] = false.into();
    }
    check(&json!({"allOf": parts}), &[r#"{"a":1,"b":null}"#], &[r#"{"a":1}"#, r#"{"a":1,"b":null,"c":1}"#]);
    parts[1]["additionalProperties"] = true.into();
    parts[0].as_object_mut().unwrap().remove("additionalProperties");
    check(&json!({"allOf": parts}), &[r#"{"a":1,"b":null,"c":1}"#], &[r#"{"a":1}"#]);
}

/// Unless that would leave nothing, a part may forbid what others allow.
#[test]
fn parts_that_are_closed_by_a_keyword_stay_so() {
    let base = json!({"properties": {"c": {"type": "null"}}});
    let closed = json!({
        "properties": {"b": {"type": "integer"}},
        "additionalProperties": false,
        "$ref": "#/$defs/base",
        "$defs": {"base": base},
    });
    check(&closed, &["{}", r#"{"b":1}"#], &[r#"{"c":null}"#, r#"{"b":1,"c":null}"#]);
    let held = json!({"propertyNames": {"enum": ["b"]}, "allOf": [base, {"properties": {"b": true}}]});
    check(&held, &["{}", r#"{"b":1}"#], &[r#"{"c":null}"#]);
    let mut options = json!({"properties": {"a": true, "b": true}, "additionalProperties": false});
    options["anyOf"] = json!([{"required": ["a"]}, object(&json!({"c": true}))]);
    check(&options, &[r#"{"a":1}"#], &[r#"{"c":1}"#, r#"{"a":1,"c":1}"#, "{}"]);
    options["anyOf"] = json!([object(&json!({"c": true})), object(&json!({"d": true}))]);
    check(
        &options,
        &[r#"{"a":1,"c":1}"#, r#"{"d":1}"#],
        &[r#"{"c":1,"d":1}"#, r#"{"a":1}"#, r#"{"c":1,"e":1}"#],
    );
}

/// Objects inside of one stay closed, unless several of its parts describe them.
#[test]
fn parts_leave_others_closed() {
    let inner = object(&json!({"x": {"type": "integer"}}));
    let both = json!({"properties": {
        "enum": {"default": "a", "allOf": [{"enum": ["a", "b"]}]},
        "allOf": inner,
        "one": {"allOf": [{"properties": {"in": inner}}, {"properties": {"y": {"type": "null"}}}]},
        "two": {"allOf": [{"properties": {"in": inner}}, {"properties": {"in": object(&json!({"y": true}))}}]},
    }});
    check(
        &both,
        &[
            r#"{"enum":"a","allOf":{"x":1}}"#,
            r#"{"one":{"in":{"x":1},"y":null}}"#,
            r#"{"two":{"in":{"x":1,"y":2}}}"#,
        ],
        &[
            r#"{"a":1}"#,
            r#"{"allOf":{"x":1,"y":2}}"#,
            r#"{"one":{"in":{"x":1,"y":2}}}"#,
            r#"{"two":{"in":{"x":1}}}"#,
            r#"{"two":{"in":{"x":1,"y":2},"z":1}}"#,
        ],
    );
}

#[test]
fn patterns_that_cannot_be_followed_are_left_out() {
    let email = json!({
        "type": "string",
        "format": "email",
        "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
    });
    check(&email, &[r#""a@b.org""#], &[r#""a""#, "1"]);
    let decimal = json!({"anyOf": [
        {"type": "number"},
        {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"},
    ]});
    check(&decimal, &["1.5", r#""1.5""#], &["null"]);
    let time =
        json!({"type": "string", "format": "time", "pattern": r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"});
    check(&time, &[r#""10:30""#], &[r#""25:30""#]);
    check(&json!({"pattern": r"\bword\b"}), &[r#""word""#], &["1"]);
    check(&json!({"pattern": r"^a\d+$"}), &[r#""a1""#], &[r#""b1""#]);
    let by_name =
        json!({"patternProperties": {"^(?!a)": {"type": "integer"}}, "additionalProperties": false});
    check(&by_name, &[r#"{"b":1}"#], &[r#"{"b":"c"}"#]);
    // What is known of other names holds for those that the pattern may mean.
    let beside = json!({"properties": {"a": {}}, "patternProperties": {"^(?!_)": {"type": "integer"}}});
    check(&beside, &[r#"{"a":"x","b":1}"#, "{}"], &[r#"{"b":"c"}"#]);
    // A brace with nothing before it is one in other dialects.
    check(&json!({"type": "string", "pattern": "{{[a-z]+}}"}), &[r#""{{a}}""#], &["1"]);
    check_unsupported(&json!({"type": "string", "pattern": "*a"}), "#/pattern", &json!({"type": "string"}));
    check_unsupported(&json!({"type": "string", "pattern": "^(a$"}), "#/pattern", &json!({"type": "string"}));
}

#[test]
fn required_properties_are_there() {
    let missing = json!({"properties": {"a": {"type": "integer"}}, "required": ["a", "b"]});
    check(&missing, &[r#"{"a":1,"b":[2]}"#], &[r#"{"a":1}"#, r#"{"a":1,"b":2,"c":3}"#]);
    let flags = json!({"properties": {
        "a": {"type": "integer", "required": true},
        "b": {"type": "integer", "required": false},
    }});
    check(&flags, &[r#"{"a":1}"#, r#"{"a":1,"b":2}"#], &["{}", r#"{"b":2}"#]);
}

#[test]
fn objects_that_list_no_properties_are_open() {
    let none = json!({"type": "object", "properties": {}});
    check(&none, &["{}", r#"{"a":1}"#], &["[]"]);
    check(&json!({"properties": {"a": none}}), &["{}", r#"{"a":{"b":1}}"#], &[r#"{"a":1}"#, r#"{"b":{}}"#]);
    check(&json!({"properties": {}, "additionalProperties": false}), &["{}"], &[r#"{"a":1}"#]);
}

#[test]
fn names_of_properties_are_held() {
    let record = |names: Value| {
        json!({
            "$defs": {"Color": {"enum": ["red", "blue"], "title": "Color", "type": "string"}},
            "type": "object",
            "propertyNames": names,
            "additionalProperties": {"type": "integer"},
        })
    };
    for names in [json!({"$ref": "#/$defs/Color"}), json!({"type": "string", "enum": ["red", "blue"]})] {
        check(&record(names), &["{}", r#"{"red":1,"blue":2}"#], &[r#"{"green":1}"#, r#"{"red":"x"}"#]);
    }
    check(&record(json!({"const": "a"})), &[r#"{"a":1}"#], &[r#"{"b":1}"#]);
    check(&record(json!({"pattern": "^a"})), &[r#"{"ab":1}"#], &[r#"{"b":1}"#, r#"{"ab":null}"#]);
    check(&record(json!({"minLength": 2})), &[r#"{"ab":1}"#], &[r#"{"b":1}"#]);
    check(&record(json!({"format": "uuid"})), &[r#"{"b":1}"#], &[r#"{"b":null}"#]);
    let strict = json!({"properties": {"a": {"const": 1}, "b": true}, "propertyNames": {"enum": ["a"]}});
    check(&strict, &[r#"{"a":1}"#, "{}"], &[r#"{"b":1}"#]);
    check(
        &record(json!({"not": {"enum": ["a", "b"]}})),
        &[r#"{"c":1}"#, "{}"],
        &[r#"{"a":1}"#, r#"{"c":null}"#],
    );
    let odd = json!({"type": "object", "propertyNames": {"anyOf": [{"pattern": "^a"}, {"pattern": "b$"}]}});
    check_unsupported(&odd, "#/propertyNames", &json!({"type": "object"}));
}

#[test]
fn what_is_unevaluated_is_known_from_the_parts() {
    let alone = json!({"properties": {"a": {"type": "null"}}, "unevaluatedProperties": false});
    check(&alone, &[r#"{"a":null}"#], &[r#"{"b":1}"#]);
    let parts = json!({
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "null"}}}],
        "anyOf": [{"properties": {"b": {"type": "integer"}}}, {"required": ["a"]}],
        "unevaluatedProperties": false,
    });
    check(&parts, &[r#"{"a":null,"b":1}"#, r#"{"a":null}"#, r#"{"b":1}"#], &[r#"{"c":1}"#, r#"{"b":"x"}"#]);
    let base = object(&json!({"id": {"type": "integer"}}));
    for mut parts in [
        json!({"$ref": "#/$defs/B"}),
        json!({"allOf": [{"$ref": "#/$defs/B"}]}),
        json!({"oneOf": [{"$ref": "#/$defs/B"}]}),
        json!({"allOf": [{"$ref": "#/$defs/B"}, {"title": "x"}]}),
    ] {
        parts["$defs"] = json!({"B": base});
        parts["unevaluatedProperties"] = false.into();
        check(&parts, &[r#"{"id":1}"#], &["{}", r#"{"id":1,"a":1}"#, "1"]);
    }
    let items = json!({"prefixItems": [{"type": "integer"}], "minItems": 0, "unevaluatedItems": false});
    check(&items, &["[]", "[1]"], &["[1,2]"]);
}

#[test]
fn properties_need_others() {
    for keyword in ["dependentRequired", "dependencies"] {
        let mut schema = json!({"properties": {"card": {"type": "integer"}, "address": {"type": "string"}}});
        schema[keyword] = json!({"card": ["address"]});
        check(
            &schema,
            &["{}", r#"{"address":"a"}"#, r#"{"card":1,"address":"a"}"#],
            &[r#"{"card":1}"#, r#"{"a":1}"#],
        );
    }
    let schema = json!({
        "properties": {"card": {"type": "integer"}},
        "dependentSchemas": {"card": object(&json!({"address": {"type": "string"}}))},
    });
    check(
        &schema,
        &["{}", r#"{"card":1,"address":"a"}"#],
        &["1", r#"{"card":1}"#, r#"{"card":1,"address":1}"#],
    );
    let alone = json!({
        "type": "object",
        "dependentSchemas": {"card": object(&json!({"address": {"type": "string"}}))},
    });
    check(&alone, &["{}", r#"{"card":1,"address":"x"}"#], &[r#"{"card":1}"#, "1"]);
    let many: Map<String, Value> = (0..9).map(|i| (format!("p{i}"), json!(["q"]))).collect();
    check_unsupported(&json!({"dependentRequired": many}), "#/dependentRequired", &json!({}));
}

/// Only what an output could break is refused, and only where it holds.
#[test]
fn keywords_without_effect_are_no_errors() {
    for (schema, other) in [
        (json!({"$defs": {"a": {"not": {"const": 1}}, "b": 7}, "type": "null"}), json!({"type": "null"})),
        (json!({"type": "null", "if": {"const": 1}}), json!({"type": "null"})),
        (json!({"type": "null", "then": false, "deprecated": true}), json!({"type": "null"})),
    ] {
        assert_eq!(explicit_schema(&schema).unwrap(), other);
    }
    let conditional = json!({"type": "null", "if": {"const": 1}, "then": false});
    check_unsupported(&conditional, "#/if", &json!({"type": "null"}));
}

/// Keywords that are left out can name properties.
#[test]
fn objects_stay_open_for_what_is_left_out() {
    let conditional = json!({
        "if": {"properties": {"kind": {"const": "b"}}},
        "then": {"properties": {"x": {}}, "required": ["x"]},
    });
    let mut schema = json!({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}});
    schema["allOf"] = json!([conditional]);
    let mut beside = conditional;
    beside["type"] = "object".into();
    beside["properties"] = schema["properties"].clone();
    beside["unevaluatedProperties"] = false.into();
    let mut needs = json!({"properties": {"p0": {"type": "integer"}}});
    needs["dependentRequired"] =
        (0..9).map(|i| (format!("p{i}"), json!(["q"]))).collect::<Map<_, _>>().into();
    let values = [r#"{"kind":"b","x":1}"#, r#"{"p0":1,"q":2}"#];
    for (schema, value, other) in [
        (schema, values[0], r#"{"kind":"c"}"#),
        (beside, values[0], r#"{"kind":"c"}"#),
        (needs, values[1], r#"{"p0":null}"#),
    ] {
        assert!(explicit_schema(&schema).is_err(), "{schema}");
        check(&relaxed_schema(&schema).unwrap(), &[value], &[other]);
    }
}

#[test]
fn values_of_keywords_have_their_kind() {
    for (keyword, value) in [
        ("enum", Value::Null),
        ("type", Value::Null),
        ("type", json!(["string", 1])),
        ("type", json!("text")),
        ("format", Value::Null),
        ("pattern", json!(1)),
        ("minLength", json!("1")),
        ("maxItems", json!(-1)),
        ("minProperties", json!(0.5)),
        ("minimum", json!("0")),
        ("exclusiveMaximum", Value::Null),
        ("multipleOf", json!(0)),
        ("allOf", json!({})),
        ("items", json!(5)),
        ("additionalProperties", json!("no")),
        ("unevaluatedProperties", json!(5)),
        ("dependentRequired", json!({"a": "b"})),
        ("dependentSchemas", json!({"a": ["b"]})),
        ("required", json!("a")),
        ("uniqueItems", json!("yes")),
        ("minContains", json!("x")),
        ("$defs", json!(5)),
    ] {
        let odd = json!({keyword: value});
        check_unsupported(&odd, &format!("#/{keyword}"), &json!({}));
        let tool = relaxed_schema(&json!({"properties": {"a": odd, "b": {"type": "null"}}})).unwrap();
        check(&tool, &[r#"{"a":1,"b":null}"#], &[r#"{"b":1}"#]);
    }
    let counts = json!({"type": "string", "minLength": 1.0, "maxLength": 2.0});
    check(&counts, &["\"a\""], &["\"\"", "\"abc\""]);
    for (schema, words) in [
        (json!({"properties": []}), "`properties` has to be a map of schemas"),
        (json!({"$ref": "#/$defs/none"}), "leads to nothing"),
        (json!({"$ref": "#name"}), "anchors are not followed"),
        (json!({"required": [5]}), "`required` has to be a list of names"),
        (json!({"dependencies": {"a": "b"}}), "a map of schemas and lists of names"),
        (json!({"$ref": "#", "properties": {"a": true}}), "a part of"),
        (json!({"pattern": "(a"}), "regular expression"),
    ] {
        let error = format!("{}", explicit_schema(&schema).unwrap_err());
        assert!(error.contains(words), "{error}");
    }
}

/// The library copies what a reference with other keywords leads to, each time anew.
#[test]
fn references_stay_references_beside_what_they_say_anyway() {
    let mut definitions = Map::new();
    for i in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", i + 1), "type": "object", "x-order": 1});
        definitions.insert(format!("d{i}"), json!({"type": "object", "properties": {"a": next, "b": next}}));
    }
    definitions.insert("d40".into(), object(&json!({"end": {"type": "null"}})));
    check(
        &json!({"$ref": "#/$defs/d0", "type": "object", "$defs": definitions}),
        &[r#"{"a":{"b":{"a":{}}}}"#],
        &[r#"{"a":{"end":null}}"#],
    );
    let tree = json!({
        "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node", "type": "object", "nullable": true}}}},
        "anyOf": [{"$ref": "#/$defs/node"}],
        "type": "object",
    });
    check(&tree, &["{}", r#"{"next":{"next":{}}}"#], &["[]", r#"{"next":1}"#]);
}

/// Each option is closed on its own, so that the object needs not know the names of all.
#[test]
fn many_options_are_no_burden() {
    let event = |i| json!({"properties": {"kind": {"const": i}, format!("p{i}"): {"type": "integer"}}, "required": ["kind"]});
    let events: Vec<Value> = (0..200).map(event).collect();
    let options: Vec<Value> = (0..200).map(|i| json!({"$ref": format!("#/events/{i}")})).collect();
    check(
        &json!({"type": "object", "properties": {"at": {"type": "null"}}, "oneOf": options, "events": events}),
        &[r#"{"at":null,"kind":7,"p7":1}"#, r#"{"kind":199}"#],
        &[r#"{"kind":7,"p8":1}"#, r#"{"kind":200}"#],
    );
    let written = explicit_schema(&json!({"type": "object", "oneOf": options, "events": events})).unwrap();
    assert_eq!(written["oneOf"][7], json!({"$ref": "#/$defs/8"}));
}

/// The library cannot join a schema with one that it has not read to its end.
#[test]
fn parts_may_lead_back() {
    let family = json!({
        "$defs": {
            "Base": {"properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Derived"}}}},
            "Derived": {"allOf": [{"$ref": "#/$defs/Base"}, object(&json!({"name": {"type": "string"}}))]},
        },
        "$ref": "#/$defs/Derived",
    });
    check(
        &family,
        &[r#"{"children":[{"name":"a"},{"children":[],"name":"b"}],"name":"c"}"#],
        &[r#"{"children":[{}],"name":"c"}"#, r#"{"name":"c","children":1}"#, r#"{"name":"c","a":1}"#],
    );
    let inner = json!({
        "$defs": {"Base": {"properties": {
            "next": {"$ref": "#/$defs/Base", "properties": {"x": {"type": "null"}}},
        }}},
        "properties": {"first": {"$ref": "#/$defs/Base", "required": ["next"]}},
    });
    check(
        &inner,
        &[r#"{"first":{"next":{"next":{"x":null},"x":null}}}"#],
        &[r#"{"first":{}}"#, r#"{"first":{"next":{},"x":null}}"#, r#"{"first":{"next":{"x":1}}}"#],
    );
    let itself = json!({"$ref": "#", "properties": {"a": {"type": "null"}}});
    let relaxed = relaxed_schema(&itself).unwrap();
    check_unsupported(&itself, "#/$ref", &relaxed);
    check(&relaxed, &[r#"{"a":null}"#], &[r#"{"b":1}"#]);
}

/// The places of errors are only put together where there is one.
#[test]
fn long_names_are_no_burden() {
    let children: Map<String, Value> = (0..30_000).map(|i| (format!("{i}"), true.into())).collect();
    let schema = json!({"properties": {"n".repeat(300 << 10): {"properties": children}}});
    let work = Work::begin();
    let written = explicit_schema(&schema).unwrap();
    work.check_small("long names");
    assert_eq!(written["additionalProperties"], false);
    let deep = json!({"properties": {"a~/b": {"items": [true, {"contains": 1}]}}});
    check_unsupported(&deep, "#/properties/a~0~1b/items/1/contains", &relaxed_schema(&deep).unwrap());
}

#[test]
fn bounds_far_away_are_no_errors() {
    let float = json!({"type": "number", "minimum": -3.402_823_466_385_288_6e38, "maximum": 3.402_823_466_385_288_6e38});
    check(&float, &["0", "-1.5", "123456789.25"], &["\"1\"", "1e300"]);
    let long = json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX});
    check(&long, &["0", "-5", "1234567890123456789"], &["12345678901234567890", "1.5"]);
    let count = json!({"type": "number", "minimum": 0, "maximum": i64::MAX});
    check(&count, &["1700000000000000000", "0.5"], &["-1", "12345678901234567890"]);
    let far = json!({"type": "number", "minimum": 5e18});
    check(&far, &["6000000000000000000"], &["4000000000000000000", "1"]);
    let far = json!({"type": "number", "exclusiveMaximum": -5e18});
    check(&far, &["-6000000000000000000"], &["-4000000000000000000", "1"]);
    let part = json!({"type": "integer", "allOf": [{"minimum": 2e18}, {"title": "x"}]});
    check(&part, &["3000000000000000000"], &["1"]);
    let snowflake = 1_i64 << 57;
    let id = format!("{snowflake}");
    for schema in [
        json!({"type": "integer", "const": snowflake}),
        json!({"type": "integer", "enum": [snowflake]}),
        json!({"type": "integer", "minimum": 100_000_000_000_000_000_i64}),
    ] {
        check(&schema, &[&id], &["5", "12345678901234567890"]);
    }
    // The library would write 123456789012345680.
    check_unsupported(
        &json!({"type": "integer", "const": 123_456_789_012_345_678_i64}),
        "#/const",
        &json!({"type": "integer"}),
    );
    check(
        &json!({"type": "integer", "minimum": 123_456_789_012_345_681_i64}),
        &["123456789012345696"],
        &["123456789012345680"],
    );
    check(
        &json!({"type": "integer", "maximum": -100_000_000_000_000_000_i64}),
        &["-123456789012345678"],
        &["5"],
    );
    check(&json!({"type": "integer", "minimum": 5, "exclusiveMinimum": true}), &["6"], &["5"]);
    check(&json!({"type": "number", "multipleOf": 0.01}), &["0.25", "3"], &["0.255"]);
    check_unsupported(
        &json!({"type": "number", "multipleOf": 0.07}),
        "#/multipleOf",
        &json!({"type": "number"}),
    );
    check_unsupported(
        &json!({"type": "integer", "minimum": 1e30}),
        "#/minimum",
        &relaxed_schema(&json!({"type": "integer"})).unwrap(),
    );
}

#[test]
fn integers_that_may_be_null_have_bounds() {
    let (long, longer) = ("9999999999999998", "10000000000000000");
    let schema = json!({"type": ["integer", "null"]});
    check(
        &schema,
        &["null", "-3", long, &format!("-{long}")],
        &["1.5", longer, &format!("-{longer}"), "12345678901234567"],
    );
    check(&json!({"type": ["integer", "number"]}), &["1.5"], &["null"]);
}

#[test]
fn tuples_are_exact() {
    for keyword in ["prefixItems", "items"] {
        let mut schema = json!({"type": "array"});
        schema[keyword] = json!([{"type": "integer"}, {"type": "null"}]);
        check(&schema, &["[1,null]"], &["[]", "[1]", "[1,null,2]"]);
        schema["minItems"] = 1.into();
        check(&schema, &["[1]", "[1,null]"], &["[]", "[1,null,2]"]);
        schema["minItems"] = 3.into();
        check(&schema, &["[1,null,2]"], &["[1,null]"]);
    }
    let open = json!({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}});
    check(&open, &["[]", "[1,null]"], &["[1,2]"]);
    check(&json!({"type": "array", "prefixItems": {"type": "string"}}), &["[]", r#"["a","b"]"#], &["[1]"]);
}

#[test]
fn references_are_decoded() {
    for (name, reference) in [
        ("Pick<Foo>", "#/definitions/Pick%3CFoo%3E"),
        ("a/b", "#/definitions/a~1b"),
        ("a~b%", "#/definitions/a~0b%25"),
        ("100%", "#/definitions/100%"),
        ("%41", "#/definitions/%2541"),
    ] {
        let schema = json!({"$ref": reference, "definitions": {name: {"type": "null"}}});
        check(&schema, &["null"], &["1"]);
    }
    let itself = json!({"properties": {"next": {"$ref": "#"}}});
    check(&itself, &[r#"{"next":{"next":{}}}"#], &[r#"{"next":1}"#]);
    check_unsupported(&json!({"$ref": "#/$defs/none"}), "#/$ref", &json!({}));
    check_unsupported(&json!({"$ref": "https://example.org/a.json"}), "#/$ref", &json!({}));
}

/// Each of these would become large, or take long.
#[test]
fn hostile_schemas_end_soon() {
    let wide: Map<String, Value> = (0..2000).map(|i| (format!("p{i}"), true.into())).collect();
    let branches: Vec<Value> = (0..2000).map(|i| object(&json!({format!("q{i}"): true}))).collect();
    let chain: Map<String, Value> = (0..2000)
        .map(|i| {
            (format!("d{i}"), json!({"allOf": [{"$ref": format!("#/$defs/d{}", i + 1)}], "required": ["a"]}))
        })
        .collect();
    let fork: Map<String, Value> = (0..60)
        .map(|i| {
            let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            (format!("d{i}"), json!({"anyOf": [next, next], "type": "object"}))
        })
        .collect();
    let work = Work::begin();
    for (schema, is_refused) in [
        (json!({"properties": wide, "anyOf": branches}), true),
        (json!({"$ref": "#/$defs/d0", "$defs": chain, "required": ["b"]}), true),
        (json!({"$ref": "#/$defs/d0", "$defs": fork}), true),
        (json!({"$ref": "#", "anyOf": [{"$ref": "#"}]}), true),
    ] {
        assert_eq!(explicit_schema(&schema).is_err(), is_refused, "{:.200}", format!("{schema}"));
    }
    work.check_small("hostile schemas");
}
