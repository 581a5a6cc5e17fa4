//! The input of `chat`: messages from a person at a terminal, or from a pipe, line by line.

#[cfg(any(unix, windows))]
use super::keyboard::Keyboard;
use super::message::{Event, MAX_BYTES};
use crate::error::Error;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

/// Return true if a person types the messages.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The source of messages.
pub struct Input {
    /// The keyboard of a person; none for pipes, and terminals on which nothing can be edited.
    #[cfg(any(unix, windows))]
    keyboard: Option<Keyboard>,
}

impl Input {
    /// Make the source of messages. What a person types is kept in the file `history`.
    pub fn new(history: Option<PathBuf>) -> Self {
        #[cfg(not(any(unix, windows)))]
        drop(history);
        Self {
            #[cfg(any(unix, windows))]
            keyboard: Keyboard::new(history),
        }
    }

    /// Wait for the next message: the keys until Enter, or a line of a pipe. A line that ends in a
    /// backslash continues in the next one, and so does a pasted line. A person finds `text` in the
    /// line and can change it.
    ///
    /// # Errors
    /// [`Error::Terminal`] if the input cannot be read.
    pub fn read(&mut self, text: &str) -> Result<Event, Error> {
        #[cfg(any(unix, windows))]
        if let Some(keyboard) = &mut self.keyboard {
            return keyboard.read(text);
        }
        #[cfg(not(any(unix, windows)))]
        let _ = text;
        Ok(lines(&mut io::stdin().lock(), is_terminal())?)
    }

    /// Ask a question. Returns true if a person says yes, and none if there is no person to ask.
    ///
    /// # Errors
    /// [`Error::Terminal`] if the input cannot be read.
    pub fn ask(&mut self, question: &str) -> Result<Option<bool>, Error> {
        #[cfg(any(unix, windows))]
        if let Some(keyboard) = &mut self.keyboard {
            return keyboard.ask(question).map(Some);
        }
        #[cfg(not(any(unix, windows)))]
        let _ = question;
        Ok(None)
    }

    /// Return true if a person can change a text that [`Input::read`] puts in the line.
    pub fn can_edit(&self) -> bool {
        #[cfg(any(unix, windows))]
        let can_edit = self.keyboard.is_some();
        #[cfg(not(any(unix, windows)))]
        let can_edit = false;
        can_edit
    }

    /// Forget keys that were typed ahead, as terminals do at Ctrl-C.
    pub fn forget(&mut self) {
        #[cfg(any(unix, windows))]
        self.keyboard.iter_mut().for_each(Keyboard::forget);
    }
}

/// Read a message from a pipe, or from a terminal on which nothing can be edited: lines until one
/// does not end in a backslash.
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
