//! The message being typed: keys go in, and what to show of them comes out.

use super::input::MAX_BYTES;
use crate::output::harmless;

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// It is part of the message, or changed it.
    Typed,
    /// The message is complete.
    Enter,
    /// Ctrl-C.
    Cancel,
    /// Ctrl-D where nothing was typed.
    End,
}

/// Where in a sequence of bytes that stands for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    No,
    /// After the escape byte.
    Begun,
    /// After `ESC [`: the number so far.
    Number(u32),
    /// After `ESC O`: one more byte.
    Single,
}

/// A message of one or more lines.
#[derive(Debug, Default)]
pub struct Editor {
    bytes: Vec<u8>,
    escape: Escape,
    /// Between the marks of what is pasted.
    is_pasted: bool,
    /// What is to be shown.
    echo: Vec<u8>,
}

const FIRST: &str = "> ";
const NEXT: &str = ". ";
/// The first of the two bytes of U+0080 to U+00BF, of which U+0080 to U+009F are control characters.
const C1: u8 = 0xc2;
const ERASE_LINE: &[u8] = b"\r\x1b[K";
const UP: &[u8] = b"\x1b[A";

impl Editor {
    /// An empty message, whose prompt is shown.
    pub fn new() -> Self {
        Self { echo: FIRST.into(), ..Self::default() }
    }

    /// Takes one byte.
    pub fn press(&mut self, byte: u8) -> Key {
        if self.escape != Escape::No || byte == 0x1b {
            self.escape(byte);
            return Key::Typed;
        }
        match byte {
            b'\r' | b'\n' => return self.line_break(),
            b'\t' | 0x20..=0x7e | 0x80.. => self.insert(byte),
            // Also in a paste, whose end may never come.
            0x03 => {
                self.echo.extend(b"^C\n");
                return Key::Cancel;
            }
            _ if self.is_pasted => {}
            0x04 if self.bytes.is_empty() => {
                self.echo.push(b'\n');
                return Key::End;
            }
            0x08 | 0x7f => self.erase(),
            0x15 => self.erase_line(),
            _ => {}
        }
        Key::Typed
    }

    /// The message goes on after a line break that is pasted, or that stands behind a backslash and
    /// replaces it.
    fn line_break(&mut self) -> Key {
        if self.is_pasted || self.bytes.pop_if(|byte| *byte == b'\\').is_some() {
            self.insert(b'\n');
            return Key::Typed;
        }
        self.echo.push(b'\n');
        Key::Enter
    }

