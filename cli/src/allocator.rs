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

/// The variable that says that the program was started anew. In programs with more rights than
/// their user has, the system removes the other one.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const DONE: &str = "BACKSTITCH_SETTLED";

/// Start the program anew, once, with an allocator that gives memory back, unless the variable is
/// set already. If that fails, the program goes on and keeps more memory. Call it before anything
/// is read that can be read only once.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn settle() {
    use std::os::unix::process::CommandExt;
    let is_settled = [NAME, DONE].iter().any(|name| std::env::var_os(name).is_some());
    let mut words = std::env::args_os();
    if let (false, Ok(program), Some(name)) = (is_settled, std::env::current_exe(), words.next()) {
        // A program that was started by the loader's name is not its own file; nor is one whose
        // file was replaced.
        let is_loader = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld"));
        if is_loader || !program.is_file() {
            return;
        }
        // This returns only if it fails.
        let mut anew = std::process::Command::new(program);
        let _ = anew.arg0(name).args(words).env(NAME, SETTINGS).env(DONE, "1").exec();
    }
}

/// Do nothing: other allocators give memory back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn settle() {}
