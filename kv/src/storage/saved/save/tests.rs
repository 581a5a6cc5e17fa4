//! Saves that are interrupted at every step.

use super::*;
use crate::storage::container::tests::forge::forged;
use crate::storage::disk::RealDisk;
use crate::storage::disk::fake::{FakeDisk, Fault};
use crate::storage::{Fingerprint, Scope, StateFile, Tag};
use std::fs;
use std::string::ToString;
use std::{format, vec};

const HEADER: Header = Header { fingerprint: Fingerprint([3; 32]), scope: Scope::Context };
const OTHER: Header = Header { fingerprint: Fingerprint([4; 32]), scope: Scope::Context };
const BLOCK: Tag = Tag(*b"BLCK");

/// A state: blocks named by a number each, which also says what is in them.
type State = Vec<u64>;

fn content(number: u64) -> Vec<u8> {
    (0..900).map(|i| (number * 7 + i) as u8).collect()
}

fn fill(state: &State) -> impl FnMut(&mut Writer<'_>) -> Result<(), Error> {
    let state = state.clone();
    move |writer| {
        let mut blocks = state.iter().zip(0..);
        blocks.try_for_each(|(&number, index)| writer.section(BLOCK, 1, true, index, &[&content(number)]))
    }
}

fn save_to(disk: &dyn Disk, path: &Path, state: &State) -> Result<Saved, Error> {
    save(disk, path, HEADER, Sync::Yes, &mut fill(state))
}

/// Return the state in a file.
fn read(bytes: &[u8]) -> Result<State, Error> {
    let container = Container::parse(bytes)?;
    container.check()?;
    let number =
        |section| Ok(container.read(section)?.first().map(|&byte| u64::from(byte.wrapping_mul(183))));
    // 183 * 7 = 1 modulo 256.
    let numbers = container.sections().map(number).collect::<Result<Option<State>, Error>>()?;
    let numbers = numbers.unwrap_or_default();
    let whole = container
        .sections()
        .zip(&numbers)
        .all(|(section, &number)| container.read(section).is_ok_and(|bytes| *bytes == content(number)));
    assert!(whole);
    Ok(numbers)
}

/// The content of the path: nothing, or a state. Anything that cannot be read is what the promise
/// rules out.
fn found(disk: &FakeDisk) -> Option<State> {
    disk.bytes(path()).map(|bytes| read(&bytes).unwrap())
}

fn path() -> &'static Path {
    Path::new("/states/a.bst")
}

/// Return a disk with a state that was saved step by step.
fn disk_of(states: &[State]) -> FakeDisk {
    let disk = FakeDisk::new();
    for state in states {
        save_to(&disk, path(), state).unwrap();
    }
    disk
}

/// Save `new` over what `before` has, with every fault at every operation.
fn faults_leave_old_or_new(before: &FakeDisk, old: Option<State>, new: &State) {
    for fault in [Fault::Error, Fault::Tear, Fault::Kill, Fault::KillAfter] {
        let mut n = 0;
        loop {
            let disk = before.after_kill();
            disk.fail_at(n, fault);
            let result = save_to(&disk, path(), new);
            let context = format!("{fault:?} at operation {n}: {result:?}");
            check_images(&disk, result.is_ok(), &old, new, &context);
            if let Err(Error::SavedBeside { path, .. }) = &result {
                assert_eq!(read(&disk.after_power_loss(0).bytes(path).unwrap()).unwrap(), *new, "{context}");
            }
            if disk.operations() <= n {
                assert!(result.is_ok() && n > 5, "{context}");
                break;
            }
            n += 1;
        }
    }
}

