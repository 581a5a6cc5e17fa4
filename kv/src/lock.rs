//! Locks between processes: a file that only its owner may open, locked as a whole by the system.
//!
//! Whoever may open a file may lock it, to read it is enough, so a lock file is its owner's alone. One that [goes](LockFile::goes) is removed by whoever
//! holds it: those who waited for it find that its name leads elsewhere, and begin anew.

use crate::private::{create, keep_from_others, open_plain};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to sleep between two tries to get a lock.
const PAUSE: Duration = Duration::from_millis(5);

/// A lock that this process holds; dropping it releases it.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    path: PathBuf,
    /// Nobody had it, and nobody who had it died.
    pub is_fresh: bool,
    goes: bool,
}

impl LockFile {
    /// Waits until nobody else holds the lock at `path`, but no longer than `most`. Makes the file if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if somebody held it all the time; [`ErrorKind::InvalidInput`] if there is something else than a file; else what the
    /// system says.
    pub fn acquire(path: &Path, most: Duration) -> io::Result<LockFile> {
        Self::acquire_unless(path, most, &|| false)
    }

    /// As [`LockFile::acquire`], until `stop` returns true, which is asked as long as somebody else holds the lock.
    ///
    /// # Errors
    /// As there; [`ErrorKind::Interrupted`] if `stop` returned true.
    pub fn acquire_unless(path: &Path, most: Duration, stop: &dyn Fn() -> bool) -> io::Result<LockFile> {
        let began = Instant::now();
        loop {
            let Some((file, is_fresh)) = open(path)? else { continue };
            wait(&file, began, most, stop)?;
            // Whoever held it may have removed it, and somebody else may have made another.
            if leads_to(path, &file) {
                return Ok(LockFile { file, path: path.into(), is_fresh, goes: false });
            }
        }
    }

    /// Makes the file go when the lock is released, where the system lets names of open files be compared.
    pub fn goes(mut self) -> Self {
        self.goes = cfg!(unix);
        self
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.goes && leads_to(&self.path, &self.file) {
            // One that stays is as good as one that goes.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The file at `path`, made if there is none, and whether it was; `None` if it was removed meanwhile.
fn open(path: &Path) -> io::Result<Option<(File, bool)>> {
    match create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => return created.map(|file| Some((file, true))),
    }
    match open_plain(path, OpenOptions::new().read(true).write(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(file) => {
            // Where it is another's file, that it can be locked is all that is needed.
            let _ = keep_from_others(&file);
            Ok(Some((file, false)))
        }
    }
}

fn wait(file: &File, began: Instant, most: Duration, stop: &dyn Fn() -> bool) -> io::Result<()> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if stop() => return Err(ErrorKind::Interrupted.into()),
            Err(TryLockError::WouldBlock) if began.elapsed() < most => sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Return true if the name leads to the open file itself.
#[cfg(unix)]
fn leads_to(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (named, open) = (fs::symlink_metadata(path).map(place), file.metadata().map(place));
    named.is_ok_and(|named| open.is_ok_and(|open| named == open))
}

/// Other systems do not tell, and lock files stay there.
#[cfg(not(unix))]
fn leads_to(_path: &Path, _file: &File) -> bool {
    true
}

#[cfg(test)]
mod tests;
