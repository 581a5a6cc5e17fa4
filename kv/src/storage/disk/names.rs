//! Names of files beside others: temporary ones, and ones that nobody can guess.

use core::hash::{BuildHasher, Hasher};
use std::ffi::{OsStr, OsString};
use std::format;
use std::hash::RandomState;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Random names that are tried before giving up; one is enough unless somebody guesses 64 bits.
const TRIES: usize = 16;

/// Digits of a random name.
const DIGITS: usize = 16;

/// End of the names of temporary files.
pub(in crate::storage) const TEMP_BACK: &str = ".tmp";

/// Return the beginning of the names of temporary files beside `path`.
pub(in crate::storage) fn temp_front(path: &Path) -> OsString {
    let mut front = OsString::from(".");
    // A path without a name is refused before.
    front.push(path.file_name().unwrap_or(OsStr::new("")));
    front.push(".");
    front
}

/// Return the folder that a file is in.
pub(in crate::storage) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Call `make` with random names until one of them is free.
///
/// # Errors
/// The error of `make`; [`ErrorKind::AlreadyExists`] if no name was free.
pub(in crate::storage) fn random_names<T>(
    folder: &Path,
    front: &OsStr,
    back: &str,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    for _ in 0..TRIES {
        let path = folder.join(random_name(front, back));
        match make(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|made| (made, path)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn random_name(front: &OsStr, back: &str) -> OsString {
    // The standard library seeds its hashers from the system, so nobody can guess the number.
    let random = RandomState::new().build_hasher().finish();
    let mut name = front.to_owned();
    name.push(format!("{random:0DIGITS$x}{back}"));
    name
}

/// Return true if [`random_names`] makes such names of `front` and `back`.
pub(in crate::storage) fn is_random_name(name: &OsStr, front: &OsStr, back: &str) -> bool {
    let bytes = name.as_encoded_bytes();
    let rest = bytes.strip_prefix(front.as_encoded_bytes());
    let digits = rest.and_then(|rest| rest.strip_suffix(back.as_bytes()));
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_names_are_known_again_and_others_are_not() {
        let front = temp_front(Path::new("folder/a.bst"));
        assert_eq!(front, ".a.bst.");
        let name = random_name(&front, TEMP_BACK);
        assert!(is_random_name(&name, &front, TEMP_BACK), "{name:?}");
        assert_ne!(name, random_name(&front, TEMP_BACK));
        for other in [
            ".a.bst.tmp",
            ".a.bst.0123456789ABCDEF.tmp",
            ".a.bst.0123456789abcde.tmp",
            "a.bst",
            ".a.bst.lock",
        ] {
            assert!(!is_random_name(OsStr::new(other), &front, TEMP_BACK), "{other}");
        }
    }
}
