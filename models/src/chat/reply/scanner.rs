//! A JSON value that arrives in pieces.
//!
//! The scanner checks each byte once and keeps no text, so that the arguments of a call can be
//! passed on while the model still writes them. Line breaks and other control characters within
//! strings, which models write although JSON forbids them, come out as escapes.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use super::cursor::{Cursor, Step};
use crate::chat::Value;
use crate::chat::walk::MAX_DEPTH;

/// The checker of one JSON value.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    /// The open lists and maps, innermost last; true for a map.
    open: Vec<bool>,
    /// The expectation at the position.
    state: State,
}

/// The expectation at a position.
#[derive(Clone, Copy, Debug)]
enum State {
    /// A value.
    Value,
    /// The first item of a list, or its end.
    FirstItem,
    /// The first key of a map, or its end.
    FirstKey,
    /// A key.
    Key,
    /// The colon behind a key.
    Colon,
    /// A comma, or the end of the list or map.
    AfterValue,
    /// The rest of a string; true if it is a key.
    Text(bool),
    /// The character behind a backslash.
    Escape(bool),
    /// This many more hexadecimal digits.
    Hex(bool, u8),
    /// The rest of `true`, `false` or `null`.
    Word(&'static [u8]),
    /// The rest of a number.
    Number(Number),
}

/// The position in a number.
#[derive(Clone, Copy, Debug)]
enum Number {
    /// Behind the sign.
    Sign,
    /// Behind a leading zero.
    Zero,
    /// Within the digits of the integer.
    Digits,
    /// Behind the point.
    Point,
    /// Within the digits of the fraction.
    Fraction,
    /// Behind `e`.
    Exponent,
    /// Behind the exponent's sign.
    ExponentSign,
    /// Within the exponent's digits.
    ExponentDigits,
}

/// The consequence of a byte.
enum Next {
    /// The byte fits.
    State(State),
    /// The value ends with this byte.
    Last,
    /// The value ended before this byte.
    Ended,
    /// The byte ends a number within a list or map, and has to be looked at again.
    Again,
    /// The byte does not fit.
    Bad,
}

impl Scanner {
    /// Make a checker of a value that begins at the next byte.
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), state: State::Value }
    }

    /// Read the value as far as there is text, and append what was read to `out`.
    pub(super) fn advance(&mut self, cursor: &mut Cursor<'_>, out: &mut String) -> Step {
        let start = cursor.at;
        let mut copied = start;
        let bytes = cursor.text.as_bytes();
        let mut at = start;
        let mut step = if cursor.ended { Step::Failed } else { Step::More };
        while let Some(&byte) = bytes.get(at) {
            match self.next(byte) {
                Next::State(state) => {
                    if byte < 0x20 && matches!(self.state, State::Text(_)) {
                        out.push_str(cursor.text.get(copied..at).unwrap_or(""));
                        write_control(byte, out);
                        copied = at + 1;
                    }
                    self.state = state;
                    at += 1;
                }
                Next::Again => self.state = State::AfterValue,
                Next::Last => {
                    at += 1;
                    step = Step::Done;
                    break;
                }
                Next::Ended => {
                    step = Step::Done;
                    break;
                }
                Next::Bad => {
                    step = Step::Failed;
                    break;
                }
            }
        }
        out.push_str(cursor.text.get(copied..at).unwrap_or(""));
        cursor.at = at;
        step
    }

    /// Return the consequence of `byte`.
    fn next(&mut self, byte: u8) -> Next {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match (self.state, byte) {
            (State::Text(is_key), b'"') => self.after_text(is_key),
            (State::Text(is_key), b'\\') => Next::State(State::Escape(is_key)),
            (State::Text(_), _) => Next::State(self.state),
            (State::Escape(is_key), b'u') => Next::State(State::Hex(is_key, 4)),
            (State::Escape(is_key), b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                Next::State(State::Text(is_key))
            }
            (State::Hex(is_key, left), digit) if digit.is_ascii_hexdigit() => {
                Next::State(if left > 1 { State::Hex(is_key, left - 1) } else { State::Text(is_key) })
            }
            (State::Word([first, rest @ ..]), _) if *first == byte => match rest {
                [] => self.after_value(),
                rest => Next::State(State::Word(rest)),
            },
            (State::Number(number), _) => self.number(number, byte),
            (
                State::Value
                | State::FirstItem
                | State::FirstKey
                | State::Key
                | State::Colon
                | State::AfterValue,
                _,
            ) if is_space => Next::State(self.state),
            (State::FirstItem, b']') | (State::FirstKey, b'}') => self.close(),
            (State::FirstKey | State::Key, b'"') => Next::State(State::Text(true)),
            (State::Colon, b':') => Next::State(State::Value),
            (State::AfterValue, b',') => {
                let is_map = self.open.last().is_some_and(|is_map| *is_map);
                Next::State(if is_map { State::Key } else { State::Value })
            }
            (State::AfterValue, b']') if self.open.last() == Some(&false) => self.close(),
            (State::AfterValue, b'}') if self.open.last() == Some(&true) => self.close(),
            (State::Value | State::FirstItem, _) => self.begin(byte),
            _ => Next::Bad,
        }
    }

    /// Return the consequence of the first byte of a value.
    fn begin(&mut self, byte: u8) -> Next {
        Next::State(match byte {
            b'{' | b'[' if self.open.len() >= MAX_DEPTH as usize => return Next::Bad,
            b'{' => {
                self.open.push(true);
                State::FirstKey
            }
            b'[' => {
                self.open.push(false);
                State::FirstItem
            }
            b'"' => State::Text(false),
            b't' => State::Word(b"rue"),
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            b'-' => State::Number(Number::Sign),
            b'0' => State::Number(Number::Zero),
            b'1'..=b'9' => State::Number(Number::Digits),
            _ => return Next::Bad,
        })
    }

    /// Return the consequence of a closing quote.
    fn after_text(&self, is_key: bool) -> Next {
        if is_key { Next::State(State::Colon) } else { self.after_value() }
    }

    /// Return the consequence of the last byte of a value.
    fn after_value(&self) -> Next {
        if self.open.is_empty() { Next::Last } else { Next::State(State::AfterValue) }
    }

    /// Close the innermost list or map.
    fn close(&mut self) -> Next {
        self.open.pop();
        self.after_value()
    }

    /// Return the consequence of `byte` within or behind a number.
    fn number(&self, number: Number, byte: u8) -> Next {
        use Number::{Digits, Exponent, ExponentDigits, ExponentSign, Fraction, Point, Sign, Zero};
        Next::State(State::Number(match (number, byte) {
            (Sign, b'0') => Zero,
            (Sign | Digits, b'0'..=b'9') => Digits,
            (Zero | Digits, b'.') => Point,
            (Point | Fraction, b'0'..=b'9') => Fraction,
            (Zero | Digits | Fraction, b'e' | b'E') => Exponent,
            (Exponent, b'+' | b'-') => ExponentSign,
            (Exponent | ExponentSign | ExponentDigits, b'0'..=b'9') => ExponentDigits,
            (Sign | Point | Exponent | ExponentSign, _) => return Next::Bad,
            _ if self.open.is_empty() => return Next::Ended,
            _ => return Next::Again,
        }))
    }
}

/// Append a value as JSON text. Numbers that JSON has no text for become null.
pub(super) fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        // Writing to a string cannot fail.
        Value::Int(n) => drop(write!(out, "{n}")),
        Value::Float(x) if x.is_finite() => drop(write!(out, "{x:?}")),
        Value::Float(_) => out.push_str("null"),
        Value::Str(text) => write_text(text, out),
        Value::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (i, (name, value)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_text(name, out);
                out.push(':');
                write_json(value, out);
            }
            out.push('}');
        }
    }
}

/// Append `text` as a JSON string, in quotes.
pub(super) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\0'..='\u{1f}' => write_control(c as u8, out),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Append the escape of a control character.
fn write_control(byte: u8, out: &mut String) {
    match byte {
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        // Writing to a string cannot fail.
        byte => drop(write!(out, "\\u{byte:04x}")),
    }
}
