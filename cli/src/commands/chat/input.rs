//! The input of `chat`: messages from a terminal, key by key, or from a pipe, line by line.
//!
//! Keys are read one by one because only then pasted text, which may have many lines, can be told
//! from typed text. Systems without the means for that read lines from terminals too.

#[cfg(unix)]
use super::editor::{Editor, Key};
use super::message::{Event, MAX_BYTES};
use crate::error::Error;
#[cfg(unix)]
use std::collections::VecDeque;
use std::io::{self, BufRead, IsTerminal, Read, Write};

/// Return true if a person types the messages.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The source of messages. A person may type the next message while an answer is generated; those
/// keys are kept.
#[derive(Debug, Default)]
pub struct Input {
    /// Keys that arrived after the end of the last message.
    #[cfg(unix)]
    ahead: VecDeque<u8>,
}

impl Input {
    /// Wait for the next message: the keys until Enter, or a line of a pipe. A line that ends in a
    /// backslash continues in the next one, and so does a pasted line.
    ///
    /// # Errors
    /// [`Error::Terminal`] if standard input cannot be read.
    pub fn read(&mut self) -> Result<Event, Error> {
        #[cfg(unix)]
        if let Some(keys) = crate::terminal::Keys::begin() {
            return Ok(self.typed(&keys)?);
        }
        Ok(lines(&mut io::stdin().lock(), is_terminal())?)
    }

    /// Forget keys that were typed ahead, as terminals do at Ctrl-C.
    pub fn forget(&mut self) {
        #[cfg(unix)]
        self.ahead.clear();
    }

    /// Read a message key by key.
    #[cfg(unix)]
    fn typed(&mut self, keys: &crate::terminal::Keys) -> io::Result<Event> {
        let mut editor = Editor::new();
        loop {
            // Keys that were typed ahead come first. The terminal is written to once for many keys.
            let key = self.ahead.pop_front().map(|byte| editor.press(byte));
            if self.ahead.is_empty() || key != Some(Key::Typed) {
                io::stderr().write_all(&editor.echo())?;
            }
            match key {
                Some(Key::Typed) => {}
                // Pasted text often ends with a line break of its own.
                Some(Key::Enter) => return Ok(Event::of(editor.bytes().trim_ascii_end())),
                Some(Key::End) => return Ok(Event::End),
                Some(Key::Cancel) => {
                    self.forget();
                    drain(keys)?;
                    return Ok(Event::CtrlC { is_empty: editor.bytes().is_empty() });
                }
                None => {
                    let mut bytes = [0; 4096];
                    let n = keys.read(&mut bytes)?;
                    if n == 0 {
                        return Ok(Event::End);
                    }
                    self.ahead.extend(bytes.iter().take(n));
                }
            }
        }
    }
}

/// Discard the keys that arrive together with Ctrl-C: the rest of a paste is no message.
#[cfg(unix)]
fn drain(keys: &crate::terminal::Keys) -> io::Result<()> {
    let (mut bytes, mut n_left) = ([0; 4096], MAX_BYTES);
    while n_left > 0 && keys.follow() {
        match keys.read(&mut bytes)? {
            0 => break,
            n => n_left = n_left.saturating_sub(n),
        }
    }
    Ok(())
}

/// Read a message from a pipe: lines until one does not end in a backslash.
fn lines(input: &mut impl BufRead, prompt: bool) -> io::Result<Event> {
    let mut message = Vec::new();
    loop {
        if prompt {
            write!(io::stderr(), "{}", if message.is_empty() { "> " } else { ". " })?;
        }
        let start = message.len();
        if !line(input, &mut message)? {
            return Ok(if start == 0 { Event::End } else { Event::of(&message) });
        }
        match message.pop_if(|byte| *byte == b'\\') {
            Some(_) if message.len() >= start => message.push(b'\n'),
            _ => return Ok(Event::of(&message)),
        }
    }
}

/// Append a line without its line break. Of a message that is too long, only as much is kept as
/// shows that. Returns false at the end of the input.
fn line(input: &mut impl BufRead, message: &mut Vec<u8>) -> io::Result<bool> {
    // Room for a line break (`\r\n`) and one byte more, which shows that the message is too long.
    let room = (MAX_BYTES + 3).saturating_sub(message.len());
    let n = input.by_ref().take(room as u64).read_until(b'\n', message)?;
    if n == 0 {
        return Ok(false);
    }
    if message.pop_if(|byte| *byte == b'\n').is_none() && n == room {
        input.skip_until(b'\n')?;
    }
    while message.pop_if(|byte| *byte == b'\r').is_some() {}
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut input: &[u8]) -> Vec<Event> {
        std::iter::from_fn(|| Some(lines(&mut input, false).unwrap()).filter(|events| *events != Event::End))
            .collect()
    }

    fn message(text: &str) -> Event {
        Event::Message(text.into())
    }

    #[test]
    fn each_line_of_a_pipe_is_a_message() {
        assert_eq!(all(b"one\r\n\ntwo\\\nthree\nfour"), ["one", "", "two\nthree", "four"].map(message));
        assert_eq!(all(b"one\\"), [message("one\n")]);
    }

    #[test]
    fn what_is_no_text_is_told_and_the_next_line_read() {
        let events = all(b"a\xff\nb\n");
        assert!(matches!(&events[0], Event::Invalid(why) if why.contains("UTF-8 at byte 1")), "{events:?}");
        assert_eq!(events[1], message("b"));
    }

    #[test]
    fn what_is_too_long_is_told_and_the_next_line_read() {
        for n in [MAX_BYTES + 1, MAX_BYTES + 2, MAX_BYTES + 3, 2 * MAX_BYTES] {
            let events = all(&[vec![b'a'; n], b"\nb\n".to_vec()].concat());
            assert!(matches!(&events[0], Event::Invalid(why) if why.contains("longer than 16 MiB")), "{n}");
            assert_eq!((&events[1], events.len()), (&message("b"), 2), "{n}");
        }
        assert_eq!(all(&vec![b'a'; MAX_BYTES]).len(), 1);
    }
}
