//! The terminal, key by key.
//!
//! Usually a terminal hands over whole lines, and ends a program at Ctrl-C. While a [`Keys`] lives it hands
//! over every key, Ctrl-C among them, and marks what is pasted. Whatever ends the program, the terminal is
//! as before then.

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

    /// How the terminal was, while it is otherwise.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    /// Asks the terminal to mark what is pasted, and no longer to.
    const MARK_PASTES: &[u8] = b"\x1b[?2004h";
    const MARK_NONE: &[u8] = b"\x1b[?2004l";

    /// Standard input and error as a terminal that hands over every key.
    pub struct Keys(());

    impl Keys {
        /// None if standard input or standard error is not a terminal, or one that cannot do that.
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

        /// Waits for keys. Returns how many bytes came; 0 at the end of the input.
        pub fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
            loop {
                match rustix::io::read(stdin(), &mut *bytes) {
                    Err(rustix::io::Errno::INTR) => {}
                    // The terminal was closed.
                    Err(rustix::io::Errno::IO) => return Ok(0),
                    result => return Ok(result?),
                }
            }
        }

        /// Returns true if more keys come within some milliseconds: nobody types so fast, but what is
        /// pasted comes at once.
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

    /// Makes the terminal as it was, also for a program that ends at once.
    pub fn restore() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nothing can be done about a terminal that is gone.
            let _ = io::stderr().write_all(MARK_NONE);
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
    }
}

/// Other systems' terminals hand over lines.
#[cfg(not(unix))]
pub fn restore() {}
