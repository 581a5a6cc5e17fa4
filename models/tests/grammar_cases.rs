//! Texts that grammars and schemas accept or refuse, byte by byte, over the demo model's
//! vocabulary.
#![cfg(feature = "grammar")]

use backstitch_models::Model;
use backstitch_models::grammar::{Compiler, Grammar, GrammarError};

fn compiler() -> Compiler {
    Compiler::new(Model::from_bytes(backstitch_demo::GGUF).unwrap().vocab()).unwrap()
}

/// A grammar with texts that it accepts, and texts that it refuses.
type Case = (&'static str, &'static [&'static str], &'static [&'static str]);

fn check(cases: &[Case], compile: impl Fn(&str) -> Result<Grammar, GrammarError>) {
    for (text, accepted, refused) in cases {
        let grammar = compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for example in *accepted {
            assert!(grammar.accepts(example), "{text} should accept {example:?}");
        }
        for example in *refused {
            assert!(!grammar.accepts(example), "{text} should refuse {example:?}");
        }
    }
}

#[test]
fn numbers_have_bounds() {
    let cases: [Case; 8] = [
        (
            r#"{"type":"integer","minimum":-37,"maximum":205}"#,
            &["-37", "-1", "0", "9", "99", "204", "205"],
            &["-38", "-370", "206", "2050", "05", "-01", "+1", "1.0", ""],
        ),
        (r#"{"type":"integer","exclusiveMinimum":8}"#, &["9", "10", "80"], &["8", "7", "-9", "09"]),
        (r#"{"type":"integer","exclusiveMaximum":-8}"#, &["-9", "-80"], &["-8", "0", "9", "-08"]),
        (
            r#"{"type":"integer","minimum":1000,"maximum":1000}"#,
            &["1000"],
            &["999", "1001", "10000", "1000.0"],
        ),
        (r#"{"type":"integer","multipleOf":5}"#, &["0", "15", "-20"], &["3", "16"]),
        (r#"{"type":"number","minimum":0.5,"maximum":1.25}"#, &["0.5", "1", "1.25"], &["0.49", "1.26", "2"]),
        (r#"{"type":"number"}"#, &["-0.25", "6e3", "1E-7", "0"], &[".5", "5.", "1e", "0x1", "NaN"]),
        (r#"{"type":["integer","null"]}"#, &["null", "3"], &["\"3\"", "3.5", "nul"]),
    ];
    let compiler = compiler();
    check(&cases, |text| compiler.json_schema(text));
}

#[test]
fn strings_have_lengths_patterns_and_formats() {
    let cases: [Case; 9] = [
        (
            r#"{"type":"string","minLength":2,"maxLength":3}"#,
            &["\"ab\"", "\"äöü\"", r#""\n\"""#],
            &["\"a\"", "\"abcd\""],
        ),
        (r#"{"type":"string","maxLength":0}"#, &["\"\""], &["\"a\"", "\" \""]),
        (
            r#"{"type":"string","pattern":"^[a-f]{2}-\\d+$"}"#,
            &["\"ab-7\"", "\"ff-123\""],
            &["\"ab-\"", "\"ag-1\"", "\"xab-7\""],
        ),
        (r#"{"type":"string","pattern":"^(red|green)?$"}"#, &["\"\"", "\"red\""], &["\"blue\"", "red"]),
        (r#"{"format":"date"}"#, &["\"2026-02-28\""], &["\"2026-13-01\"", "\"26-01-01\""]),
        (r#"{"format":"uuid"}"#, &["\"01234567-89ab-cdef-0123-456789abcdef\""], &["\"01234567\""]),
        (
            r#"{"enum":["one","two",3,null,true]}"#,
            &["\"one\"", "3", "null", "true"],
            &["one", "\"three\"", "4"],
        ),
        (r#"{"const":{"a":[1,"x"]}}"#, &[r#"{"a":[1,"x"]}"#], &[r#"{"a":[1]}"#, r#"{"a":[1,"y"]}"#]),
        (r#"{"type":"boolean"}"#, &["true", "false"], &["True", "0", "\"true\""]),
    ];
    let compiler = compiler();
    check(&cases, |text| compiler.json_schema(text));
}

#[test]
fn objects_and_lists_have_shapes() {
    let book = r##"{"type":"object","properties":{"title":{"type":"string"},"year":{"type":"integer"},
        "authors":{"type":"array","items":{"$ref":"#/$defs/name"},"minItems":1}},"required":["title","authors"],
        "$defs":{"name":{"type":"string","pattern":"^[A-Z][a-z]*$"}}}"##;
    let tree = r##"{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"next":{"anyOf":
        [{"type":"null"},{"$ref":"#/$defs/node"}]}},"required":["next"]}}}"##;
    let cases: [Case; 6] = [
        (
            book,
            &[
                r#"{"title":"Sea","authors":["Ann"]}"#,
                r#"{ "title": "Sea", "year": 1999, "authors": ["Ann", "Bo"] }"#,
            ],
            &[
                r#"{"title":"Sea"}"#,
                r#"{"title":"Sea","authors":[]}"#,
                r#"{"title":"Sea","authors":["ann"]}"#,
                r#"{"authors":["Ann"],"title":"Sea"}"#,
                r#"{"title":"Sea","authors":["Ann"],"pages":3}"#,
            ],
        ),
        (
            tree,
            &[r#"{"next":null}"#, r#"{"next":{"next":{"next":null}}}"#],
            &["{}", r#"{"next":1}"#, r#"{"next":{"next":null}"#],
        ),
        (
            r#"{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false}"#,
            &[r#"[1,"a"]"#],
            &[r#"["a",1]"#, r#"[1,"a",2]"#],
        ),
        (
            r#"{"items":{"type":"boolean"},"minItems":2,"maxItems":3}"#,
            &["[true,false]"],
            &["[true]", "[true,true,true,true]"],
        ),
        (
            r#"{"type":"object","additionalProperties":{"type":"integer"}}"#,
            &["{}", r#"{"any":1,"name":2}"#],
            &[r#"{"any":"x"}"#, r#"{any:1}"#, r#"{"any":1,}"#],
        ),
        (r#"{}"#, &["1", "[]", "{\"a\":[null]}", "\"x\""], &["", "x", "[1,]"]),
    ];
    let compiler = compiler();
    check(&cases, |text| compiler.json_schema(text));
}

/// As the libraries of clients write them.
#[test]
fn schemas_of_libraries_work() {
    let pydantic_1 = r##"{"title":"Order","type":"object","properties":{"size":{"default":"S","allOf":[{"$ref":
        "#/definitions/Size"}]},"note":{"title":"Note","type":"string"}},"required":["note"],"definitions":{"Size":
        {"title":"Size","description":"An enumeration.","enum":["S","L"],"type":"string"}}}"##;
    let pydantic_2 = r##"{"$defs":{"Color":{"enum":["red","blue"],"title":"Color","type":"string"},"Item":{"properties":
        {"price":{"anyOf":[{"type":"number"},{"pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$","type":"string"}],"title":
        "Price"},"stock":{"additionalProperties":{"type":"integer"},"propertyNames":{"$ref":"#/$defs/Color"},"title":
        "Stock","type":"object"},"at":{"maxItems":2,"minItems":2,"prefixItems":[{"type":"integer"},{"type":"integer"}],
        "title":"At","type":"array"}},"required":["price","stock","at"],"title":"Item","type":"object"}},"properties":
        {"item":{"anyOf":[{"$ref":"#/$defs/Item"},{"type":"null"}],"default":null,"deprecated":true}},"title":"Cart",
        "type":"object"}"##;
    let zod_3 = r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"pair":{"type":
        "array","minItems":2,"maxItems":2,"items":[{"type":"string"},{"type":"number"}]},"age":{"type":"integer",
        "exclusiveMinimum":0}},"required":["pair"],"additionalProperties":false}"##;
    let zod_4 = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"id":{"type":
        "string","format":"uuid","pattern":"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000)$"},
        "at":{"type":"string","format":"date-time","pattern":"^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))T(?:(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?(?:Z))$"},
        "n":{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991},"score":{"type":"object",
        "propertyNames":{"type":"string","enum":["a","b"]},"additionalProperties":{"type":"number"},"required":["a","b"]},
        "pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"boolean"}]}},"required":["id","at","n","score","pair"],
        "additionalProperties":false}"##;
    let strict = r##"{"type":"object","properties":{"steps":{"type":"array","items":{"$ref":"#/$defs/step"}},"n":{"type":
        ["integer","null"]}},"required":["steps","n"],"additionalProperties":false,"$defs":{"step":{"type":"object",
        "properties":{"do":{"type":"string"},"then":{"anyOf":[{"$ref":"#/$defs/step"},{"type":"null"}]}},"required":
        ["do","then"],"additionalProperties":false}}}"##;
    let openapi = r##"{"components":{"schemas":{"Pet":{"type":"object","required":["kind"],"properties":{"kind":{"type":
        "string"}},"discriminator":{"propertyName":"kind"}},"Dog":{"allOf":[{"$ref":"#/components/schemas/Pet"},{"type":
        "object","properties":{"bark":{"type":"boolean"}},"required":["bark"]}],"unevaluatedProperties":false}}},
        "oneOf":[{"$ref":"#/components/schemas/Dog"}]}"##;
    let generic = r##"{"$ref":"#/definitions/Pick%3CFoo%2C%22a%22%3E","definitions":{"Pick<Foo,\"a\">":{"type":"object",
        "properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}"##;
    let uuid = "01234567-89ab-4def-8123-456789abcdef";
    let zod_4_accepted = format!(
        r#"{{"id":"{uuid}","at":"2024-02-29T10:00:00Z","n":-5,"score":{{"a":1,"b":2.5}},"pair":["x",true]}}"#
    );
    let zod_4_refused = zod_4_accepted.replace(r#","b":2.5"#, "");
    let cases: [(&str, &[&str], &[&str]); 7] = [
        (
            pydantic_1,
            &[r#"{"size":"L","note":""}"#, r#"{"note":"a"}"#],
            &[r#"{"size":"M","note":""}"#, r#"{"note":"a","more":1}"#],
        ),
        (
            pydantic_2,
            &["{}", r#"{"item":null}"#, r#"{"item":{"price":"1.5","stock":{"red":2},"at":[1,2]}}"#],
            &[
                r#"{"item":{"price":1,"stock":{"green":2},"at":[1,2]}}"#,
                r#"{"item":{"price":1,"stock":{},"at":[1]}}"#,
            ],
        ),
        (zod_3, &[r#"{"pair":["a",1.5],"age":3}"#], &[r#"{"pair":["a"]}"#, r#"{"pair":["a",1],"age":0}"#]),
        (zod_4, &[&zod_4_accepted], &[&zod_4_refused]),
        (
            strict,
            &[r#"{"steps":[{"do":"a","then":{"do":"b","then":null}}],"n":null}"#],
            &[r#"{"steps":[{"do":"a"}],"n":1}"#, r#"{"steps":[],"n":12345678901234567}"#],
        ),
        (
            openapi,
            &[r#"{"kind":"dog","bark":true}"#],
            &[r#"{"kind":"dog"}"#, r#"{"kind":"dog","bark":true,"tail":1}"#],
        ),
        (generic, &[r#"{"a":"b"}"#], &["{}", r#"{"a":"b","c":1}"#]),
    ];
    let compiler = compiler();
    for (text, accepted, refused) in cases {
        let grammar = compiler.json_schema(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        accepted
            .iter()
            .for_each(|example| assert!(grammar.accepts(example), "{text} should accept {example}"));
        refused
            .iter()
            .for_each(|example| assert!(!grammar.accepts(example), "{text} should refuse {example}"));
    }
}

#[test]
fn rules_repeat_alternate_and_nest() {
    let sums = "root ::= sum \"\\n\"\nsum ::= factor (\" \"? [-+] \" \"? factor)*\n\
        factor ::= atom (\"*\" atom)*\natom ::= [0-9]+ | \"(\" sum \")\"";
    let moves = "root ::= (number \". \" move \" \" move \"\\n\")+\nnumber ::= [1-9] [0-9]?\n\
        move ::= [KQRBN]? [a-h] [1-8] [+#]? | \"O-O\" \"-O\"?";
    let cases: [Case; 9] = [
        (sums, &["7\n", "1+2*3\n", "(1 - 2)*(3)\n"], &["", "1+\n", "()\n", "1++2\n", "1+2"]),
        (moves, &["1. e4 e5\n", "1. e4 c5\n2. Nf3 O-O-O\n"], &["1. e9 e5\n", "e4 e5\n", "1. e4\n"]),
        ("root ::= \"a\"{2,3} \"b\"{0,1} \"c\"{2}", &["aacc", "aaabcc"], &["acc", "aaaacc", "aabbcc", "aac"]),
        ("root ::= \"x\"{2,}", &["xx", "xxxxx"], &["", "x", "xxy"]),
        ("root ::= [^\\n\"]+ | \"\\\"\"", &["no quotes", "\""], &["", "\"\"", "a\n"]),
        (
            "root ::= [α-ω]+ | \"\\u00e9\" | [\\U0001F600-\\U0001F64F]",
            &["λογος", "é", "😀"],
            &["a", "e", "🚀"],
        ),
        ("root ::= \"(\" root? \")\"", &["()", "((()))"], &["", "(()", "())"]),
        (
            "# words\nroot ::= # the first\n  word (\n    \",\" word\n  )*\nword ::= [a-z] +",
            &["a,bc"],
            &["a,", ",a"],
        ),
        ("root ::= .{2} \"!\" | \"\"", &["", "ab!", "éß!"], &["a!", "abc!"]),
    ];
    let compiler = compiler();
    check(&cases, |text| compiler.gbnf(text));
}

#[test]
fn expressions_and_lark_match_whole_texts() {
    let compiler = compiler();
    let expressions: [Case; 3] = [
        ("(19|20)[0-9]{2}", &["1984", "2026"], &["1884", "198", "19840"]),
        ("[a-z]+(-[a-z]+)*", &["a", "well-known"], &["-a", "a-", "A"]),
        (r"\p{Lu}\w*\.", &["Ärger.", "A."], &["ä.", "A"]),
    ];
    check(&expressions, |text| compiler.regex(text));
    let lark: [Case; 2] = [
        (
            "start: \"let \" NAME \" = \" NUMBER\nNAME: /[a-z]+/\nNUMBER: /[0-9]+/",
            &["let x = 5"],
            &["let 5 = x", "let x ="],
        ),
        (
            "start: item (\";\" item)*\nitem: \"a\"~2 | %json {\"type\": \"boolean\"}",
            &["aa;true", "false"],
            &["a", "aa;"],
        ),
    ];
    check(&lark, |text| compiler.lark(text));
}

#[test]
fn texts_that_are_no_grammars_are_refused() {
    let compiler = compiler();
    for text in [
        "root := \"a\"",
        "rot ::= \"a\"",
        "root ::= b",
        "root ::= (\"a\"",
        "root ::= root \"a\"",
        "root ::= \"a\"{3,2}",
    ] {
        assert!(compiler.gbnf(text).is_err(), "{text}");
    }
    for text in [
        "{\"type\": \"strin\"}",
        "[]",
        "{\"type\": \"integer\", \"minimum\": 2, \"maximum\": 1}",
        "{\"$ref\": \"#/$defs/x\"}",
    ] {
        assert!(compiler.json_schema(text).is_err(), "{text}");
    }
}
