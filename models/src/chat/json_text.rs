//! The parser of JSON text (RFC 8259).
//!
//! It accepts exactly the grammar of the standard, in time linear in the text. Nesting is bounded,
//! so the recursion is too.

use alloc::string::String;
use alloc::vec::Vec;

use super::error::ChatError;
use super::value::Value;
use super::walk::MAX_DEPTH;

impl Value {
    /// Parse JSON text. Numbers that do not fit 64 bits as integers become floats.
    ///
    /// # Errors
    /// [`ChatError::Json`] if the text is not JSON, or nests deeper than 100 lists and maps.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::{ChatError, Value};
    ///
    /// let list = Value::List(vec![Value::Int(1), Value::Float(2.5)]);
    /// assert_eq!(Value::from_json("[1, 2.5]")?, list);
    /// assert!(matches!(Value::from_json("[1,]"), Err(ChatError::Json { offset: 3, .. })));
    /// # Ok::<(), ChatError>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self, ChatError> {
        read(text)
    }
}

/// Parse `text`, all of it.
///
/// # Errors
/// [`ChatError::Json`] with the offset of the fault.
fn read(text: &str) -> Result<Value, ChatError> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.rest().is_empty() { Ok(value) } else { reader.error("more text behind the value") }
}

/// The parser: the text and the position in it.
struct Reader<'t> {
    /// The whole text.
    text: &'t str,
    /// The byte offset of the position.
    at: usize,
}

impl<'t> Reader<'t> {
    /// Return the text from the position on.
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// Return an error at the position.
    fn error<T>(&self, detail: &'static str) -> Result<T, ChatError> {
        Err(ChatError::Json { offset: self.at, detail })
    }

    /// Skip white space.
    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Skip `token`, behind white space, if it comes next, and return true.
    fn pass(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Parse a value within `depth` lists and maps.
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

    /// Parse a list.
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

    /// Parse a map.
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

    /// Parse a number.
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

    /// Parse a string.
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

    /// Parse an escape behind its backslash.
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

    /// Parse four hexadecimal digits.
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

    /// Return the character of a UTF-16 unit and, if it is the first of a surrogate pair, of the
    /// next one. A lone surrogate becomes U+FFFD.
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
