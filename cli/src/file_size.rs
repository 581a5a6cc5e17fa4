//! The system's limit on the size of files (`ulimit -f`).

/// Makes a write beyond the limit fail as on a full disk. Without this the system ends the process, in the middle
/// of its text.
#[cfg(unix)]
pub fn let_writes_fail() {
    use signal_hook::consts::SIGXFSZ;
    // A signal that has a handler ends nothing; what it says is in the error of the write.
    let noted = signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default());
    debug_assert!(noted.is_ok(), "{noted:?}");
}

/// Other systems have no such signal.
#[cfg(not(unix))]
pub fn let_writes_fail() {}
