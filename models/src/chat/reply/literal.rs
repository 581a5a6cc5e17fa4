//! Arguments in other notations than JSON: Python's, and Gemma's.
//!
//! Python's values differ in `True`, `False`, `None`, tuples, quotes and escapes. Gemma writes maps
//! with bare keys and strings between `<|"|>` and `<|"|>`, or between `<escape>`s. One reader
//! accepts all, as nothing means something else in another. [`Balance`] finds the end of such a
//! text while it arrives, [`keywords`], [`map`] and [`value`] convert the text when it is complete.

use alloc::string::String;

use super::cursor::{Cursor, Match, Step};
use super::entries::Entries;
use super::scanner::write_text;
use super::tools::{item, names, property};
use crate::chat::Value;
use crate::chat::walk::MAX_DEPTH;

/// The number of bytes of the escape of the second half of a surrogate pair.
const N_SECOND_ESCAPE: usize = 6;
/// Gemma's quotes, that of Gemma 4 first.
const MARKED_QUOTES: [&str; 2] = ["<|\"|>", "<escape>"];

/// The characters that the name of an argument in Python's notation cannot have here.
const ENDS_OF_KEYWORDS: [char; 13] = ['=', ',', '(', ')', '[', ']', '{', '}', '"', '\'', '<', '\\', '\n'];

/// Return true if an argument in Python's notation can have this name.
pub(super) fn is_keyword(name: &str) -> bool {
    !name.is_empty() && name.trim() == name && !name.contains(ENDS_OF_KEYWORDS)
}

/// The search for the bracket that closes one before the position.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    /// The number of open brackets.
    depth: u32,
    /// The quote that ends the string at the position.
    quote: Option<&'static str>,
    /// True behind a backslash in a string.
    escaped: bool,
}

impl Balance {
    /// Make a search that begins behind the opening bracket.
    pub(super) fn new() -> Self {
        Self { depth: 1, quote: None, escaped: false }
    }

    /// Go behind the closing bracket, or as far as there is text.
    pub(super) fn advance(&mut self, cursor: &mut Cursor<'_>) -> Step {
        while let Some(c) = cursor.peek() {
            let quote = match c {
                _ if self.escaped => None,
                '"' => Some("\""),
                '\'' => Some("'"),
                '<' => {
                    let quotes = MARKED_QUOTES.map(|quote| (quote, cursor.look(quote)));
                    if quotes.iter().any(|(_, found)| *found == Match::Partial) {
                        return Step::More;
                    }
                    quotes.iter().find(|(_, found)| *found == Match::Found).map(|(quote, _)| *quote)
                }
                _ => None,
            };
            match (self.quote, quote) {
                (None, Some(quote)) => self.quote = Some(quote),
                (Some(open), Some(quote)) if open == quote => self.quote = None,
                (Some(open), _) => {
                    self.escaped = !self.escaped && c == '\\' && open.len() == 1;
                }
                (None, None) => match c {
                    '(' | '[' | '{' => self.depth += 1,
                    ')' | ']' | '}' => self.depth -= 1,
                    _ => {}
                },
            }
            // A quote that stands within another kind of quotes is a text like any other.
            cursor.at += quote.map_or(c.len_utf8(), str::len);
            if self.depth == 0 {
                return Step::Done;
            }
            if self.depth > MAX_DEPTH {
                return Step::Failed;
            }
        }
        cursor.more()
    }
}

/// Convert the arguments of a call, `a=1, b='x'`, to a JSON object.
pub(super) fn keywords(text: &str) -> Option<String> {
    let mut reader = Reader { text };
    let (mut entries, mut out) = (Entries::default(), String::new());
    while !reader.is_at_end() {
        let name = reader.keyword()?;
        reader.pass('=')?;
        let mut value = String::new();
        reader.value(&mut value, None, 0)?;
        entries.set(name, value);
        if reader.pass(',').is_none() && !reader.is_at_end() {
            return None;
        }
    }
    entries.write(&mut out);
    Some(out)
}

/// Convert the entries of a map, `a: 1, b: 'x'`, to a JSON object. Names of the schema are read by
/// the letter.
pub(super) fn map(text: &str, schema: &Value) -> Option<String> {
    let mut reader = Reader { text };
    let mut out = String::new();
    reader.entries(&mut out, Some(schema), 0)?;
    reader.is_at_end().then_some(out)
}

