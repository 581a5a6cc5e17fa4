use super::*;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;

fn counts(pool: &ThreadPool, n_jobs: usize) -> Vec<usize> {
    let counts: Vec<_> = (0..n_jobs).map(|_| AtomicUsize::new(0)).collect();
    let job = |i: usize| {
        counts[i].fetch_add(1, Relaxed);
    };
    pool.run(n_jobs, &job).unwrap();
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_job_runs_once_for_any_number_of_jobs() {
    for n_threads in [1, 2, 3, 5] {
        let pool = ThreadPool::new(n_threads).unwrap();
        assert_eq!(pool.n_threads(), n_threads);
        for n_jobs in [0, 1, 2, 3, 4, 7, 100] {
            assert_eq!(counts(&pool, n_jobs), vec![1; n_jobs], "{n_threads} threads, {n_jobs} jobs");
        }
    }
}

#[test]
fn a_thread_that_is_held_up_holds_up_one_job_and_not_its_share() {
    for held_up in 0..8 {
        // A new one, which has not learnt to work alone.
        let pool = ThreadPool::new(2).unwrap();
        let n_done = AtomicUsize::new(0);
        let start = Instant::now();
        let job = |i| {
            while i == held_up && n_done.load(Relaxed) < 7 && start.elapsed() < Duration::from_secs(20) {
                thread::yield_now();
            }
            n_done.fetch_add(1, Relaxed);
        };
        pool.run(8, &job).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "job {held_up} waits for others of its share");
    }
}

#[test]
fn impossible_thread_counts_are_refused() {
    for n in [0, MAX_THREADS + 1, usize::MAX] {
        assert_eq!(ThreadPool::new(n).unwrap_err(), Error::Threads { found: n, most: MAX_THREADS });
    }
}

#[test]
fn a_panic_on_any_thread_is_reported_after_all_jobs_ran_and_forgotten_afterwards() {
    let pool = ThreadPool::new(3).unwrap();
    for bad in 0..6 {
        let n_run = AtomicUsize::new(0);
        let job = |i| {
            n_run.fetch_add(1, Relaxed);
            assert!(i != bad, "on purpose");
        };
        assert_eq!(pool.run(6, &job), Err(Panicked), "job {bad}");
        assert_eq!(n_run.into_inner(), 6);
        assert_eq!(counts(&pool, 6), [1; 6]);
    }
}

/// Let the pool learn at `at` that its workers have no processor of their own; return the time
/// until which it works alone.
fn distrust_workers(pool: &ThreadPool, at: Instant) -> Instant {
    let mut experience = lock(&pool.turn);
    let woken_too_soon = Run { began: at, woke: true, finished: at, jobs_each: 4 };
    (0..33).for_each(|_| experience.learn(&woken_too_soon, WATCH));
    experience.alone_until(at).unwrap()
}

#[test]
fn jobs_done_alone_and_those_shared_out_behind_them_run_once_and_report_a_panic() {
    // How many jobs are done alone, and for how long: over before the run, over in its middle, not
    // over behind it.
    let cases = [(0, Duration::ZERO), (3, Duration::from_secs(1)), (8, Duration::from_secs(3600))];
    for (n_alone, time) in cases {
        for bad in [None, Some(0), Some(7)] {
            let pool = ThreadPool::new(2).unwrap();
            let end = distrust_workers(&pool, Instant::now() + time);
            let wait_behind = |n_done: usize| {
                while n_done == n_alone && n_done < 8 && Instant::now() < end {
                    thread::yield_now();
                }
            };
            let ran = Mutex::new(vec![]);
            let job = |i: usize| {
                // Only what was shared out counts as a job of the pool.
                lock(&ran).push((i, IN_JOB.with(Cell::get)));
                wait_behind(i + 1);
                assert!(Some(i) != bad, "on purpose");
            };
            wait_behind(0);
            let result = pool.run(8, &job);
            assert_eq!(result.is_err(), bad.is_some(), "{n_alone} alone, {bad:?} panics");
            let mut ran = lock(&ran).clone();
            ran.sort_unstable();
            let wanted: Vec<_> = (0..8).map(|i| (i, i >= n_alone)).collect();
            assert_eq!(ran, wanted, "{n_alone} alone, {bad:?} panics");
        }
    }
}

#[test]
fn a_panic_with_a_value_that_panics_when_dropped_is_reported_as_any() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped on purpose");
        }
    }
    let pool = ThreadPool::new(2).unwrap();
    for bad in 0..4 {
        let job = |i| {
            if i == bad {
                std::panic::panic_any(Bomb);
            }
        };
        assert_eq!(pool.run(4, &job), Err(Panicked), "job {bad}");
        assert_eq!(Inline.run(4, &job), Err(Panicked), "job {bad}");
        assert_eq!(counts(&pool, 4), [1; 4]);
    }
}

#[test]
fn a_run_inside_a_job_finishes() {
    let pool = ThreadPool::new(2).unwrap();
    let sum = AtomicUsize::new(0);
    let inner = |i| {
        sum.fetch_add(i, Relaxed);
    };
    pool.run(4, &|_| pool.run(5, &inner).unwrap()).unwrap();
    assert_eq!(sum.into_inner(), 40);
}

#[test]
fn runs_from_several_threads_take_turns() {
    let pool = ThreadPool::new(2).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(counts(&pool, 3), [1; 3])));
        }
    });
}

#[test]
fn workers_that_fell_asleep_wake_up() {
    let pool = ThreadPool::new(2).unwrap();
    for _ in 0..3 {
        thread::sleep(20 * WATCH);
        assert_eq!(counts(&pool, 2), [1; 2]);
    }
}

#[test]
fn more_threads_than_processors_do_not_crawl() {
    let pool = ThreadPool::new(32).unwrap();
    let start = Instant::now();
    (0..100).for_each(|_| assert_eq!(counts(&pool, 32), [1; 32]));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn pools_can_be_made_and_dropped_at_once() {
    (0..50).for_each(|i| drop(ThreadPool::new(1 + i % 4).unwrap()));
}
