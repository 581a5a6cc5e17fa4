//! The lexer: from the source of a template to its tokens, with Jinja's rules for white space.
//!
//! Chat templates are read with `trim_blocks` and `lstrip_blocks`. A statement or comment removes
//! the newline behind it, and the blanks before it on its line. A `-` in a tag strips all white
//! space on its side, and a `+` switches these rules off. The lexer makes one pass, linear in the
//! source.

use alloc::string::String;
use alloc::vec::Vec;

use super::error::ChatError;

/// A token and the line on which it starts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind<'s>,
    pub(super) line: u32,
}

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'s> {
    /// Text outside of tags, stripped as the rules for white space say.
    Data(&'s str),
    /// `{{`
    OutputBegin,
    /// `}}`
    OutputEnd,
    /// `{%`
    BlockBegin,
    /// `%}`
    BlockEnd,
    /// A name or a keyword.
    Name(&'s str),
    /// A string literal, with its escapes resolved.
    Text(String),
    /// An integer literal.
    Int(i64),
    /// A float literal.
    Float(f64),
    /// One of [`OPERATORS`].
    Operator(&'static str),
}

/// All operators, longer ones before those that they start with.
const OPERATORS: [&str; 25] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",",
];

/// The kinds of tags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// `{{ … }}`
    Output,
    /// `{% … %}`
    Block,
    /// `{# … #}`
    Comment,
}

/// Return the tokens of `source`, whose lines end in `\n`.
///
/// # Errors
/// [`ChatError::Syntax`] for a tag, comment or literal without its end, an unknown character, or a
/// bracket without its partner.
pub(super) fn tokens(source: &str) -> Result<Vec<Token<'_>>, ChatError> {
    let source = source.strip_suffix('\n').unwrap_or(source);
    let mut lexer = Lexer { source, at: 0, line: 1, line_starts: true, tokens: Vec::new() };
    while lexer.tag()? {}
    Ok(lexer.tokens)
}

/// Return true for Python's white space.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The lexer: the source, the position in it, and the tokens so far.
struct Lexer<'s> {
    /// The whole source, with Unix line ends.
    source: &'s str,
    /// The byte offset of the position.
    at: usize,
    /// The line of the position, from 1.
    line: u32,
    /// True if nothing lies between the start of the line and `at`.
    line_starts: bool,
    /// The tokens read so far.
    tokens: Vec<Token<'s>>,
}

