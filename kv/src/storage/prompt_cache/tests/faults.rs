//! A disk that fails: every operation, once each.

use super::*;
use core::sync::atomic::Ordering;

/// A budget for two entries and some.
const BUDGET: Access = Access::ReadWrite { budget: 16_000 };

#[test]
fn a_fault_anywhere_while_storing_loses_nothing_and_leaves_nothing_behind_in_the_end() {
    for fault in [Fault::Error, Fault::Tear, Fault::Kill, Fault::KillAfter] {
        for n in 0.. {
            let faulty = Faulty::new();
            let (bench, cache) = (&faulty.bench, faulty.open(BUDGET));
            let old = prompt(1, 3);
            cache.put(&bench.entry(&prompt(3, 3), 1000)).unwrap();
            cache.put(&bench.entry(&old, 1000)).unwrap();
            let tokens = [&old[..], &prompt(2, 2)].concat();
            faulty.disk.fail_at(n, fault);
            let result = cache.put(&bench.entry_with(&tokens, 1000, &[5]));
            let operations = faulty.disk.operations();
            match &result {
                Ok(done) => assert_eq!((done.entries, done.blocks), (1, 2)),
                Err(Error::Gap { block: 0 } | Error::Entry { .. }) => {}
                Err(error) => assert!(failed(error).is_some(), "{fault:?} at {n}: {error:?}"),
            }
            // The old prompt is whole, the new one is there or not; a process that starts now finds
            // nothing amiss.
            let later = faulty.restarted();
            let again = later.open(BUDGET);
            assert!(later.disk.used() <= 16_000, "{fault:?} at {n}");
            let found = bench.verified(&again, &tokens, Need::Blocks).n_tokens;
            assert!(
                found == 160 || (found == 96 && result.is_err()),
                "{fault:?} at {n}: {found} after {result:?}"
            );
            // What could not be read while this was stored may have been stored again.
            let report = again.check().unwrap();
            let is_twice = |finding: &Finding| matches!(finding.problem, Problem::Twice { .. });
            assert!(report.findings.iter().all(is_twice), "{fault:?} at {n}: {report:?}");
            again.put(&bench.entry_with(&tokens, 1000, &[5])).unwrap();
            assert_eq!(bench.verified(&again, &tokens, Need::ResumePoint).n_tokens, 160);
            // And the cache that met the fault goes on, unless its process is dead.
            if matches!(fault, Fault::Error | Fault::Tear) {
                faulty.disk.mend();
                cache.put(&bench.entry_with(&tokens, 1000, &[5])).unwrap();
                assert_eq!(bench.verified(&cache, &tokens, Need::ResumePoint).n_tokens, 160);
            }
            if operations <= n {
                assert!(result.is_ok() && n > 20, "{n} operations");
                break;
            }
        }
    }
}

#[test]
fn after_a_loss_of_power_what_was_stored_last_is_whole_or_not_stored() {
    let faulty = Faulty::new();
    let (bench, tokens) = (&faulty.bench, prompt(1, 5));
    let cache = faulty.open(BUDGET);
    cache.put(&bench.entry_with(&tokens[..64], 1000, &[2])).unwrap();
    cache.put(&bench.entry_with(&tokens, 1000, &[5])).unwrap();
    for seed in 0..100 {
        let left = Faulty { bench: Bench::new(), disk: faulty.disk.after_power_loss(seed) };
        let cache = left.open(BUDGET);
        // Cut or torn payloads are noticed when they are read, and their entry is gone then.
        for _ in 0..3 {
            let found = cache.longest(&bench.root, &tokens, 160, Need::ResumePoint).unwrap();
            let _ = found.blocks.iter().chain(&found.resume).all(|payload| read(payload).is_ok());
        }
        let _ = cache.prune(Prune::Damaged).unwrap();
        bench.verified(&cache, &tokens, Need::ResumePoint);
        assert!(cache.check().unwrap().is_clean(), "seed {seed}");
        cache.put(&bench.entry_with(&tokens, 1000, &[5])).unwrap();
        assert_eq!(bench.verified(&cache, &tokens, Need::ResumePoint).n_tokens, 160, "seed {seed}");
    }
}

