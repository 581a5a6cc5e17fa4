//! The thread that stores.

use super::*;
use std::sync::mpsc;

#[test]
fn what_is_handed_over_is_stored_and_counted() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let writer = BackgroundWriter::spawn(cache.clone(), 1 << 20).unwrap();
    for seed in 0..5 {
        assert!(writer.put(bench.owned(seed, 3, 1000)));
    }
    writer.flush();
    let stats = writer.stats();
    assert_eq!((stats.stored.entries, stats.stored.blocks, stats.unfinished, stats.waiting), (5, 15, 0, 0));
    assert_eq!((stats.dropped, stats.errors), (0, 0));
    for seed in 0..5 {
        assert_eq!(bench.verified(&cache, &prompt(seed, 3), Need::Blocks).n_tokens, 96);
    }
}

#[test]
fn dropping_the_writer_waits_for_what_was_handed_over() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let writer = BackgroundWriter::spawn(cache.clone(), 1 << 20).unwrap();
    (0..5).for_each(|seed| assert!(writer.put(bench.owned(seed, 3, 1000))));
    drop(writer);
    assert_eq!(cache.stats().entries, 5);
}

#[test]
fn what_does_not_fit_the_queue_is_dropped_and_nobody_waits() {
    let faulty = Faulty::new();
    let (bench, cache) = (&faulty.bench, faulty.open(LARGE));
    let writer = BackgroundWriter::spawn(cache.clone(), 10_000).unwrap();
    // The disk stands still until it is told to go on.
    let (go_on, stands_still) = mpsc::channel::<()>();
    faulty.break_disk(move |operation| operation == Operation::Resize && stands_still.recv().is_err());
    assert!(writer.put(bench.owned(1, 3, 1000)));
    assert!(writer.put(bench.owned(2, 6, 1000)));
    assert!(!writer.put(bench.owned(3, 2, 1000)), "11,000 bytes waited");
    assert!(!writer.put(bench.owned(4, 11, 1000)), "more than ever fits");
    assert!(writer.put(bench.owned(5, 1, 1000)), "there was room for 1,000 bytes");
    assert_eq!((writer.stats().dropped, writer.stats().unfinished, writer.stats().waiting), (2, 3, 10_000));
    (0..3).for_each(|_| go_on.send(()).unwrap());
    writer.flush();
    assert_eq!((writer.stats().stored.entries, writer.stats().waiting), (3, 0));
}

#[test]
fn errors_are_counted_and_the_last_one_is_told() {
    let faulty = Faulty::new();
    let (bench, cache) = (&faulty.bench, faulty.open(LARGE));
    let writer = BackgroundWriter::spawn(cache.clone(), 1 << 20).unwrap();
    faulty.break_disk(|operation| operation == Operation::Write);
    writer.put(bench.owned(1, 1, 100));
    writer.put(bench.owned(2, 1, 100));
    writer.flush();
    assert_eq!((writer.stats().errors, writer.stats().stored), (2, Put::default()));
    assert_eq!(writer.take_error().as_ref().and_then(failed), Some(Operation::Write));
    assert!(writer.take_error().is_none());
    faulty.disk.mend();
    writer.put(bench.owned(1, 1, 100));
    writer.flush();
    assert_eq!(writer.stats().stored.entries, 1);
}

#[test]
fn threads_may_share_a_store() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, bench) = (&cache, &bench);
            scope.spawn(move || {
                for seed in 0..8 {
                    let tokens = prompt(seed, 1 + (seed as usize + thread) % 3);
                    match cache.put(&bench.entry(&tokens, 200)) {
                        Ok(_) | Err(Error::Raced { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    bench.verified(cache, &tokens, Need::Blocks);
                }
            });
        }
    });
    let report = cache.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.blocks, 8 * 3);
}
