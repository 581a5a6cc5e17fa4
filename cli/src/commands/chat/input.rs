//! Messages from a terminal or a pipe.

#[cfg(unix)]
use super::editor::{Editor, Key};
use crate::error::Error;
#[cfg(unix)]
use std::collections::VecDeque;
use std::io::{self, BufRead, IsTerminal, Read, Write};

/// A message longer than this is not read: no context holds as much.
pub const MAX_BYTES: usize = 16 << 20;

/// What was said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A message.
    Message(String),
    /// Something that is no message, for the reason given.
    Nothing(String),
    /// Ctrl-C; in the middle of a message or at an empty prompt.
    CtrlC { is_empty: bool },
    /// The end of the input.
    End,
}

impl Said {
    /// The message of these bytes, or why it is none.
    fn of(bytes: &[u8]) -> Self {
        if bytes.len() > MAX_BYTES {
            return Self::Nothing(format!("the message is longer than {} MiB; shorten it", MAX_BYTES >> 20));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Message(text.into()),
            Err(error) => Self::Nothing(format!(
                "the message is not valid UTF-8 at byte {}; convert it first",
                error.valid_up_to()
            )),
        }
    }
}

/// Returns true if messages come from somebody who types.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Where messages come from.
#[derive(Debug, Default)]
pub struct Input {
    /// Keys that came together with those of a message before: whoever types ahead says several things.
    #[cfg(unix)]
    ahead: VecDeque<u8>,
}

impl Input {
    /// Waits for the next message: what is typed until Enter, or a line of a pipe; a line that ends in a
    /// backslash goes on in the next, and so does one that is pasted.
    ///
    /// # Errors
    /// If standard input cannot be read.
    pub fn read(&mut self) -> Result<Said, Error> {
        #[cfg(unix)]
        if let Some(keys) = crate::terminal::Keys::begin() {
            return Ok(self.typed(&keys)?);
        }
        Ok(lines(&mut io::stdin().lock(), is_terminal())?)
    }

    /// Forgets what was typed ahead, as terminals do at Ctrl-C.
    pub fn forget(&mut self) {
        #[cfg(unix)]
        self.ahead.clear();
    }

    #[cfg(unix)]
    fn typed(&mut self, keys: &crate::terminal::Keys) -> io::Result<Said> {
        let mut editor = Editor::new();
        loop {
            let key = self.ahead.pop_front().map(|byte| editor.press(byte));
            if self.ahead.is_empty() || key != Some(Key::Typed) {
                io::stderr().write_all(&editor.echo())?;
            }
            match key {
                Some(Key::Typed) => {}
                // What is pasted often ends with a line break before Enter.
                Some(Key::Enter) => return Ok(Said::of(editor.bytes().trim_ascii_end())),
                Some(Key::End) => return Ok(Said::End),
                Some(Key::Cancel) => {
                    self.forget();
                    drain(keys)?;
                    return Ok(Said::CtrlC { is_empty: editor.bytes().is_empty() });
                }
                None => {
                    let mut bytes = [0; 4096];
                    let n = keys.read(&mut bytes)?;
                    if n == 0 {
                        return Ok(Said::End);
                    }
                    self.ahead.extend(bytes.get(..n).unwrap_or_default());
                }
            }
        }
    }
}

/// Reads away what came with Ctrl-C: the rest of a paste is no message of its own.
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

/// Reads lines until one does not go on.
fn lines(input: &mut impl BufRead, prompt: bool) -> io::Result<Said> {
    let mut message = Vec::new();
    loop {
        if prompt {
            write!(io::stderr(), "{}", if message.is_empty() { "> " } else { ". " })?;
        }
        let start = message.len();
        if !line(input, &mut message)? {
            return Ok(if start == 0 { Said::End } else { Said::of(&message) });
        }
        match message.pop_if(|byte| *byte == b'\\') {
            Some(_) if message.len() >= start => message.push(b'\n'),
            _ => return Ok(Said::of(&message)),
        }
    }
}

/// Appends a line without its end; of a message that is too long, only as much as shows that. False at the
/// end of the input.
fn line(input: &mut impl BufRead, message: &mut Vec<u8>) -> io::Result<bool> {
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

    fn all(mut input: &[u8]) -> Vec<Said> {
        std::iter::from_fn(|| Some(lines(&mut input, false).unwrap()).filter(|said| *said != Said::End))
            .collect()
    }

    fn message(text: &str) -> Said {
        Said::Message(text.into())
    }

    #[test]
    fn each_line_of_a_pipe_is_a_message() {
        assert_eq!(all(b"one\r\n\ntwo\\\nthree\nfour"), ["one", "", "two\nthree", "four"].map(message));
        assert_eq!(all(b"one\\"), [message("one\n")]);
    }

    #[test]
    fn what_is_no_text_is_told_and_the_next_line_read() {
        let said = all(b"a\xff\nb\n");
        assert!(matches!(&said[0], Said::Nothing(why) if why.contains("UTF-8 at byte 1")), "{said:?}");
        assert_eq!(said[1], message("b"));
    }

    #[test]
    fn what_is_too_long_is_told_and_the_next_line_read() {
        for n in [MAX_BYTES + 1, MAX_BYTES + 2, MAX_BYTES + 3, 2 * MAX_BYTES] {
            let said = all(&[vec![b'a'; n], b"\nb\n".to_vec()].concat());
            assert!(matches!(&said[0], Said::Nothing(why) if why.contains("longer than 16 MiB")), "{n}");
            assert_eq!((&said[1], said.len()), (&message("b"), 2), "{n}");
        }
        assert_eq!(all(&vec![b'a'; MAX_BYTES]).len(), 1);
    }
}
