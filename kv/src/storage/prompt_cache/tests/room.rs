//! The budget: reserved before writing, freed by the least recently used.

use super::*;
use crate::storage::disk::{DiskFile, Facts, Lock, Mode, Wait};
use std::fs::File;
use std::string::ToString;
use std::time::Duration;

/// Bytes of an entry of `prompt(_, 3)` with payloads of 1,000 bytes: header and slots, payloads and
/// prefix each from a multiple of 64, directory and footer.
pub(super) const ENTRY: u64 = 1536 + 3 * 1024 + 448 + 192 + 64;

fn budget(entries: u64) -> Access {
    Access::ReadWrite { budget: entries * ENTRY }
}

fn put(bench: &Bench, cache: &PromptCache, seed: u64) {
    assert_eq!(cache.put(&bench.entry(&prompt(seed, 3), 1000)).unwrap().bytes, ENTRY);
}

fn holds(bench: &Bench, seed: u64) -> bool {
    // Read-only, so that looking does not count as using.
    bench.verified(&bench.open(Access::ReadOnly), &prompt(seed, 3), Need::Blocks).n_tokens == 96
}

fn set_time(path: &Path, seconds: u64) {
    File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let bench = Bench::new();
    let cache = bench.open(budget(3));
    (1..=3).for_each(|seed| put(&bench, &cache, seed));
    assert_eq!(bench.verified(&cache, &prompt(1, 3), Need::Blocks).n_tokens, 96);
    put(&bench, &cache, 4);
    assert_eq!([1, 2, 3, 4].map(|seed| holds(&bench, seed)), [true, false, true, true]);
    put(&bench, &cache, 5);
    assert_eq!([1, 2, 3, 4, 5].map(|seed| holds(&bench, seed)), [true, false, false, true, true]);
    assert_eq!((cache.stats().evicted, cache.stats().bytes), (2, 3 * ENTRY));
}

#[test]
fn a_resume_point_that_nobody_could_read_is_refused() {
    let (bench, mebibyte) = (Bench::new(), vec![7; 1 << 20]);
    let cache = bench.open(Access::ReadWrite { budget: 1 << 40 });
    let tokens = prompt(1, 3);
    let pieces = vec![Cow::Borrowed(&mebibyte[..]); 1 + (MAX_RESUME >> 20) as usize];
    let prefix = EvaluatedPrefix { resumes: vec![(3, pieces)], ..bench.entry(&tokens, 1000) };
    let error = cache.put(&prefix).unwrap_err();
    let wanted = matches!(&error, Error::TooLarge { limit: MAX_RESUME, .. });
    assert!(wanted, "{error}");
    assert!(bench.files(".entry").is_empty() && bench.files(".part").is_empty());
}

#[test]
fn what_others_follow_goes_after_them_however_old_it_is() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 9);
    for n in [3, 6, 9] {
        cache.put(&bench.entry(&tokens[..n * BLOCK_TOKENS], 1000)).unwrap();
    }
    // The beginning was last used before everything else.
    for entry in cache.list().unwrap() {
        set_time(&bench.folder.path().join(&entry.name), 1000 + u64::from(entry.n_before));
    }
    for (most, left) in [(3, 9), (2, 6), (1, 3), (0, 0)] {
        cache.prune(Prune::ToBytes(most * ENTRY)).unwrap();
        assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, left * BLOCK_TOKENS);
        assert!(cache.check().unwrap().is_clean());
    }
}

#[test]
fn what_is_being_extended_stays() {
    let bench = Bench::new();
    let cache = bench.open(budget(2));
    let tokens = prompt(1, 9);
    cache.put(&bench.entry(&tokens[..96], 1000)).unwrap();
    put(&bench, &cache, 2);
    set_time(&bench.files(".entry")[0], 5);
    set_time(&bench.files(".entry")[1], 5);
    cache.put(&bench.entry(&tokens[..192], 1000)).unwrap();
    assert!(!holds(&bench, 2));
    let refused = cache.put(&bench.entry(&tokens, 1000));
    assert!(
        matches!(refused, Err(Error::NoRoom { need: ENTRY, kept, .. }) if kept == 2 * ENTRY),
        "{refused:?}"
    );
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 192);
}

#[test]
fn a_prompt_never_makes_room_for_itself() {
    let bench = Bench::new();
    let tokens = prompt(1, 6);
    for most in 0..50 {
        let cache = bench.open(Access::ReadWrite { budget: most * 500 });
        cache.prune(Prune::ToBytes(0)).unwrap();
        let _ = cache.put(&bench.entry(&tokens[..96], 1000));
        let result = cache.put(&bench.entry_with(&tokens, 1000, &[1, 2, 3, 4, 5, 6]));
        assert!(matches!(result, Ok(_) | Err(Error::NoRoom { .. } | Error::OverBudget { .. })), "{result:?}");
        let found = bench.verified(&cache, &tokens, Need::ResumePoint);
        assert!(found.n_tokens == 192 || result.is_err());
        assert!(bench.bytes() <= most * 500);
    }
}

