//! Stopping a computation: for a signal, for another thread, or for a callback that raised.
//!
//! While the library computes, Python runs no code of the calling thread. So somebody has to ask
//! Python whether a signal came, Ctrl-C above all. The library looks at its request to cancel some
//! thousand times per second, and a [`Watch`] makes the calling thread ask Python at some of these
//! moments.

use backstitch_models::Cancel;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The time between two questions whether a signal came.
pub const PERIOD: Duration = Duration::from_millis(25);

/// One computation under watch.
pub struct Watch {
    cancel: Cancel,
    raised: Raised,
}

/// The first exception that a handler of signals or a callback raised, shared with these.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Keep `error`, unless there is one already.
    pub fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Watch {
    /// Watch a computation that the current thread starts, for signals and for `requests`.
    pub fn new<const N: usize>(requests: [Option<Cancel>; N]) -> Self {
        let raised = Raised::default();
        let signals = Signals {
            caller: thread::current().id(),
            next: Mutex::new(Instant::now() + PERIOD),
            raised: raised.clone(),
        };
        let probe = move || requests.iter().flatten().any(Cancel::is_cancelled) || signals.came();
        Watch { cancel: Cancel::from_fn(probe), raised }
    }

    /// Return the request that the library has to heed.
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Return the place for the exception of a callback; [`Watch::call`] fills it in.
    pub fn raised(&self) -> Raised {
        self.raised.clone()
    }

    /// Return the outcome of the computation, or the exception that ended it.
    ///
    /// # Errors
    /// The exception that a handler of signals or a callback raised, even if the computation was
    /// finished by then.
    pub fn finish<T>(self, outcome: T) -> PyResult<T> {
        match self.raised.take() {
            Some(error) => Err(error),
            None => Ok(outcome),
        }
    }
}

/// The signals of one computation.
struct Signals {
    /// The thread that called the library; the others never wait for Python.
    caller: ThreadId,
    /// The time of the next question.
    next: Mutex<Instant>,
    raised: Raised,
}

impl Signals {
    /// Return true if a handler of signals, or a callback, raised an exception.
    fn came(&self) -> bool {
        if thread::current().id() == self.caller && self.is_time() {
            // Nobody is asked while the interpreter shuts down.
            let asked = Python::try_attach(|py| py.check_signals());
            asked.into_iter().filter_map(Result::err).for_each(|error| self.raised.set(error));
        }
        self.raised.is_set()
    }

    fn is_time(&self) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_time = now >= *next;
        if is_time {
            *next = now + PERIOD;
        }
        is_time
    }
}

/// A progress callback of the caller.
pub struct Progress {
    callback: Option<Py<PyAny>>,
    cancel: Cancel,
    raised: Raised,
}

impl Progress {
    /// Return a function to be called from a computation under `watch`.
    pub fn new(callback: Option<Py<PyAny>>, watch: &Watch) -> Self {
        Progress { callback, cancel: watch.cancel(), raised: watch.raised() }
    }

    /// Call the callback. If it raises, the computation ends with that exception.
    pub fn report(&self, done: u64, all: u64) {
        let Some(callback) = &self.callback else { return };
        if self.raised.is_set() {
            return;
        }
        let called = Python::try_attach(|py| callback.call1(py, (done, all)).map(drop));
        if let Some(Err(error)) = called {
            self.raised.set(error);
            self.cancel.cancel();
        }
    }
}
