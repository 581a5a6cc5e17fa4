//! Files for their owner alone: states and prompts hold what was said to a model.
//!
//! Every file that this crate makes is made here, with mode 0600 on Unix unless its maker asks for
//! the usual one, and under a name where there was nothing, so that neither a link nor a file that
//! somebody else put there is ever written to.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Users that may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Its owner, for files that hold a person's text.
    Owner,
    /// Those that the system's default allows.
    Usual,
}

/// Make a file where there is nothing; a link at `path` counts as something, wherever it leads.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`], and what the system says.
#[cfg_attr(not(unix), expect(unused_variables, reason = "rights are those of the folder there"))]
pub(super) fn create(path: &Path, readers: Readers) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Other systems take over who may read a file from its folder.
    #[cfg(unix)]
    if readers == Readers::Owner {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    options.read(true).write(true).create_new(true).open(path)
}

/// Make a folder where there is nothing, for its owner alone.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`](io::ErrorKind::AlreadyExists), and what the system says.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::DirBuilderExt::mode(&mut DirBuilder::new(), 0o700).create(path);
    #[cfg(not(unix))]
    return DirBuilder::new().create(path);
}

/// Take a file from all but its owner; what its owner may do stays.
///
/// # Errors
/// The error of the system.
#[cfg_attr(not(unix), expect(unused_variables, reason = "rights are those of the folder there"))]
pub(super) fn keep_from_others(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.metadata()?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return file.set_permissions(std::fs::Permissions::from_mode(mode & 0o700));
        }
    }
    Ok(())
}
