//! Stopping what takes long.

use crate::error::Error;
use alloc::{boxed::Box, sync::Arc};
use backstitch_core::pool::{Panicked, Pool};
use backstitch_kv::image::Source;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

/// A request to stop, shared by whoever makes it and whoever computes. Clones are the same request.
///
/// A context ([`Context::set_cancel`](crate::Context::set_cancel)) and the loading of a model
/// ([`LoadParams::cancel`](crate::LoadParams::cancel)) look at it before every step of a graph, and inside long steps
/// before every piece of work that is handed to a thread. They then return [`Error::Cancelled`] and leave everything as it
/// was. The request stays until [`Cancel::reset`] withdraws it.
///
/// # Example
/// ```
/// use backstitch_models::{Cancel, Context, Error, Model, Params, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let (seq, cancel) = (ctx.sequence()?, Cancel::new());
/// ctx.set_cancel(Some(cancel.clone()));
/// cancel.cancel(); // usually from another thread, or a handler of signals
/// assert!(matches!(ctx.append(seq, &[Token(1), Token(2)]), Err(Error::Cancelled)));
/// cancel.reset();
/// ctx.append(seq, &[Token(1), Token(2)])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Cancel(Arc<Request>);

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
    /// A request that nobody has made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A request that is made by [`Cancel::cancel`], and also while `probe` returns true: a deadline, say, or a flag that
    /// exists already. The probe is called from several threads, some thousand times a second, and so has to be quick.
    pub fn from_fn(probe: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Cancel(Arc::new(Request { is_made: AtomicBool::new(false), probe: Some(Box::new(probe)) }))
    }

    /// Make the request: what looks at it stops.
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

/// The most work that a job does between two looks at a request, in multiply-adds: some milliseconds of a usual processor's
/// thread, a quarter of a second without vector instructions.
const MOST_PER_JOB: u64 = 1 << 28;

/// The pool of one computation, which leaves out jobs once a request to stop was seen. What steps computed is of no use
/// then: [`Stoppable::check`] says so from then on, even if the request is withdrawn meanwhile.
pub(crate) struct Stoppable<'a> {
    pool: &'a dyn Pool,
    cancel: Option<&'a Cancel>,
    is_stopped: AtomicBool,
}

impl<'a> Stoppable<'a> {
    pub fn new(pool: &'a dyn Pool, cancel: Option<&'a Cancel>) -> Self {
        Stoppable { pool, cancel, is_stopped: AtomicBool::new(false) }
    }

    /// The pool to work on. Without a request it is the caller's own.
    pub fn pool(&self) -> &dyn Pool {
        if self.cancel.is_some() { self } else { self.pool }
    }

    /// Looks at the request.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if it was made, now or at an earlier look.
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

/// A source of saved bytes that gives no more once a request to stop was seen.
pub(crate) struct StoppableSource<'a, S> {
    pub source: &'a S,
    pub work: &'a Stoppable<'a>,
}

/// Why a source gave no bytes.
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
