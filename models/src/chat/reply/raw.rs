//! Values between tags, where strings have no quotes.
//!
//! A text means a value of another type than a string if its schema allows that, otherwise the
//! string. A string that would mean something else is written in quotes, and a text in quotes is
//! read without them only if it needs them. So every value has a text, and every text one meaning.

use alloc::string::String;

use super::literal;
use super::scanner::write_text;
use super::schema::Types;
use crate::chat::Value;

/// Append the value that `text` means as JSON, and return true; return false if there is none, as
/// an empty text is no number.
pub(super) fn read(text: &str, types: Types, out: &mut String) -> bool {
    let bare = text.trim();
    if is_other(bare, types) {
        out.push_str(bare);
    } else if types.meet(Types::STRING) {
        match unquoted(bare).filter(|inner| needs_quotes(inner, types)) {
            Some(inner) => write_text(&inner, out),
            None => write_text(text, out),
        }
    } else if bare.is_empty() {
        return false;
    } else if Value::from_json(bare).is_ok() {
        out.push_str(bare);
    } else {
        // Some models write values as Python does.
        match literal::value(bare) {
            Some(value) => out.push_str(&value),
            None => write_text(text, out),
        }
    }
    true
}

/// Append the text of a string for a place where values of these types may stand.
pub(super) fn write(text: &str, types: Types, out: &mut String) {
    if types != Types::STRING && needs_quotes(text, types) {
        write_text(text, out);
    } else {
        out.push_str(text);
    }
}

/// Return true if `text` is a value of one of these types that is no string.
fn is_other(text: &str, types: Types) -> bool {
    let others = types.without(Types::STRING);
    others != Types::NONE && Value::from_json(text).is_ok_and(|value| others.meet(Types::of(&value)))
}

/// Return true if a string, written without quotes, would mean something else.
fn needs_quotes(text: &str, types: Types) -> bool {
    let bare = text.trim();
    is_other(bare, types) || unquoted(bare).is_some_and(|inner| needs_quotes(&inner, types))
}

/// Return the string that `text` is as JSON, if it is one.
fn unquoted(text: &str) -> Option<String> {
    let value = text.starts_with('"').then(|| Value::from_json(text))?.ok()?;
    value.as_str().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_means_what_its_schema_allows() {
        let nullable = Types::STRING | Types::NULL;
        let cases = [
            ("null", Types::STRING, Some(r#""null""#)),
            ("null", nullable, Some("null")),
            ("\"null\"", nullable, Some(r#""null""#)),
            ("\"\\\"null\\\"\"", nullable, Some(r#""\"null\"""#)),
            ("\"a\"", nullable, Some(r#""\"a\"""#)),
            (" a\n", nullable, Some(r#"" a\n""#)),
            ("", nullable, Some(r#""""#)),
            ("5", nullable, Some(r#""5""#)),
            ("5", Types::STRING | Types::NUMBER, Some("5")),
            ("\"5\"", Types::ALL, Some(r#""5""#)),
            ("{'a': 1}", Types::ALL, Some(r#""{'a': 1}""#)),
            ("{\"a\": 1}", Types::ALL, Some("{\"a\": 1}")),
            ("True", Types::BOOLEAN, Some("true")),
            ("abc", Types::NUMBER, Some(r#""abc""#)),
            (" ", Types::NUMBER, None),
        ];
        for (text, types, wanted) in cases {
            let mut out = String::new();
            assert_eq!(read(text, types, &mut out).then_some(out.as_str()), wanted, "{text}");
        }
    }

    #[test]
    fn every_string_has_a_text() {
        let texts = [
            "",
            "null",
            "\"null\"",
            "\"\\\"null\\\"\"",
            "a",
            "\"a\"",
            " 5 ",
            "5",
            "[",
            "[1]",
            "true\n",
            "\"",
        ];
        for types in [Types::STRING, Types::STRING | Types::NULL, Types::ALL] {
            for text in texts {
                let (mut written, mut read_back, mut wanted) = Default::default();
                write(text, types, &mut written);
                assert!(read(&written, types, &mut read_back));
                write_text(text, &mut wanted);
                assert_eq!(read_back, wanted, "{text}");
            }
        }
    }
}
