//! A thread that stores, so that whoever computes never waits for a disk.

use super::put::{Entry, Put};
use super::{Doing, Error, Store};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Stores entries one after the other in a thread of its own. Dropping it waits until all are stored.
#[derive(Debug)]
pub struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// What a writer did, and has before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterStats {
    /// What was stored.
    pub stored: Put,
    /// Bytes that wait to be stored, those being written included.
    pub waiting: u64,
    /// Entries that wait to be stored, the one being written included.
    pub unfinished: u64,
    /// Entries that were not taken because too many bytes were waiting.
    pub dropped: u64,
    /// Entries that could not be stored.
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
    entries: VecDeque<Entry<'static>>,
    stats: WriterStats,
    error: Option<Error>,
    /// No more entries will come.
    closing: bool,
    /// The thread is gone.
    ended: bool,
}

impl Writer {
    /// Starts the thread. At most `most` bytes of payloads wait at once; what comes on top is dropped.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no thread.
    pub fn spawn(store: Store, most: u64) -> Result<Writer, Error> {
        let queue = Arc::new(Queue { most, state: Mutex::default(), changed: Condvar::new() });
        let own = queue.clone();
        let thread = Builder::new().name("store".into()).spawn(move || run(&store, &own));
        let failed = |error| Error::Io { doing: Doing::StartThread, path: Path::new("store").into(), error };
        Ok(Writer { queue, thread: Some(thread.map_err(failed)?) })
    }

    /// Hands over what is to be stored, and never waits. `false` if too many bytes are waiting already; then it is dropped and counted.
    pub fn put(&self, entry: Entry<'static>) -> bool {
        let mut state = self.queue.state();
        let waiting = state.stats.waiting.saturating_add(entry.bytes());
        if waiting > self.queue.most || state.ended {
            state.stats.dropped += 1;
            return false;
        }
        state.stats.waiting = waiting;
        state.stats.unfinished += 1;
        state.entries.push_back(entry);
        self.queue.changed.notify_all();
        true
    }

    /// Waits until everything that was handed over is stored, or could not be.
    pub fn flush(&self) {
        let idle = |state: &mut State| state.stats.unfinished == 0 || state.ended;
        drop(self.queue.wait_until(idle));
    }

    /// What was done so far.
    pub fn stats(&self) -> WriterStats {
        self.queue.state().stats
    }

    /// The last error since this was asked before, if there was any.
    pub fn take_error(&self) -> Option<Error> {
        self.queue.state().error.take()
    }
}

impl Drop for Writer {
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

    /// The next entry; `None` when no more will come.
    fn next(&self) -> Option<Entry<'static>> {
        self.wait_until(|state| !state.entries.is_empty() || state.closing).entries.pop_front()
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

fn run(store: &Store, queue: &Queue) {
    let _end = End(queue);
    while let Some(entry) = queue.next() {
        let result = store.put(&entry);
        let mut state = queue.state();
        let stats = &mut state.stats;
        stats.waiting = stats.waiting.saturating_sub(entry.bytes());
        stats.unfinished = stats.unfinished.saturating_sub(1);
        match result {
            Ok(Put { packs, blocks, bytes }) => {
                stats.stored.packs += packs;
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
