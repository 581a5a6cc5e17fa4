//! The files that commands write, and the rule that nothing is lost by writing them.
//!
//! A command replaces a file only if it has the kind that the command writes, and a saved state
//! only if the new one holds its text as well. A [`Target`] is checked before the work, so that
//! nobody waits minutes for a file that cannot be written, and again when it is written, because
//! other programs may have written there meanwhile. [`Target::save`] writes saved states,
//! [`Target::write`] other files.
//!
//! `found` recognises kinds of files, `text` compares texts, `stamp` notices changes, and
//! `temporary` makes the new file that gets the name at the end.

mod found;
mod save;
mod stamp;
mod temporary;
mod text;

use crate::error::Error;
use crate::output::one_line;
pub use found::{Found, Kind, is_llama};
pub use stamp::Stamp;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
pub use temporary::remove_all as remove_temporaries;
use temporary::{Readers, Temporary};
pub use text::{Saving, Text};

/// A path that was checked: a file can be written there, and may replace the file that is there.
///
/// Commands make one from an option before their work, and write through it afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The path as it was typed.
    path: &'a Path,
    /// The option that named the path, for errors.
    option: &'static str,
    /// The kind of file that will be written, the only one that may be replaced.
    kind: Kind,
    /// If the command continues the text of this very file: the file as it was before it was read.
    input: Option<Stamp>,
}

impl<'a> Target<'a> {
    /// Check that `path`, the value of `option`, can be written, and that no file of another kind
    /// is there. `inputs` are files that the command reads.
    ///
    /// # Errors
    /// - [`Error::Refused`] for a folder, a device, a file of another kind, a write-protected file,
    ///   or one of `inputs`.
    /// - [`Error::Write`] if the folder does not exist or no file can be made in it.
    pub fn check(
        path: &'a Path,
        option: &'static str,
        kind: Kind,
        inputs: &[Option<&Path>],
    ) -> Result<Self, Error> {
        let target = Self { path, option, kind, input: None };
        if path == Path::new("-") {
            return Err(Error::Refused(format!(
                "{option} -: this is not written to standard output; name a file, or ./- for one of that name"
            )));
        }
        if let Some(input) = inputs.iter().flatten().find(|input| same_file(input, path)) {
            let is = if *input == path { String::new() } else { format!(" is {} and", shown(input)) };
            return Err(target.refused(&format!("{is} is read by this command")));
        }
        target.check_replaceable()?;
        target.probe()?;
        Ok(target)
    }

    /// Check a path that may also be `input`, a file that the command reads and continues.
    ///
    /// # Errors
    /// The errors of [`Target::check`].
    pub fn check_in_place(
        path: &'a Path,
        option: &'static str,
        kind: Kind,
        input: Option<&Path>,
        inputs: &[Option<&Path>],
    ) -> Result<Self, Error> {
        let input = input.filter(|input| same_file(input, path)).and_then(Stamp::of);
        Ok(Self::check(path, option, kind, inputs)?.continuing(input))
    }

    /// Return the target of a command that continues the text of a file that it read or wrote
    /// before. `input` is the file as it was then.
    pub fn continuing(self, input: Option<Stamp>) -> Self {
        Self { input, ..self }
    }

    /// Return the path as it was typed.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Check that the file at the path now, if there is one, may be replaced.
    fn check_replaceable(&self) -> Result<(), Error> {
        match fs::metadata(self.path) {
            Ok(metadata) => self.check_existing(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(self.path).is_ok() {
                    return Err(self.refused(" is a link to nothing"));
                }
                Ok(())
            }
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Check that an existing file is writable and has the kind to be written. An empty file may
    /// always be replaced, and a drawing may go to a device or pipe.
    fn check_existing(&self, metadata: &fs::Metadata) -> Result<(), Error> {
        if metadata.is_dir() {
            let (name, option) = (shown(self.path), self.option);
            return Err(Error::Refused(format!("{name} is a folder; name a file in it for {option}")));
        }
        if !metadata.is_file() {
            return if self.kind == Kind::Drawing {
                Ok(())
            } else {
                Err(self.refused(" is not a regular file"))
            };
        }
        if metadata.permissions().readonly() {
            return Err(self.refused(" is write-protected"));
        }
        // The permission bits do not say whether this user may write.
        File::options().write(true).open(self.path).map_err(|source| self.failed(source))?;
        let found = Found::at(self.path).map_err(|source| self.failed(source))?;
        if found == Found::Empty || found == Found::Is(self.kind) {
            return Ok(());
        }
        Err(self.refused(&format!(" is {found}, not {}", Found::Is(self.kind))))
    }

    /// Make a file in the folder and remove it again, to see that the folder takes files.
    fn probe(&self) -> Result<(), Error> {
        if self.path.file_name().is_none() {
            return Err(self.refused(" is no name of a file"));
        }
        if fs::metadata(self.path).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(());
        }
        Temporary::beside(&self.real_path(), Readers::Owner).map(drop).map_err(|source| self.failed(source))
    }

    /// Return the path with links followed: the file is replaced, not a link to it.
    fn real_path(&self) -> PathBuf {
        fs::canonicalize(self.path).unwrap_or_else(|_| self.path.into())
    }

    /// Write a new file beside the old one and put it in its place atomically. Its content is on
    /// the disk before it gets the name, so that a loss of power leaves the old file or the new.
    ///
    /// # Errors
    /// - [`Error::Write`] if writing fails.
    /// - [`Error::Refused`] if a file of another kind is there by now.
    ///
    /// The old file stays as it was then, unless only the last step failed, which makes the name of
    /// the new one durable.
    pub fn write<T>(&self, content: impl FnOnce(File) -> io::Result<T>) -> Result<T, Error> {
        let failed = |source| self.failed(source);
        let path = self.real_path();
        let old = fs::metadata(&path).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return File::options().write(true).open(&path).and_then(content).map_err(failed);
        }
        let readers = if self.kind == Kind::LlamaState { Readers::Owner } else { Readers::Usual };
        let (temporary, file) = Temporary::beside(&path, readers).map_err(failed)?;
        if let Some(old) = old.filter(|_| readers == Readers::Usual) {
            file.set_permissions(old.permissions()).map_err(failed)?;
        }
        let synced = file.try_clone().map_err(failed)?;
        let written = content(file).map_err(failed)?;
        synced.sync_all().map_err(failed)?;
        // Other programs may have written there meanwhile.
        self.check_replaceable()?;
        temporary.rename(&path).map_err(failed)?;
        Ok(written)
    }

    /// Make the error about a failed write.
    fn failed(&self, source: io::Error) -> Error {
        Error::Write { path: self.path.into(), source }
    }

    /// Make the error about a file that is not replaced. `is` says why, with its verb: " is a
    /// folder".
    fn refused(&self, is: &str) -> Error {
        let (name, option) = (shown(self.path), self.option);
        Error::Refused(format!("{name}{is}: it is not replaced; name another file for {option}"))
    }
}

/// Return true if both paths lead to one file, also through symbolic or hard links.
fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a_is), Ok(b_is)) => {
            let is_same = stamp::node(&a_is).is_some_and(|node| stamp::node(&b_is) == Some(node));
            is_same || fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
        }
        _ => false,
    }
}

/// Return the path as text on one line, for errors.
fn shown(path: &Path) -> String {
    one_line(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_there_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.svg");
        let target = Target::check(&path, "--svg", Kind::Drawing, &[]).unwrap();
        let written = target.write(|_| fs::write(&path, "Dear Tim,"));
        assert!(matches!(written, Err(Error::Refused(_))), "{written:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "Dear Tim,");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
