//! Ctrl-C and other signals that end a program.
//!
//! Work that leaves nothing behind is simply ended. Work with something to finish holds a [`Stoppable`]:
//! the first signal then asks it to stop, through [`cancel`], and the second ends the
//! program. Either way the progress bar and the temporary files go.

use crate::{progress, target, terminal};
use backstitch_models::Cancel;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Nothing to finish: a signal ends the program.
const IDLE: u8 = 0;
/// Something looks at [`cancel`].
const BUSY: u8 = 1;
/// It was asked to stop.
const STOPPING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// The number of Ctrl-C's signal.
const CTRL_C: u8 = 2;

/// The last signal that arrived.
static SIGNAL: AtomicU8 = AtomicU8::new(CTRL_C);

/// Listens to signals. Where that cannot be, they end the program as usual.
pub fn listen() {
    #[cfg(unix)]
    unix::listen();
    #[cfg(windows)]
    let _ = ctrlc::set_handler(|| arrived(CTRL_C));
    // Other systems have no signals.
    #[cfg(not(any(unix, windows)))]
    let _ = arrived;
}

/// Asks for a stop, or ends the program if nothing is to be finished or a stop was asked for already.
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

/// The exit code of a program that a signal ended, as shells have it: 130 after Ctrl-C.
pub fn exit_code() -> u8 {
    128 + SIGNAL.load(Ordering::SeqCst)
}

/// The flag that a signal sets while there is a [`Stoppable`], for computations that are to stop.
pub fn cancel() -> Cancel {
    static CANCEL: OnceLock<Cancel> = OnceLock::new();
    CANCEL.get_or_init(Cancel::new).clone()
}

/// Lets the next signal ask again where one has asked: what is to be finished now is something else.
pub fn ask_again() {
    cancel().reset();
    // Elsewhere a signal asks already, or ends the program.
    let _ = STATE.compare_exchange(STOPPING, BUSY, Ordering::SeqCst, Ordering::SeqCst);
}

/// Leaves signals to whoever looks at [`cancel`], as long as it lives.
pub struct Stoppable(());

impl Stoppable {
    /// From now on a signal asks instead of ending the program.
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

    /// Returns true if whoever started the program wants it to outlive that signal, as `nohup` does.
    fn is_ignored(signal: i32) -> bool {
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
            return cfg!(target_os = "macos");
        };
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        mask >> (signal - 1) & 1 == 1
    }
}