fn check_images(disk: &FakeDisk, durable: bool, old: &Option<State>, new: &State, context: &str) {
    let killed = disk.after_kill();
    let snapshots = (0..40).map(|seed| disk.after_power_loss(seed)).chain([killed]);
    for (seed, snapshot) in snapshots.enumerate() {
        let left = found(&snapshot);
        assert!(left.as_ref() == Some(new) || (!durable && left == *old), "{context}, seed {seed}: {left:?}");
        if seed % 8 == 0 {
            let later = vec![90, 91];
            save_to(&snapshot, path(), &later).unwrap();
            assert_eq!(found(&snapshot), Some(later));
            let mut names = snapshot.names();
            names.retain(|name| !name.to_str().unwrap().contains(UNSAVED));
            assert_eq!(names, [path()], "{context}");
        }
    }
}

#[test]
fn a_fault_anywhere_in_a_first_save_leaves_nothing_or_the_new_state() {
    faults_leave_old_or_new(&FakeDisk::new(), None, &vec![1, 2, 3]);
}

#[test]
fn a_fault_anywhere_in_an_append_leaves_the_old_or_the_new_state() {
    let states = [vec![1, 2, 3], vec![1, 2, 3, 4], vec![1, 2, 3, 4, 5]];
    for n in 1..=3 {
        let new = [&states[n - 1][..], &[77]].concat();
        let disk = disk_of(&states[..n]);
        let saved = save_to(&disk.after_kill(), path(), &new).unwrap();
        assert!(saved.appended);
        faults_leave_old_or_new(&disk, Some(states[n - 1].clone()), &new);
    }
}

#[test]
fn a_fault_anywhere_in_a_compaction_leaves_the_old_or_the_new_state() {
    let (old, new) = (vec![1, 2, 3, 4, 5, 6], vec![7, 8]);
    let disk = disk_of(core::slice::from_ref(&old));
    let saved = save_to(&disk.after_kill(), path(), &new).unwrap();
    assert!(saved.replaced);
    assert_eq!(saved.container.waste, 0);
    faults_leave_old_or_new(&disk, Some(old), &new);
}

#[test]
fn a_fault_after_an_interrupted_append_changes_nothing() {
    let (old, new) = (vec![1, 2, 3], vec![1, 2, 3, 4]);
    let bytes = disk_of(core::slice::from_ref(&old)).bytes(path()).unwrap();
    let longer = [&bytes[..], &[0x55; 5000]].concat();
    let disk = FakeDisk::with(&[(path(), &longer)]);
    faults_leave_old_or_new(&disk, Some(old), &new);
}

#[test]
fn a_synced_save_is_durable_even_where_the_one_before_was_not() {
    let disk = FakeDisk::new();
    save(&disk, path(), HEADER, Sync::No, &mut fill(&vec![1, 2])).unwrap();
    let saved = save_to(&disk, path(), &vec![1, 2, 3]).unwrap();
    assert!(saved.appended);
    for seed in 0..40 {
        assert_eq!(found(&disk.after_power_loss(seed)), Some(vec![1, 2, 3]), "seed {seed}");
    }
}

#[test]
fn a_full_disk_leaves_the_old_state_and_no_remains() {
    let old = vec![1, 2, 3];
    let first = disk_of(&[]);
    let needed = save_to(&first, path(), &old).unwrap().container.bytes;
    for room in (0..needed).step_by(100) {
        let disk = FakeDisk::new();
        disk.limit(room);
        let error = save_to(&disk, path(), &old).unwrap_err();
        assert!(matches!(error, Error::File { operation: Operation::Write, .. }), "{error}");
        assert!(disk.names().is_empty());
    }
    for room in (0..900).step_by(50) {
        let disk = disk_of(core::slice::from_ref(&old));
        disk.limit(needed + room);
        let error = save_to(&disk, path(), &vec![1, 2, 3, 4]).unwrap_err();
        assert!(error.to_string().starts_with("cannot write: /states/a.bst: "), "{error}");
        assert_eq!(found(&disk), Some(old.clone()));
        assert_eq!(disk.bytes(path()).unwrap().len() as u64, needed);
    }
}

