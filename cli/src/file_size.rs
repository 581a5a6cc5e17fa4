//! The system's limit on the size of files (`ulimit -f`).

/// Make a write beyond the limit fail like one on a full disk. Without this the system ends the
/// process in the middle of its text.
#[cfg(unix)]
pub fn let_writes_fail() {
    use signal_hook::consts::SIGXFSZ;
    // A signal with a handler does not end the process; the failed write returns the error.
    let noted = signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default());
    debug_assert!(noted.is_ok(), "{noted:?}");
}

/// Do nothing: other systems have no such signal.
#[cfg(not(unix))]
pub fn let_writes_fail() {}
