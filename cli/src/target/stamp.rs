//! A stamp that tells whether a file changed.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// Identity, length and time of a file at one moment. Writing to the file or replacing it makes
/// another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Device and inode number, on systems that have them.
    node: Option<(u64, u64)>,
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Return the stamp of the file at `path`, or none if there is no file.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { node: node(&metadata), len: metadata.len(), modified: metadata.modified().ok() })
    }
}

/// Return the device and inode number of a file.
#[cfg(unix)]
pub fn node(metadata: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

/// Return none: other systems identify files by their paths only.
#[cfg(not(unix))]
pub fn node(_: &fs::Metadata) -> Option<(u64, u64)> {
    None
}
