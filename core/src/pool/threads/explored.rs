//! Every interleaving of a few threads, and every value that a load may return, as loom explores
//! them.

use super::*;
use loom::cell::UnsafeCell;

/// Places that no two threads may touch at once, which loom watches: a job writes its own, the
/// caller reads them all.
struct Places(Vec<UnsafeCell<usize>>);

// SAFETY: loom fails a test in which accesses to a cell are not ordered.
unsafe impl Sync for Places {}

impl Places {
    fn new(n: usize) -> Self {
        Self((0..n).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, i: usize) {
        // SAFETY: as above.
        self.0[i].with_mut(|place| unsafe { *place += i + 1 });
    }

    fn read(&self) -> Vec<usize> {
        // SAFETY: as above.
        self.0.iter().map(|place| place.with(|place| unsafe { *place })).collect()
    }
}

fn explore(most_preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut explorer = loom::model::Builder::new();
    explorer.preemption_bound = Some(most_preemptions);
    explorer.check(test);
}

#[test]
fn every_job_is_done_once_before_the_run_returns() {
    explore(3, || {
        let pool = ThreadPool::new(2).unwrap();
        let places = Places::new(3);
        (0..3).for_each(|i| places.add(i));
        assert_eq!(pool.run(3, &|i| places.add(i)), Ok(()));
        assert_eq!(places.read(), [2, 4, 6]);
    });
}

#[test]
fn a_second_run_meets_workers_in_any_state() {
    explore(2, || {
        let pool = ThreadPool::new(2).unwrap();
        for _ in 0..2 {
            let places = Places::new(2);
            assert_eq!(pool.run(2, &|i| places.add(i)), Ok(()));
            assert_eq!(places.read(), [1, 2]);
        }
    });
}

#[test]
fn three_threads_share_a_run() {
    explore(1, || {
        let pool = ThreadPool::new(3).unwrap();
        let places = Places::new(3);
        (0..3).for_each(|i| places.add(i));
        assert_eq!(pool.run(3, &|i| places.add(i)), Ok(()));
        assert_eq!(places.read(), [2, 4, 6]);
    });
}

#[test]
fn a_pool_without_work_ends() {
    explore(3, || drop(ThreadPool::new(3).unwrap()));
}
