//! A disk that fails: every call, once each.

use super::*;
use std::sync::atomic::AtomicUsize;

/// Makes call number `n` from now on fail, and all after it if `dead`. Tells how many there were.
fn fail_at(store: &Store, n: usize, dead: bool) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    break_disk(store, move |_| {
        let call = counter.fetch_add(1, Ordering::Relaxed);
        call == n || (dead && call > n)
    });
    calls
}

#[test]
fn whichever_call_fails_while_storing_nothing_is_lost_or_left_in_the_end() {
    for dead in [false, true] {
        for n in 0.. {
            let bench = Bench::new();
            let store = bench.open(Access::ReadWrite { budget: 9000 });
            let old = prompt(1, 3);
            store.put(&bench.entry(&prompt(3, 3), 1000)).unwrap();
            store.put(&bench.entry(&old, 1000)).unwrap();
            let tokens = [&old[..], &prompt(2, 2)].concat();
            let calls = fail_at(&store, n, dead);
            let result = store.put(&bench.entry_with(&tokens, 1000, &[5]));
            mend_disk(&store);
            match result {
                Ok(done) => assert_eq!((done.packs, done.blocks), (1, 2)),
                Err(Error::Io { ref error, .. }) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
                Err(Error::Gap { block: 0 }) => {}
                Err(error) => panic!("call {n}: {error}"),
            }
            // The old prompt is whole, the new one is there or not; a process that starts now finds nothing amiss.
            let again = bench.open(Access::ReadWrite { budget: 9000 });
            assert!(bench.bytes() <= 9000, "call {n}");
            let found = bench.verified(&again, &tokens, Need::Blocks).n_tokens;
            assert!(found == 160 || (found == 96 && result.is_err()), "call {n}: {found} after {result:?}");
            // What could not be read while this was stored may have been stored again.
            let report = again.check().unwrap();
            let twice = |finding: &Finding| matches!(finding.problem, Problem::Twice { .. });
            assert!(report.findings.iter().all(twice), "call {n}: {report:?}");
            assert_eq!(bench.verified(&store, &tokens, Need::Blocks).n_tokens, found, "call {n}");
            store.put(&bench.entry_with(&tokens, 1000, &[5])).unwrap();
            assert_eq!(bench.verified(&store, &tokens, Need::ResumePoint).n_tokens, 160, "call {n}");
            if calls.load(Ordering::Relaxed) <= n {
                assert!(result.is_ok() && n > 20, "{n} calls");
                break;
            }
        }
    }
}

#[test]
fn whichever_call_fails_while_looking_up_less_is_found_and_later_all() {
    let bench = Bench::new();
    let tokens = prompt(1, 6);
    for n in [2, 4, 6] {
        bench.open(LARGE).put(&bench.entry_with(&tokens[..n * BLOCK_TOKENS], 100, &[n])).unwrap();
    }
    for n in 0.. {
        let store = bench.open(LARGE);
        store.shared.index().packs.clear();
        let calls = fail_at(&store, n, false);
        let found = store.longest(&bench.root, &tokens, 192, Need::ResumePoint);
        let unreadable = |found: Found| {
            let read = found.blocks.iter().chain(&found.resume).map(read);
            read.filter(|bytes| matches!(bytes, Err(Error::Io { .. }))).count()
        };
        let unreadable = found.map_or(0, unreadable);
        mend_disk(&store);
        assert!(unreadable <= 1);
        assert_eq!(bench.verified(&store, &tokens, Need::ResumePoint).n_tokens, 192, "call {n}");
        if calls.load(Ordering::Relaxed) <= n {
            assert!(n > 15);
            break;
        }
    }
}

#[test]
fn a_file_that_cannot_be_removed_stays_with_what_it_follows_and_others_go_instead() {
    let bench = Bench::new();
    let store = bench.open(Access::ReadWrite { budget: 12_000 });
    let (long, other) = (prompt(1, 6), prompt(2, 3));
    store.put(&bench.entry(&other, 1000)).unwrap();
    let newer = bench.files(".pack").remove(0);
    store.put(&bench.entry(&long[..96], 1000)).unwrap();
    store.put(&bench.entry(&long, 1000)).unwrap();
    for path in bench.files(".pack") {
        let age = std::time::Duration::from_secs(if path == newer { 2000 } else { 1000 });
        fs::File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH + age).unwrap();
    }
    let tries = AtomicUsize::new(0);
    break_disk(&store, move |doing| doing == Doing::Remove && tries.fetch_add(1, Ordering::Relaxed) == 0);
    assert_eq!(store.put(&bench.entry(&prompt(3, 3), 1000)).unwrap().packs, 1);
    mend_disk(&store);
    let n_tokens = |tokens: &[Token]| bench.verified(&store, tokens, Need::Blocks).n_tokens;
    assert_eq!([n_tokens(&long), n_tokens(&other), n_tokens(&prompt(3, 3))], [192, 0, 96]);
    // Where nothing can be removed there is no room, and the reason is told.
    break_disk(&store, |doing| doing == Doing::Remove);
    let refused = store.put(&bench.entry(&prompt(4, 3), 1000));
    assert!(matches!(refused, Err(Error::Io { doing: Doing::Remove, .. })), "{refused:?}");
    assert!(matches!(store.prune(Prune::ToBytes(0)), Err(Error::Io { doing: Doing::Remove, .. })));
}

#[test]
fn a_folder_that_nobody_may_write_to_is_still_read() {
    let bench = Bench::new();
    let tokens = prompt(1, 2);
    bench.open(LARGE).put(&bench.entry(&tokens, 100)).unwrap();
    let store = bench.open(LARGE);
    break_disk(&store, |doing| !matches!(doing, Doing::List | Doing::Open | Doing::Read | Doing::Ask));
    assert_eq!(bench.verified(&store, &tokens, Need::Blocks).n_tokens, 64);
    assert!(matches!(store.put(&bench.entry(&prompt(2, 1), 10)), Err(Error::Io { doing: Doing::Lock, .. })));
    assert_eq!(bench.verified(&store, &tokens, Need::Blocks).n_tokens, 64);
}

/// Needs the right to mount; says so where it is missing.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs the right to mount a file system"]
fn a_disk_that_is_really_full_or_read_only_loses_nothing() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    let mount = |options: &str| {
        let mut command = std::process::Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder)
            .status()
            .is_ok_and(|status| status.success())
    };
    if !mount("size=256k") {
        std::println!("SKIPPED: no right to mount");
        return;
    }
    let store = bench.open(LARGE);
    let tokens = prompt(1, 4);
    store.put(&bench.entry(&tokens, 10_000)).unwrap();
    let full = store.put(&bench.entry(&prompt(2, 30), 10_000));
    assert!(matches!(&full, Err(Error::Io { doing: Doing::Write, .. })), "{full:?}");
    assert!(store.check().unwrap().is_clean() && bench.files(".part").is_empty());
    assert_eq!(bench.verified(&store, &tokens, Need::Blocks).n_tokens, 128);
    assert!(mount("remount,ro"));
    let refused = store.put(&bench.entry(&prompt(2, 1), 10));
    assert!(matches!(&refused, Err(Error::Io { .. })), "{refused:?}");
    let again = bench.open(LARGE);
    assert_eq!(bench.verified(&again, &tokens, Need::Blocks).n_tokens, 128);
    let unmounted = std::process::Command::new("umount").arg("-l").arg(folder).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
}
