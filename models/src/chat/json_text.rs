//! Reading JSON text into values.

use alloc::string::String;
use alloc::vec::Vec;

use super::walk::MAX_DEPTH;
use super::{ChatError, Value};

/// Reads `text`, all of it.
pub(super) fn read(text: &str) -> Result<Value, ChatError> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.rest().is_empty() { Ok(value) } else { reader.error("more text behind the value") }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn error<T>(&self, detail: &'static str) -> Result<T, ChatError> {
        Err(ChatError::Json { offset: self.at, detail })
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Passes `token`, behind white space, if it comes next.
    fn pass(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn value(&mut self, depth: u32) -> Result<Value, ChatError> {
        if depth > MAX_DEPTH {
            return self.error("values nest too deep");
        }
        for (word, value) in
            [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
        {
            if self.pass(word) {
                return Ok(value);
            }
        }
        match self.rest().bytes().next() {
            Some(b'"') => self.string().map(Value::Str),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.map(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.error("no value"),
        }
    }

    fn list(&mut self, depth: u32) -> Result<Value, ChatError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.pass("]") {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.pass("]") {
                return Ok(Value::List(items));
            }
            if !self.pass(",") {
                return self.error("no comma or ] behind an item");
            }
        }
    }

    fn map(&mut self, depth: u32) -> Result<Value, ChatError> {
        self.at += 1;
        let mut entries = Vec::new();
        if self.pass("}") {
            return Ok(Value::Map(entries));
        }
        loop {
            self.skip_space();
            if !self.rest().starts_with('"') {
                return self.error("no name in quotes");
            }
            let name = self.string()?;
            if !self.pass(":") {
                return self.error("no colon behind a name");
            }
            entries.push((name, self.value(depth + 1)?));
            if self.pass("}") {
                return Ok(Value::Map(entries));
            }
            if !self.pass(",") {
                return self.error("no comma or } behind an entry");
            }
        }
    }

    fn number(&mut self) -> Result<Value, ChatError> {
        let rest = self.rest();
        let end =
            rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or("");
        let digits = text.strip_prefix('-').unwrap_or(text);
        let starts_well = digits.starts_with(|c: char| c.is_ascii_digit())
            && !(digits.starts_with('0')
                && digits.get(1..2).is_some_and(|c| c.bytes().all(|b| b.is_ascii_digit())));
        let value = match text.parse() {
            Ok(n) => Some(Value::Int(n)),
            Err(_) if text.ends_with('.') || text.contains(".e") || text.contains(".E") => None,
            Err(_) => text.parse().ok().map(Value::Float),
        };
        match value.filter(|_| starts_well) {
            Some(value) => {
                self.at += end;
                Ok(value)
            }
            None => self.error("a number that cannot be read"),
        }
    }

    fn string(&mut self) -> Result<String, ChatError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.find(|c: char| matches!(c, '"' | '\\' | '\0'..='\u{1f}')) else {
                return self.error("a text without its closing quote");
            };
            out.push_str(rest.get(..end).unwrap_or(""));
            self.at += end + 1;
            match rest.as_bytes().get(end) {
                Some(b'"') => return Ok(out),
                Some(b'\\') => self.escape(&mut out)?,
                _ => return self.error("a control character in a text"),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), ChatError> {
        let escape = self.rest().bytes().next();
        self.at += 1;
        out.push(match escape {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'u') => self.unit().and_then(|unit| self.character(unit))?,
            _ => return self.error("an unknown escape"),
        });
        Ok(())
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, ChatError> {
        let digits = self.rest().get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.at += 4;
                Ok(unit)
            }
            None => self.error("an escape without its four digits"),
        }
    }

    /// The character of a unit of UTF-16 and, if it is the first of two, of the next one. A lone surrogate is
    /// replaced.
    fn character(&mut self, unit: u32) -> Result<char, ChatError> {
        let start = self.at;
        if (0xd800..0xdc00).contains(&unit) && self.rest().starts_with("\\u") {
            self.at += 2;
            let second = self.unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = start;
        }
        Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn values_are_read_as_json_has_them() -> Result<(), ChatError> {
        let text =
            " {\"a\": [1, -2.5e1, true, null, \"\\u00e9\\ud83d\\ude00\\n\\ud800x\"], \"b\": {}, \"c\": [] } ";
        let wanted = Value::map([
            (
                "a",
                Value::List(
                    [1.into(), (-25.0).into(), true.into(), Value::Null, "é😀\n\u{fffd}x".into()].into(),
                ),
            ),
            ("b", Value::Map(Vec::new())),
            ("c", Value::List(Vec::new())),
        ]);
        assert_eq!(read(text)?, wanted);
        assert_eq!(read("99999999999999999999")?, Value::Float(1e20));
        Ok(())
    }

    #[test]
    fn faults_are_told_with_their_place() {
        let cases = [
            ("", 0),
            ("[1,]", 3),
            ("{\"a\" 1}", 5),
            ("{a: 1}", 1),
            ("\"abc", 1),
            ("01", 0),
            ("1.", 0),
            ("[1] x", 4),
            ("\"\\x\"", 3),
            ("\"\\u12\"", 3),
            ("nul", 0),
            ("\"\n\"", 2),
        ];
        for (text, wanted) in cases {
            assert!(
                matches!(read(text), Err(ChatError::Json { offset, .. }) if offset == wanted),
                "{text:?} {:?}",
                read(text)
            );
        }
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(read(&deep(100)).is_ok() && read(&deep(100_000)).is_err());
    }
}
