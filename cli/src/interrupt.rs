//! Ctrl-C and other signals that end a program.
//!
//! A command with nothing to finish is ended at once. A command that has to save a state, or to
//! finish a line of output, holds a [`Stoppable`]: the first signal then asks it to stop, through
//! [`cancel`], and a second signal ends the program. Either way the progress line and the temporary
//! files are removed, and the terminal gets its old settings back.

use crate::{progress, target, terminal};
use backstitch_models::Cancel;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Value of [`STATE`]: there is nothing to finish, so a signal ends the program.
const IDLE: u8 = 0;
/// Value of [`STATE`]: a computation looks at [`cancel`].
const BUSY: u8 = 1;
/// Value of [`STATE`]: that computation was asked to stop.
const STOPPING: u8 = 2;

/// The response to the next signal: one of the values above.
static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// The number of Ctrl-C's signal.
const CTRL_C: u8 = 2;

/// Number of the last signal that arrived.
static SIGNAL: AtomicU8 = AtomicU8::new(CTRL_C);

/// Start to listen to signals, once. Where that is not possible, signals end the program as usual.
pub fn listen() {
    #[cfg(unix)]
    unix::listen();
    #[cfg(windows)]
    let _ = ctrlc::set_handler(|| arrived(CTRL_C));
    // Other systems have no signals.
    #[cfg(not(any(unix, windows)))]
    let _ = arrived;
}

/// Handle a signal: ask for a stop, or end the program if there is nothing to finish or a stop was
/// asked for already. Called on a thread of its own, not in a signal handler.
fn arrived(signal: u8) {
    SIGNAL.store(signal, Ordering::SeqCst);
    if STATE.compare_exchange(BUSY, STOPPING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        progress::clear();
        terminal::restore();
        target::remove_temporaries();
        std::process::exit(i32::from(exit_code()));
    }
    cancel().cancel();
}

/// Return the exit code of a program that a signal ended, by the custom of shells: 130 after
/// Ctrl-C.
pub fn exit_code() -> u8 {
    128 + SIGNAL.load(Ordering::SeqCst)
}

/// Return the flag that a signal sets while there is a [`Stoppable`]. Computations that should stop
/// look at it.
pub fn cancel() -> Cancel {
    static CANCEL: OnceLock<Cancel> = OnceLock::new();
    CANCEL.get_or_init(Cancel::new).clone()
}

/// Let the next signal ask for a stop again. Call this after a stopped computation, before the next
/// piece of work that a signal may stop: saving what was computed, for example.
pub fn ask_again() {
    cancel().reset();
    // If no stop was asked for, the state is right already.
    let _ = STATE.compare_exchange(STOPPING, BUSY, Ordering::SeqCst, Ordering::SeqCst);
}

/// A guard: while it lives, the first signal asks for a stop instead of ending the program.
///
/// The holder has to give [`cancel`] to every computation that can take long. There is at most one
/// guard at a time.
pub struct Stoppable(());

impl Stoppable {
    /// Make the guard, and forget earlier signals.
    pub fn begin() -> Self {
        cancel().reset();
        STATE.store(BUSY, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        STATE.store(IDLE, Ordering::SeqCst);
    }
}

#[cfg(unix)]
mod unix {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    /// Start a thread that waits for Ctrl-C, SIGTERM and SIGHUP.
    pub fn listen() {
        let mut wanted = vec![SIGINT, SIGTERM];
        wanted.extend((!is_ignored(SIGHUP)).then_some(SIGHUP));
        let Ok(mut signals) = Signals::new(wanted) else { return };
        let wait = move || {
            for signal in signals.forever() {
                super::arrived(signal as u8);
            }
        };
        let _ = std::thread::Builder::new().name("signals".into()).spawn(wait);
    }

    /// Return true if the program was started with that signal ignored, as `nohup` does to let it
    /// outlive the terminal.
    fn is_ignored(signal: i32) -> bool {
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
            return cfg!(target_os = "macos");
        };
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        mask >> (signal - 1) & 1 == 1
    }
}
