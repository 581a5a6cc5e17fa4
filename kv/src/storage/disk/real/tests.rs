use super::super::{create_beside, replace};
use super::*;

/// Return the names in a folder.
fn names(folder: &Path) -> Vec<OsString> {
    let mut names = RealDisk.names_in(folder).unwrap();
    names.sort();
    names
}

#[cfg(unix)]
#[test]
fn a_target_that_cannot_be_written_is_told_before_and_one_that_can_stays_as_it_is() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), b"old").unwrap();
    symlink("nowhere", at("link")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let before = names(folder.path());
    check_target(at("file")).unwrap();
    check_target(at("new")).unwrap();
    let problem = |name: &str| check_target(at(name)).unwrap_err();
    assert!(matches!(problem("").problem, Problem::Directory));
    assert!(matches!(problem("link").problem, Problem::Dangling));
    assert!(matches!(problem("pipe").problem, Problem::NotAFile));
    let missing = problem("missing/new");
    assert!(matches!(missing.problem, Problem::Missing) && *missing.path == *at("missing"), "{missing}");
    assert!(matches!(problem("file/new").problem, Problem::Io(_)));
    assert_eq!(names(folder.path()), before);
    assert_eq!(fs::read(at("file")).unwrap(), b"old");
}

#[cfg(unix)]
#[test]
fn a_file_is_replaced_as_a_whole_or_not_at_all_and_a_link_is_not_followed() {
    use super::super::is_random_name;
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), b"old").unwrap();
    symlink("file", at("link")).unwrap();
    let before = names(folder.path());
    let failed = replace(at("file"), Readers::Owner, |file| {
        file.write_all(b"half")?;
        // A saver at the same path takes what this looks like for what a killed process left.
        let swept = temp_front(&at("file"));
        let names = names(folder.path());
        assert!(names.len() == 3 && !names.iter().any(|name| is_random_name(name, &swept, TEMP_BACK)));
        Err(io::Error::from(ErrorKind::StorageFull))
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(fs::read(at("file")).unwrap(), b"old");
    replace(at("link"), Readers::Owner, |file| file.write_all(b"new")).unwrap();
    assert_eq!(fs::read(at("file")).unwrap(), b"old");
    let link = fs::symlink_metadata(at("link")).unwrap();
    assert!(link.is_file() && link.permissions().mode() & 0o777 == 0o600);
    assert_eq!((fs::read(at("link")).unwrap(), names(folder.path())), (b"new".into(), before));
}

#[test]
fn what_killed_writers_left_goes_and_what_others_write_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (left, others) =
        (at("a.0123456789abcdef.tmp"), ["a.b.0123456789abcdef.tmp", ".a.0123456789abcdef.tmp"]);
    let (living, path) = create_beside(&at("a"), Readers::Usual).unwrap();
    fs::write(&left, b"half").unwrap();
    others.iter().for_each(|name| fs::write(at(name), b"").unwrap());
    replace(at("a"), Readers::Owner, |file| file.write_all(b"new")).unwrap();
    assert!(!left.exists() && path.exists() && others.iter().all(|name| at(name).exists()));
    drop(living);
    replace(at("a"), Readers::Usual, |file| file.write_all(b"newer")).unwrap();
    assert!(!path.exists());
    assert_eq!(names(folder.path()).len(), 3);
}
