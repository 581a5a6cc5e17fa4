//! Messages that a person types: a line editor with history, and pasted text of several lines.
//!
//! The editor itself is `rustyline`. It talks to the terminal, not to standard output, so answers
//! can be redirected to a file. Ctrl-C arrives as a signal, which ends a paste, too, whose end the
//! terminal never marks.

use super::message::Event;
use crate::error::{Error, plain};
use crate::output::note;
use crate::terminal;
use rustyline::completion::Completer;
use rustyline::config::{Behavior, ColorMode, Config};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Editor, Helper};
use std::borrow::Cow;
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Prompt of the first line of a message.
const FIRST: &str = "> ";
/// Prompt of the lines after one that ends in a backslash.
const NEXT: &str = ". ";
/// Names of terminals, in `TERM`, on which the editor cannot move the cursor. Lines are read from
/// them as they are.
const WITHOUT_CURSOR: [&str; 3] = ["dumb", "cons25", "emacs"];
/// First line of a file with a history, which the editor writes.
const MARK: &[u8] = b"#V2\n";
/// Most messages in the history.
const MOST_MESSAGES: usize = 1000;

/// The keyboard of a person.
///
/// Keys that are typed while an answer is generated are kept for the next message.
pub struct Keyboard {
    editor: Editor<Display, FileHistory>,
    /// File that keeps the history; none keeps it in memory.
    file: Option<PathBuf>,
}

impl Keyboard {
    /// Make the keyboard, with the history in `file`. Returns none if no person can type, or if
    /// nothing can be edited.
    pub fn new(file: Option<PathBuf>) -> Option<Self> {
        let is_without_cursor = std::env::var("TERM")
            .is_ok_and(|term| WITHOUT_CURSOR.iter().any(|name| term.eq_ignore_ascii_case(name)));
        if is_without_cursor || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        terminal::remember();
        let mut editor = editor(FileHistory::with_config(&config())).ok()?;
        let file = file.filter(|file| match load(&mut editor, file) {
            Ok(()) => true,
            Err(why) => {
                note(
                    "warning",
                    format_args!("--history {}: {why}; what is typed is kept in memory", file.display()),
                );
                false
            }
        });
        Some(Self { editor, file })
    }

    /// Wait for the next message, which begins as `text` and can be edited.
    ///
    /// # Errors
    /// [`Error::Terminal`] if the terminal cannot be read.
    pub fn read(&mut self, text: &str) -> Result<Event, Error> {
        let (mut message, mut prompt, mut text) = (String::new(), FIRST, text);
        loop {
            match self.editor.readline_with_initial(prompt, (text, "")) {
                Ok(line) => message.push_str(&line),
                Err(error) => return self.ended(error, message.is_empty()),
            }
            if !message.ends_with('\\') {
                break;
            }
            message.pop();
            message.push('\n');
            (prompt, text) = (NEXT, "");
        }
        // Pasted text often ends with a line break of its own.
        let message = message.trim_ascii_end();
        self.remember(message);
        Ok(Event::of(message.as_bytes()))
    }

    /// Ask a question. Returns true for yes, false for anything else and for Ctrl-C. The answer is
    /// no message, and not added to the history.
    ///
    /// # Errors
    /// [`Error::Terminal`] if the terminal cannot be read.
    pub fn ask(&mut self, question: &str) -> Result<bool, Error> {
        match self.editor.readline(&format!("{question} [y/N] ")) {
            Ok(line) => Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")),
            Err(error) => self.ended(error, true).map(|_| false),
        }
    }

    /// Return the event of a line that was not completed. `is_first` is true in the first line of a
    /// message.
    fn ended(&self, error: ReadlineError, is_first: bool) -> Result<Event, Error> {
        let source = match error {
            ReadlineError::Interrupted | ReadlineError::Signal(_) => {
                let is_empty = self.editor.helper().is_none_or(|display| display.is_empty.get());
                return Ok(Event::CtrlC { is_empty: is_first && is_empty });
            }
            ReadlineError::Eof => return Ok(Event::End),
            ReadlineError::Io(source) => source,
            #[cfg(unix)]
            ReadlineError::Errno(errno) => io::Error::from_raw_os_error(errno as i32),
            error => io::Error::other(error),
        };
        match source.kind() {
            io::ErrorKind::InvalidData => Ok(Event::Invalid("a key is not valid UTF-8".into())),
            // The terminal was closed.
            _ if source.raw_os_error() == Some(GONE) => Ok(Event::End),
            _ => Err(source.into()),
        }
    }