#[test]
fn what_is_no_state_of_this_model_is_replaced_and_not_continued() {
    let new = vec![1, 2];
    let mut damaged = disk_of(&[vec![1, 2, 3]]).bytes(path()).unwrap();
    damaged[20] ^= 1;
    let foreign = {
        let disk = FakeDisk::new();
        save(&disk, path(), OTHER, Sync::Yes, &mut fill(&vec![5])).unwrap();
        disk.bytes(path()).unwrap()
    };
    let mut stream = Vec::new();
    let mut writer = Writer::new(&mut stream, HEADER).unwrap();
    fill(&vec![8])(&mut writer).unwrap();
    writer.finish().unwrap();
    let endless = forged(disk_of(&[vec![1, 2, 3]]).bytes(path()).unwrap(), |_| {}, u64::MAX);
    assert!(read(&endless).is_ok());
    for before in [&b"GGUF, or anything else"[..], b"", &damaged, &foreign, &stream, &endless] {
        let disk = FakeDisk::with(&[(path(), before)]);
        assert!(save_to(&disk, path(), &new).unwrap().replaced);
        assert_eq!(found(&disk), Some(new.clone()));
        let disk = FakeDisk::with(&[(path(), before)]);
        disk.fail_at(u64::MAX, Fault::Kill);
        save_to(&disk, path(), &new).unwrap();
        let operations = disk.operations();
        for n in 0..operations - 2 {
            let disk = FakeDisk::with(&[(path(), before)]);
            disk.fail_at(n, Fault::KillAfter);
            save_to(&disk, path(), &new).unwrap_err();
            assert_eq!(disk.bytes(path()).unwrap(), before, "until the renaming, the last but one");
        }
    }
}

#[test]
fn waste_stays_below_half_and_unchanged_blocks_are_not_written_again() {
    let disk = FakeDisk::new();
    let mut replaced = 0;
    for step in 0..60 {
        let state: State = (step..step + 10).collect();
        let saved = save_to(&disk, path(), &state).unwrap();
        assert!(saved.container.waste <= saved.container.bytes / 2);
        assert!(!saved.appended || saved.container.written < 2 * 1024 + 1024, "{saved:?}");
        replaced += usize::from(!saved.appended);
        assert_eq!(found(&disk), Some(state));
    }
    assert!((2..20).contains(&replaced), "{replaced} of 60 saves were new files");
}

#[test]
fn the_state_that_is_continued_can_be_looked_at() {
    let disk = disk_of(&[vec![1, 2, 3]]);
    let mut seen = Vec::new();
    let looking = &mut |writer: &mut Writer<'_>| {
        seen.push(writer.old().map(|old| old.sections().len()));
        fill(&vec![8])(writer)
    };
    save(&disk, path(), HEADER, Sync::Yes, looking).unwrap();
    assert_eq!(seen, [Some(3), None], "the second time for a new file");
}

#[test]
fn an_error_of_the_caller_leaves_the_old_state() {
    let old = vec![1, 2, 3];
    let disk = disk_of(core::slice::from_ref(&old));
    let before = disk.bytes(path()).unwrap();
    for header in [HEADER, OTHER] {
        let failing = &mut |writer: &mut Writer<'_>| {
            writer.section(BLOCK, 1, true, 0, &[&content(9)])?;
            Err(Error::Missing { section: BLOCK, index: 1 })
        };
        let error = save(&disk, path(), header, Sync::Yes, failing).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }));
        assert_eq!(disk.bytes(path()).unwrap(), before);
        assert_eq!(disk.names(), [path()]);
    }
}

#[test]
fn somebody_who_saves_keeps_others_out() {
    let disk = disk_of(&[vec![1]]);
    let inner = disk.clone();
    let nested = &mut |_: &mut Writer<'_>| {
        let error = save_to(&inner, path(), &vec![2]).unwrap_err();
        let text = "/states/.a.bst.lock was locked for 60 s by another process that saves; see whether that one is stopped; saved as /states/a.bst.unsaved-";
        assert!(error.to_string().starts_with(text), "{error}");
        let Error::SavedBeside { path: beside, cause } = error else { unreachable!() };
        assert!(matches!(*cause, Error::Locked { seconds: 60, .. }));
        for seed in 0..40 {
            let left = inner.after_power_loss(seed).bytes(&beside).unwrap();
            assert_eq!(read(&left).unwrap(), [2], "nothing is lost");
        }
        Ok(())
    };
    save(&disk, path(), HEADER, Sync::No, nested).unwrap();
    save_to(&disk, path(), &vec![2]).unwrap();
    assert_eq!(disk.names().len(), 2, "the later save lets the one beside be");
}

