use alloc::{collections::BTreeSet, format, string::ToString, vec};

use proptest::prelude::*;

use super::*;
use crate::grammar::testing::{compiler, vocab};
use crate::grammar::{Compiler, Language, Place};

/// Return the ends of all matches of `expr` in `text` from `start` on, by the rules alone.
fn ends(rules: &Rules, expr: &Expr, text: &[char], start: usize) -> BTreeSet<usize> {
    let after = |starts: BTreeSet<usize>, expr: &Expr| -> BTreeSet<usize> {
        starts.into_iter().flat_map(|start| ends(rules, expr, text, start)).collect()
    };
    match expr {
        Expr::Chars(set) => match text.get(start) {
            Some(&c) if set.contains(u32::from(c)) => BTreeSet::from([start + 1]),
            _ => BTreeSet::new(),
        },
        Expr::Literal(chars) if text[start..].starts_with(chars) => BTreeSet::from([start + chars.len()]),
        Expr::Literal(_) | Expr::Token(_) => BTreeSet::new(),
        Expr::Rule(index) => ends(rules, &rules.rules[*index].expr, text, start),
        Expr::Sequence(items) => items.iter().fold(BTreeSet::from([start]), after),
        Expr::Choice(items) => items.iter().flat_map(|item| ends(rules, item, text, start)).collect(),
        Expr::Repeat(inner, min, max) => {
            let mut found = BTreeSet::new();
            let mut at = BTreeSet::from([start]);
            let limit = max.unwrap_or(*min + text.len() as u32 + 1);
            for n in 0..=limit {
                if n >= *min {
                    found.extend(at.iter().copied());
                }
                at = after(at, inner);
            }
            found
        }
        Expr::Terminal(inner) => ends(rules, inner, text, start),
    }
}

fn matches(rules: &Rules, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    ends(rules, &rules.rules[rules.root].expr, &text, 0).contains(&text.len())
}

/// Return the terminals that a grammar gets, as llguidance's Lark.
fn terminals(text: &str) -> Vec<String> {
    let lark = to_lark(text, "root", &vocab()).unwrap();
    lark.lines().filter(|line| line.starts_with('T')).map(ToString::to_string).collect()
}

fn check(compiler: &Compiler, grammar: &str, accepted: &[&str], refused: &[&str]) {
    let compiled = compiler.gbnf(grammar).unwrap();
    for text in accepted {
        assert!(
            compiled.accepts(text),
            "{grammar} should accept {text:?}: {}",
            to_lark(grammar, "root", &vocab()).unwrap()
        );
    }
    for text in refused {
        assert!(!compiled.accepts(text), "{grammar} should refuse {text:?}");
    }
}

#[test]
fn the_longest_match_is_not_the_only_one() {
    let compiler = compiler();
    check(&compiler, "root ::= \"a\"* \"ab\"", &["ab", "aab", "aaaaab"], &["", "b", "aa"]);
    check(
        &compiler,
        "root ::= x root | \"\"\nx ::= \"a\" | \"ab\" | \"b\" \"c\"",
        &["abc", "aab", "bc"],
        &["b", "ac"],
    );
    check(
        &compiler,
        "root ::= [a-z]+ (\"true\" | \"(\" root \")\")",
        &["xtrue", "truetrue", "a(btrue)"],
        &["true", "a(true)"],
    );
    check(&compiler, "root ::= (\"a\"*)* (\"(\" root \")\")?", &["", "aaa", "a(aa)", "(())"], &["(", "b"]);
}

#[test]
fn what_the_syntax_has() {
    let compiler = compiler();
    let grammar = "# numbers\nroot ::= (sign? # a sign\n  digit{2,3}\n) |\n \"\\x41\\u00e4\\U0001F600\\\"\\\\\" [^a-y\\]-] . \nsign::=[+-]\ndigit ::= [0-9]";
    check(
        &compiler,
        grammar,
        &["12", "+123", "-00", "Aä😀\"\\z✅", "Aä😀\"\\\n\n"],
        &["1", "+1234", "Aä😀\"\\a.", "Aä😀\"\\].", "Aä😀\"\\-."],
    );
    check(
        &compiler,
        "root ::= \"ab\"{2} [x]{0} (\"c\" \"d\"){1,} \"\" \"\"*",
        &["ababcd", "ababcdcd"],
        &["abb", "abab", "ababxcd"],
    );
    check(&compiler, "root ::= a\r\na ::= \"x\"\na ::= \"y\"", &["y"], &["x"]);
    check(&compiler, "root ::= \"a\"{1,100000}", &["a", "aaaa"], &[""]);
    check(&compiler, "root ::= [a-c\\-]+ \"\\-\"", &["a--", "--"], &["-", "a"]);
}

