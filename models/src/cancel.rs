//! Cancellation of long computations.
//!
//! [`Cancel`] is the request, which callers share. [`Stoppable`] is the pool of one computation
//! that heeds it, and [`StoppableSource`] the source of one import.

use crate::error::Error;
use alloc::{boxed::Box, sync::Arc};
use backstitch_core::pool::{Panicked, Pool};
use backstitch_kv::snapshot::Source;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

/// A request to cancel, shared by the code that makes it and the code that computes. Clones are one
/// and the same request.
///
/// A context ([`Context::set_cancel`](crate::Context::set_cancel)) and the loading of a model
/// ([`LoadParams::cancel`](crate::LoadParams::cancel)) check it before every step of a graph, and
/// within long steps before every job of a thread. They then return [`Error::Cancelled`] and leave
/// everything as it was. The request stays until [`Cancel::reset`] withdraws it.
///
/// # Example
/// ```
/// use backstitch_models::{Cancel, Context, Error, Model, Params, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let (seq, cancel) = (ctx.sequence()?, Cancel::new());
/// ctx.set_cancel(Some(cancel.clone()));
/// cancel.cancel(); // usually from another thread, or from a signal handler
/// assert!(matches!(ctx.append(seq, &[Token(1), Token(2)]), Err(Error::Cancelled)));
/// cancel.reset();
/// ctx.append(seq, &[Token(1), Token(2)])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Cancel(Arc<Request>);

/// The shared state of a request: a flag, and a function that may raise it too.
#[derive(Default)]
struct Request {
    is_made: AtomicBool,
    probe: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_made = self.0.is_made.load(Ordering::Relaxed);
        f.debug_struct("Cancel").field("is_made", &is_made).finish_non_exhaustive()
    }
}

impl Cancel {
    /// Make a request in its initial state, not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Make a request that is cancelled by [`Cancel::cancel`], and also while `probe` returns true:
    /// because of a deadline, say, or of a flag that exists already. Several threads call the
    /// probe, some thousand times per second, so it has to be quick.
    pub fn from_fn(probe: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Cancel(Arc::new(Request { is_made: AtomicBool::new(false), probe: Some(Box::new(probe)) }))
    }

    /// Cancel the computations that hold a clone of this request.
    pub fn cancel(&self) {
        self.0.is_made.store(true, Ordering::Relaxed);
    }

    /// Withdraw the request that [`Cancel::cancel`] made.
    pub fn reset(&self) {
        self.0.is_made.store(false, Ordering::Relaxed);
    }

    /// Return true if the request was made.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_made.load(Ordering::Relaxed) || self.0.probe.as_ref().is_some_and(|probe| probe())
    }
}

/// The most work of a job between two checks of a request, in multiply-adds: some milliseconds on
/// one thread of a usual processor, a quarter of a second without vector instructions.
const MOST_PER_JOB: u64 = 1 << 28;

/// The pool of one computation, which skips jobs once it has seen the request to cancel.
///
/// Results are worthless after a skipped job, so the request is remembered: [`Stoppable::check`]
/// fails from then on, even if the request is withdrawn meanwhile.
pub(crate) struct Stoppable<'a> {
    pool: &'a dyn Pool,
    cancel: Option<&'a Cancel>,
    is_stopped: AtomicBool,
}

impl<'a> Stoppable<'a> {
    pub fn new(pool: &'a dyn Pool, cancel: Option<&'a Cancel>) -> Self {
        Stoppable { pool, cancel, is_stopped: AtomicBool::new(false) }
    }

    /// Return the pool to work on. Without a request it is the caller's own.
    pub fn pool(&self) -> &dyn Pool {
        if self.cancel.is_some() { self } else { self.pool }
    }

    /// Check for the request.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if it was made, now or at an earlier check.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        match self.cancel {
            Some(cancel) if self.is_stopped(cancel) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    fn is_stopped(&self, cancel: &Cancel) -> bool {
        if self.is_stopped.load(Ordering::Relaxed) {
            return true;
        }
        let is_stopped = cancel.is_cancelled();
        if is_stopped {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        is_stopped
    }
}

impl Pool for Stoppable<'_> {
    fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    fn n_pieces(&self) -> usize {
        self.pool.n_pieces()
    }

    fn most_per_job(&self) -> u64 {
        self.pool.most_per_job().min(MOST_PER_JOB)
    }

    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        self.pool.run(n_jobs, &|i| {
            if !self.cancel.is_some_and(|cancel| self.is_stopped(cancel)) {
                job(i);
            }
        })
    }
}

/// A source of saved bytes that fails once it has seen the request to cancel.
pub(crate) struct StoppableSource<'a, S> {
    pub source: &'a S,
    pub work: &'a Stoppable<'a>,
}

/// The reason that a source gave no bytes.
pub(crate) enum SourceError<E> {
    Cancelled,
    Source(E),
}

impl<S: Source> StoppableSource<'_, S> {
    fn ask<T>(&self, fill: impl FnOnce(&S) -> Result<T, S::Error>) -> Result<T, SourceError<S::Error>> {
        self.work.check().map_err(|_| SourceError::Cancelled)?;
        fill(self.source).map_err(SourceError::Source)
    }
}

impl<S: Source> Source for StoppableSource<'_, S> {
    type Error = SourceError<S::Error>;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Self::Error> {
        self.ask(|source| source.fill_block(group, block, layers))
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Self::Error> {
        self.ask(|source| source.fill_state(state, pieces))
    }

    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Self::Error> {
        self.ask(|source| source.fill_journal(journal, pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_core::pool::Inline;
    use core::sync::atomic::AtomicUsize;

    #[test]
    fn clones_are_one_request_and_probes_make_it_too() {
        let cancel = Cancel::new();
        let other = cancel.clone();
        other.cancel();
        assert!(cancel.is_cancelled());
        cancel.reset();
        assert!(!other.is_cancelled());
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let probed = Cancel::from_fn(move || seen.fetch_add(1, Ordering::Relaxed) == 1);
        assert_eq!([(); 3].map(|()| probed.is_cancelled()), [false, true, false]);
        probed.cancel();
        assert!(probed.is_cancelled());
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn jobs_after_the_request_are_left_out_and_it_is_not_forgotten() {
        let cancel = Cancel::new();
        let work = Stoppable::new(&Inline, Some(&cancel));
        let n_done = AtomicUsize::new(0);
        let job = |i: usize| {
            n_done.fetch_add(1, Ordering::Relaxed);
            if i == 2 {
                cancel.cancel();
            }
        };
        assert!(work.check().is_ok());
        work.pool().run(10, &job).unwrap();
        assert_eq!(n_done.load(Ordering::Relaxed), 3);
        cancel.reset();
        assert!(matches!(work.check(), Err(Error::Cancelled)));
        work.pool().run(10, &job).unwrap();
        assert_eq!(n_done.load(Ordering::Relaxed), 3);
        assert!(Stoppable::new(&Inline, Some(&cancel)).check().is_ok());
    }
}
