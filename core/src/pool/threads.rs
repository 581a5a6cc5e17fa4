//! Threads that spin a little while, then sleep, and take over each other's jobs.
//!
//! A decode runs hundreds of short steps, so handing one out must cost a fraction of a microsecond.
//! Each thread has its share of the jobs in one atomic word of its own ([`Units`]), on which its
//! worker spins for some microseconds after each run before it sleeps. It spins for a shorter time
//! if that was in vain before, and not at all if there are more threads than processors: the thread
//! it waits for may need the processor it burns. It does not yield the processor either: on a busy
//! machine that gives milliseconds away, while a thread that sleeps is woken at once.
//!
//! A thread that has done its own share takes jobs of the others, from the end of their shares. A
//! thread that the system has taken the processor from, or not given it yet, then holds up the run
//! by one job and not by its whole share.

#![allow(unsafe_code)]

use super::patience::{Experience, Patience, Run, WATCH};
use super::sync::{
    Arc, AtomicBool, AtomicPtr, AtomicUsize, Builder, Condvar, JoinHandle, Mutex, Ordering, lock, park,
    thread_local,
};
use super::units::{MAX_UNITS, Units};
use super::{Inline, MAX_THREADS, Panicked, Pool, returns};
use crate::error::Error;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Jobs into which a thread's share is best cut: a thread that is held up then holds up this part
/// of its share.
const JOBS_EACH: usize = 4;

/// Shares, its own among them, in which a worker looks for jobs. With many threads each would
/// otherwise fetch the words of all in every step; the caller looks everywhere.
const REACH: usize = 4;

type Job<'a> = &'a (dyn Fn(usize) + Sync);

thread_local! {
    /// True on workers, and on a caller while it works: a run that starts there must not wait for
    /// the pool.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro has no such form")]
    static IN_JOB: Cell<bool> = Cell::new(false);
}

/// A pool of threads of which the caller is one.
///
/// The jobs of a run are shared out in order, the first ones to the first threads, so that a thread
/// meets the same memory in run after run; a thread that is done helps the others. A run allocates
/// nothing. A run from inside a job works, on that job's thread alone if other threads share that
/// job's run. Runs from several threads at once take turns.
///
/// ```
/// use backstitch_core::pool::{Parts, Pool, ThreadPool};
///
/// let pool = ThreadPool::new(2)?;
/// let mut squares = [0; 100];
/// let parts = Parts::new(&mut squares, 1, pool.n_pieces());
/// pool.run(pool.n_pieces(), &|job| {
///     if let Some((first, part)) = parts.take(job) {
///         part.iter_mut().zip(first..).for_each(|(x, i)| *x = i * i);
///     }
/// })?;
/// assert_eq!(squares[99], 99 * 99);
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a run: there is room for one, and one caller to wait for it.
    turn: Mutex<Experience>,
}

#[derive(Debug)]
struct Shared {
    /// The caller's slot, then the workers'.
    slots: Box<[Slot]>,
    /// Jobs of the run that are not done (before the first run, threads that have not started), and
    /// [`CALLER_SLEEPS`].
    unfinished: AtomicUsize,
    panicked: AtomicBool,
    caller_turn: Mutex<()>,
    caller_wakes: Condvar,
    watch: Duration,
}

/// A bit of [`Shared::unfinished`]: the thread that does the last job has to wake the caller.
const CALLER_SLEEPS: usize = 1 << (usize::BITS - 1);

/// The jobs handed to one thread, on a cache line of its own (two, because processors fetch them in
/// pairs): one transfer brings all of it.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    units: Units,
    /// Points to a `Job` on the caller's stack while there is a job that was not done.
    job: AtomicPtr<()>,
}

impl ThreadPool {
    /// Start `n_threads - 1` threads; the caller of [`Pool::run`] is the remaining one. In
    /// WebAssembly, which has no threads to start, it is the only one of any pool.
    ///
    /// # Errors
    /// [`Error::Threads`] unless `n_threads` is in 1..=[`MAX_THREADS`], or if the system refuses to
    /// start that many.
    pub fn new(n_threads: usize) -> Result<Self, Error> {
        if !(1..=MAX_THREADS).contains(&n_threads) {
            return Err(Error::Threads { found: n_threads, most: MAX_THREADS });
        }
        let n_threads = if cfg!(target_family = "wasm") { 1 } else { n_threads };
        let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = n_threads > n_processors || cfg!(all(test, loom));
        let slot = |_| Slot { units: Units::new(), job: AtomicPtr::new(core::ptr::null_mut()) };
        let shared = Arc::new(Shared {
            slots: (0..n_threads).map(slot).collect(),
            unfinished: AtomicUsize::new(n_threads - 1),
            panicked: AtomicBool::new(false),
            caller_turn: Mutex::new(()),
            caller_wakes: Condvar::new(),
            watch: if crowded { Duration::ZERO } else { WATCH },
        });
        let workers = Vec::with_capacity(n_threads - 1);
        let mut pool = Self { shared, workers, turn: Mutex::new(Experience::default()) };
        for i in 1..n_threads {
            let shared = Arc::clone(&pool.shared);
            let builder = Builder::new().name(format!("backstitch-{i}"));
            let worker = builder.spawn(move || work(&shared, i));
            pool.workers.push(worker.map_err(|_| Error::Threads { found: n_threads, most: i })?);
        }
        // A thread's allocations at its start belong here, not to the first run that it takes part
        // in.
        pool.shared.wait(&mut Patience::default());
        Ok(pool)
    }