/// Surrogates are code points, but no text has them.
#[test]
fn classes_may_name_code_points_that_are_no_characters() {
    let compiler = compiler();
    let string = "root ::= \"<\" ([^<>\\uD800-\\uDFFF] | [\\uD800-\\uDBFF] [\\uDC00-\\uDFFF])* \">\"";
    check(&compiler, string, &["<>", "<aä😀>"], &["<", "<<>"]);
    check(&compiler, "root ::= [a\\uD801] | [\\U00000062-\\UFFFFFFFF]", &["a", "b", "😀"], &["", "A"]);
    check(&compiler, "root ::= \"a\" ([\\uDC00] | \"b\" [\\uD800]*)", &["ab"], &["a"]);
}

#[test]
fn tokens_match_by_their_number_or_name() {
    let compiler = compiler();
    let grammar = compiler.gbnf("root ::= <[5]> (!<|c6|>)* <|c6|> \"ab\"").unwrap();
    let accepts = |tokens: &[u32]| {
        let mut matcher = grammar.matcher();
        tokens.iter().all(|&id| matcher.accept(backstitch_kv::Token(id)).is_ok()) && matcher.is_accepting()
    };
    let ab = vocab().find(b"ab").unwrap().0;
    assert!(accepts(&[5, 6, ab]));
    assert!(accepts(&[5, 7, 5, ab, 3, 6, ab]));
    for refused in [&[5, 6][..], &[5, ab, ab], &[4, 6, ab], &[5, 6, 6, ab], &[5, 2, 6, ab], &[5, 6, ab, ab]] {
        assert!(!accepts(refused), "{refused:?}");
    }
    let mut matcher = grammar.matcher();
    assert_eq!(matcher.mask().unwrap().iter().map(|t| t.0).collect::<Vec<_>>(), [5]);
    matcher.accept(backstitch_kv::Token(5)).unwrap();
    let mask = matcher.mask().unwrap();
    assert!(mask.contains(backstitch_kv::Token(6)) && mask.contains(backstitch_kv::Token(ab)));
    assert!(!mask.contains(backstitch_kv::Token(2)), "the end of the text is no token of it");
}

#[test]
fn control_tokens_never_match_text() {
    let grammar = compiler().gbnf("root ::= \"<|c5|><user>\"").unwrap();
    let mut matcher = grammar.matcher();
    assert!(matcher.accept(backstitch_kv::Token(5)).is_err());
    let mut tokens = vec![];
    assert!(grammar.spell(b"<|c5|>", &mut tokens));
    tokens.push(backstitch_kv::Token(3));
    for token in tokens {
        matcher.accept(token).unwrap();
    }
    assert!(matcher.is_accepting(), "user-defined tokens are text");
}

#[test]
fn a_grammar_begins_with_the_rule_that_is_named() {
    let text = "root ::= \"a\" | \"b\" other\nother ::= \"c\" root?";
    let compiled = compiler().gbnf_from(text, "other").unwrap();
    for (text, is_accepted) in [("c", true), ("ca", true), ("cbc", true), ("a", false), ("bc", false)] {
        assert_eq!(compiled.accepts(text), is_accepted, "{text}");
    }
    assert!(
        matches!(compiler().gbnf_from(text, "none"), Err(GrammarError::Syntax { wanted, .. }) if wanted == "a rule `none`")
    );
}

#[test]
fn rules_that_begin_with_themselves_are_refused() {
    for (grammar, rule, line) in [
        ("root ::= \"a\" | root \"b\"", "root", 1),
        ("root ::= x\nx ::= y \"a\"\ny ::= z x \"b\"\nz ::= \"c\"*", "x", 2),
        ("root ::= \"a\" x\nx ::= (\"b\"? x)*", "x", 2),
    ] {
        match compiler().gbnf(grammar) {
            Err(GrammarError::LeftRecursion { place, name }) => {
                assert_eq!((place.line, name.as_str()), (line, rule), "{grammar}");
            }
            other => panic!("{grammar}: {other:?}"),
        }
    }
    check(&compiler(), "root ::= \"a\" root | \"\"", &["", "aa"], &["b"]);
}

