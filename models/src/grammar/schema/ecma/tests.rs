use alloc::{format, string::String};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::grammar::testing::{Work, compiler};

/// Return true if some part of `text` matches `pattern` once it is translated.
fn matches(pattern: &str, text: &str) -> bool {
    let translated = translated(pattern).unwrap_or_else(|fault| panic!("{pattern}: {fault:?}"));
    let regex = regex_automata::meta::Regex::new(&ascii(&translated));
    regex.unwrap_or_else(|error| panic!("{pattern}: {translated}: {error}")).is_match(text)
}

/// Return a pattern with the classes that the library writes out.
fn ascii(pattern: &str) -> String {
    llguidance::regex_to_lark(pattern, "dw")
}

/// Each class as ECMA-262 defines it: texts that match, and texts that do not.
#[test]
fn classes_are_those_of_ecma_262() {
    let table: [(&str, &str, &str); 21] = [
        (r"^\d$", "09", "a٣१"),
        (r"^\D$", "a٣", "5"),
        (r"^\w$", "azAZ09_", "é-\u{17f}\u{212a} "),
        (r"^\W$", "é-ſ", "a_"),
        (
            r"^\s$",
            "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}",
            "a\u{85}\u{180e}\u{200b}\u{1c}",
        ),
        (r"^\S$", "a\u{85}\u{180e}😀", " \u{feff}\u{2028}"),
        (r"^.$", "a\u{85}😀\u{b}", "\n\r\u{2028}\u{2029}"),
        (r"^[.]$", ".", "a"),
        (r"^[a&&b]$", "a&b", "c"),
        (r"^[a--c]$", "", ""),
        (r"^[a~~b]$", "a~b", "c"),
        (r"^[[]$", "[", "]"),
        (r"^[^]$", "a\n😀", ""),
        (r"^[\b]$", "\u{8}", "b"),
        (r"^[\w-]$", "a-", "."),
        (r"^[\w-.]$", "a-.", "/"),
        (r"^[\s\S]$", "a \n😀", ""),
        (r"^[^\s\d]$", "a", " 5\u{feff}"),
        (r"^\cA$", "\u{1}", "A"),
        (r"^[\u0041-\x43]$", "ABC", "D"),
        (r"^\ud83d\ude00$", "😀", "a"),
    ];
    for (pattern, wanted, others) in table {
        if pattern == r"^[a--c]$" {
            assert_eq!(translated(pattern), Err(Fault::Mistake), "a range from a to -");
            continue;
        }
        wanted.chars().for_each(|c| assert!(matches(pattern, &String::from(c)), "{pattern} has {c:?}"));
        others.chars().for_each(|c| assert!(!matches(pattern, &String::from(c)), "{pattern} has no {c:?}"));
    }
    assert!(!matches("^[]$", "a") && !matches("[]", ""));
    assert!(matches(r"^[\p{Lu}\p{Script=Greek}]$", "α") && matches(r"^\p{L}$", "é"));
}

#[test]
fn texts_match_as_in_ecma_262() {
    for (pattern, text, is_match) in [
        ("^{{[a-z]+}}$", "{{a}}", true),
        ("^a{,3}$", "a{,3}", true),
        ("^a{2}$", "aa", true),
        ("^a{2,}?$", "aaa", true),
        ("^a]$", "a]", true),
        ("^[[:alpha:]]$", "a]", true),
        ("^[[:alpha:]]$", "a", false),
        (r"^\-\/\_\@$", "-/_@", true),
        ("^(?<year>[0-9]{4})$", "2026", true),
        ("^(?P<year>[0-9]{4})$", "2026", true),
        ("^(?i)abc$", "ABC", true),
        ("^(?i:a)b$", "AB", false),
        ("^(?i)[^a]$", "A", false),
        ("^(?i)[^a]$", "b", true),
        (r"^(?i:\W)$", "k", false),
        ("^(?i:x)[^a]$", "XA", true),
        ("^(?s)a.b$", "a\nb", true),
        ("^a*?b+?c??d{1,2}?$", "aabcdd", true),
        ("^a{x{2}$", "a{xx", true),
        ("^{{$", "{{", true),
        ("^(?s:.)(.)$", "\n\n", false),
        ("a|b", "xb", true),
    ] {
        assert_eq!(matches(pattern, text), is_match, "{pattern} {text:?}");
    }
}

#[test]
fn what_no_automaton_follows_is_told_from_mistakes() {
    for pattern in [r"^(?!a)", r"(?<=a)b", r"\bword\b", r"(a)\1", r"\k<a>", r"\ud83d", r"[\ud800-\udbff]"] {
        assert_eq!(translated(pattern), Err(Fault::Unfollowed), "{pattern}");
    }
    for pattern in [
        "*a",
        "a|*",
        "(a",
        "a)",
        "[a",
        "[b-a]",
        "a\\",
        "^\\",
        r"\A",
        r"\Z",
        r"\z",
        r"\a",
        r"\Qx\E",
        "(?!a",
        "a{2,1}",
        "(?x)a",
        r"\x1",
        r"\u12",
        r"\p{Nothing}",
        r"\c1",
        "(?<>a)",
        "a{1}|{2}",
        "a**",
        "a*+",
        "a???",
        "a{2}{3}",
        "a+{2}",
        r"\p{L",
        r"\u{41",
        r"[\p{L]",
    ] {
        assert_eq!(translated(pattern), Err(Fault::Mistake), "{pattern}");
    }
}

/// Each brace reads no further than its numbers.
#[test]
fn many_braces_are_read_once() {
    let work = Work::begin();
    for text in ["{", "{1", "{1,2"] {
        let pattern = text.repeat(200_000);
        assert!(translated(&format!("a{pattern}")).is_ok(), "{text}");
    }
    work.check_small("braces");
}

#[test]
fn schemas_have_the_dialect() {
    let schema = json!({"type": "string", "pattern": "^[a&&b]$"});
    let grammar = compiler().json_schema_value(&schema).unwrap();
    for (text, is_accepted) in [("\"a\"", true), ("\"&\"", true), ("\"b\"", true), ("\"c\"", false)] {
        assert_eq!(grammar.accepts(text), is_accepted, "{text}");
    }
    for pattern in ["^\\", r"\A", "[b-a]"] {
        let schema = json!({"type": "string", "pattern": pattern});
        assert!(compiler().json_schema_value(&schema).is_err(), "{pattern}");
    }
}

proptest! {
    /// Writing what was written once more gives the same text, a regular expression.
    #[test]
    fn writing_twice_changes_nothing(pattern in r"[\[\](){}a-c&~^$.|*+?\\dwsSDWtnbux0-3,:!=<>-]{0,12}") {
        if let Ok(once) = translated(&pattern) {
            prop_assert_eq!(translated(&once), Ok(once.clone()), "{}", pattern);
            let parsed = regex_syntax::parse(&ascii(&once));
            prop_assert!(parsed.is_ok(), "{} {} {:?}", pattern, format!("{once}"), parsed);
        }
    }
}
