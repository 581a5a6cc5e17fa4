//! A thread that stores, so that whoever computes never waits for a disk.

use super::PromptCache;
use super::put::{EvaluatedPrefix, Put};
use crate::storage::error::{Error, Operation};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Stores prefixes one after the other in a thread of its own. Dropping it waits until all are
/// stored.
#[derive(Debug)]
pub struct BackgroundWriter {
    /// The most bytes that may wait.
    most: u64,
    /// Shared with the thread.
    progress: Arc<Mutex<Progress>>,
    /// The thread, and the way to it; taken when no more prefixes will come.
    thread: Option<(Sender<Job>, JoinHandle<()>)>,
}

/// A job for the thread.
enum Job {
    Store(EvaluatedPrefix<'static>),
    /// Tell somebody that waits: all that was handed over before is stored, or could not be.
    Tell(Sender<()>),
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

/// Counts, and the last error.
type Progress = (WriterStats, Option<Error>);

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BackgroundWriter {
    /// Start the thread. At most `most` bytes of payloads wait at once; what comes on top is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::File`] if the system gives no thread.
    pub fn spawn(cache: PromptCache, most: u64) -> Result<Self, Error> {
        let (queue, jobs) = channel();
        let progress: Arc<Mutex<Progress>> = Arc::default();
        let own = progress.clone();
        let thread = Builder::new().name("prompt cache".into()).spawn(move || run(&cache, &own, &jobs));
        let failed = |error| Error::file(Operation::StartThread, Path::new("prompt cache"), error);
        Ok(Self { most, progress, thread: Some((queue, thread.map_err(failed)?)) })
    }

    /// Hand over a prefix that is to be stored, and never wait. Returns false if too many bytes are
    /// waiting already; then it is dropped and counted.
    pub fn put(&self, entry: EvaluatedPrefix<'static>) -> bool {
        let (stats, _) = &mut *lock(&self.progress);
        let waiting = stats.waiting.saturating_add(entry.bytes());
        let is_taken = waiting <= self.most && self.send(Job::Store(entry));
        if is_taken {
            stats.waiting = waiting;
            stats.unfinished += 1;
        } else {
            stats.dropped += 1;
        }
        is_taken
    }

    /// Give the thread a job; one that is gone takes none.
    fn send(&self, job: Job) -> bool {
        self.thread.as_ref().is_some_and(|(queue, _)| queue.send(job).is_ok())
    }

    /// Wait until everything that was handed over is stored, or could not be.
    pub fn flush(&self) {
        let (told, done) = channel();
        self.send(Job::Tell(told));
        // Fails at once where the thread is gone, and the job with it.
        let _ = done.recv();
    }

    /// Return what was done so far.
    pub fn stats(&self) -> WriterStats {
        lock(&self.progress).0
    }

    /// Take the last error since this was asked before, if there was any.
    pub fn take_error(&self) -> Option<Error> {
        lock(&self.progress).1.take()
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        if let Some((queue, thread)) = self.thread.take() {
            drop(queue);
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn run(cache: &PromptCache, progress: &Mutex<Progress>, jobs: &Receiver<Job>) {
    for job in jobs {
        let entry = match job {
            Job::Store(entry) => entry,
            Job::Tell(told) => {
                let _ = told.send(());
                continue;
            }
        };
        let result = cache.put(&entry);
        let (stats, last_error) = &mut *lock(progress);
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
                *last_error = Some(error);
            }
        }
    }
}
