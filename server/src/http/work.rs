//! Work for clients beside the thread that serves all of them: reading large bodies, templates,
//! grammars, tokens.
//!
//! Clients choose what is worked on, so all of it has bounds. It runs on as many threads as there
//! are cores, in turns of the [`RunQueue`]; it ends early if its client goes away or it has run for
//! too long, and it lets other work go first in between. Work does the latter two by looking at
//! [`Client::cancel`].

mod queue;

use super::answer::millis;
use super::client::{Client, Owner};
use super::error::{ApiError, ErrorKind};
use backstitch_models::Cancel;
pub(crate) use queue::Class;
use queue::{Permit, Place, RunQueue, Ticket};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time for which work runs before it lets other work go first.
const TURN: Duration = Duration::from_millis(50);
/// The time for which the work of one request may run, without the time in which it waits.
const MOST_TIME: Duration = Duration::from_secs(10);
/// The most pieces of work of one client that have begun and wait for their next turn.
const MOST_SUSPENDED: usize = 16;

/// The queue of all work.
static QUEUE: LazyLock<Arc<RunQueue>> = LazyLock::new(|| {
    // More threads than cores would only make each slower, and hold memory meanwhile.
    RunQueue::new(std::thread::available_parallelism().map_or(1, NonZero::get), MOST_SUSPENDED)
});

/// The progress of a piece of work.
struct Run {
    class: Class,
    /// `None` while it runs without one.
    permit: Option<Permit>,
    /// Its place among work that has begun, until it ends.
    place: Option<Place>,
    /// The beginning of its turn.
    since: Instant,
    /// The time for which it ran in earlier turns.
    ran: Duration,
    /// It ran for [`MOST_TIME`].
    is_late: bool,
    /// It has ended. What it made may look at its request to cancel later, which then means
    /// nothing.
    is_done: bool,
}

/// A piece of work under way.
struct Job {
    queue: Arc<RunQueue>,
    owner: Owner,
    is_left: AtomicBool,
    /// Its wait for the next turn.
    waiting: Mutex<Option<Ticket>>,
    run: Mutex<Run>,
}

impl Job {
    fn new(queue: Arc<RunQueue>, owner: Owner, class: Class, mut permit: Permit) -> Arc<Self> {
        let (since, ran) = (Instant::now(), Duration::ZERO);
        let place = permit.take_place();
        let run = Run { class, permit: Some(permit), place, since, ran, is_late: false, is_done: false };
        let (is_left, waiting) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Job { queue, owner, is_left, waiting, run: Mutex::new(run) })
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return true if the work is to end. Waits for the next turn if this one is over.
    fn is_over(&self) -> bool {
        let mut run = self.run();
        if run.is_done {
            return false;
        }
        let turn = run.since.elapsed();
        if run.ran + turn > MOST_TIME {
            run.is_late = true;
        }
        if run.is_late || self.is_left() {
            return true;
        }
        let is_long = run.class == Class::Long && run.permit.is_some();
        if turn >= TURN && (!is_long || self.queue.is_wanted()) {
            run.ran += turn;
            self.wait_for_turn(&mut run);
        }
        self.is_left()
    }

    fn is_left(&self) -> bool {
        self.is_left.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Ticket>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// End the work, because its client goes away.
    fn leave(&self) {
        self.is_left.store(true, Ordering::SeqCst);
        if let Some(ticket) = self.waiting().take() {
            ticket.give_up();
        }
    }

    /// Let other work go first.
    fn wait_for_turn(&self, run: &mut Run) {
        let (receiver, ticket) = self.queue.enter_again(self.owner, run.ran);
        run.permit = None;
        *self.waiting() = Some(ticket.clone());
        // A client that went away before the ticket was there has not found it.
        if self.is_left() {
            ticket.give_up();
        }
        // The queue drops nobody who waits. Who leaves gets no permit, and ends.
        run.permit = receiver.blocking_recv().ok();
        self.waiting().take();
        (run.class, run.since) = (Class::Long, Instant::now());
    }

    /// Free the permit of short work that has not looked whether its turn is over. It goes on
    /// without one, and waits for a turn when it looks.
    fn run_free(&self) {
        // It is waiting if somebody holds the lock.
        let Ok(mut run) = self.run.try_lock() else { return };
        if run.class == Class::Short {
            run.permit = None;
        }
    }

    /// Give back all that the work holds of the queue. Return true if it took too long.
    fn end(&self) -> bool {
        let mut run = self.run();
        (run.permit, run.place, run.is_done) = (None, None, true);
        run.is_late
    }
}

/// The time for which a piece of work runs.
#[derive(Clone, Default)]
pub(super) struct WorkTime(Option<Arc<Job>>);

impl WorkTime {
    /// Do something that is not for this client alone, without counting its time.
    pub fn pause<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        if let Some(job) = &self.0 {
            job.run().since += began.elapsed();
        }
        result
    }
}

impl std::fmt::Debug for WorkTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WorkTime").finish_non_exhaustive()
    }
}

/// Ends a piece of work whose client goes away.
struct Leave(Arc<Job>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Do `work` for `client` beside the thread that serves all clients. The client that it gets ends
/// it ([`Client::cancel`]) when the one who asked goes away, and when it takes too long.
///
/// # Errors
/// Those of `work`; [`ErrorKind::Invalid`] if it takes too long; [`ErrorKind::Server`] if it
/// panics.
pub(crate) async fn blocking<T: Send + 'static>(
    client: &Client,
    class: Class,
    work: impl FnOnce(&Client) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = || ApiError::new(ErrorKind::Server, "the work for this request failed");
    let (queue, owner) = (QUEUE.clone(), client.owner());
    let asked = Instant::now();
    let permit = queue.enter(owner, class).await.map_err(|_| failed())?;
    let begun = Instant::now();
    let job = Job::new(queue, owner, class, permit);
    let (probed, run, time) = (job.clone(), job.clone(), WorkTime(Some(job.clone())));
    let client = client.clone().with_work(Cancel::from_fn(move || probed.is_over()), time);
    let leave = Leave(job);
    let mut task = tokio::task::spawn_blocking(move || {
        let result = work(&client);
        let is_late = run.end();
        result.map_err(|error| if is_late { too_much() } else { error })
    });
    let done = match tokio::time::timeout(2 * TURN, &mut task).await {
        Ok(done) => done,
        Err(_) => {
            leave.0.run_free();
            task.await
        }
    };
    // The second time includes waits for further turns.
    let (waited, took) = (begun - asked, begun.elapsed());
    tracing::debug!(?class, waited_ms = millis(waited), took_ms = millis(took), "work for a client");
    done.map_err(|_| failed())?
}

/// Make the error about work that takes too long.
fn too_much() -> ApiError {
    let seconds = MOST_TIME.as_secs();
    ApiError::invalid(format!(
        "this request takes more than {seconds} s of work before anything is evaluated: ask for a simpler \
         grammar or schema, or send less text"
    ))
}

#[cfg(test)]
mod tests;
