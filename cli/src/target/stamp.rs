//! Whether a file is still the one that it was.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// A file at a time. Whoever writes to the file, or puts another in its place, makes another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Device and number, where there are such.
    node: Option<(u64, u64)>,
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// The file at `path` now; none if there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { node: node(&metadata), len: metadata.len(), modified: metadata.modified().ok() })
    }
}

#[cfg(unix)]
pub fn node(metadata: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
pub fn node(_: &fs::Metadata) -> Option<(u64, u64)> {
    None
}
