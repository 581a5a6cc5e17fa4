//! Threads that spin a little while, then sleep.
//!
//! A decode runs hundreds of short steps, so handing one out must cost a fraction of a microsecond: workers watch a flag
//! of their own for some microseconds after each run before they sleep. They never watch for long, less where watching was
//! in vain before, and not at all when there are more threads than processors: the thread they wait for may need the
//! processor they burn. They do not yield it either: on a busy machine that gives milliseconds away, while a thread
//! that sleeps is woken at once.

#![allow(unsafe_code)]

use super::{Inline, MAX_THREADS, Panicked, Pool, returns};
use crate::Error;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long an idle worker, or a caller whose share is done, watches before it sleeps: longer than the pauses between
/// the runs of one decode, and than it takes to wake a sleeping thread.
const WATCH: Duration = Duration::from_micros(50);

/// Nothing to do, or all done; the worker watches.
const IDLE: u32 = 0;
/// Nothing to do; the worker sleeps and must be woken.
const ASLEEP: u32 = 1;
/// A job is there.
const WORK: u32 = 2;
/// The pool is being dropped.
const STOP: u32 = 3;

type Job<'a> = &'a (dyn Fn(usize) + Sync);

thread_local! {
    /// True on workers, and on a caller while it works: a run that starts there must not wait for the pool.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

/// A pool of threads of which the caller is one. Job i of a run goes to thread `i % n_threads`, always.
///
/// A run allocates nothing. A run from inside a job works, on that job's thread alone. Runs from several threads
/// at once take turns.
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a run: there is room for one job, and one caller to wait for it.
    turn: Mutex<Patience>,
}

#[derive(Debug)]
struct Shared {
    slots: Box<[Slot]>,
    panicked: AtomicBool,
    caller_sleeps: AtomicBool,
    caller_turn: Mutex<()>,
    caller_wakes: Condvar,
    watch: Duration,
}

/// What the caller and one worker tell each other, on a cache line of its own (two, because processors fetch them in
/// pairs): one transfer brings all of it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    state: AtomicU32,
    /// Points to a `Job` on the caller's stack while the state is [`WORK`].
    job: AtomicPtr<()>,
    n_jobs: AtomicUsize,
}

impl ThreadPool {
    /// Starts `n_threads - 1` threads; the caller of [`Pool::run`] is the remaining one.
    ///
    /// # Errors
    /// [`Error::Threads`] unless `n_threads` is in 1..=[`MAX_THREADS`] or when the system refuses to start that many.
    pub fn new(n_threads: usize) -> Result<Self, Error> {
        if !(1..=MAX_THREADS).contains(&n_threads) {
            return Err(Error::Threads { found: n_threads, most: MAX_THREADS });
        }
        let n_processors = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            slots: (1..n_threads).map(|_| Slot::default()).collect(),
            panicked: AtomicBool::new(false),
            caller_sleeps: AtomicBool::new(false),
            caller_turn: Mutex::new(()),
            caller_wakes: Condvar::new(),
            watch: if n_threads > n_processors { Duration::ZERO } else { WATCH },
        });
        let mut pool = Self { shared, workers: Vec::with_capacity(n_threads - 1), turn: Mutex::default() };
        for i in 0..n_threads - 1 {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("backstitch-{}", i + 1));
            let worker = builder.spawn(move || work(&shared, i));
            let worker = worker.map_err(|_| Error::Threads { found: n_threads, most: i + 1 })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Hands the run to the first `n` workers.
    fn start(&self, n: usize, job: &Job, n_jobs: usize) {
        for (slot, worker) in self.shared.slots.iter().zip(&self.workers).take(n) {
            slot.job.store(core::ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
            slot.n_jobs.store(n_jobs, Ordering::Relaxed);
            // Release: the worker that sees WORK sees the job too. Acquire: pairs with its going to sleep.
            if slot.state.swap(WORK, Ordering::AcqRel) == ASLEEP {
                worker.thread().unpark();
            }
        }
    }
}