impl<'s> Lexer<'s> {
    /// Return the source from the position on.
    fn rest(&self) -> &'s str {
        debug_assert!(self.source.is_char_boundary(self.at), "between characters");
        self.source.get(self.at..).unwrap_or("")
    }

    /// Skip `n` bytes, counting lines.
    fn skip(&mut self, n: usize) {
        let end = self.source.len().min(self.at + n);
        let passed = self.source.get(self.at..end).unwrap_or("");
        self.line += passed.bytes().filter(|&b| b == b'\n').count() as u32;
        self.at = end;
    }

    /// Skip white space.
    fn skip_space(&mut self) {
        let rest = self.rest();
        self.skip(rest.len() - rest.trim_start_matches(is_space).len());
    }

    /// Add a token.
    fn push(&mut self, kind: Kind<'s>) {
        self.tokens.push(Token { kind, line: self.line });
    }

    /// Return a syntax error on the current line.
    fn error<T>(&self, detail: &str) -> Result<T, ChatError> {
        Err(ChatError::syntax(self.line, detail))
    }

    /// Read the text before the next tag, and that tag. Return false at the end of the source.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] for a tag without its end.
    fn tag(&mut self) -> Result<bool, ChatError> {
        let Some((len, tag)) = next_tag(self.rest()) else {
            let rest = self.rest();
            if !rest.is_empty() {
                self.push(Kind::Data(rest));
            }
            return Ok(false);
        };
        self.data(len, tag);
        match tag {
            Tag::Comment => self.comment()?,
            Tag::Output => self.expression(Kind::OutputBegin, Tag::Output)?,
            Tag::Block => match raw_begin(self.rest()) {
                Some((n, strips)) => self.raw(n, strips)?,
                None => self.expression(Kind::BlockBegin, Tag::Block)?,
            },
        }
        Ok(true)
    }

    /// Read `len` bytes of text and the beginning of a tag with its sign. The text is stripped as
    /// the rules for white space say.
    fn data(&mut self, len: usize, tag: Tag) {
        let rest = self.rest();
        let sign = rest.as_bytes().get(len + 2).copied().filter(|sign| matches!(sign, b'-' | b'+'));
        let mut text = rest.get(..len).unwrap_or("");
        if sign == Some(b'-') {
            text = text.trim_end_matches(is_space);
        } else if sign.is_none() && tag != Tag::Output {
            let line = text.rfind('\n').map_or(0, |at| at + 1);
            let (before, blanks) = text.split_at(line);
            if (line > 0 || self.line_starts) && blanks.chars().all(is_space) {
                text = before;
            }
        }
        if !text.is_empty() {
            self.push(Kind::Data(text));
        }
        self.skip(len + 2 + usize::from(sign.is_some()));
    }

    /// Skip a comment.
    fn comment(&mut self) -> Result<(), ChatError> {
        let rest = self.rest();
        let Some(len) = rest.find("#}") else { return self.error("a comment without its end, #}") };
        let sign = len.checked_sub(1).and_then(|at| rest.as_bytes().get(at)).copied();
        self.skip(len + 2);
        self.after_tag(sign.filter(|sign| matches!(sign, b'-' | b'+')), true);
        Ok(())
    }

    /// Skip the white space that a tag removes behind it.
    fn after_tag(&mut self, sign: Option<u8>, trims: bool) {
        let start = self.at;
        match sign {
            Some(b'-') => self.skip_space(),
            None if trims && self.rest().starts_with('\n') => self.skip(1),
            _ => {}
        }
        self.line_starts = self.source.get(start..self.at).is_some_and(|passed| passed.ends_with('\n'));
    }

    /// Read the source between `raw` and `endraw` as text.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] without `endraw`.
    fn raw(&mut self, n: usize, strips: bool) -> Result<(), ChatError> {
        self.skip(n);
        self.after_tag(strips.then_some(b'-'), false);
        let rest = self.rest();
        let mut from = 0;
        while let Some(at) = rest.get(from..).and_then(|rest| rest.find("{%")).map(|at| at + from) {
            let tag = rest.get(at + 2..).unwrap_or("");
            if let Some((n, sign)) = word_tag(tag.strip_prefix(['-', '+']).unwrap_or(tag), "endraw") {
                self.data(at, Tag::Block);
                self.skip(n);
                self.after_tag(sign, true);
                return Ok(());
            }
            from = at + 2;
        }
        self.error("raw without endraw")
    }

    /// Read the tokens of a tag up to its end. Within brackets, the signs of an end are operators.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] without an end, or for characters that start no token.
    fn expression(&mut self, begin: Kind<'s>, tag: Tag) -> Result<(), ChatError> {
        self.push(begin);
        let mut open: Vec<&'static str> = Vec::new();
        loop {
            self.skip_space();
            if open.is_empty() && self.tag_end(tag) {
                return Ok(());
            }
            let rest = self.rest();
            match rest.chars().next() {
                None => return self.error("a tag without its end"),
                Some('0'..='9') => self.number()?,
                Some('\'' | '"') => self.text()?,
                Some(c) if c.is_alphanumeric() || c == '_' => {
                    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                    self.push(Kind::Name(rest.get(..end).unwrap_or("")));
                    self.skip(end);
                }
                Some(_) => self.operator(&mut open)?,
            }
        }
    }

    /// Read the end of a tag, if it comes next.
    fn tag_end(&mut self, tag: Tag) -> bool {
        let rest = self.rest();
        let (end, kind) = match tag {
            Tag::Output => ("}}", Kind::OutputEnd),
            _ => ("%}", Kind::BlockEnd),
        };
        let signs: &[u8] = if tag == Tag::Output { b"-" } else { b"-+" };
        let sign = rest.as_bytes().first().copied().filter(|sign| signs.contains(sign));
        let n_sign = usize::from(sign.is_some());
        if !rest.get(n_sign..).is_some_and(|rest| rest.starts_with(end)) {
            return false;
        }
        self.push(kind);
        self.skip(n_sign + 2);
        self.after_tag(sign, tag == Tag::Block);
        true
    }

    /// Read an operator, and match its bracket with the open ones.
    fn operator(&mut self, open: &mut Vec<&'static str>) -> Result<(), ChatError> {
        let rest = self.rest();
        let Some(&operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) else {
            return self.error(&alloc::format!("unexpected {:?}", rest.chars().next().unwrap_or(' ')));
        };
        match operator {
            "(" | "[" | "{" => open.push(operator),
            ")" | "]" | "}" => {
                let wanted = match operator {
                    ")" => "(",
                    "]" => "[",
                    _ => "{",
                };
                if open.pop() != Some(wanted) {
                    return self.error(&alloc::format!("unexpected {operator:?}"));
                }
            }
            _ => {}
        }
        self.push(Kind::Operator(operator));
        self.skip(operator.len());
        Ok(())
    }

    /// Read a number literal: decimal with underscores, fraction and exponent, or an integer in
    /// base 2, 8 or 16.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] for an integer beyond 64 bits.
    fn number(&mut self) -> Result<(), ChatError> {
        let rest = self.rest();
        let after_dot = matches!(self.tokens.last(), Some(Token { kind: Kind::Operator("."), .. }));
        let (len, radix) = number_length(rest, after_dot);
        let digits: String = rest
            .get(if radix == 10 { 0 } else { 2 }..len)
            .unwrap_or("")
            .chars()
            .filter(|c| *c != '_')
            .collect();
        let kind = if radix == 10 && digits.contains(['.', 'e', 'E']) {
            digits.parse().ok().map(Kind::Float)
        } else {
            i64::from_str_radix(&digits, radix).ok().map(Kind::Int)
        };
        match kind {
            Some(kind) => self.push(kind),
            None => return self.error("a number that cannot be read"),
        }
        self.skip(len);
        Ok(())
    }

    /// Read a string literal in single or double quotes.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] without the closing quote.
    fn text(&mut self) -> Result<(), ChatError> {
        let rest = self.rest();
        let mut bytes = rest.bytes().enumerate();
        let quote = bytes.next().map_or(b'"', |(_, quote)| quote);
        let mut escaped = false;
        for (at, byte) in bytes {
            if escaped {
                escaped = false;
            } else if byte == b'\\' {
                escaped = true;
            } else if byte == quote {
                self.push(Kind::Text(unescaped(rest.get(1..at).unwrap_or(""))));
                self.skip(at + 1);
                return Ok(());
            }
        }
        self.error("a text without its closing quote")
    }
}