#[test]
fn whichever_operation_fails_while_looking_up_less_is_found_and_later_all() {
    let faulty = Faulty::new();
    let (bench, tokens) = (&faulty.bench, prompt(1, 6));
    for n in [2, 4, 6] {
        faulty.open(LARGE).put(&bench.entry_with(&tokens[..n * BLOCK_TOKENS], 100, &[n])).unwrap();
    }
    for n in 0.. {
        let cache = faulty.open(LARGE);
        cache.shared.index().entries.clear();
        faulty.disk.fail_at(n, Fault::Error);
        let found = cache.longest(&bench.root, &tokens, 192, Need::ResumePoint);
        let unreadable = |found: Found| {
            let read = found.blocks.iter().chain(&found.resume).map(read);
            read.filter(|bytes| matches!(bytes, Err(Error::Entry { .. }))).count()
        };
        let unreadable = found.map_or(0, unreadable);
        let operations = faulty.disk.operations();
        faulty.disk.mend();
        assert!(unreadable <= 1);
        assert_eq!(bench.verified(&cache, &tokens, Need::ResumePoint).n_tokens, 192, "operation {n}");
        if operations <= n {
            assert!(n > 15);
            break;
        }
    }
}

#[test]
fn a_file_that_cannot_be_removed_stays_with_what_it_follows_and_others_go_instead() {
    let faulty = Faulty::new();
    let bench = &faulty.bench;
    let cache = faulty.open(Access::ReadWrite { budget: 3 * room::ENTRY });
    let (long, other) = (prompt(1, 6), prompt(2, 3));
    cache.put(&bench.entry(&other, 1000)).unwrap();
    let newer = faulty.entries().remove(0);
    cache.put(&bench.entry(&long[..96], 1000)).unwrap();
    cache.put(&bench.entry(&long, 1000)).unwrap();
    for path in faulty.entries() {
        let age = std::time::Duration::from_secs(if path == newer { 2000 } else { 1000 });
        faulty.disk.touch(&path, SystemTime::UNIX_EPOCH + age).unwrap();
    }
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let is_first = move || tries.fetch_add(1, Ordering::Relaxed) == 0;
    faulty.break_disk(move |operation| operation == Operation::Remove && is_first());
    assert_eq!(cache.put(&bench.entry(&prompt(3, 3), 1000)).unwrap().entries, 1);
    faulty.disk.mend();
    let n_tokens = |tokens: &[Token]| bench.verified(&cache, tokens, Need::Blocks).n_tokens;
    assert_eq!([n_tokens(&long), n_tokens(&other), n_tokens(&prompt(3, 3))], [192, 0, 96]);
    // Where nothing can be removed there is no room, and the reason is told.
    faulty.break_disk(|operation| operation == Operation::Remove);
    let refused = cache.put(&bench.entry(&prompt(4, 3), 1000)).unwrap_err();
    assert_eq!(failed(&refused), Some(Operation::Remove), "{refused:?}");
    let refused = cache.prune(Prune::ToBytes(0)).unwrap_err();
    assert_eq!(failed(&refused), Some(Operation::Remove), "{refused:?}");
}

#[test]
fn a_folder_that_nobody_may_write_to_is_still_read() {
    let faulty = Faulty::new();
    let (bench, tokens) = (&faulty.bench, prompt(1, 2));
    faulty.open(LARGE).put(&bench.entry(&tokens, 100)).unwrap();
    let cache = faulty.open(LARGE);
    faulty.break_disk(|operation| {
        !matches!(operation, Operation::List | Operation::Open | Operation::Read | Operation::Ask)
    });
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 64);
    let refused = cache.put(&bench.entry(&prompt(2, 1), 10)).unwrap_err();
    assert_eq!(failed(&refused), Some(Operation::Lock), "{refused:?}");
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 64);
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
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 4);
    cache.put(&bench.entry(&tokens, 10_000)).unwrap();
    let full = cache.put(&bench.entry(&prompt(2, 30), 10_000));
    assert_eq!(failed(&full.unwrap_err()), Some(Operation::Write));
    assert!(cache.check().unwrap().is_clean() && bench.files(".part").is_empty());
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 128);
    assert!(mount("remount,ro"));
    let refused = cache.put(&bench.entry(&prompt(2, 1), 10));
    assert!(matches!(&refused, Err(Error::File { .. })), "{refused:?}");
    let again = bench.open(LARGE);
    assert_eq!(bench.verified(&again, &tokens, Need::Blocks).n_tokens, 128);
    let unmounted = std::process::Command::new("umount").arg("-l").arg(folder).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
}
