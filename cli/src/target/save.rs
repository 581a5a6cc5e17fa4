//! Saving states without losing any, even if several processes save to one file.
//!
//! Another process may save between the check of a target and the save. So the file is checked once
//! more while `backstitch_kv` holds its lock. If it holds another text by then, the state is saved
//! to a new file beside it, and a warning says so.

use super::{Target, Text, shown};
use crate::error::Error;
use crate::interrupt;
use crate::output::note;
use backstitch_kv::storage::{self, Saved, Watch};
use backstitch_models::Error as ModelError;
use std::path::{Path, PathBuf};

/// The answers that a save asks for while it runs: may it still replace the file, and did a signal
/// arrive?
struct Keeper<'a> {
    target: Target<'a>,
    text: Text<'a>,
    force: bool,
}

impl Watch for Keeper<'_> {
    fn stops_waiting(&self) -> bool {
        interrupt::cancel().is_cancelled()
    }

    fn may_write(&self, _path: &Path) -> bool {
        self.target.may_hold(self.text, self.force)
    }
}

impl Target<'_> {
    /// Save `text` by calling `save` with a path: that of the target, or a free name beside it if
    /// the target holds a file of another kind by now, or another text without `force`. Returns the
    /// path. A signal ends the waiting for another process's lock.
    ///
    /// # Errors
    /// - [`Error::NotSaved`] if the disk refuses.
    /// - The other errors of `save`.
    pub fn save(
        &self,
        text: Text<'_>,
        force: bool,
        mut save: impl FnMut(&Path, &dyn Watch) -> Result<Saved, ModelError>,
    ) -> Result<(PathBuf, Saved), Error> {
        interrupt::ask_again();
        loop {
            let is_own = self.may_hold(text, force);
            let path = if is_own { self.path.into() } else { self.free_name() };
            let input = self.input.filter(|_| is_own);
            let target = Target { path: &path, input, ..*self };
            let was_there = path.exists();
            match save(&path, &Keeper { target, text, force: force && is_own }) {
                Ok(saved) => {
                    if !is_own {
                        self.warn_of(&path);
                    }
                    return Ok((path, saved));
                }
                // Another process saved first: choose a path again.
                Err(ModelError::State(storage::Error::NotReplaced { .. })) => {}
                Err(ModelError::State(source @ storage::Error::File { .. })) => {
                    return Err(Error::NotSaved { source, was_there });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Warn that the state was saved beside the target.
    fn warn_of(&self, path: &Path) {
        let (name, path) = (shown(self.path), shown(path));
        let why = "holds another text, or something else by now, and is not replaced";
        note("warning", format_args!("{name} {why}; saved to {path}"));
    }

    /// Return true if nothing is lost when `text` replaces the file that is at the path now.
    fn may_hold(&self, text: Text<'_>, force: bool) -> bool {
        self.check_replaceable().is_ok() && (force || self.expect_text(text).is_ok())
    }

    /// Return a free name beside the target: `diary.2.bst` for `diary.bst`, or the next number that
    /// is free.
    fn free_name(&self) -> PathBuf {
        debug_assert!(
            self.path.file_stem().is_some(),
            "{}: checked to be the path of a file",
            self.path.display()
        );
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = self.path.extension().map_or(String::new(), |text| format!(".{}", text.display()));
        let name = |n: u32| self.path.with_file_name(format!("{stem}.{n}{extension}"));
        (2..).map(name).find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| self.path.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Saving};
    use super::*;
    use backstitch_models::{Context, Model, Params, SaveOptions, Token};
    use std::fs;

    /// Save these tokens to a file. `before` runs after the target was checked, as another process
    /// might.
    fn save(target: &Target<'_>, tokens: &[u32], before: impl Fn(&Path)) -> PathBuf {
        let model = Model::from_bytes(crate::embedded::GGUF).unwrap();
        let mut ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
        let seq = ctx.sequence().unwrap();
        let tokens: Vec<Token> = tokens.iter().map(|id| Token(*id)).collect();
        ctx.append(seq, &tokens).unwrap();
        let text = Text { model: &model.fingerprint(), tokens: &tokens, saving: Saving::All };
        let saved = target.save(text, false, |path, watch| {
            before(path);
            ctx.save_watched(Some(seq), path, &SaveOptions::default(), watch)
        });
        saved.unwrap().0
    }

    fn check(path: &Path) -> Target<'_> {
        Target::check_in_place(path, "--save", Kind::State, Some(path), &[]).unwrap()
    }

    #[test]
    fn a_state_is_saved_beside_what_came_there_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bst");
        let target = check(&path);
        let another = |there: &Path| {
            if there == path {
                fs::write(there, "Dear Tim,").unwrap();
            }
        };
        assert_eq!(save(&target, &[5, 6], another), folder.path().join("a.2.bst"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "Dear Tim,");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(save(&target, &[5, 6], |_| ()), folder.path().join("a.3.bst"));
    }

    #[test]
    fn of_two_that_go_on_with_one_state_the_later_is_saved_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bst");
        save(&check(&path), &[5, 6], |_| ());
        let (first, second) = (check(&path), check(&path));
        let other = |there: &Path| {
            if there == path {
                save(&first, &[5, 6, 7], |_| ());
            }
        };
        assert_eq!(save(&second, &[5, 6, 8], other), folder.path().join("a.2.bst"));
        let third = check(&path);
        // A text that continues the file's loses nothing.
        assert_eq!(save(&third, &[5, 6, 7, 9], |_| ()), path);
        // The command's own input may be replaced by a shorter text.
        assert_eq!(save(&check(&path), &[5], |_| ()), path);
    }
}
