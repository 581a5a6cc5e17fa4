//! A pseudo-terminal with the program on it: keys go in, and tests read what the screen shows.
//!
//! Nothing here sleeps for a fixed time. A test waits for what a person would wait for: a text on
//! the screen, or the prompt behind it.

use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vt100::Parser;

/// Longest time to wait for something on the screen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rows and columns of a new terminal: wide enough for a command with the path of a temporary file.
const SIZE: (u16, u16) = (40, 160);

/// A terminal.
pub struct Terminal {
    keyboard: Arc<Pty>,
    screen: Arc<Mutex<Parser>>,
    child: Child,
    reader: JoinHandle<()>,
}

fn nonzero((rows, columns): (u16, u16)) -> (NonZeroU16, NonZeroU16) {
    (NonZeroU16::new(rows).unwrap(), NonZeroU16::new(columns).unwrap())
}

impl Terminal {
    /// Runs the program on a new terminal.
    pub fn start(args: &[&str]) -> Self {
        let command = Command::new(env!("CARGO_BIN_EXE_backstitch")).args(args);
        Self::of(command.env("TERM", "xterm-256color"))
    }

    /// Runs a command on a new terminal.
    pub fn of(command: Command) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(SIZE.0, SIZE.1)).unwrap();
        let command = command.env("BACKSTITCH_CONFIG", "").env_remove("COLUMNS");
        let child = command.spawn(pts).unwrap();
        let (keyboard, (rows, columns)) = (Arc::new(pty), nonzero(SIZE));
        let screen = Arc::new(Mutex::new(Parser::new(rows, columns, 0)));
        let (output, shown) = (Arc::clone(&keyboard), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Linux ends the output of a terminal that no program has open any more with an error.
            while let Ok(n @ 1..) = (&*output).read(&mut bytes) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..n]);
            }
        });
        Self { keyboard, screen, child, reader }
    }

    fn with_screen<T>(&self, read: impl FnOnce(&vt100::Screen) -> T) -> T {
        read(self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    /// The text on the screen.
    pub fn text(&self) -> String {
        self.with_screen(vt100::Screen::contents)
    }

    /// Presses keys.
    pub fn press(&self, keys: &str) {
        (&*self.keyboard).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows what the test wants.
    #[track_caller]
    pub fn wait(&self, what: &str, is_there: impl Fn(&vt100::Screen) -> bool) {
        let start = Instant::now();
        while !self.with_screen(&is_there) {
            assert!(start.elapsed() < PATIENCE, "no {what} on the screen:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Waits until the line of the cursor, up to the cursor, is this one.
    #[track_caller]
    pub fn wait_for_line(&self, line: &str) {
        self.wait(line, |screen| {
            let (row, column) = screen.cursor_position();
            let shown = screen.contents_between(row, 0, row, column);
            // The screen does not tell spaces behind the text from an empty rest of the row.
            shown.trim_end() == line.trim_end() && usize::from(column) == line.chars().count()
        });
    }

    /// Waits for the prompt, with nothing typed.
    #[track_caller]
    pub fn wait_for_prompt(&self) {
        self.wait_for_line("> ");
    }

    /// Types a line, sees it, presses Enter, and waits for the next prompt.
    #[track_caller]
    pub fn say(&self, line: &str) {
        self.press(line);
        self.wait_for_line(&format!("> {line}"));
        self.press("\r");
        self.wait_for_prompt();
    }

    /// Gives the terminal another size.
    pub fn resize(&self, size: (u16, u16)) {
        let (rows, columns) = nonzero(size);
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).set_size(rows, columns);
        self.keyboard.resize(Size::new(size.0, size.1)).unwrap();
    }

    /// Waits for the end of the program. Returns its exit code, and what the screen shows then.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.reader.join().unwrap();
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        (code, screen.screen().contents())
    }
}