#[test]
fn without_sync_a_killed_process_leaves_the_old_or_the_new_state() {
    let (old, new) = (vec![1, 2, 3], vec![1, 2, 3, 4]);
    for n in 0..20 {
        let disk = disk_of(core::slice::from_ref(&old));
        disk.fail_at(n, Fault::Kill);
        let result = save(&disk, path(), HEADER, Sync::No, &mut fill(&new));
        let left = found(&disk.after_kill());
        assert!(left.as_ref() == Some(&new) || (result.is_err() && left.as_ref() == Some(&old)), "{left:?}");
    }
}

/// Content of a state file on the real disk.
fn read_file(path: &Path) -> Result<State, Error> {
    let file = StateFile::open(path)?;
    let container = file.container()?;
    container.check()?;
    let bytes = fs::read(path).unwrap();
    assert_eq!(container.file_len(), bytes.len() as u64);
    read(&bytes)
}

#[test]
fn a_real_file_is_saved_appended_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bst");
    for name in [".a.bst.lock", ".a.bst.0123456789abcdef.tmp", ".a.bst.c.tmp", ".b.bst.0123456789abcdef.tmp"]
    {
        fs::write(folder.path().join(name), b"left by a killed process, or somebody else's").unwrap();
    }
    let states = [vec![1, 2, 3], vec![1, 2, 3, 4], vec![9, 10]];
    let done = states.each_ref().map(|state| {
        let saved = save_to(&RealDisk, &path, state).unwrap();
        assert_eq!(read_file(&path).unwrap(), *state);
        (saved.appended, saved.replaced)
    });
    assert_eq!(done, [(false, false), (true, false), (false, true)], "a first save replaces nothing");
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".a.bst.c.tmp", ".b.bst.0123456789abcdef.tmp", "a.bst"]);
}

#[cfg(unix)]
#[test]
fn only_files_can_be_saved_to_and_nothing_is_opened_before_that_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    fs::create_dir(at("folder")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
    let cases = [
        ("pipe", "is a pipe or a device, not a file; copy its content to a file first"),
        ("folder", "is a directory; name a file in it"),
        ("link", "is a link to nothing; remove it or name a file"),
    ];
    for (name, problem) in cases {
        let error = save_to(&RealDisk, &at(name), &vec![1]).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot open: {} {problem}", at(name).display()));
        assert!(StateFile::open(at(name)).is_err());
    }
    let nowhere = save_to(&RealDisk, &at("missing/a.bst"), &vec![1]).unwrap_err();
    assert!(
        nowhere.to_string().contains("; nor could a file be written beside it: cannot create: "),
        "{nowhere}"
    );
    let Error::NotSaved { cause, .. } = nowhere else { panic!("{nowhere}") };
    assert!(matches!(*cause, Error::File { operation: Operation::Lock, .. }), "{cause}");
    assert!(save_to(&RealDisk, Path::new("/"), &vec![1]).is_err());
    assert!(save_to(&RealDisk, Path::new(""), &vec![1]).is_err());
    assert!(fs::read_dir(folder.path()).unwrap().count() == 3, "nothing was left behind");
}

/// Waiting that nobody stops.
fn no_longer_than(millis: u64) -> Wait<'static> {
    Wait { most: Duration::from_millis(millis), stop: &|| false, goes: true }
}

#[test]
fn a_lock_that_somebody_holds_is_not_waited_for_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = |millis| RealDisk.lock(&path, no_longer_than(millis));
    let held = lock(0).unwrap();
    assert_eq!(lock(30).map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(60_000).map(drop));
        drop(held);
        waiting.join().unwrap().unwrap();
    });
}