/// Return the next tag of `text` and its offset.
fn next_tag(text: &str) -> Option<(usize, Tag)> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find('{').map(|at| at + from) {
        let tag = match text.as_bytes().get(at + 1) {
            Some(b'{') => Some(Tag::Output),
            Some(b'%') => Some(Tag::Block),
            Some(b'#') => Some(Tag::Comment),
            _ => None,
        };
        if let Some(tag) = tag {
            return Some((at, tag));
        }
        from = at + 1;
    }
    None
}

/// Return the length of a statement of the one word `word` that `text` starts with, and its closing
/// sign.
fn word_tag(text: &str, word: &str) -> Option<(usize, Option<u8>)> {
    let rest = text.trim_start_matches(is_space).strip_prefix(word)?.trim_start_matches(is_space);
    let (sign, rest) = match rest.as_bytes().first() {
        Some(&sign @ (b'-' | b'+')) => (Some(sign), rest.get(1..)?),
        _ => (None, rest),
    };
    Some((text.len() - rest.strip_prefix("%}")?.len(), sign))
}

/// Return the length of `raw %}` that `text` starts with, and true if it strips the text that
/// follows.
fn raw_begin(text: &str) -> Option<(usize, bool)> {
    word_tag(text, "raw").filter(|(_, sign)| *sign != Some(b'+')).map(|(n, sign)| (n, sign.is_some()))
}