/// Convert a value, `True` or `{'a': 1}`, to JSON text.
pub(super) fn value(text: &str) -> Option<String> {
    let mut reader = Reader { text };
    let mut out = String::new();
    reader.value(&mut out, None, 0)?;
    reader.is_at_end().then_some(out)
}

/// The reader: the rest of the text.
struct Reader<'t> {
    /// The text from the position on.
    text: &'t str,
}

impl<'t> Reader<'t> {
    /// Return true if only white space is left.
    fn is_at_end(&mut self) -> bool {
        self.text = self.text.trim_start();
        self.text.is_empty()
    }

    /// Skip `c`, behind white space.
    fn pass(&mut self, c: char) -> Option<()> {
        self.text = self.text.trim_start().strip_prefix(c)?;
        Some(())
    }

    /// Take the characters for which `taken` holds.
    fn take(&mut self, taken: impl Fn(char) -> bool) -> &'t str {
        let end = self.text.find(|c| !taken(c)).unwrap_or(self.text.len());
        let (head, rest) = self.text.split_at_checked(end).unwrap_or((self.text, ""));
        self.text = rest;
        head
    }

    /// Read the name of an argument, in front of its equals sign.
    fn keyword(&mut self) -> Option<&'t str> {
        self.text = self.text.trim_start();
        let name = self.take(|c| !ENDS_OF_KEYWORDS.contains(&c));
        Some(name.trim_end()).filter(|name| !name.is_empty())
    }

    /// Read the longest name of the schema that a colon follows.
    fn known_key<'s>(&mut self, schema: Option<&'s Value>) -> Option<&'s str> {
        let text = self.text.trim_start();
        let behind = |name: &str| text.strip_prefix(name).filter(|rest| rest.trim_start().starts_with(':'));
        let known = names(schema, 0).filter(|name| behind(name).is_some()).max_by_key(|name| name.len())?;
        self.text = behind(known)?;
        Some(known)
    }

    /// Read any bare key: the text before a colon.
    fn key(&mut self) -> Option<&'t str> {
        self.text = self.text.trim_start();
        let key = self.take(|c| !matches!(c, ':' | ',' | '{' | '}' | '[' | ']' | '"' | '\'' | '<'));
        Some(key.trim_end()).filter(|key| !key.is_empty())
    }

    /// Convert a value with this schema within `depth` brackets.
    fn value(&mut self, out: &mut String, schema: Option<&Value>, depth: u32) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.text = self.text.trim_start();
        if let Some(text) = self.string() {
            write_text(&text?, out);
            return Some(());
        }
        if self.pass('{').is_some() {
            self.entries(out, schema, depth + 1)?;
            return self.pass('}');
        }
        for (open, close) in [('[', ']'), ('(', ')')] {
            if self.pass(open).is_some() {
                return self.items(close, out, schema, depth + 1);
            }
        }
        let word = self.take(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '+' | '.'));
        match word {
            "True" | "true" => out.push_str("true"),
            "False" | "false" => out.push_str("false"),
            "None" | "null" => out.push_str("null"),
            number => {
                Value::from_json(number).ok()?;
                out.push_str(number);
            }
        }
        Some(())
    }

    /// Convert the items of a list up to `close`.
    fn items(&mut self, close: char, out: &mut String, schema: Option<&Value>, depth: u32) -> Option<()> {
        out.push('[');
        let schema = item(schema, 0);
        let mut is_first = true;
        while self.pass(close).is_none() {
            if !is_first {
                out.push(',');
            }
            is_first = false;
            self.value(out, schema, depth)?;
            if self.pass(',').is_none() {
                self.pass(close)?;
                break;
            }
        }
        out.push(']');
        Some(())
    }

    /// Convert the entries of a map up to its closing bracket or the end, and close the map.
    fn entries(&mut self, out: &mut String, schema: Option<&Value>, depth: u32) -> Option<()> {
        let mut entries = Entries::default();
        while !self.is_at_end() && !self.text.starts_with('}') {
            let key = match self.known_key(schema) {
                Some(key) => key.into(),
                None => match self.string() {
                    Some(key) => key?,
                    None => self.key()?.into(),
                },
            };
            self.pass(':')?;
            let mut value = String::new();
            self.value(&mut value, schema.and_then(|schema| property(Some(schema), &key)), depth)?;
            entries.set(&key, value);
            if self.pass(',').is_none() {
                break;
            }
        }
        entries.write(out);
        Some(())
    }

    /// Read a string if one comes next; the inner option is empty if it has no end.
    fn string(&mut self) -> Option<Option<String>> {
        let marked = |quote: &&str| self.text.starts_with(quote);
        if let Some(quote) = MARKED_QUOTES.into_iter().find(marked) {
            let rest = self.text.get(quote.len()..).unwrap_or("");
            let parts = rest.split_once(quote);
            self.text = parts.map_or("", |(_, rest)| rest);
            return Some(parts.map(|(text, _)| text.into()));
        }
        let quote = self.text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        self.pass(quote)?;
        let mut out = String::new();
        loop {
            out.push_str(self.take(|c| c != quote && c != '\\'));
            match self.text.chars().next() {
                None => return Some(None),
                Some('\\') => {
                    self.text = self.text.get(1..).unwrap_or("");
                    self.escape(&mut out);
                }
                Some(_) => {
                    self.text = self.text.get(1..).unwrap_or("");
                    return Some(Some(out));
                }
            }
        }
    }

    /// Return the character that two escapes of halves of a surrogate pair are, behind the first
    /// backslash.
    fn surrogates(&self) -> Option<char> {
        let half = |at: usize| u16::from_str_radix(self.text.get(at..at + 4)?, 16).ok();
        let pair = [half(1)?, half(1 + N_SECOND_ESCAPE)?];
        let is_pair = self.text.get(5..7) == Some("\\u") && (0xd800..0xdc00).contains(&pair[0]);
        char::decode_utf16(pair).next()?.ok().filter(|_| is_pair)
    }

    /// Convert an escape behind its backslash. One that Python does not know stays as it is.
    fn escape(&mut self, out: &mut String) {
        let mut chars = self.text.chars();
        let (plain, n_digits) = match chars.next() {
            Some('n') => (Some('\n'), 0),
            Some('t') => (Some('\t'), 0),
            Some('r') => (Some('\r'), 0),
            Some('b') => (Some('\u{8}'), 0),
            Some('f') => (Some('\u{c}'), 0),
            Some(c @ ('"' | '\'' | '\\' | '/')) => (Some(c), 0),
            Some('x') => (None, 2),
            Some('u') => (self.surrogates(), 4),
            Some('U') => (None, 8),
            _ => (None, 0),
        };
        let coded = chars.as_str().get(..n_digits).filter(|digits| !digits.is_empty());
        let coded = coded.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        match plain.or(coded) {
            Some(c) => {
                out.push(c);
                let n_more = if plain.is_some() && n_digits > 0 { N_SECOND_ESCAPE } else { 0 };
                self.text = chars.as_str().get(n_digits + n_more..).unwrap_or("");
            }
            None => out.push('\\'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_becomes_json() {
        let cases = [
            ("", Some("{}")),
            ("a=1", Some(r#"{"a":1}"#)),
            (
                "a = -1.5e3, b='it\\'s', c=[True, None, (1, 2)],",
                Some(r#"{"a":-1.5e3,"b":"it's","c":[true,null,[1,2]]}"#),
            ),
            (r#"d={"x": {}, 'y': false}"#, Some(r#"{"d":{"x":{},"y":false}}"#)),
            (r#"s="a\n\x41\u00e9\d""#, Some(r#"{"s":"a\nAé\\d"}"#)),
            ("1", None),
            ("a=", None),
            ("a=b", None),
            ("a='x", None),
            ("a=1 b=2", None),
            ("a=[1", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(keywords(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn gemma_becomes_json() {
        let text = "city:<|\"|>a \"b\" {<|\"|>,n:[1,<|\"|>x<|\"|>],o:{k:true}";
        assert_eq!(
            map(text, &Value::Null).as_deref(),
            Some(r#"{"city":"a \"b\" {","n":[1,"x"],"o":{"k":true}}"#)
        );
        assert_eq!(map("a:1}", &Value::Null), None);
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        for (text, rest) in [("a=')', b=\"]\\\")\") x", " x"), ("[<|\"|>)'<|\"|>]) y", " y")] {
            let mut cursor = Cursor { text, at: 0, ended: true };
            assert_eq!(Balance::new().advance(&mut cursor), Step::Done);
            assert_eq!(cursor.rest(), rest);
        }
        let mut cursor = Cursor { text: &"(".repeat(1000), at: 0, ended: false };
        assert_eq!(Balance::new().advance(&mut cursor), Step::Failed);
    }
}