    /// Add a message to the history.
    fn remember(&mut self, message: &str) {
        let added = self.editor.add_history_entry(message);
        let Some(file) = self.file.as_ref().filter(|_| added.is_ok_and(|is_new| is_new)) else { return };
        if let Err(error) = self.editor.append_history(file) {
            let (name, why) = (file.display(), reason(&error));
            note("warning", format_args!("--history {name}: {why}; what is typed is kept in memory"));
            self.file = None;
        }
    }

    /// Forget keys that were typed ahead. The editor keeps them in a buffer of its own, so another
    /// editor takes its place, with the same history.
    pub fn forget(&mut self) {
        let history = std::mem::replace(self.editor.history_mut(), FileHistory::with_config(&config()));
        if let Ok(editor) = editor(history) {
            self.editor = editor;
        }
    }
}

/// Load the history in a file, if there is one. A file of another kind is refused, because the
/// editor would rewrite it.
fn load(editor: &mut Editor<Display, FileHistory>, path: &Path) -> Result<(), String> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(plain(&error)),
    };
    if !metadata.is_file() {
        return Err("not a regular file".into());
    }
    let mut front = Vec::new();
    let opened = File::open(path).map_err(|error| plain(&error))?;
    opened.take(MARK.len() as u64).read_to_end(&mut front).map_err(|error| plain(&error))?;
    match front.as_slice() {
        [] => Ok(()),
        front if front == MARK => editor.load_history(path).map_err(|error| reason(&error)),
        _ => Err("this is no history, and the file stays as it is".into()),
    }
}

/// Return the text of an error about the history.
fn reason(error: &ReadlineError) -> String {
    match error {
        ReadlineError::Io(error) => plain(error),
        error => error.to_string(),
    }
}

/// The error of the operating system for a terminal that is gone (`EIO`).
const GONE: i32 = 5;

/// Return the settings of the editor.
fn config() -> Config {
    let config = Config::builder().behavior(Behavior::PreferTerm).color_mode(ColorMode::Forced);
    let config = config.enable_signals(true).max_history_size(MOST_MESSAGES);
    config.map_or_else(|_| Config::default(), |config| config.build())
}

/// Make an editor with this history.
fn editor(history: FileHistory) -> rustyline::Result<Editor<Display, FileHistory>> {
    let mut editor = Editor::with_history(config(), history)?;
    editor.set_helper(Some(Display::default()));
    Ok(editor)
}

/// The way in which the editor shows a message. It completes nothing and hints at nothing.
#[derive(Default)]
struct Display {
    /// True if nothing is typed.
    is_empty: Cell<bool>,
}

/// Return true for characters that a terminal would obey. The editor shows line breaks and tabs
/// itself.
fn is_obeyed(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

impl Highlighter for Display {
    /// Show characters that a terminal would obey as one that it shows, of the same width.
    fn highlight<'l>(&self, line: &'l str, _pos: usize) -> Cow<'l, str> {
        self.is_empty.set(line.is_empty());
        if line.contains(is_obeyed) { line.replace(is_obeyed, "\u{fffd}").into() } else { line.into() }
    }

    /// Return true if a typed character changes what is shown: the editor then writes the line anew
    /// instead of the character alone.
    fn highlight_char(&self, line: &str, _pos: usize, _kind: CmdKind) -> bool {
        self.is_empty.set(line.is_empty());
        line.contains(is_obeyed)
    }
}

impl Completer for Display {
    type Candidate = String;
}

impl Hinter for Display {
    type Hint = String;
}

impl Validator for Display {}
impl Helper for Display {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_history_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let loaded = |path: &Path| load(&mut editor(FileHistory::with_config(&config())).unwrap(), path);
        for (name, content) in [("new", &b""[..]), ("history", b"#V2\nThe cat\n")] {
            assert_eq!(loaded(&path(name, content)), Ok(()), "{name}");
        }
        assert_eq!(loaded(&folder.path().join("none")), Ok(()));
        for (name, content) in [("notes", &b"Dear Tim,\n"[..]), ("short", b"#V"), ("broken", b"#V2\n\xff\n")]
        {
            assert!(loaded(&path(name, content)).is_err(), "{name}");
        }
        assert_eq!(loaded(folder.path()), Err("not a regular file".into()));
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_shown_as_it_is() {
        let display = Display::default();
        assert_eq!(display.highlight("\u{9b}2J \u{a9}\n\tcaf\u{e9}", 0), "\u{fffd}2J \u{a9}\n\tcaf\u{e9}");
        assert!(display.highlight_char("\x1b", 1, CmdKind::Other));
        assert!(!display.highlight_char("a", 1, CmdKind::Other) && !display.is_empty.get());
    }
}