#[test]
fn errors_name_the_place() {
    for (grammar, line, column, wanted) in [
        ("root = \"a\"", 1, 6, "`::=`"),
        ("root ::= \"a", 1, 10, "`\"`"),
        ("root ::= \"a\"\n\n  x ::= [a", 3, 9, "`]`"),
        ("root ::= (\"a\"\n | \"b\"", 2, 7, "`)`"),
        ("root ::= \"\\q\"", 1, 11, "escape"),
        ("root ::= \"\\uD800\"", 1, 11, "hexadecimal"),
        ("root ::= [\\uDFFF-\\uD800]", 1, 18, "not before U+DFFF"),
        ("root ::= *", 1, 10, "repeat"),
        ("root ::= \"a\"{2", 1, 15, "`}`"),
        ("root ::= \"a\"{3,2}", 1, 13, "at least 3"),
        ("root ::= [z-a]", 1, 13, "not before"),
        ("root ::= []", 1, 10, "at least one"),
        ("root ::= \"é\" $", 1, 14, "end of the line"),
        ("a ::= \"a\"", 1, 10, "`root`"),
        ("root ::= </s>", 1, 10, "does not end"),
        ("_x ::= \"a\"", 1, 1, "letters"),
    ] {
        match compiler().gbnf(grammar) {
            Err(GrammarError::Syntax { language: Language::Gbnf, place, wanted: found, .. }) => {
                assert_eq!(place, Place { line, column }, "{grammar}");
                assert!(found.contains(wanted), "{grammar}: {found}");
            }
            other => panic!("{grammar}: {other:?}"),
        }
    }
    let unknown = compiler().gbnf("root ::= \"a\"\n | b\nc ::= d").unwrap_err();
    assert!(matches!(unknown, GrammarError::Syntax { .. }), "a rule ends with its line: {unknown}");
    let unknown = compiler().gbnf("root ::= c\nc ::= d").unwrap_err();
    assert_eq!(unknown, GrammarError::UnknownRule { place: Place { line: 2, column: 7 }, name: "d".into() });
    let unknown = compiler().gbnf("root ::= <[999]>").unwrap_err();
    assert!(matches!(unknown, GrammarError::UnknownToken { .. }), "{unknown}");
}

#[test]
fn sizes_are_limited() {
    let too_large = |grammar: &str| match compiler().gbnf(grammar) {
        Err(GrammarError::TooLarge { found, limit, .. }) => assert!(found > limit),
        other => panic!("{other:?}"),
    };
    too_large(&format!("root ::= {}\"a\"{}", "(".repeat(60), ")".repeat(60)));
    too_large("root ::= \"a\"{2001,}");
    too_large(&(0..9000).map(|i| format!("r{i} ::= \"a\"\n")).collect::<String>());
    too_large(&"#".repeat(600_000));
    for operator in ["*", "+", "?", "{2}", "{0}", " *"] {
        too_large(&format!("root ::= \"a\"{}", operator.repeat(120_000)));
    }
    too_large(&format!("root ::= {}\"a\"{}", "(".repeat(40), ")**".repeat(40)));
    check(&compiler(), &format!("root ::= \"a\"{}", "?+".repeat(40)), &["", "aaa"], &["b"]);
    check(&compiler(), &format!("root ::= {}\"a\"{}", "(".repeat(50), ")+".repeat(50)), &["aa"], &[""]);
}

/// Each takes a fraction of a second; without limits, the first two would take hours.
#[test]
fn merging_ends_soon() {
    let start = std::time::Instant::now();
    let compiler = compiler();
    check(&compiler, "root ::= \"a\" \"\"{2000}{2000}{2000}{2000}", &["a"], &["", "aa"]);
    let doubling: String = (0..45).map(|i| format!("r{i} ::= r{} r{}\n", i + 1, i + 1)).collect();
    check(&compiler, &format!("root ::= \"a\" r0\n{doubling}r45 ::= \"\""), &["a"], &["", "aa"]);
    // References in no order, each of them to what is large.
    let mut seed = 1_u32;
    let names = core::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ["a ", "b ", "c ", "d "][(seed >> 30) as usize]
    });
    let names: String = names.take(200_000).collect();
    for n in [1500, 100] {
        let large = ["a", "b", "c", "d"].map(|name| format!("{name} ::= (\"{name}\" \"x\"){{{n}}}\n"));
        let text = format!("root ::= {names}\n{}", large.concat());
        merge::choose_terminals(&mut parse::parse(&text, "root", &vocab()).unwrap());
    }
    // The last item of many decides whether the rule can be empty.
    let text = format!("root ::= {}\"z\"\na ::= \"\"", "a ".repeat(200_000));
    let rules = parse::parse(&text, "root", &vocab()).unwrap();
    assert_eq!(check::nullable(&rules), [false, true]);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// A chain of rules is as deep as they are many, and none of them may overflow a stack.
