//! Reading the terminal key by key, for `chat`.
//!
//! Usually a terminal passes on whole lines, and ends the program at Ctrl-C. While a [`Keys`] lives
//! it passes on every key, Ctrl-C included, and marks pasted text. The old settings come back when
//! it is dropped, and also when a signal ends the program: `interrupt` calls [`restore`].

#[cfg(unix)]
pub use unix::{Keys, restore};

#[cfg(unix)]
mod unix {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::stdio::stdin;
    use rustix::termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcsetattr,
    };
    use std::io::{self, IsTerminal, Write};
    use std::sync::{Mutex, PoisonError};

    /// The old settings of the terminal while a [`Keys`] lives.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    /// Command to the terminal to mark pasted text.
    const MARK_PASTES: &[u8] = b"\x1b[?2004h";
    /// Command to the terminal not to mark pasted text any more.
    const MARK_NONE: &[u8] = b"\x1b[?2004l";

    /// A guard: while it lives, the terminal passes on every key. There is at most one at a time.
    pub struct Keys(());

    impl Keys {
        /// Change the settings of the terminal. Returns none if standard input or standard error is
        /// no terminal, or one without these settings.
        pub fn begin() -> Option<Self> {
            if !isatty(stdin()) || !io::stderr().is_terminal() {
                return None;
            }
            let before = tcgetattr(stdin()).ok()?;
            let mut keys = before.clone();
            keys.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
            keys.special_codes[SpecialCodeIndex::VMIN] = 1;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
            let keys = tcsetattr(stdin(), OptionalActions::Now, &keys).ok().map(|()| Self(()))?;
            io::stderr().write_all(MARK_PASTES).ok()?;
            Some(keys)
        }

        /// Wait for keys. Returns the number of bytes that came; 0 at the end of the input.
        pub fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
            loop {
                match rustix::io::read(stdin(), &mut *bytes) {
                    Err(rustix::io::Errno::INTR) => {}
                    // The terminal was closed: the input ends.
                    Err(rustix::io::Errno::IO) => return Ok(0),
                    result => return Ok(result?),
                }
            }
        }

        /// Return true if more keys come within 20 milliseconds. Nobody types as fast, but pasted
        /// text comes all at once.
        pub fn follow(&self) -> bool {
            let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut fds = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
            poll(&mut fds, Some(&wait)).is_ok_and(|n| n > 0)
        }
    }

    impl Drop for Keys {
        fn drop(&mut self) {
            restore();
        }
    }

    /// Give the terminal its old settings back, if they were changed.
    pub fn restore() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nothing can be done about a terminal that is gone.
            let _ = io::stderr().write_all(MARK_NONE);
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
    }
}

/// Do nothing: on other systems `chat` reads lines.
#[cfg(not(unix))]
pub fn restore() {}