    /// Share out the run; return true if a thread had to be woken.
    fn deal(&self, job: &Job, n_jobs: usize) -> bool {
        let n_threads = self.shared.slots.len();
        self.shared.unfinished.store(n_jobs, Ordering::Relaxed);
        let (mut start, mut woke) = (0, false);
        for (i, slot) in self.shared.slots.iter().enumerate() {
            let end = start + (n_jobs - start).div_ceil(n_threads - i);
            if start == end {
                break;
            }
            slot.job.store(core::ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
            if slot.units.deal(start..end)
                && let Some(worker) = i.checked_sub(1).and_then(|i| self.workers.get(i))
            {
                worker.thread().unpark();
                woke = true;
            }
            start = end;
        }
        woke
    }

    /// Run jobs one after the other up to `end`, then share out those that are left.
    fn run_alone(&self, end: Instant, n_jobs: usize, job: Job) -> Result<(), Panicked> {
        let (mut n_done, mut panicked) = (0, false);
        while n_done < n_jobs && Instant::now() < end {
            panicked |= !returns(job, n_done);
            n_done += 1;
        }
        self.run(n_jobs - n_done, &|i| job(n_done + i))?;
        if panicked { Err(Panicked) } else { Ok(()) }
    }
}

impl Pool for ThreadPool {
    fn n_threads(&self) -> usize {
        self.shared.slots.len()
    }

    fn n_pieces(&self) -> usize {
        if self.workers.is_empty() { 1 } else { JOBS_EACH * self.n_threads() }
    }

    fn run(&self, n_jobs: usize, job: Job) -> Result<(), Panicked> {
        if self.workers.is_empty() || n_jobs <= 1 || n_jobs > MAX_UNITS || IN_JOB.with(Cell::get) {
            return Inline.run(n_jobs, job);
        }
        let mut experience = lock(&self.turn);
        let began = Instant::now();
        if let Some(end) = experience.alone_until(began) {
            drop(experience);
            return self.run_alone(end, n_jobs, job);
        }
        let shared = &*self.shared;
        let woke = self.deal(&job, n_jobs);
        IN_JOB.with(|in_job| in_job.set(true));
        shared.take_part(0, shared.slots.len());
        IN_JOB.with(|in_job| in_job.set(false));
        // Nothing above unwinds, so `job` cannot go away before all are done with it.
        let finished = Instant::now();
        shared.wait(&mut experience.patience);
        // A worker that never spins always sleeps, which is no sign of anything.
        if !shared.watch.is_zero() {
            let jobs_each = (n_jobs / shared.slots.len()) as u32;
            experience.learn(&Run { began, woke, finished, jobs_each }, shared.watch);
        }
        if shared.panicked.swap(false, Ordering::Relaxed) { Err(Panicked) } else { Ok(()) }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        for (slot, worker) in self.shared.slots.iter().skip(1).zip(&self.workers) {
            slot.units.stop();
            worker.thread().unpark();
        }
        for worker in self.workers.drain(..) {
            // Workers catch panics of jobs; should one die all the same, there is nobody left to
            // tell.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Do the jobs of share `index`, then those that are left of the shares behind it, `reach`
    /// shares in all.
    fn take_part(&self, index: usize, reach: usize) {
        let mut n_done = 0;
        let (before, from) = self.slots.split_at(index);
        for (i, slot) in from.iter().chain(before).take(reach).enumerate() {
            while let Some(unit) = if i == 0 { slot.units.first() } else { slot.units.last() } {
                let job: *const Job = slot.job.load(Ordering::Relaxed).cast_const().cast();
                // SAFETY: `deal` stores a pointer to the `job` of `run` before it hands out units,
                // and `run` returns only when all of them are done, of which this one was just
                // claimed and is not.
                let job = unsafe { *job };
                if !returns(job, unit) {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                n_done += 1;
            }
        }
        if n_done > 0 {
            self.finish(n_done);
        }
    }

    /// Count `n` more jobs as done, and wake the caller if they were the last and it sleeps.
    fn finish(&self, n: usize) {
        // Release: with the last one the caller sees what all jobs wrote.
        if self.unfinished.fetch_sub(n, Ordering::AcqRel) == CALLER_SLEEPS + n {
            // Not before the caller waits.
            drop(lock(&self.caller_turn));
            self.caller_wakes.notify_one();
        }
    }

    /// Wait until all jobs are done.
    fn wait(&self, patience: &mut Patience) {
        if patience.watch(self.watch, || self.unfinished.load(Ordering::Acquire) == 0) {
            return;
        }
        let mut guard = lock(&self.caller_turn);
        if self.unfinished.fetch_or(CALLER_SLEEPS, Ordering::AcqRel) != 0 {
            while self.unfinished.load(Ordering::Acquire) != CALLER_SLEEPS {
                guard = self.caller_wakes.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
        self.unfinished.store(0, Ordering::Relaxed);
    }
}

/// Run worker `i` until it is stopped.
fn work(shared: &Shared, i: usize) {
    IN_JOB.with(|in_job| in_job.set(true));
    shared.finish(1);
    let Some(Slot { units, .. }) = shared.slots.get(i) else { return };
    let mut patience = Patience::default();
    while !units.is_stopped() {
        shared.take_part(i, REACH);
        if !patience.watch(shared.watch, || units.is_called()) {
            units.fall_asleep();
            while units.sleeps() {
                park();
            }
        }
    }
}

#[cfg(all(test, loom))]
mod explored;
// Not in WebAssembly, which has no threads.
#[cfg(all(test, not(loom), not(target_family = "wasm")))]
mod tests;
