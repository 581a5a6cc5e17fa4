//! The system's allocator, told to give memory back.
//!
//! A server lives long, and its memory comes and goes: models that sleep, large requests. The
//! allocator of glibc raises the size from which it asks the system for pages of their own with
//! every large piece that it gets back. Each thread also keeps small pieces that it freed, which
//! hold all pages below them. Settings are read before `main`, so the program is started anew with
//! them, as the same process.

/// The variable with the settings.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const NAME: &str = "GLIBC_TUNABLES";
/// The settings: thresholds are glibc's defaults in bytes, fixed by being named; threads keep
/// nothing.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SETTINGS: &str = "glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072:\
                        glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0";

/// Start the program anew with an allocator that gives memory back, unless the variable is set
/// already. If that fails, the program goes on and keeps more memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn settle() {
    use std::os::unix::process::CommandExt;
    let is_settled = std::env::var_os(NAME).is_some();
    let mut words = std::env::args_os();
    if let (false, Ok(program), Some(name)) = (is_settled, std::env::current_exe(), words.next()) {
        // This returns only if it fails.
        let _ = std::process::Command::new(program).arg0(name).args(words).env(NAME, SETTINGS).exec();
    }
}

/// Do nothing: other allocators give memory back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn settle() {}
