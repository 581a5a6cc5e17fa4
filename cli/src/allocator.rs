//! The system's allocator, told to give memory back.
//!
//! A server lives long, and its memory comes and goes: models that sleep, large requests. The
//! allocator of glibc raises the size from which it asks the system for pages of their own with
//! every large piece that it gets back, to 32 MiB; smaller pieces then lie among others, and what
//! is freed between them stays with the process. Two settings keep it as it begins. It reads them
//! before `main`, so the program is started anew with them, as the same process.

/// The settings, in bytes. They are glibc's own defaults, which are fixed once they are named.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SETTINGS: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_TRIM_THRESHOLD_", "131072")];

/// Start the program anew with an allocator that gives memory back, unless it has one. If that
/// fails, the program goes on and keeps more memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn settle() {
    use std::os::unix::process::CommandExt;
    // Somebody may want other settings.
    let is_settled = SETTINGS.iter().any(|(name, _)| std::env::var_os(name).is_some());
    let mut words = std::env::args_os();
    if let (false, Ok(program), Some(name)) = (is_settled, std::env::current_exe(), words.next()) {
        // This returns only if it fails.
        let _ = std::process::Command::new(program).arg0(name).args(words).envs(SETTINGS).exec();
    }
}

/// Do nothing: other allocators give memory back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn settle() {}