#[cfg(unix)]
#[test]
fn every_file_that_a_save_makes_or_continues_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bst");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let others_may_read = || fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let in_between = &mut |writer: &mut Writer<'_>| {
        for entry in fs::read_dir(folder.path()).unwrap() {
            let other = entry.unwrap().path();
            assert!(other == path || mode(&other) == 0o600, "{}", other.display());
        }
        writer.section(BLOCK, 1, true, 0, &[&content(1)])
    };
    assert!(!save(&RealDisk, &path, HEADER, Sync::Yes, in_between).unwrap().appended);
    assert_eq!(mode(&path), 0o600);
    others_may_read();
    assert!(save_to(&RealDisk, &path, &vec![1, 2]).unwrap().appended);
    assert_eq!(mode(&path), 0o600, "a file that is continued");
    others_may_read();
    assert!(save(&RealDisk, &path, OTHER, Sync::Yes, &mut fill(&vec![8])).unwrap().replaced);
    assert_eq!(mode(&path), 0o600, "a file that is replaced");
}

/// Return a lock file that cannot be one: what is saved goes beside, at once.
#[cfg(unix)]
#[test]
fn a_pipe_a_folder_or_a_link_in_place_of_the_lock_is_neither_waited_for_nor_followed() {
    let make = |name: &str, path: &Path| match name {
        "pipe" => assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success()),
        "folder" => fs::create_dir(path).unwrap(),
        _ => std::os::unix::fs::symlink(path.with_file_name("elsewhere"), path).unwrap(),
    };
    for name in ["pipe", "folder", "link"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bst");
        save_to(&RealDisk, &path, &vec![1]).unwrap();
        make(name, &folder.path().join(".a.bst.lock"));
        let began = std::time::Instant::now();
        let error = save_to(&RealDisk, &path, &vec![1, 2]).unwrap_err();
        assert!(began.elapsed().as_secs() < 20, "{name}");
        let Error::SavedBeside { path: beside, cause } = error else { panic!("{name}: {error}") };
        assert!(matches!(*cause, Error::File { operation: Operation::Lock, .. }), "{name}: {cause}");
        assert_eq!(read_file(&beside).unwrap(), [1, 2]);
        assert_eq!(read_file(&path).unwrap(), [1], "{name}");
        assert!(!folder.path().join("elsewhere").exists(), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_has_another_name_too_is_replaced_so_that_the_other_name_keeps_the_old_state() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("a.bst"), folder.path().join("backup.bst"));
    save_to(&RealDisk, &path, &vec![1, 2]).unwrap();
    fs::hard_link(&path, &backup).unwrap();
    let before = fs::read(&backup).unwrap();
    assert!(save_to(&RealDisk, &path, &vec![1, 2, 3]).unwrap().replaced);
    assert_eq!(fs::read(&backup).unwrap(), before);
    assert_eq!(read_file(&path).unwrap(), [1, 2, 3]);
    assert!(save_to(&RealDisk, &path, &vec![1, 2, 3, 4]).unwrap().appended, "it has one name again");
}

