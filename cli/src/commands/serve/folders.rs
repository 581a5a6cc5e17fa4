//! The folders in which the server keeps files, checked before it listens.

use crate::args::SlotArgs;
use crate::error::{Error, plain};
use crate::output::note;
use backstitch_server::engine::check_folder;
use std::io;
use std::path::Path;

/// Check the folders. A folder of saved slots that can only be read is no error, because slots can
/// be restored from it: a warning says that none is saved.
///
/// # Errors
/// [`Error::Refused`] with the path of a folder that cannot be used.
pub fn check_folders(args: &SlotArgs) -> Result<(), Error> {
    if let Some(folder) = &args.state {
        check_folder(folder).map_err(|error| unwritable("--state", folder, &error))?;
    }
    if let Some(folder) = &args.slot_save_path
        && let Some(warning) = check_slots(folder, check_folder(folder))?
    {
        note("warning", warning);
    }
    Ok(())
}

fn unwritable(option: &str, folder: &Path, error: &io::Error) -> Error {
    let (folder, cause) = (folder.display(), plain(error));
    Error::Refused(format!("{option} {folder} is no folder that can be written: {cause}"))
}

/// Return the warning about a folder of saved slots, of which is known if it can be written.
///
/// # Errors
/// [`Error::Refused`] if it cannot be read either.
fn check_slots(folder: &Path, writable: io::Result<()>) -> Result<Option<String>, Error> {
    let Err(error) = writable else { return Ok(None) };
    match std::fs::read_dir(folder) {
        Ok(_) => Ok(Some(format!(
            "--slot-save-path {} cannot be written, so slots are restored from it and not saved: {}",
            folder.display(),
            plain(&error)
        ))),
        Err(_) => Err(unwritable("--slot-save-path", folder, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_slots_may_be_read_only() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(check_slots(folder.path(), Ok(())).unwrap(), None);
        let warning = check_slots(folder.path(), refused()).unwrap().unwrap();
        assert!(warning.contains(&folder.path().display().to_string()), "{warning}");
        let none = folder.path().join("none");
        assert!(matches!(check_slots(&none, refused()), Err(Error::Refused(text)) if text.contains("none")));
    }
}