impl Pool for ThreadPool {
    fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn run(&self, n_jobs: usize, job: Job) -> Result<(), Panicked> {
        let n_workers = self.workers.len().min(n_jobs.saturating_sub(1));
        if n_workers == 0 || IN_JOB.get() {
            return Inline.run(n_jobs, job);
        }
        let mut patience = lock(&self.turn);
        let shared = &*self.shared;
        self.start(n_workers, &job, n_jobs);
        IN_JOB.set(true);
        shared.run_share(job, 0, n_jobs);
        IN_JOB.set(false);
        // Nothing above unwinds, so `job` cannot go away before the workers are done with it.
        shared.wait_for(n_workers, &mut patience);
        if shared.panicked.swap(false, Ordering::Relaxed) { Err(Panicked) } else { Ok(()) }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        for (slot, worker) in self.shared.slots.iter().zip(&self.workers) {
            slot.state.store(STOP, Ordering::Release);
            worker.thread().unpark();
        }
        for worker in self.workers.drain(..) {
            // Workers catch what jobs throw; should one die all the same, there is nobody left to tell.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Runs the jobs of thread `index`: every one, whatever the others do.
    fn run_share(&self, job: Job, index: usize, n_jobs: usize) {
        for i in (index..n_jobs).step_by(self.slots.len() + 1) {
            if !returns(job, i) {
                self.panicked.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Called by a worker when its share is done and its flag says so: wakes the caller, should it sleep.
    fn finish(&self) {
        // With the fence in `wait_for`: either the caller sees the flag, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.caller_sleeps.load(Ordering::Relaxed) {
            // Not before it waits.
            drop(lock(&self.caller_turn));
            self.caller_wakes.notify_one();
        }
    }

    /// Returns when the first `n` workers are done.
    fn wait_for(&self, n: usize, patience: &mut Patience) {
        let done = || self.slots.iter().take(n).all(|slot| slot.state.load(Ordering::Acquire) != WORK);
        if patience.watch(self.watch, done) {
            return;
        }
        let mut guard = lock(&self.caller_turn);
        self.caller_sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !done() {
            guard = self.caller_wakes.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::Relaxed);
    }
}

/// The life of worker `i`, which is thread `i + 1`.
fn work(shared: &Shared, i: usize) {
    IN_JOB.set(true);
    let Some(slot) = shared.slots.get(i) else { return };
    let mut patience = Patience::default();
    while wait_for_work(&slot.state, shared.watch, &mut patience) == WORK {
        let job: *const Job = slot.job.load(Ordering::Relaxed).cast_const().cast();
        // SAFETY: `run` stores a pointer to its `job` before it sets WORK, and returns only when the flag of each worker
        // that it set to WORK says otherwise, which is below.
        let job = unsafe { *job };
        shared.run_share(job, i + 1, slot.n_jobs.load(Ordering::Relaxed));
        // Nobody else has changed it: a drop needs the pool for itself, and a run is borrowing it.
        slot.state.store(IDLE, Ordering::Release);
        shared.finish();
    }
}

/// Watches, then sleeps, until the flag is [`WORK`] or [`STOP`]; returns it.
fn wait_for_work(state: &AtomicU32, time: Duration, patience: &mut Patience) -> u32 {
    let ready = || matches!(state.load(Ordering::Acquire), WORK | STOP);
    if !patience.watch(time, ready) {
        // When this fails work has just come, and the next line sees it.
        let _ = state.compare_exchange(IDLE, ASLEEP, Ordering::AcqRel, Ordering::Relaxed);
        while !ready() {
            thread::park();
        }
    }
    state.load(Ordering::Acquire)
}

/// How often in a row a thread has watched in vain.
#[derive(Debug, Default)]
struct Patience(u32);

impl Patience {
    /// Spins until `ready`, for at most `time`; the last answer of `ready`.
    ///
    /// After watching in vain it gives up sooner, but for each eighth time: two threads that share a processor would
    /// only hold each other up.
    fn watch(&mut self, time: Duration, ready: impl Fn() -> bool) -> bool {
        let time = if self.0.is_multiple_of(8) { time } else { time / 5 };
        let seen = spin(time, ready);
        self.0 = if seen { 0 } else { self.0.wrapping_add(1) };
        seen
    }
}

fn spin(time: Duration, ready: impl Fn() -> bool) -> bool {
    let mut end = None;
    loop {
        // Asking the clock costs about as much as a step; a pause takes 10 to 50 ns.
        for _ in 0..32 {
            if ready() {
                return true;
            }
            core::hint::spin_loop();
        }
        let now = Instant::now();
        if now >= *end.get_or_insert(now + time) {
            return ready();
        }
    }
}

/// The lock, also after a panic: nothing that it guards can be left in between.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

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
    fn a_job_runs_on_the_same_thread_every_time() {
        let pool = ThreadPool::new(3).unwrap();
        let ids = || {
            let ids: [Mutex<Option<thread::ThreadId>>; 5] = [const { Mutex::new(None) }; 5];
            pool.run(5, &|i| *ids[i].lock().unwrap() = Some(thread::current().id())).unwrap();
            ids.map(|id| id.into_inner().unwrap().unwrap())
        };
        let first = ids();
        assert_eq!(first[0], thread::current().id());
        assert!(first[0] != first[1] && first[1] != first[2] && first[0] == first[3] && first[1] == first[4]);
        assert_eq!(ids(), first);
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
}
