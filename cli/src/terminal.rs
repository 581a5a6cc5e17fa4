//! The terminal, and its settings, which come back when a signal ends the program.
//!
//! While a line is edited in `chat`, the terminal passes on single keys and marks pasted text. The
//! line editor undoes that after each line. A signal that ends the program meanwhile leaves it no
//! time, so `interrupt` calls [`restore`].

use std::io::{self, IsTerminal};

/// Return true if a person reads what the program writes, and can answer.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

#[cfg(unix)]
pub use unix::{remember, restore};

#[cfg(unix)]
mod unix {
    use rustix::stdio::stdin;
    use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
    use std::io::{self, Write};
    use std::sync::{Mutex, PoisonError};

    /// The settings of the terminal before the first line was edited.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    /// Command to the terminal not to mark pasted text any more.
    const MARK_NONE: &[u8] = b"\x1b[?2004l";

    /// Remember the settings that the terminal has now.
    pub fn remember() {
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(stdin()).ok();
    }

    /// Give the terminal the settings back that were remembered, if any.
    pub fn restore() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nothing can be done about a terminal that is gone.
            let _ = io::stderr().write_all(MARK_NONE);
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
    }
}

/// Do nothing: the systems without signals of other programs end none of them in this way.
#[cfg(not(unix))]
pub fn restore() {}

/// Do nothing, as [`restore`].
#[cfg(not(unix))]
pub fn remember() {}
