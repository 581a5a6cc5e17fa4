//! Files for their owner alone: states and prompts hold what was said to a model.
//!
//! Every file that this crate makes is made here, with mode 0600 on Unix and under a name where there was nothing, so that neither a link nor a
//! file that somebody else put there is ever written to. Files that are there already are opened without waiting: a pipe is refused, not read.

use crate::file::{FileError, Problem, check_kind};
use core::hash::{BuildHasher, Hasher};
use std::ffi::{OsStr, OsString};
use std::format;
use std::fs::{self, File, OpenOptions};
use std::hash::RandomState;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Random names that are tried before giving up; one is enough unless somebody guesses 64 bits.
const TRIES: usize = 16;

/// Digits of a random name.
const DIGITS: usize = 16;

/// A number that nobody can guess: the standard library seeds its hashers from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Options for a file that only its owner may read.
#[cfg(unix)]
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Other systems take over who may read a file from its folder.
#[cfg(not(unix))]
fn private() -> OpenOptions {
    OpenOptions::new()
}

/// Makes a file where there is nothing; a link at `path` counts as something, wherever it leads.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`], and what the system says.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    private().read(true).write(true).create_new(true).open(path)
}

/// Calls `make` with random names until one of them is free.
///
/// # Errors
/// What `make` says; [`ErrorKind::AlreadyExists`] if no name was free.
pub(crate) fn random_names<T>(
    folder: &Path,
    front: &OsStr,
    back: &str,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    let mut made = Err(ErrorKind::AlreadyExists.into());
    for _ in 0..TRIES {
        let path = folder.join(random_name(front, back));
        made = make(&path).map(|made| (made, path));
        if made.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::AlreadyExists) {
            break;
        }
    }
    made
}

fn random_name(front: &OsStr, back: &str) -> OsString {
    let mut name = front.to_owned();
    name.push(format!("{:0DIGITS$x}{back}", random()));
    name
}

/// Return true if [`random_names`] makes such names of `front` and `back`.
pub(crate) fn is_random_name(name: &OsStr, front: &OsStr, back: &str) -> bool {
    let bytes = name.as_encoded_bytes();
    let rest = bytes.strip_prefix(front.as_encoded_bytes());
    let digits = rest.and_then(|rest| rest.strip_suffix(back.as_bytes()));
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_digit))
}

/// Opens a file that is there, without following a link at its name and without waiting for the other end of a pipe.
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidInput`] if it is no regular file.
pub(crate) fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = |why| io::Error::new(ErrorKind::InvalidInput, why);
    let file = without_waiting(options, false).open(path).map_err(|error| {
        // The system speaks of too many links, where one is too many.
        let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        if is_link { refused("a symbolic link, which is not followed here; remove it") } else { error }
    })?;
    let is_file = file.metadata()?.is_file();
    if is_file { Ok(file) } else { Err(refused("not a regular file")) }
}

/// Opens a file to read it, without waiting for the other end of a pipe; the caller looks at its kind.
///
/// # Errors
/// What the system says.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    without_waiting(OpenOptions::new().read(true), true).open(path)
}

#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions, follows: bool) -> &mut OpenOptions {
    let links = if follows { 0 } else { libc::O_NOFOLLOW };
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK | links)
}

/// Elsewhere pipes have no names in folders.
#[cfg(not(unix))]
fn without_waiting(options: &mut OpenOptions, _follows: bool) -> &mut OpenOptions {
    options
}

/// Takes a file from all but its owner; what its owner may do stays.
///
/// # Errors
/// What the system says.
#[cfg(unix)]
pub(crate) fn keep_from_others(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(mode & 0o700))
}

/// Other systems take over who may read a file from its folder.
#[cfg(not(unix))]
pub(crate) fn keep_from_others(_file: &File) -> io::Result<()> {
    Ok(())
}

/// The file that `path` leads to, links followed; `None` if there is nothing.
///
/// # Errors
/// [`Problem::Directory`], [`Problem::NotAFile`], [`Problem::Dangling`], or what the system says.
pub(crate) fn find(path: &Path) -> Result<Option<PathBuf>, Problem> {
    match fs::metadata(path) {
        Ok(metadata) => check_kind(&metadata)?,
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
            return Err(Problem::Dangling);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let link = fs::symlink_metadata(path)?.is_symlink();
    Ok(Some(if link { fs::canonicalize(path)? } else { path.into() }))
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What the names of temporary files beside `path` begin with.
pub(crate) fn temp_front(path: &Path) -> OsString {
    let mut front = OsString::from(".");
    front.push(path.file_name().unwrap_or_default());
    front.push(".");
    front
}

/// What the names of temporary files end with.
pub(crate) const TEMP_BACK: &str = ".tmp";

/// Makes the names in a folder durable.
///
/// # Errors
/// What the system says.
#[cfg(unix)]
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // A file system without such a thing: names are as durable there as they get.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// Other systems cannot open folders; their renames are durable by themselves.
#[cfg(not(unix))]
pub(crate) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// The file that `path` leads to, or would.
fn target_of(path: &Path) -> Result<PathBuf, Problem> {
    let found = find(path)?;
    if path.file_name().is_none() {
        return Err(Problem::Directory);
    }
    Ok(found.unwrap_or_else(|| path.into()))
}

/// Finds out whether a file can be written at `path`, by making one beside it that is removed at once, and by opening what is there. So whoever
/// has long to compute before there is anything to save hears of it first. Nothing is changed.
///
/// # Errors
/// [`FileError`] with the path of the file, or of the folder that it should be in: nothing there, a directory, a pipe or a device, a link to
/// nothing, or what the system says, for example that the folder cannot be written to.
///
/// # Example
/// ```
/// use backstitch_kv::file::{Problem, check_target};
///
/// let folder = tempfile::tempdir()?;
/// check_target(folder.path().join("a.bst"))?;
/// let error = check_target(folder.path()).unwrap_err();
/// assert!(matches!(error.problem, Problem::Directory));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_target(path: impl AsRef<Path>) -> Result<(), FileError> {
    let path = path.as_ref();
    let of_file = |problem| FileError { path: path.into(), problem };
    let target = target_of(path).map_err(of_file)?;
    if let Err(error) = open_plain(&target, OpenOptions::new().read(true).write(true))
        && error.kind() != ErrorKind::NotFound
    {
        return Err(of_file(error.into()));
    }
    let folder = folder_of(&target);
    let made = random_names(folder, &temp_front(&target), TEMP_BACK, create);
    let removed = made.and_then(|(_, temp)| match fs::remove_file(temp) {
        // Somebody who saves there took it for what a killed process left.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    });
    removed.map_err(|error| {
        let problem = if folder.is_dir() { Problem::Io(error) } else { Problem::from(error) };
        FileError { path: folder.into(), problem }
    })
}

#[cfg(test)]
mod tests;
