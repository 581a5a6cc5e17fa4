//! Sessions and contexts that several objects of Python, and several threads, use by turns.
//!
//! An [`Engine`] owns a session of the library, say. Every [`Session`](crate::session::Session) of
//! Python is one of its branches. A call waits for its turn and computes without the interpreter's
//! lock. Threads get turns in the order in which they came, so two that generate side by side both
//! advance.

use crate::errors::{Class, OrRaise};
use crate::watch::{PERIOD, Watch};
use backstitch_models::{Cancel, Context, Error, SeqId, Session};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Things of the library that compute.
pub trait Compute: Send {
    /// Heed a request to cancel from now on.
    fn set_cancel(&mut self, cancel: Option<Cancel>);

    /// Remove a sequence. The last branch of a session stays.
    fn remove(&mut self, seq: SeqId);
}

impl Compute for Session {
    fn set_cancel(&mut self, cancel: Option<Cancel>) {
        Session::set_cancel(self, cancel);
    }

    fn remove(&mut self, seq: SeqId) {
        // This fails for the last branch alone.
        drop(Session::remove(self, seq));
    }
}

impl Compute for Context {
    fn set_cancel(&mut self, cancel: Option<Cancel>) {
        Context::set_cancel(self, cancel);
    }

    fn remove(&mut self, seq: SeqId) {
        drop(self.release(seq));
    }
}

/// A session or a context of the library, and who uses it.
pub struct Engine<T: Compute> {
    state: Mutex<State<T>>,
    /// Notified when a turn ends.
    is_free: Condvar,
    /// The process that made the session: threads do not follow into a forked one.
    process: u32,
}

/// The session between turns, and the threads that wait for it.
struct State<T> {
    /// The session; `None` while it is used.
    session: Option<Box<T>>,
    /// The thread that uses it.
    user: Option<ThreadId>,
    /// The numbers of those that wait, in the order in which they came.
    queue: VecDeque<u64>,
    next_number: u64,
    /// Branches whose objects are gone, to be removed when the turn ends.
    dropped: Vec<SeqId>,
}

/// The branch of an object. It is `None` once the object was closed.
pub type Branch = Mutex<Option<SeqId>>;

/// Return the branch of an object that was not closed.
///
/// # Errors
/// `SequenceError` if it was closed.
pub fn branch(py: Python<'_>, branch: &Branch) -> PyResult<SeqId> {
    let seq = *branch.lock().unwrap_or_else(PoisonError::into_inner);
    seq.ok_or_else(|| Class::Sequence.error(py, "the session was closed; make another one"))
}

impl<T: Compute> Engine<T> {
    /// Make an engine of a session.
    pub fn new(session: T) -> Self {
        let state = State {
            session: Some(Box::new(session)),
            user: None,
            queue: VecDeque::new(),
            next_number: 0,
            dropped: Vec::new(),
        };
        Engine { state: Mutex::new(state), is_free: Condvar::new(), process: std::process::id() }
    }

    /// Return true in a process that was forked from the one that made the session.
    fn is_elsewhere(&self) -> bool {
        self.process != std::process::id()
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compute with the session, without the interpreter's lock and in turn with others. Signals
    /// and `cancel` end the computation.
    ///
    /// # Errors
    /// The exception for the error of `compute`; that of a signal handler; `RuntimeError` for a
    /// call from within a callback of the same computation, and in a forked process.
    pub fn run<R: Send>(
        &self,
        py: Python<'_>,
        cancel: Option<&Cancel>,
        compute: impl FnOnce(&mut T) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.run_watched(py, Watch::new([cancel.cloned()]), compute)
    }

    /// Compute, as [`Engine::run`], under `watch`.
    ///
    /// # Errors
    /// Those of [`Engine::run`].
    pub fn run_watched<R: Send>(
        &self,
        py: Python<'_>,
        watch: Watch,
        compute: impl FnOnce(&mut T) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let mut turn = self.wait(py)?;
        let request = watch.cancel();
        let outcome = py.detach(|| {
            let session = turn.session.as_mut()?;
            session.set_cancel(Some(request));
            let outcome = compute(session);
            session.set_cancel(None);
            drop(turn);
            Some(outcome)
        });
        watch.finish(outcome)?.unwrap_or(Err(Error::Arena)).or_raise(py)
    }

    /// Wait for a turn.
    fn wait(&self, py: Python<'_>) -> PyResult<Turn<'_, T>> {
        if self.is_elsewhere() {
            let text = "this session belongs to the process that forked this one; make it after the \
                        fork, or start processes with the method \"spawn\"";
            return Err(PyRuntimeError::new_err(text));
        }
        let number = match self.enter() {
            Entry::Turn(turn) => return Ok(turn),
            Entry::Queued(number) => number,
            Entry::Nested => {
                let text = "this session is computing; a callback of the computation cannot use it";
                return Err(PyRuntimeError::new_err(text));
            }
        };
        loop {
            if let Some(turn) = py.detach(|| self.wait_a_while(number)) {
                return Ok(turn);
            }
            if let Err(error) = py.check_signals() {
                self.state().queue.retain(|&other| other != number);
                self.is_free.notify_all();
                return Err(error);
            }
        }
    }

    /// Take the session if nobody uses it or waits for it; else queue.
    fn enter(&self) -> Entry<'_, T> {
        let mut state = self.state();
        if state.user == Some(thread::current().id()) {
            return Entry::Nested;
        }
        if state.queue.is_empty()
            && let Some(session) = state.take()
        {
            return Entry::Turn(Turn { engine: self, session: Some(session) });
        }
        let number = state.next_number;
        state.next_number += 1;
        state.queue.push_back(number);
        Entry::Queued(number)
    }

    /// Wait until it is the turn of `number`, for a short time at most.
    fn wait_a_while(&self, number: u64) -> Option<Turn<'_, T>> {
        let state = self.state();
        let waits = |state: &mut State<T>| state.session.is_none() || state.queue.front() != Some(&number);
        let waited = self.is_free.wait_timeout_while(state, PERIOD, waits);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return None;
        }
        let session = state.take()?;
        state.queue.pop_front();
        Some(Turn { engine: self, session: Some(session) })
    }

    /// Remove a branch whose object is gone: at once, or at the end of the turn of another thread.
    /// The last branch stays until the engine goes, and all stay in a forked process.
    pub fn drop_branch(&self, seq: SeqId) {
        if self.is_elsewhere() {
            return;
        }
        let mut state = self.state();
        match &mut state.session {
            Some(session) => session.remove(seq),
            None => state.dropped.push(seq),
        }
    }
}

impl<T: Compute> Drop for Engine<T> {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            // Dropping it would wait for the threads of its pool, which are not in this process.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(state.session.take());
        }
    }
}

impl<T> State<T> {
    fn take(&mut self) -> Option<Box<T>> {
        let session = self.session.take()?;
        self.user = Some(thread::current().id());
        Some(session)
    }
}

/// The outcome of asking for the session.
enum Entry<'e, T: Compute> {
    Turn(Turn<'e, T>),
    /// Others were there before; the number in the queue.
    Queued(u64),
    /// The thread has the session already.
    Nested,
}

/// The session in use. It goes back to the engine when this is dropped, also by a panic.
struct Turn<'e, T: Compute> {
    engine: &'e Engine<T>,
    session: Option<Box<T>>,
}

impl<T: Compute> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        let mut state = self.engine.state();
        state.dropped.drain(..).for_each(|seq| session.remove(seq));
        state.session = Some(session);
        state.user = None;
        drop(state);
        self.engine.is_free.notify_all();
    }
}
