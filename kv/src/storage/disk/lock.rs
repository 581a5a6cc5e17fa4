//! Locks between processes: a file that only its owner may open, locked as a whole by the system.
//!
//! Whoever may open a file may lock it, to read it is enough, so a lock file is its owner's alone.
//! One that goes with the lock is removed by its holder: those who waited for it find that its name
//! leads elsewhere, and begin anew.

use super::private::{Readers, create, keep_from_others};
use super::{Lock, Wait};
use crate::file::open_plain;
use std::boxed::Box;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time to sleep between two tries to get a lock.
const PAUSE: Duration = Duration::from_millis(5);

/// A lock file that this process has locked; dropping it releases it.
struct LockFile {
    file: File,
    path: PathBuf,
    goes: bool,
}

/// Wait until nobody else holds the lock at `path`. Makes the file if there is none.
///
/// # Errors
/// [`ErrorKind::WouldBlock`] if somebody held it for as long as `wait.most` says;
/// [`ErrorKind::Interrupted`] if `wait.stop` returned true; [`ErrorKind::InvalidInput`] if there is
/// something else than a file; else what the system says.
pub(super) fn lock(path: &Path, wait: Wait<'_>) -> io::Result<Lock> {
    let began = Instant::now();
    loop {
        let Some((file, is_made)) = open(path)? else { continue };
        // Somebody may lock a file before whoever made it does.
        let is_fresh = lock_file(&file, wait, began)? && is_made;
        // Whoever held it may have removed it, and somebody else may have made another.
        if leads_to(path, &file) {
            let guard = Box::new(LockFile { file, path: path.into(), goes: wait.goes && cfg!(unix) });
            return Ok(Lock { is_fresh, guard });
        }
    }
}

/// Wait until nobody else has locked the file, and return true if that took no waiting.
fn lock_file(file: &File, wait: Wait<'_>, began: Instant) -> io::Result<bool> {
    let mut is_first = true;
    while let Err(error) = file.try_lock() {
        match error {
            TryLockError::WouldBlock if (wait.stop)() => return Err(ErrorKind::Interrupted.into()),
            TryLockError::WouldBlock if began.elapsed() < wait.most => sleep(PAUSE),
            error => return Err(error.into()),
        }
        is_first = false;
    }
    Ok(is_first)
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.goes && leads_to(&self.path, &self.file) {
            // One that stays is as good as one that goes.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Open the file at `path`, and return true with it if it was made; `None` if it was removed
/// meanwhile.
fn open(path: &Path) -> io::Result<Option<(File, bool)>> {
    match create(path, Readers::Owner) {
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