    /// What is to be shown since it was asked for last.
    pub fn echo(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.echo)
    }

    /// The message, which is as long as [`MAX_BYTES`] allows, or one byte longer.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn insert(&mut self, byte: u8) {
        let before = self.bytes.last().copied();
        if self.bytes.len() <= MAX_BYTES {
            self.bytes.push(byte);
        }
        match byte {
            b'\n' => self.echo.extend([b"\n", NEXT.as_bytes()].concat()),
            b'\t' => self.echo.push(b' '),
            // With the next byte it may be a character that terminals obey.
            C1 => {}
            0x80..=0x9f if before == Some(C1) => self.echo.extend(format!("\\u{{{byte:x}}}").bytes()),
            0x80.. if before == Some(C1) => self.echo.extend([C1, byte]),
            _ => self.echo.push(byte),
        }
    }

    /// Marks of pasted text are taken note of, other keys with names left out.
    fn escape(&mut self, byte: u8) {
        self.escape = match (self.escape, byte) {
            (_, 0x1b) => Escape::Begun,
            (Escape::Begun, b'[') => Escape::Number(0),
            (Escape::Begun, b'O') => Escape::Single,
            (Escape::Number(n), b'0'..=b'9') => {
                Escape::Number(n.saturating_mul(10).saturating_add((byte - b'0').into()))
            }
            (Escape::Number(_), 0x20..=0x3f) => Escape::Number(0),
            (Escape::Number(n), b'~') => {
                self.is_pasted = n == 200 || self.is_pasted && n != 201;
                Escape::No
            }
            _ => Escape::No,
        };
    }

    /// Takes the last character back.
    fn erase(&mut self) {
        let is_inner = |byte: &u8| byte & 0xc0 == 0x80;
        while self.bytes.pop_if(|byte| is_inner(byte)).is_some() {}
        let Some(byte) = self.bytes.pop() else { return };
        self.show_line(byte == b'\n');
    }

    /// Takes the last line back.
    fn erase_line(&mut self) {
        self.bytes.truncate(self.start_of_line());
        self.show_line(false);
    }

    fn start_of_line(&self) -> usize {
        self.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }

    /// Shows the last line anew, in place of the line that is there or, after a line break was taken back,
    /// of that before.
    fn show_line(&mut self, is_above: bool) {
        self.echo.extend(ERASE_LINE);
        if is_above {
            self.echo.extend(UP);
            self.echo.extend(ERASE_LINE);
        }
        let start = self.start_of_line();
        self.echo.extend(if start == 0 { FIRST } else { NEXT }.as_bytes());
        let line = String::from_utf8_lossy(self.bytes.get(start..).unwrap_or_default());
        self.echo.extend(harmless(&line).bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Presses all keys and returns what the last one did.
    fn typed(keys: &str) -> (Editor, Key) {
        let mut editor = Editor::new();
        let last = keys.bytes().map(|byte| editor.press(byte)).last();
        (editor, last.unwrap())
    }

    #[test]
    fn a_line_is_a_message() {
        let (mut editor, key) = typed("caf\u{e9}\n");
        assert_eq!((editor.bytes(), key), ("café".as_bytes(), Key::Enter));
        assert_eq!(editor.echo(), "> café\n".as_bytes());
    }

    #[test]
    fn what_is_pasted_is_one_message() {
        let (editor, key) = typed("a\x1b[200~one\r\ttwo\x04\nthree\x1b[201~b\n");
        assert_eq!((editor.bytes(), key), (&b"aone\n\ttwo\nthreeb"[..], Key::Enter));
    }

    #[test]
    fn a_paste_that_never_ends_is_ended_by_ctrl_c() {
        let (editor, key) = typed("\x1b[200~one\n/exit\n\x03");
        assert_eq!((editor.bytes(), key), (&b"one\n/exit\n"[..], Key::Cancel));
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_shown_as_it_is() {
        let (mut editor, _) = typed("\u{9b}2J \u{a9} caf\u{e9}");
        assert_eq!(String::from_utf8(editor.echo()).unwrap(), "> \\u{9b}2J \u{a9} caf\u{e9}");
        editor.press(0x7f);
        assert!(editor.echo().ends_with("> \\u{9b}2J \u{a9} caf".as_bytes()), "the line is shown anew");
    }

    #[test]
    fn a_backslash_goes_on_in_the_next_line() {
        let (editor, key) = typed("one\\\ntwo\n");
        assert_eq!((editor.bytes(), key), (&b"one\ntwo"[..], Key::Enter));
    }

    #[test]
    fn characters_and_lines_are_taken_back() {
        let (mut editor, _) = typed("a\u{e9}\x7f\x08\x7fbc");
        assert_eq!(editor.bytes(), b"bc");
        assert!(editor.echo().ends_with(b"\r\x1b[K> bc"), "the line is shown anew");
        let (editor, _) = typed("a\\\nbc\x15d\x7f\x7f");
        assert_eq!(editor.bytes(), b"a");
    }

    #[test]
    fn keys_with_names_do_nothing() {
        let (editor, key) = typed("\x1b[A\x1b[1;5C\x1bOP\x1b[3~x\x01");
        assert_eq!((editor.bytes(), key), (&b"x"[..], Key::Typed));
    }

    #[test]
    fn ctrl_c_and_ctrl_d_end_a_message() {
        assert_eq!(typed("ab\x03").1, Key::Cancel);
        assert_eq!(typed("\x04").1, Key::End);
        assert_eq!(typed("a\x04").1, Key::Typed);
    }
}
