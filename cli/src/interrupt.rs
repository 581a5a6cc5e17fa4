//! Ctrl-C: the first press ends what is being generated, the second the program.

use std::sync::atomic::{AtomicU8, Ordering};

/// The exit code of a program that Ctrl-C ended, as shells have it.
pub const EXIT_CODE: u8 = 130;

/// Nothing to stop: Ctrl-C ends the program.
const IDLE: u8 = 0;
/// Something looks at [`requested`].
const BUSY: u8 = 1;
/// It was asked to stop.
const STOPPING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// Listens to Ctrl-C. Where that cannot be, Ctrl-C ends the program as usual.
pub fn listen() {
    #[cfg(not(target_family = "wasm"))]
    let _ = ctrlc::set_handler(|| {
        if STATE.compare_exchange(BUSY, STOPPING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            std::process::exit(i32::from(EXIT_CODE));
        }
    });
}

/// As long as this lives, Ctrl-C is left to whoever asks [`requested`].
pub struct Stoppable(());

impl Stoppable {
    /// From now on Ctrl-C asks instead of ending the program.
    pub fn begin() -> Self {
        STATE.store(BUSY, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        STATE.store(IDLE, Ordering::SeqCst);
    }
}

/// Whether Ctrl-C was pressed since [`Stoppable::begin`].
pub fn requested() -> bool {
    STATE.load(Ordering::SeqCst) == STOPPING
}
