//! A thread that stores, so that whoever computes never waits for a disk.

use super::PromptCache;
use super::error::Error;
use super::put::{EvaluatedPrefix, Put};
use crate::storage::error::{self, Operation};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Stores prefixes one after the other in a thread of its own. Dropping it waits until all are
/// stored.
#[derive(Debug)]
pub struct BackgroundWriter {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// Work of a writer so far, and ahead of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterStats {
    /// Totals of what was stored.
    pub stored: Put,
    /// Bytes that wait to be stored, those being written included.
    pub waiting: u64,
    /// Prefixes that wait to be stored, the one being written included.
    pub unfinished: u64,
    /// Prefixes that were not taken because too many bytes were waiting.
    pub dropped: u64,
    /// Prefixes that could not be stored.
    pub errors: u64,
}

#[derive(Debug)]
struct Queue {
    /// The most bytes that may wait.
    most: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<EvaluatedPrefix<'static>>,
    stats: WriterStats,
    error: Option<Error>,
    /// True if no more prefixes will come.
    closing: bool,
    /// True if the thread is gone.
    ended: bool,
}

impl BackgroundWriter {
    /// Start the thread. At most `most` bytes of payloads wait at once; what comes on top is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Disk`] if the system gives no thread.
    pub fn spawn(cache: PromptCache, most: u64) -> Result<Self, Error> {
        let queue = Arc::new(Queue { most, state: Mutex::default(), changed: Condvar::new() });
        let own = queue.clone();
        let thread = Builder::new().name("prompt cache".into()).spawn(move || run(&cache, &own));
        let failed = |error| error::Error::file(Operation::StartThread, Path::new("prompt cache"), error);
        Ok(Self { queue, thread: Some(thread.map_err(failed)?) })
    }

    /// Hand over a prefix that is to be stored, and never wait. Returns false if too many bytes are
    /// waiting already; then it is dropped and counted.
    pub fn put(&self, entry: EvaluatedPrefix<'static>) -> bool {
        let mut state = self.queue.state();
        let waiting = state.stats.waiting.saturating_add(entry.bytes());
        if waiting > self.queue.most || state.ended {
            state.stats.dropped += 1;
            return false;
        }
        state.stats.waiting = waiting;
        state.stats.unfinished += 1;
        state.waiting.push_back(entry);
        self.queue.changed.notify_all();
        true
    }

    /// Wait until everything that was handed over is stored, or could not be.
    pub fn flush(&self) {
        let idle = |state: &mut State| state.stats.unfinished == 0 || state.ended;
        drop(self.queue.wait_until(idle));
    }

    /// Return what was done so far.
    pub fn stats(&self) -> WriterStats {
        self.queue.state().stats
    }

    /// Take the last error since this was asked before, if there was any.
    pub fn take_error(&self) -> Option<Error> {
        self.queue.state().error.take()
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.queue.state().closing = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, mut done: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.state(), |state| !done(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for the next prefix; `None` when no more will come.
    fn next(&self) -> Option<EvaluatedPrefix<'static>> {
        self.wait_until(|state| !state.waiting.is_empty() || state.closing).waiting.pop_front()
    }
}

/// Says that the thread is gone, however it ends.
struct End<'a>(&'a Queue);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.changed.notify_all();
    }
}

fn run(cache: &PromptCache, queue: &Queue) {
    let _end = End(queue);
    while let Some(entry) = queue.next() {
        let result = cache.put(&entry);
        let mut state = queue.state();
        let stats = &mut state.stats;
        stats.waiting = stats.waiting.saturating_sub(entry.bytes());
        stats.unfinished = stats.unfinished.saturating_sub(1);
        match result {
            Ok(Put { entries, blocks, bytes }) => {
                stats.stored.entries += entries;
                stats.stored.blocks += blocks;
                stats.stored.bytes += bytes;
            }
            Err(error) => {
                stats.errors += 1;
                state.error = Some(error);
            }
        }
        queue.changed.notify_all();
    }
}
