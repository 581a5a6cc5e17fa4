//! Schemas, regular expressions, Lark, and matchers.

use alloc::{format, string::String, string::ToString, vec, vec::Vec};

use backstitch_kv::Token;
use proptest::prelude::*;

use super::testing::{FIRST_BYTE, compiler, vocab};
use super::*;
use crate::vocab::{Vocab, VocabSource};

const EOS: Token = Token(2);

fn check_schema(schema: &str, accepted: &[&str], refused: &[&str]) {
    let grammar = compiler().json_schema(schema).unwrap();
    for text in accepted {
        assert!(grammar.accepts(text), "{schema} should accept {text}");
    }
    for text in refused {
        assert!(!grammar.accepts(text), "{schema} should refuse {text}");
    }
}

#[test]
fn schemas_mean_what_they_mean_to_llama_cpp() {
    let both =
        r#"{"properties": {"b": {"type": "integer"}, "a": {"items": {"type": "null"}}}, "required": ["b"]}"#;
    check_schema(
        both,
        &[r#"{"b":1}"#, "{ \"b\" : 1, \n \"a\": [null, null] }"],
        &[r#"{"a":[],"b":1}"#, r#"{"b":1,"c":2}"#, r#"{"b":1,"a":null}"#, "[]", "{}"],
    );
    let long = "1234567890123456";
    check_schema(r#"{"type": "integer"}"#, &["0", "-17", long], &["01", "1.5", &format!("{long}7"), "-"]);
    check_schema(r#"{"type": "integer", "minimum": 5}"#, &["5", long], &["4", &format!("{long}7")]);
    check_schema(r#"{"pattern": "^a+$"}"#, &["\"aa\""], &["\"b\"", "1", "{}"]);
    check_schema(r#"{"items": {"type": "number"}, "uniqueItems": true}"#, &["[1.5, 1.5]"], &["1", "[true]"]);
    check_schema(r#"{"oneOf": [{"type": "number"}, {"type": "integer"}]}"#, &["1"], &["\"1\""]);
    check_schema(r#"{"type": "string", "format": "unheard-of"}"#, &["\"x\""], &["1"]);
    let open = r#"{"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "boolean"}}"#;
    check_schema(open, &[r#"{"a":1,"b":true}"#, r#"{"b":false}"#], &[r#"{"a":true}"#, r#"{"b":1}"#]);
    let spaces = " ".repeat(41);
    check_schema(r#"{"type": "array"}"#, &["[ ]"], &[&format!("[{spaces}]")]);
}

/// A part of an `allOf` that allowed no other properties would leave nothing.
#[test]
fn parts_of_one_object_stay_open() {
    let schema = r##"{"$defs": {"base": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}]}"##;
    check_schema(schema, &[r#"{"a":1,"b":true}"#], &[r#"{"a":1}"#, r#"{"a":true,"b":true}"#]);
}

#[test]
fn schemas_that_would_be_followed_wrongly_are_refused() {
    for (schema, pointer) in [
        (r#"{"contains": {"type": "integer"}}"#, "#/contains"),
        (
            r#"{"patternProperties": {"^a": {"propertyNames": {"not": {"format": "b"}}}}}"#,
            "#/patternProperties/^a/propertyNames",
        ),
        (
            r#"{"properties": {"a/b": {"items": [{"not": {"multipleOf": 2}}]}}}"#,
            "#/properties/a~1b/items/0/not",
        ),
        (r#"{"anyOf": [{"type": "null"}, {"if": {"const": 1}, "else": false}]}"#, "#/anyOf/1/if"),
        (r##"{"$defs": {"x": 7}, "$ref": "#/$defs/x"}"##, "#/$defs/x"),
    ] {
        match compiler().json_schema(schema) {
            Err(GrammarError::Schema { pointer: found, .. }) => assert_eq!(found, pointer),
            other => panic!("{schema}: {other:?}"),
        }
    }
    // Names of properties and values are no keywords.
    check_schema(r#"{"properties": {"not": {"const": {"if": 1}}}}"#, &[r#"{"not":{"if":1}}"#], &[]);
    let error = compiler().json_schema("{\n \"type\": }").unwrap_err();
    assert!(matches!(error, GrammarError::Syntax { place: Place { line: 2, column: 10 }, .. }), "{error}");
    let deep = format!("{}{}", r#"{"items":"#.repeat(140), "}".repeat(140));
    assert!(compiler().json_schema(&deep).is_err());
    // Parts that exclude each other are seen by the library only, which knows no place.
    let parts = r#"{"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 4}]}"#;
    let error = compiler().json_schema(parts).unwrap_err();
    assert!(matches!(error, GrammarError::Compile { language: Language::JsonSchema, .. }), "{error}");
}

/// Libraries that write schemas add keywords that allow everything.
#[test]
fn keywords_that_forbid_nothing_are_ignored() {
    let record = r#"{"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}}"#;
    check_schema(record, &[r#"{"a":1}"#], &[r#"{"a":"b"}"#]);
    let never = r#"{"properties": {"a": {"const": 1}}, "additionalProperties": {"not": {}}}"#;
    check_schema(never, &[r#"{"a":1}"#, "{}"], &[r#"{"b":1}"#]);
    check_schema(r#"{"type": "string", "not": false, "if": {}}"#, &["\"a\""], &["1"]);
    let pattern = r#"{"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false}"#;
    check_schema(pattern, &[r#"{"ab":1}"#, "{}"], &[r#"{"ab":"x"}"#, r#"{"b":1}"#]);
}

/// A client that reads JSON sees no difference, but the schema's own texts are followed letter by
/// letter.
#[test]
fn characters_may_be_escaped_where_the_schema_does_not_spell_them() {
    let (plain, escaped) = ("\"caf\u{e9}\"", r#""caf\u00e9""#);
    check_schema(
        r#"{"type": "string"}"#,
        &[plain, escaped, r#""\u00E9\n""#],
        &[r#""\u00g9""#, r#""\ud800""#],
    );
    // An escape is one character, a pair of them too.
    let two = r#"{"type": "string", "minLength": 2, "maxLength": 2}"#;
    check_schema(two, &[r#""\u00e9x""#, r#""\uD83D\uDE00x""#], &[r#""\u00e9""#, r#""\u00e9xy""#]);
    for spelled in
        [r#"{"const": "caf\u00e9"}"#, r#"{"enum": ["caf\u00e9", 1]}"#, r#"{"pattern": "^caf[\u00e9]$"}"#]
    {
        check_schema(spelled, &[plain], &[escaped]);
    }
    check_schema(r#"{"properties": {"\u00e9": {"const": 1}}}"#, &["{\"\u{e9}\":1}"], &[r#"{"\u00e9":1}"#]);
    // What JSON cannot have as it is may be escaped everywhere.
    check_schema(r#"{"const": "a\nb\u0001"}"#, &[r#""a\nb\u0001""#], &["\"a\nb\u{1}\""]);
}

#[test]
fn any_object() {
    let grammar = compiler().json_object().unwrap();
    for (text, expected) in [
        ("{}", true),
        (r#"{"a": [1, {"b": "\u00e9", "\uD83d\ude00": 2}]}"#, true),
        // Half of a surrogate pair is no character.
        (r#"{"a": "\ud83d"}"#, false),
        (r#"{"a": [1, {"b": "é\n"}]}"#, true),
        ("[]", false),
        ("{\"a\"}", false),
    ] {
        assert_eq!(grammar.accepts(text), expected, "{text}");
    }
}

#[test]
fn regular_expressions_match_the_whole_text() {
    let grammar = compiler().regex(r"^(ab|c\$)+$").unwrap();
    assert!(grammar.accepts("abc$ab") && !grammar.accepts("abx") && !grammar.accepts(""));
    assert!(compiler().regex(r"a\$").unwrap().accepts("a$"));
    let error = compiler().regex("ab(c").unwrap_err();
    assert!(matches!(error, GrammarError::Syntax { place: Place { line: 1, column: 3 }, .. }), "{error}");
    assert!(compiler().regex(&format!("{}a{}", "(".repeat(300), ")".repeat(300))).is_err());
    assert!(
        compiler().regex(&format!("(((a{{0,1000}}b){{0,1000}}c){{0,1000}}{})", "x".repeat(600_000))).is_err()
    );
}

#[test]
fn lark_grammars() {
    let grammar = compiler().lark("start: WORD (\",\" WORD)* <|c7|>?\nWORD: /[a-z]+/").unwrap();
    assert!(grammar.accepts("ab,cat") && !grammar.accepts("ab,"));
    let mut matcher = grammar.matcher();
    matcher.accept(vocab().find(b"cat").unwrap()).unwrap();
    matcher.accept(Token(7)).unwrap();
    assert!(matcher.is_stopped());
    let error = compiler().lark("start: A\nA: \"x").unwrap_err();
    assert!(matches!(error, GrammarError::Syntax { place: Place { line: 2, .. }, .. }), "{error}");
    assert!(matches!(
        compiler().lark("start: b").unwrap_err(),
        GrammarError::Syntax { .. } | GrammarError::Compile { .. }
    ));
    assert!(matches!(compiler().lark(&"(".repeat(5000)), Err(GrammarError::TooLarge { .. })));
}

/// Brackets in texts, and rules that do not lead to each other, take no stack.
#[test]
fn lark_grammars_may_be_wide_but_not_deep() {
    let brackets = "(".repeat(5000);
    let enumeration = vec!["{\"a\":[]}"; 1500].join(",");
    let lark = format!(
        "start: a | r0 // {brackets}\na: \"{brackets}\\\"\" | /[(]+\\/{{3}}/ | %json {{\"enum\": [{enumeration}]}} \"!\"\n\
         {}",
        (0..3000).map(|i| format!("r{i}: (\"x{i}\" | \"y\")\n")).collect::<String>()
    );
    let grammar = compiler().lark(&lark).unwrap();
    let texts =
        [("((///", true), ("((//", false), ("{\"a\":[]}!", true), ("{\"a\":[]}", false), ("x0", true)];
    for (text, is_accepted) in texts {
        assert_eq!(grammar.accepts(text), is_accepted, "{text}");
    }
    let too_deep = |lark: &str| match compiler().lark(lark) {
        Err(GrammarError::TooLarge { found, limit, .. }) => assert!(found > limit, "{found}"),
        other => panic!("{other:?}"),
    };
    for first in ["r0", "a | %json {}\n | r0", "<x\"y> r0", "/\"/ r0", "A r0 # \"", "\"//\" r0 // \""] {
        let chain: String = (0..5000).map(|i| format!("r{i}: \"x\" r{}\n", i + 1)).collect();
        too_deep(&format!("start: {first}\n{chain}r5000: \"x\"\n"));
        let loops: String = (0..5000).map(|i| format!("_R{i}: \"x\"\n | _R{}\n", (i + 1) % 5000)).collect();
        too_deep(&format!("start: {first} _R0\n{loops}r0: \"x\"\n"));
    }
    too_deep(&format!("%ignore a{}\nstart: \"x\"", "{a".repeat(5000)));
    let error = compiler().lark("start: \"a\"\nb: %json {\"type\": }").unwrap_err();
    assert!(matches!(error, GrammarError::Syntax { place: Place { line: 2, column: 4 }, .. }), "{error}");
}

/// Reading a regular expression takes hundreds of times its own memory.
#[test]
fn regular_expressions_are_short() {
    let long = r"\pL".repeat(6000);
    let quoted = serde_json::to_string(&long).unwrap();
    let schema = serde_json::json!({"items": {"type": "string", "pattern": long}});
    let properties = serde_json::json!({"patternProperties": {&long: {}}});
    let results = [
        compiler().regex(&long).map(drop),
        compiler().json_schema_value(&schema).map(drop),
        compiler().json_schema_value(&properties).map(drop),
        compiler().lark(&format!("start: /{long}/")).map(drop),
        compiler().lark(&format!("start: {}i", quoted)).map(drop),
        compiler().lark(&format!("start: %json {schema}")).map(drop),
        Triggers::new(&[Trigger::Pattern(long.clone())]).map(drop),
        Triggers::new(&[Trigger::FullPattern(long.clone())]).map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(GrammarError::TooLarge { found, limit: 16_384, .. }) if found > 16_384));
    }
    let words = vec![Trigger::Word("x".repeat(1000)); 600];
    let texts = serde_json::json!({"enum": vec!["x".repeat(1000); 600]});
    let names = serde_json::json!({"properties": {"x".repeat(600_000): true}});
    for result in [
        Triggers::new(&words).map(drop),
        compiler().json_schema_value(&texts).map(drop),
        compiler().json_schema_value(&names).map(drop),
        Triggers::new(&vec![Trigger::Pattern(r"\w{30}".into()); 4000]).map(drop),
    ] {
        assert!(
            matches!(result, Err(GrammarError::TooLarge { found, limit, .. }) if found > limit),
            "{result:?}"
        );
    }
    assert!(Triggers::new(&vec![Trigger::Pattern(r"<call>\s*\{".into()); 300]).is_ok());
}

/// Each of these would take a parser without limits long, or much memory.
#[test]
fn hostile_grammars_end_soon() {
    let start = std::time::Instant::now();
    let doubling: String = (0..60).map(|i| format!("r{i} ::= r{} r{}\n", i + 1, i + 1)).collect();
    let ambiguous = "root ::= ((\"a\"?){1000} \"(\" root? \")\"?){1000}";
    for gbnf in [format!("root ::= r0\n{doubling}r60 ::= \"a\"?"), ambiguous.to_string()] {
        if let Ok(grammar) = compiler().gbnf(&gbnf) {
            let mut matcher = grammar.matcher();
            while matcher.mask().is_ok() && matcher.tokens().len() < 20 {
                if matcher.accept(Token(FIRST_BYTE + u32::from(b'a'))).is_err() {
                    break;
                }
            }
        }
    }
    let _ = compiler().regex("(.*a){20}.{500}b{900}");
    let _ =
        compiler().json_schema(&format!("{{\"enum\": [{}]}}", vec!["[[{\"a\": 1.5}]]"; 20_000].join(",")));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// A vocabulary without "c", and without a token that ends the generation.
#[test]
fn a_matcher_that_is_stuck_goes_back() {
    let source = VocabSource { model: "gpt2", tokens: &["a", "b", "ab"], ..VocabSource::default() };
    let compiler = Compiler::new(&Vocab::new(&source).unwrap()).unwrap();
    let mut matcher = compiler.gbnf("root ::= \"a\" (\"ac\" | \"b\")").unwrap().matcher();
    let [a, b, ab] = [0, 1, 2].map(Token);
    assert_eq!(matcher.mask().unwrap().iter().collect::<Vec<_>>(), [a, ab]);
    matcher.accept(a).unwrap();
    matcher.accept(a).unwrap();
    assert!(matches!(matcher.mask(), Err(GrammarError::Stuck { .. })));
    assert!(matcher.is_stopped() && !matcher.is_accepting());
    assert_eq!(matcher.rollback(3), Err(GrammarError::Rollback { found: 3, limit: 2 }));
    matcher.rollback(1).unwrap();
    matcher.accept(b).unwrap();
    assert!(matcher.is_accepting() && matcher.mask().unwrap().is_empty());
    matcher.reset().unwrap();
    assert_eq!(matcher.mask().unwrap().len(), 2);
}

#[test]
fn a_mask_has_every_token_with_the_same_text() {
    let mut matcher = compiler().gbnf("root ::= \"a\" \"b\"").unwrap().matcher();
    let word = vocab().find(b"a").unwrap();
    let byte = Token(FIRST_BYTE + u32::from(b'a'));
    let mask = matcher.mask().unwrap();
    assert!(mask.contains(word) && mask.contains(byte) && mask.contains(vocab().find(b"ab").unwrap()));
    assert_eq!(mask.len(), 3);
    assert!(!mask.contains(Token(u32::MAX)));
    assert_eq!(matcher.accept(Token(u32::MAX)), Err(GrammarError::Token { token: Token(u32::MAX) }));
    assert_eq!(matcher.accept(EOS), Err(GrammarError::Token { token: EOS }));
    matcher.accept(byte).unwrap();
    assert_eq!(matcher.mask().unwrap().iter().collect::<Vec<_>>(), [Token(FIRST_BYTE + u32::from(b'b'))]);
    let mut fork = matcher.clone();
    fork.accept(Token(FIRST_BYTE + u32::from(b'b'))).unwrap();
    assert!(fork.is_stopped() && !matcher.is_stopped());
    assert_eq!(fork.mask().unwrap().iter().collect::<Vec<_>>(), [EOS]);
    fork.accept(EOS).unwrap();
    assert!(fork.accept(EOS).is_err());
    fork.rollback(2).unwrap();
    assert_eq!(fork.tokens(), matcher.tokens());
    assert_eq!(fork.mask().unwrap().words(), matcher.mask().unwrap().words());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The mask has exactly the tokens that are accepted, and going back undoes all of it.
    #[test]
    fn masks_and_rollbacks_are_exact(choices in prop::collection::vec((any::<u32>(), 0usize..8), 1..25), which in 0..3) {
        let grammar = match which {
            0 => compiler().gbnf("root ::= \"{\" ([a-c]* | \"\\\"\" [^\"]* \"\\\"\" | root)* \"}\" <|c5|>?"),
            1 => compiler().json_object(),
            _ => compiler().regex("(ab|[0-9]{1,3}|true)*"),
        };
        let mut matcher = grammar.unwrap().matcher();
        for (choice, back) in choices {
            let allowed: Vec<Token> = matcher.mask().unwrap().iter().collect();
            for id in (0..vocab().n_vocab() as u32).step_by(7) {
                let is_accepted = matcher.clone().accept(Token(id)).is_ok();
                prop_assert_eq!(is_accepted, allowed.contains(&Token(id)), "{:?} {}", matcher.tokens(), id);
            }
            if back < 2 {
                let n = back.min(matcher.tokens().len());
                matcher.rollback(n).unwrap();
            } else if let Some(&token) = allowed.get(choice as usize % allowed.len().max(1)) {
                matcher.accept(token).unwrap();
            }
            let mut fresh = matcher.grammar().matcher();
            matcher.tokens().iter().try_for_each(|&token| fresh.accept(token)).unwrap();
            prop_assert_eq!(fresh.is_accepting(), matcher.is_accepting());
            if !matcher.tokens().ends_with(&[EOS]) {
                prop_assert_eq!(fresh.mask().unwrap().words(), matcher.mask().unwrap().words());
            }
        }
    }
}