#[test]
fn long_chains_of_rules_compile() {
    let chain = |n: usize| {
        let rules = (0..n).map(|i| format!("r{i} ::= \"(\" r{} \")\" | r{} \"x\"\n", i + 1, i + 1));
        format!("root ::= r0\n{}r{n} ::= \"a\" | \"[\" root \"]\"", rules.collect::<String>())
    };
    let compiler = compiler();
    let grammar = compiler.gbnf(&chain(400)).unwrap();
    assert!(grammar.accepts(&format!("{}a{}", "(".repeat(400), ")".repeat(400))));
    assert!(compiler.gbnf(&chain(7900)).is_ok());
    let repeated = |n: usize, operators: &str| {
        let rules = (0..n).map(|i| format!("r{i} ::= \"(\" r{}{operators} \")\"\n", i + 1));
        format!("root ::= r0\n{}r{n} ::= \"a\"", rules.collect::<String>())
    };
    assert!(compiler.gbnf(&repeated(7900, "?")).is_ok());
    let found = compiler.gbnf(&repeated(1000, &"{2}".repeat(50)));
    assert!(matches!(found, Err(GrammarError::TooLarge { limit: 16_000, .. })), "{found:?}");
}

const JSON: &str = r#"root ::= value
value ::= ws ("{" (ws string ws ":" value ("," ws string ws ":" value)*)? ws "}" | "[" (value ("," value)*)? ws "]" | string | number | "true" | "null") ws
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-f]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
ws ::= [ \n]*"#;

#[test]
fn strings_of_json_are_one_terminal() {
    let terminals = terminals(JSON);
    assert!(
        terminals.iter().any(|terminal| terminal.ends_with('*') || terminal.contains("* ")),
        "{terminals:?}"
    );
    let refused = ["", "{", "[1,]", "\"a", "{\"a\" 1}", "01", "\"\n\"", "tru"];
    check(
        &compiler(),
        JSON,
        &["{}", " { \"a\" : [ 1, -2.50 , \"x\\\"\\u00af\" ] }", "true", "[[],null]", "\"\""],
        &refused,
    );
}

/// A string that can be read in two ways has its characters as terminals.
#[test]
fn confused_terminals_are_split() {
    let grammar = "root ::= \"(\" root \")\" | \"<\" [a-z]* \">\" | \"<\" [a-z]";
    check(&compiler(), grammar, &["<abc>", "<a", "(<a)", "(<>)", "((<abc>))"], &["<ab", "<", "(<ab)"]);
    let grammar = "root ::= think answer\nthink ::= \"(\" think \")\" | [^()<]* \"</think>\"\nanswer ::= \"\\\"\" [^\"]* \"\\\"\"";
    check(&compiler(), grammar, &["a\"b\"c</think>\"x\""], &["a\"b\"c\"x\"", "</think>\"x\"\""]);
    assert!(terminals(grammar).iter().any(|terminal| terminal.contains('*')), "{:?}", terminals(grammar));
}

fn expression() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        3 => prop::sample::select(vec!["\"a\"", "\"ab\"", "\"ba\"", "\"b\"", "\"\"", "[ab]", "[^a]", ".", "\"(\"", "\")\"", "[b-c]"])
            .prop_map(ToString::to_string),
        1 => prop::sample::select(vec!["x", "y", "z"]).prop_map(|name| format!("\"c\" {name}")),
    ];
    atom.prop_recursive(3, 12, 3, |inner| {
        let repeat = prop::sample::select(vec!["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,3}"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| items.join(" ")),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| format!("({})", items.join(" | "))),
            (inner, repeat).prop_map(|(item, repeat)| format!("({item}){repeat}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(100)
    ))]

    #[test]
    fn a_grammar_accepts_what_its_rules_say(
        exprs in prop::collection::vec(expression(), 4),
        texts in prop::collection::vec("[abc()]{0,7}", 30),
    ) {
        let grammar = format!("root ::= {} | x\nx ::= {}\ny ::= {}\nz ::= {}", exprs[0], exprs[1], exprs[2], exprs[3]);
        let rules = parse::parse(&grammar, "root", &vocab()).unwrap();
        prop_assert!(check::refuse_left_recursion(&rules, &grammar).is_ok());
        let compiled = compiler().gbnf(&grammar).unwrap();
        for text in texts {
            let expected = matches(&rules, &text);
            prop_assert_eq!(compiled.accepts(&text), expected, "{} on {:?}: {}", grammar, text, to_lark(&grammar, "root", &vocab()).unwrap());
        }
    }
}
