use super::*;
use std::time::Duration;

/// Acquires the lock, waiting so long; its file goes or stays.
fn acquire(path: &Path, most: Duration, goes: bool) -> io::Result<Lock> {
    lock(path, Wait { most, stop: &|| false, goes })
}

/// Locks, and counts how many have it at once.
#[test]
fn one_at_a_time_has_a_lock_whose_file_goes_and_comes() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let (inside, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let lock = acquire(&path, Duration::from_secs(60), true).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    total.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    drop(lock);
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 800);
    assert!(cfg!(not(unix)) || !path.exists());
}

#[test]
fn a_lock_file_that_was_there_is_not_fresh_and_becomes_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    fs::write(&path, b"").unwrap();
    let lock = acquire(&path, Duration::ZERO, false).unwrap();
    assert!(!lock.is_fresh);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    drop(lock);
    assert!(path.exists(), "it was not told to go");
    fs::remove_file(&path).unwrap();
    assert!(acquire(&path, Duration::ZERO, false).unwrap().is_fresh);
}

#[test]
fn a_file_that_another_locked_first_is_known_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let (file, is_made) = open(&path).unwrap().unwrap();
    let (other, _) = open(&path).unwrap().unwrap();
    other.try_lock().unwrap();
    let unlock = || other.unlock().is_err();
    let wait = Wait { most: Duration::from_secs(60), stop: &unlock, goes: false };
    assert!(is_made && !lock_file(&file, wait, Instant::now()).unwrap());
    file.unlock().unwrap();
    assert!(lock_file(&file, wait, Instant::now()).unwrap());
}

#[cfg(unix)]
#[test]
fn a_lock_file_of_another_that_came_in_its_place_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = acquire(&path, Duration::ZERO, true).unwrap();
    fs::remove_file(&path).unwrap();
    let other = acquire(&path, Duration::ZERO, false).unwrap();
    drop(lock);
    assert!(path.exists());
    assert_eq!(acquire(&path, Duration::ZERO, false).map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(other);
}

#[test]
fn waiting_ends_when_it_is_told_to_and_a_free_lock_is_had_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let minute = Duration::from_secs(60);
    let wait = |stop| lock(&path, Wait { most: minute, stop, goes: false });
    let held = wait(&|| true).unwrap();
    let asked = std::cell::Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) == 3;
    assert_eq!(wait(&stop).map(drop).unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(asked.get(), 4);
    drop(held);
}

#[cfg(unix)]
#[test]
fn a_link_in_place_of_a_lock_file_is_called_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    let error = acquire(&path, Duration::ZERO, false).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "a symbolic link, which is not followed here; remove it");
}
