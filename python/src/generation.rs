//! Generations: iterators over what a model writes.

use crate::engine::Engine;
use crate::results::TokenLogprobs;
use crate::session::Session;
use crate::watch::Watch;
use backstitch_models::session::{self, Finish, PausedGeneration};
use backstitch_models::{Cancel, Session as Library};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A generation in progress: an iterator over its chunks, also with `async for`.
///
/// It may be left at any time; the session then holds exactly the tokens that were yielded.
#[pyclass(frozen, module = "backstitch")]
pub struct Generation {
    /// The session, which has to live as long.
    session: Py<Session>,
    state: Mutex<State>,
    /// The request of `cancel`, and that of the caller.
    requests: [Option<Cancel>; 2],
}

/// The state of a generation between two chunks.
struct State {
    /// The work that is left; `None` while another thread computes, and at the end.
    paused: Option<PausedGeneration>,
    /// A chunk that was computed and not yielded yet.
    ready: Option<session::Chunk>,
    is_over: bool,
    finish: Option<Finish>,
}

impl Generation {
    /// Make a generation of `session`. `cancel` ends it, as its own `cancel` does.
    pub fn new(session: Py<Session>, paused: PausedGeneration, cancel: Option<Cancel>) -> Self {
        let state = State { paused: Some(paused), ready: None, is_over: false, finish: None };
        Generation { session, state: Mutex::new(state), requests: [Some(Cancel::new()), cancel] }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compute the next chunk, unless one is ready or the generation is over.
    fn compute(&self, py: Python<'_>) -> PyResult<()> {
        let mut paused = {
            let mut state = self.state();
            if state.ready.is_some() || state.is_over {
                return Ok(());
            }
            let text = "another thread is computing a chunk of this generation";
            Some(state.paused.take().ok_or_else(|| PyRuntimeError::new_err(text))?)
        };
        let watch = Watch::new(self.requests.clone());
        let engine: &Engine<Library> = self.session.get().engine();
        let outcome = engine.run_watched(py, watch, |session| {
            let Some(paused) = paused.take() else { return Ok(()) };
            let mut generation = session.resume(paused)?;
            let chunk = generation.next().transpose()?;
            let finish = generation.finish();
            let paused = generation.pause();
            let mut state = self.state();
            state.is_over = chunk.is_none() || finish.is_some();
            state.paused = (!state.is_over).then_some(paused);
            state.finish = finish;
            state.ready = chunk;
            Ok(())
        });
        if outcome.is_err() {
            let mut state = self.state();
            // A signal may have come before the turn of this thread.
            state.paused = state.paused.take().or(paused);
            // A chunk that is ready was computed before a signal came, and is not lost.
            state.is_over |= state.paused.is_none();
        }
        outcome
    }

    fn take(&self) -> Option<Chunk> {
        self.state().ready.take().map(Chunk::from)
    }
}

#[pymethods]
impl Generation {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Chunk>> {
        self.compute(py)?;
        Ok(self.take())
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("backstitch._aio")?.call_method1("chunks", (slf,))
    }

    /// Compute the next chunk and keep it for `_take`.
    fn _compute(&self, py: Python<'_>) -> PyResult<()> {
        self.compute(py)
    }

    /// Return the chunk that `_compute` computed; `None` at the end.
    fn _take(&self) -> Option<Chunk> {
        self.take()
    }

    /// Generate to the end, and return the text of all chunks that were not yielded before.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = String::new();
        while let Some(chunk) = self.__next__(py)? {
            text += &chunk.text;
        }
        Ok(text)
    }

    /// End the generation, from any thread. Its finish is then "cancelled".
    fn cancel(&self) {
        self.requests.iter().flatten().take(1).for_each(Cancel::cancel);
    }

    /// The reason that the generation ended: "end" if the model ended the text, "stop" for a stop
    /// string, "limit", "context_full" or "cancelled"; `None` before the end, and after an error.
    #[getter]
    fn finish(&self) -> Option<&'static str> {
        self.state().finish.map(|finish| match finish {
            Finish::End(_) => "end",
            Finish::Stop { .. } => "stop",
            Finish::Limit => "limit",
            Finish::ContextFull => "context_full",
            Finish::Cancelled => "cancelled",
            _ => "other",
        })
    }

    /// The index of the stop string that ended the generation, if one did.
    #[getter]
    fn stop_index(&self) -> Option<usize> {
        match self.state().finish {
            Some(Finish::Stop { index }) => Some(index),
            _ => None,
        }
    }

    fn __repr__(&self) -> String {
        match self.finish() {
            Some(finish) => format!("<backstitch.Generation, finish '{finish}'>"),
            None => "<backstitch.Generation>".into(),
        }
    }
}

/// The output of one step of a generation. `str()` of it is its text.
///
/// Attributes: `text`, whole characters that can no longer change, and no beginning of a stop
/// string; `tokens`, those of the step; `logprobs`, a `TokenLogprobs` for each token, if they were
/// asked for.
#[pyclass(frozen, module = "backstitch")]
pub struct Chunk {
    #[pyo3(get)]
    text: String,
    #[pyo3(get)]
    tokens: Vec<u32>,
    #[pyo3(get)]
    logprobs: Vec<TokenLogprobs>,
}

impl From<session::Chunk> for Chunk {
    fn from(chunk: session::Chunk) -> Self {
        Chunk {
            text: chunk.text,
            tokens: chunk.tokens.iter().map(|token| token.0).collect(),
            logprobs: chunk.logprobs.into_iter().map(TokenLogprobs::from).collect(),
        }
    }
}

#[pymethods]
impl Chunk {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = PyString::new(py, &self.text).repr()?;
        Ok(format!("Chunk(text={text}, tokens={:?})", self.tokens))
    }
}
