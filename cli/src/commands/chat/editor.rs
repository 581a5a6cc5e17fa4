//! The line editor of `chat`: keys go in, and the bytes to show on the terminal come out.
//!
//! It knows nothing of the terminal itself, so tests can type.

use super::message::MAX_BYTES;
use crate::output::harmless;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The key is part of the message, changed it, or did nothing.
    Typed,
    /// Enter: the message is complete.
    Enter,
    /// Ctrl-C: the message is dropped.
    Cancel,
    /// Ctrl-D in an empty message: the input ends.
    End,
}

/// The state of an escape sequence, several bytes that stand for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    /// Outside of a sequence.
    #[default]
    No,
    /// After the escape byte.
    Started,
    /// After `ESC [`: the number so far.
    Number(u32),
    /// After `ESC O`: one more byte follows.
    Single,
}

/// A message that is being typed, of one or more lines.
///
/// The terminal does not echo keys while it is read key by key, so the editor collects what to
/// show: the prompt, the characters, and the commands that redraw a line. Its owner takes that with
/// [`Editor::echo`] and writes it.
#[derive(Debug, Default)]
pub struct Editor {
    bytes: Vec<u8>,
    escape: Escape,
    /// True between the marks of pasted text.
    is_pasted: bool,
    /// Bytes for the terminal that were not taken yet.
    echo: Vec<u8>,
}

/// Prompt of the first line of a message.
const FIRST: &str = "> ";
/// Prompt of the other lines.
const NEXT: &str = ". ";
/// First of the two bytes of U+0080 to U+00BF, of which U+0080 to U+009F are control characters.
const C1: u8 = 0xc2;
/// Command to the terminal to empty the line of the cursor.
const ERASE_LINE: &[u8] = b"\r\x1b[K";
/// Command to the terminal to move the cursor up.
const UP: &[u8] = b"\x1b[A";

impl Editor {
    /// Begin an empty message, and show its prompt.
    pub fn new() -> Self {
        Self { echo: FIRST.into(), ..Self::default() }
    }

    /// Handle one byte of a key.
    pub fn press(&mut self, byte: u8) -> Key {
        if self.escape != Escape::No || byte == 0x1b {
            self.escape(byte);
            return Key::Typed;
        }
        match byte {
            b'\r' | b'\n' => return self.line_break(),
            b'\t' | 0x20..=0x7e | 0x80.. => self.insert(byte),
            // Ctrl-C. Also in a paste, because the mark of its end may never come.
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

    /// Handle a line break. It becomes part of the message if it is pasted, or if it follows a
    /// backslash, which it replaces; otherwise it ends the message.
    fn line_break(&mut self) -> Key {
        if self.is_pasted || self.bytes.pop_if(|byte| *byte == b'\\').is_some() {
            self.insert(b'\n');
            return Key::Typed;
        }
        self.echo.push(b'\n');
        Key::Enter
    }

    /// Take the bytes to show since the last call.
    pub fn echo(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.echo)
    }

    /// Return the message. It is at most one byte longer than [`MAX_BYTES`], which shows that it is
    /// too long.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Add a byte to the message and show it. Characters that a terminal would obey are shown
    /// escaped.
    fn insert(&mut self, byte: u8) {
        let before = self.bytes.last().copied();
        if self.bytes.len() <= MAX_BYTES {
            self.bytes.push(byte);
        }
        match byte {
            b'\n' => self.echo.extend([b"\n", NEXT.as_bytes()].concat()),
            b'\t' => self.echo.push(b' '),
            // The next byte decides whether this begins a character that terminals obey.
            C1 => {}
            0x80..=0x9f if before == Some(C1) => self.echo.extend(format!("\\u{{{byte:x}}}").bytes()),
            0x80.. if before == Some(C1) => self.echo.extend([C1, byte]),
            _ => self.echo.push(byte),
        }
    }

    /// Handle a byte of an escape sequence. The marks of pasted text change the state; other keys
    /// with names, like arrows, do nothing.
    fn escape(&mut self, byte: u8) {
        self.escape = match (self.escape, byte) {
            (_, 0x1b) => Escape::Started,
            (Escape::Started, b'[') => Escape::Number(0),
            (Escape::Started, b'O') => Escape::Single,
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

    /// Remove the last character.
    fn erase(&mut self) {
        let is_inner = |byte: &u8| byte & 0xc0 == 0x80;
        while self.bytes.pop_if(|byte| is_inner(byte)).is_some() {}
        let Some(byte) = self.bytes.pop() else { return };
        self.show_line(byte == b'\n');
    }

    /// Remove the last line.
    fn erase_line(&mut self) {
        self.bytes.truncate(self.start_of_line());
        self.show_line(false);
    }

    /// Return the offset of the last line.
    fn start_of_line(&self) -> usize {
        self.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }

    /// Redraw the last line of the message over the line of the cursor or, if a line break was
    /// removed, over the line above it.
    fn show_line(&mut self, is_above: bool) {
        self.echo.extend(ERASE_LINE);
        if is_above {
            self.echo.extend(UP);
            self.echo.extend(ERASE_LINE);
        }
        let start = self.start_of_line();
        let (_, line) = self.bytes.split_at(start);
        self.echo.extend(if start == 0 { FIRST } else { NEXT }.as_bytes());
        let line = String::from_utf8_lossy(line);
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