#[test]
fn at_no_moment_are_there_more_bytes_than_the_budget() {
    let bench = Bench::new();
    let folder = bench.folder.path().to_path_buf();
    let (checked, seen) = std::sync::mpsc::channel();
    let watch = move |operation: Operation| {
        let bytes = bytes_in(&folder);
        assert!(bytes <= 4 * ENTRY, "{bytes} bytes before an operation: {operation}");
        checked.send(bytes).unwrap();
    };
    let disk = Watched { watch: std::sync::Mutex::new(Box::new(watch)) };
    let cache = PromptCache::open_on(Arc::new(disk), bench.folder.path(), budget(4)).unwrap();
    let mut random = Random::new(3);
    for seed in 0..40 {
        let (n, size) = (1 + random.below(4), random.below(2000));
        match cache.put(&bench.entry(&prompt(seed % 20, n), size)) {
            Ok(_) | Err(Error::NoRoom { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(cache.check().unwrap().is_clean());
    drop(cache);
    let seen: Vec<_> = seen.iter().collect();
    assert!(seen.len() > 300 && seen.iter().any(|&bytes| bytes > 3 * ENTRY));
}

/// Told before each operation of a [`Watched`] disk.
type Watch = Box<dyn FnMut(Operation) + Send>;

/// The disk of this machine, watched at each operation that changes names or lengths.
struct Watched {
    watch: std::sync::Mutex<Watch>,
}

impl Watched {
    fn before(&self, operation: Operation) -> &RealDisk {
        (self.watch.lock().unwrap())(operation);
        &RealDisk
    }
}

impl Disk for Watched {
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, crate::file::Problem> {
        RealDisk.find(path)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        self.before(Operation::Open).open(path, mode)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.before(Operation::Create).create(path)
    }

    fn lock(&self, path: &Path, wait: Wait<'_>) -> io::Result<Lock> {
        self.before(Operation::Lock).lock(path, wait)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.make_folder(folder)
    }

    fn names_in(&self, folder: &Path) -> io::Result<Vec<std::ffi::OsString>> {
        self.before(Operation::List).names_in(folder)
    }

    fn facts(&self, path: &Path) -> io::Result<Facts> {
        self.before(Operation::Ask).facts(path)
    }

    fn changed(&self, folder: &Path) -> io::Result<SystemTime> {
        self.before(Operation::Ask).changed(folder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before(Operation::Rename).rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.before(Operation::Remove).remove(path)
    }

    fn touch(&self, path: &Path, when: SystemTime) -> io::Result<()> {
        self.before(Operation::Touch).touch(path, when)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.sync_folder(folder)
    }
}

#[test]
fn what_can_never_fit_is_refused_before_anything_is_evicted() {
    let bench = Bench::new();
    let cache = bench.open(budget(2));
    put(&bench, &cache, 1);
    let refused = cache.put(&bench.entry(&prompt(2, 3), 5000));
    assert!(matches!(refused, Err(Error::OverBudget { budget, .. }) if budget == 2 * ENTRY), "{refused:?}");
    assert!(holds(&bench, 1));
}

#[test]
fn room_that_others_reserved_is_taken() {
    let bench = Bench::new();
    let cache = bench.open(budget(2));
    let other = Folder::new(Arc::new(RealDisk), bench.folder.path());
    let part = other.reserve(&other.lock(folder::LOCK_WAIT).unwrap(), ENTRY + 1).unwrap();
    let refused = cache.put(&bench.entry(&prompt(1, 3), 1000));
    assert!(matches!(refused, Err(Error::NoRoom { kept, .. }) if kept == ENTRY + 1), "{refused:?}");
    drop(part);
    put(&bench, &cache, 1);
    assert!(bench.files(".part").is_empty(), "its writer was gone");
}

#[test]
fn what_dead_writers_left_is_removed_and_what_living_ones_write_is_not() {
    let bench = Bench::new();
    let other = Folder::new(Arc::new(RealDisk), bench.folder.path());
    let living = other.reserve(&other.lock(folder::LOCK_WAIT).unwrap(), 100).unwrap();
    fs::write(bench.folder.path().join("99-0.part"), [1; 50]).unwrap();
    fs::write(bench.folder.path().join("notes.part"), [1; 50]).unwrap();
    let looked = bench.open(Access::ReadOnly).check().unwrap();
    let leftovers: Vec<_> = looked.findings.iter().map(|finding| finding.name.as_str()).collect();
    assert_eq!(leftovers, ["99-0.part"]);
    assert_eq!(bench.files(".part").len(), 3);
    bench.open(LARGE);
    assert_eq!(bench.files(".part").len(), 2);
    other.discard(&living);
    assert_eq!(bench.files(".part").len(), 1, "notes.part is not ours");
}

#[test]
fn opening_and_looking_up_never_wait_for_a_lock_that_somebody_holds() {
    let bench = Bench::new();
    put(&bench, &bench.open(LARGE), 1);
    let other = Folder::new(Arc::new(RealDisk), bench.folder.path());
    let lock = other.lock(folder::LOCK_WAIT).unwrap();
    let began = std::time::Instant::now();
    let cache = bench.open(LARGE);
    assert_eq!(bench.verified(&cache, &prompt(1, 3), Need::Blocks).n_tokens, 96);
    assert!(began.elapsed() < Duration::from_secs(5));
    let refused = cache.put(&bench.entry(&prompt(2, 3), 10)).unwrap_err();
    let file = bench.folder.path().join("cache.lock");
    assert!(matches!(refused, Error::Locked { .. }));
    let wanted = std::format!("{} was locked for 2 s by another process", file.display());
    assert!(refused.to_string().starts_with(&wanted), "{refused}");
    drop(lock);
    assert_eq!(cache.put(&bench.entry(&prompt(2, 3), 10)).unwrap().entries, 1);
}

#[test]
fn a_store_that_only_reads_changes_nothing() {
    let bench = Bench::new();
    put(&bench, &bench.open(LARGE), 1);
    fs::write(bench.folder.path().join("99-0.part"), [1; 50]).unwrap();
    let n_files = || fs::read_dir(bench.folder.path()).unwrap().count();
    let before = (bench.times(), n_files());
    let cache = bench.open(Access::ReadOnly);
    assert_eq!(bench.verified(&cache, &prompt(1, 3), Need::Blocks).n_tokens, 96);
    assert!(matches!(cache.put(&bench.entry(&prompt(2, 1), 10)), Err(Error::ReadOnly)));
    assert!(matches!(cache.prune(Prune::ToBytes(0)), Err(Error::ReadOnly)));
    assert_eq!((bench.times(), n_files()), before);
    let missing = bench.folder.path().join("missing");
    let refused = PromptCache::open(&missing, Access::ReadOnly).unwrap_err();
    assert_eq!(failed(&refused), Some(Operation::List));
    assert!(!missing.exists());
}

#[test]
fn a_hit_marks_everything_that_it_needs_as_used_and_nothing_else() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 6);
    for n in [2, 4, 6] {
        cache.put(&bench.entry(&tokens[..n * BLOCK_TOKENS], 100)).unwrap();
    }
    bench.files(".entry").iter().for_each(|path| set_time(path, 1000));
    bench.verified(&cache, &tokens[..4 * BLOCK_TOKENS], Need::Blocks);
    let old = |entry: &EntryInfo| entry.used == SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let entries: Vec<_> = cache.list().unwrap().iter().map(|entry| (entry.n_before, old(entry))).collect();
    assert_eq!(entries[0], (4, true));
    assert!(entries[1..].iter().all(|(_, old)| !old));
}

#[test]
fn pruning_by_age_spares_what_is_followed_by_something_newer() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 4);
    cache.put(&bench.entry(&tokens[..64], 100)).unwrap();
    cache.put(&bench.entry(&tokens, 100)).unwrap();
    cache.put(&bench.entry(&prompt(2, 2), 100)).unwrap();
    for entry in cache.list().unwrap().iter().filter(|entry| entry.n_before == 0) {
        set_time(&bench.folder.path().join(&entry.name), 1000);
    }
    let evicted = cache.prune(Prune::OlderThan(Duration::from_secs(3600))).unwrap();
    assert_eq!((evicted.entries, evicted.bytes), (1, bench.bytes()));
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 128);
}

