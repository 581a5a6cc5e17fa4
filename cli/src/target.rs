//! Files that commands write: no file is replaced that is not of the kind to be written, or holds another
//! text.
//!
//! A [`Target`] is checked before the work, so that nobody waits for what cannot be written. Saved states
//! are written by [`Target::save`], all else by [`Target::write`].

mod found;
mod save;
mod stamp;
mod temporary;
mod text;

use crate::error::{Error, one_line};
pub use found::{Found, is_llama};
use stamp::Stamp;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
pub use temporary::remove_all as remove_temporaries;
use temporary::{Readers, Temporary};
pub use text::{Saving, Text};

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A saved state.
    State,
    /// A session or sequence of llama.cpp.
    LlamaState,
    /// A packed model.
    PackedModel,
    /// A drawing.
    Drawing,
}

/// A file that can be written, and may be replaced if it is there.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    path: &'a Path,
    option: &'static str,
    kind: Kind,
    /// Where the command goes on with the text in this file: the file before it was read.
    input: Option<Stamp>,
}

impl<'a> Target<'a> {
    /// Checks that `path`, the value of `option`, can be written, and that nothing of another kind is there.
    ///
    /// # Errors
    /// [`Error::Refused`] for a folder, a device, a file of another kind, one that is write-protected, or
    /// one of
    /// `inputs`; [`Error::Write`] if the folder is not there or takes no files.
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

    /// As [`Target::check`] where the command may write to the file that it reads.
    ///
    /// # Errors
    /// As there.
    pub fn check_in_place(
        path: &'a Path,
        option: &'static str,
        kind: Kind,
        input: Option<&Path>,
        inputs: &[Option<&Path>],
    ) -> Result<Self, Error> {
        let input = input.filter(|input| same_file(input, path)).and_then(Stamp::of);
        Ok(Self { input, ..Self::check(path, option, kind, inputs)? })
    }

    /// The path as it was typed.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Checks that what lies at the path now, if anything, is of the kind to be written.
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
        // It may be another user's.
        File::options().write(true).open(self.path).map_err(|source| self.failed(source))?;
        let found = Found::at(self.path).map_err(|source| self.failed(source))?;
        if found == Found::Empty || found == self.kind.wanted() {
            return Ok(());
        }
        Err(self.refused(&format!(" is {found}, not {}", self.kind.wanted())))
    }

    /// Makes a file in the folder and removes it again.
    fn probe(&self) -> Result<(), Error> {
        if self.path.file_name().is_none() {
            return Err(self.refused(" is no name of a file"));
        }
        if fs::metadata(self.path).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(());
        }
        Temporary::beside(&self.real_path(), Readers::Owner).map(drop).map_err(|source| self.failed(source))
    }

    /// Where the file lies, links followed: it is replaced there, not the link.
    fn real_path(&self) -> PathBuf {
        fs::canonicalize(self.path).unwrap_or_else(|_| self.path.into())
    }

    /// Writes a new file and puts it in place of the old one in one step.
    ///
    /// # Errors
    /// [`Error::Write`], or [`Error::Refused`] if something else lies there by now; the old file stays then.
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
        let written = content(file).map_err(failed)?;
        // Writing takes a while, and others may have put something there.
        self.check_replaceable()?;
        temporary.rename(&path).map_err(failed)?;
        Ok(written)
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Write { path: self.path.into(), source }
    }

    /// The refusal of a file that ` is something`.
    fn refused(&self, is: &str) -> Error {
        let (name, option) = (shown(self.path), self.option);
        Error::Refused(format!("{name}{is}: it is not replaced; name another file for {option}"))
    }
}

impl Kind {
    /// What may be replaced by it.
    fn wanted(self) -> Found {
        match self {
            Self::State => Found::State,
            Self::LlamaState => Found::LlamaState,
            Self::PackedModel => Found::PackedModel,
            Self::Drawing => Found::Drawing,
        }
    }
}

/// Returns true if both names lead to one file, through links of either sort.
fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a_is), Ok(b_is)) => {
            let is_same = stamp::node(&a_is).is_some_and(|node| stamp::node(&b_is) == Some(node));
            is_same || canonical(a).is_some_and(|a| canonical(b) == Some(a))
        }
        _ => false,
    }
}

fn canonical(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

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