#[cfg(unix)]
#[test]
fn a_link_is_followed_and_permissions_stay() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("target.bst"), folder.path().join("link.bst"));
    fs::write(&target, b"something else").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("target.bst", &link).unwrap();
    assert!(save_to(&RealDisk, &link, &vec![4, 5]).unwrap().replaced);
    assert_eq!(read_file(&target).unwrap(), [4, 5]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn threads_that_save_to_one_path_take_turns_and_readers_see_whole_states() {
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("a.bst");
    save(&RealDisk, path, HEADER, Sync::No, &mut fill(&vec![1])).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            scope.spawn(move || {
                for i in 0..30 {
                    let state: State = (0..5).map(|k| writer * 40 + i + k).collect();
                    save(&RealDisk, path, HEADER, Sync::No, &mut fill(&state)).unwrap();
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..200 {
                let file = StateFile::open(path).unwrap();
                let container = file.container().unwrap();
                container.check().unwrap();
                assert!(matches!(container.sections().len(), 1 | 5));
            }
        });
    });
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bst");
    save_to(&RealDisk, &path, &vec![1, 2, 3]).unwrap();
    let file = StateFile::open(&path).unwrap();
    let container = file.container().unwrap();
    let last = container.find(BLOCK, 2).unwrap();
    let mut space = [0; 900];
    container.read_into(last, &mut [&mut space]).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(last.offset + 100).unwrap();
    let error = container.read_into(last, &mut [&mut space]).unwrap_err();
    assert!(matches!(error, Error::Truncated { section: BLOCK, .. }), "{error}");
    assert!(container.read(last).is_err());
    assert!(container.read(container.find(BLOCK, 0).unwrap()).is_ok());
    assert!(matches!(file.container().unwrap_err(), Error::Truncated { section: Tag::FOOTER, .. }));
}

/// Somebody who gives up waiting, or keeps what is there.
struct Wish {
    stops: bool,
    allows: bool,
}

impl Watch for Wish {
    fn stops_waiting(&self) -> bool {
        self.stops
    }

    fn may_write(&self, _path: &Path) -> bool {
        self.allows
    }
}

#[test]
fn what_is_to_be_kept_is_found_out_under_the_lock() {
    let disk = disk_of(&[vec![1]]);
    let inner = disk.clone();
    struct Late<'a>(&'a FakeDisk);
    impl Watch for Late<'_> {
        fn may_write(&self, path: &Path) -> bool {
            let lock = self.0.lock(&lock_of(path), no_longer_than(0));
            assert_eq!(lock.map(drop).unwrap_err().kind(), ErrorKind::WouldBlock, "others are kept out");
            false
        }
    }
    let watched =
        |watch: &dyn Watch| save_watched(&disk, path(), HEADER, Sync::Yes, watch, &mut fill(&vec![1, 2]));
    let error = watched(&Late(&inner)).unwrap_err();
    assert!(matches!(error, Error::NotReplaced { .. }), "{error}");
    assert_eq!((found(&disk), disk.names().len()), (Some(vec![1]), 1));
    watched(&Wish { stops: true, allows: true }).unwrap();
    assert_eq!(found(&disk), Some(vec![1, 2]), "who need not wait has nothing to stop");
}

#[test]
fn a_save_that_is_told_to_wait_no_longer_goes_beside_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bst");
    let lock = RealDisk.lock(&lock_of(&path), no_longer_than(0)).unwrap();
    let wish = Wish { stops: true, allows: false };
    let saved = save_watched(&RealDisk, &path, HEADER, Sync::No, &wish, &mut fill(&vec![1, 2]));
    let Err(Error::SavedBeside { path: beside, cause }) = saved else { panic!("{saved:?}") };
    assert!(matches!(*cause, Error::Locked { seconds: 0..60, .. }), "{cause}");
    assert_eq!(read_file(&beside).unwrap(), [1, 2]);
    assert!(!path.exists());
    drop(lock);
}

#[test]
fn what_cannot_be_written_to_its_file_is_written_beside() {
    let (old, mut mended) = (vec![1, 2, 3, 4, 5, 6], Vec::new());
    for n in 0..400 {
        let disk = disk_of(core::slice::from_ref(&old));
        disk.fail_at(n, Fault::Error);
        let Err(Error::SavedBeside { path: beside, cause }) = save_to(&disk, path(), &vec![7, 8]) else {
            continue;
        };
        assert_eq!(read(&disk.bytes(&beside).unwrap()).unwrap(), [7, 8]);
        assert_eq!(found(&disk), Some(old.clone()));
        assert_eq!(disk.names().len(), 2, "and nothing else");
        if let Error::File { operation, .. } = *cause {
            mended.push(operation);
        }
    }
    for operation in [Operation::Open, Operation::Write, Operation::Rename] {
        assert!(mended.contains(&operation), "{operation}: {mended:?}");
    }
}