/// Return the length of the number that `text` starts with, and its radix. Numbers behind a dot
/// have no fraction.
fn number_length(text: &str, after_dot: bool) -> (usize, u32) {
    let run = |from: usize, radix: u32| {
        let digits = text.get(from..).unwrap_or("");
        from + digits.find(|c: char| !c.is_digit(radix) && c != '_').unwrap_or(digits.len())
    };
    for (prefixes, radix) in [(["0x", "0X"], 16), (["0o", "0O"], 8), (["0b", "0B"], 2)] {
        if text.starts_with(prefixes[0]) || text.starts_with(prefixes[1]) {
            return (run(2, radix), radix);
        }
    }
    let byte = |at: usize| text.as_bytes().get(at).copied().unwrap_or(b' ');
    let mut end = run(0, 10);
    if !after_dot && byte(end) == b'.' && byte(end + 1).is_ascii_digit() {
        end = run(end + 1, 10);
    }
    if !after_dot && matches!(byte(end), b'e' | b'E') {
        let signed = end + 1 + usize::from(matches!(byte(end + 1), b'+' | b'-'));
        if byte(signed).is_ascii_digit() {
            end = run(signed, 10);
        }
    }
    (end, 10)
}

/// Return a string literal with its escapes resolved, as in Python. Unknown escapes stay as they
/// are.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        rest = escape(after, &mut out);
    }
    out.push_str(rest);
    out
}

/// Append the character of the escape at the start of `text`, behind its backslash, and return the
/// text that follows it.
fn escape<'t>(text: &'t str, out: &mut String) -> &'t str {
    let mut chars = text.chars();
    let simple = match chars.next() {
        Some('n') => "\n",
        Some('t') => "\t",
        Some('r') => "\r",
        Some('\\') => "\\",
        Some('\'') => "'",
        Some('"') => "\"",
        Some('\n') => "",
        Some('a') => "\u{7}",
        Some('b') => "\u{8}",
        Some('f') => "\u{c}",
        Some('v') => "\u{b}",
        Some('x') => return code(text, 1, 2, out),
        Some('u') => return code(text, 1, 4, out),
        Some('U') => return code(text, 1, 8, out),
        Some('0'..='7') => {
            let digits = text.find(|c: char| !c.is_digit(8)).unwrap_or(text.len()).min(3);
            let value = text.get(..digits).and_then(|digits| u32::from_str_radix(digits, 8).ok());
            out.extend(value.and_then(char::from_u32));
            return text.get(digits..).unwrap_or("");
        }
        _ => {
            out.push('\\');
            return text;
        }
    };
    out.push_str(simple);
    chars.as_str()
}

/// Append the character whose number has `digits` hexadecimal digits after the first `skip` bytes
/// of `text`, and return the text that follows it.
fn code<'t>(text: &'t str, skip: usize, digits: usize, out: &mut String) -> &'t str {
    let number = |text: &str, skip: usize| {
        let hex = text.get(skip..skip + digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        hex.and_then(|hex| u32::from_str_radix(hex, 16).ok())
    };
    let Some(first) = number(text, skip) else {
        out.push('\\');
        return text;
    };
    let rest = text.get(skip + digits..).unwrap_or("");
    if (0xd800..0xdc00).contains(&first)
        && let Some(second) = rest.strip_prefix("\\u").and_then(|rest| number(rest, 0))
        && (0xdc00..0xe000).contains(&second)
    {
        out.extend(char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)));
        return rest.get(2 + digits..).unwrap_or("");
    }
    out.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    rest
}