#[test]
fn what_cannot_be_reached_goes_before_what_can() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 4);
    put(&bench, &cache, 2);
    cache.put(&bench.entry(&tokens[..64], 1000)).unwrap();
    let first = cache.list().unwrap().iter().rfind(|_| true).unwrap().name.clone();
    cache.put(&bench.entry(&tokens, 1000)).unwrap();
    fs::remove_file(bench.folder.path().join(first)).unwrap();
    let report = cache.check().unwrap();
    assert!(matches!(report.findings[..], [Finding { problem: Problem::Unreachable, .. }]), "{report:?}");
    let found = bench.verified(&cache, &tokens, Need::Blocks);
    assert_eq!((found.n_tokens, found.why), (0, Why::Gone { at: 0 }));
    assert_eq!(cache.prune(Prune::ToBytes(ENTRY)).unwrap(), Evicted { entries: 1, bytes: ENTRY });
    assert!(holds(&bench, 2));
}

#[test]
fn blocks_that_hung_in_the_air_are_found_again_once_what_they_follow_is_stored() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 4);
    cache.put(&bench.entry(&tokens[..64], 1000)).unwrap();
    let first = bench.files(".entry");
    cache.put(&bench.entry(&tokens, 1000)).unwrap();
    fs::remove_file(&first[0]).unwrap();
    assert_eq!(cache.put(&bench.entry(&tokens, 1000)).unwrap().blocks, 2);
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 128);
    assert!(cache.check().unwrap().is_clean());
}
