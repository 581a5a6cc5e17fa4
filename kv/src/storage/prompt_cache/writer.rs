//! A thread that stores, so that whoever computes never waits for a disk.

use super::PromptCache;
use super::error::Error;
use super::put::{EvaluatedPrefix, Put};
use crate::storage::error::{self, Operation};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Stores prefixes one after the other in a thread of its own. Dropping it waits until all are
/// stored.
#[derive(Debug)]
pub struct BackgroundWriter {
    /// The most bytes that may wait.
    most: u64,
    progress: Arc<Progress>,
    /// Taken when no more prefixes will come.
    queue: Option<Sender<EvaluatedPrefix<'static>>>,
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

/// State that a writer shares with its thread.
#[derive(Debug, Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stats: WriterStats,
    error: Option<Error>,
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
        let (queue, waiting) = channel();
        let progress = Arc::new(Progress::default());
        let own = progress.clone();
        let thread = Builder::new().name("prompt cache".into()).spawn(move || run(&cache, &own, &waiting));
        let failed = |error| error::Error::file(Operation::StartThread, Path::new("prompt cache"), error);
        Ok(Self { most, progress, queue: Some(queue), thread: Some(thread.map_err(failed)?) })
    }

    /// Hand over a prefix that is to be stored, and never wait. Returns false if too many bytes are
    /// waiting already; then it is dropped and counted.
    pub fn put(&self, entry: EvaluatedPrefix<'static>) -> bool {
        let mut state = self.progress.state();
        let waiting = state.stats.waiting.saturating_add(entry.bytes());
        // A thread that is gone takes nothing.
        let is_taken = waiting <= self.most
            && !state.ended
            && self.queue.as_ref().is_some_and(|queue| queue.send(entry).is_ok());
        if is_taken {
            state.stats.waiting = waiting;
            state.stats.unfinished += 1;
        } else {
            state.stats.dropped += 1;
        }
        is_taken
    }

    /// Wait until everything that was handed over is stored, or could not be.
    pub fn flush(&self) {
        let is_busy = |state: &mut State| state.stats.unfinished > 0 && !state.ended;
        drop(self.progress.changed.wait_while(self.progress.state(), is_busy));
    }

    /// Return what was done so far.
    pub fn stats(&self) -> WriterStats {
        self.progress.state().stats
    }

    /// Take the last error since this was asked before, if there was any.
    pub fn take_error(&self) -> Option<Error> {
        self.progress.state().error.take()
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that the thread is gone, however it ends.
struct End<'a>(&'a Progress);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.changed.notify_all();
    }
}

fn run(cache: &PromptCache, progress: &Progress, waiting: &Receiver<EvaluatedPrefix<'static>>) {
    let _end = End(progress);
    for entry in waiting {
        let result = cache.put(&entry);
        let mut state = progress.state();
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
        progress.changed.notify_all();
    }
}
