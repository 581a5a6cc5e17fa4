//! The run queue of work for clients: short work goes first, clients take turns.

use crate::http::client::Owner;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The class of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Work that has not run for long. All work of small requests begins so.
    Short,
    /// Work that has used up the time of short work, or is known to take longer.
    Long,
}

/// A feedback queue: a fixed number of permits to run, which waiting work gets by class and turn.
///
/// - At least one permit is never held by long work, so short work waits for short work alone.
/// - Long work that waits gets a permit if no other long work has one, so it makes progress beside
///   any amount of short work.
/// - Within a class owners take turns, and the work of one owner keeps its order.
#[derive(Debug)]
pub struct RunQueue {
    n_permits: usize,
    /// The most pieces of work that may be suspended at a time.
    n_suspended_most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    n_short: usize,
    n_long: usize,
    short: Turns,
    long: Turns,
    /// The pieces of work of each owner that have begun, and wait for their next turn.
    suspended: HashMap<Owner, usize>,
}

impl State {
    fn n_running(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Short => &mut self.n_short,
            Class::Long => &mut self.n_long,
        }
    }
}

/// The work that waits, by owner: the first owner is the next one.
#[derive(Debug, Default)]
struct Turns(VecDeque<(Owner, VecDeque<Sender<Permit>>)>);

impl Turns {
    fn push(&mut self, owner: Owner, waiting: Sender<Permit>) {
        match self.0.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, own)) => own.push_back(waiting),
            None => self.0.push_back((owner, VecDeque::from([waiting]))),
        }
    }

    /// Take the next one whose client still waits. Its owner goes to the end.
    fn pop(&mut self) -> Option<Sender<Permit>> {
        while let Some((owner, mut own)) = self.0.pop_front() {
            let next = core::iter::from_fn(|| own.pop_front()).find(|waiting| !waiting.is_closed());
            if !own.is_empty() {
                self.0.push_back((owner, own));
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

/// The permission to run, given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    /// `None` if nobody took the permit, and it was given back.
    queue: Option<Arc<RunQueue>>,
    class: Class,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        let mut state = queue.state();
        *state.n_running(self.class) -= 1;
        queue.hand_out(&mut state);
    }
}

/// The place of work that has begun and waits for its next turn, given back when it is dropped.
#[derive(Debug)]
pub struct Suspended {
    queue: Arc<RunQueue>,
    owner: Owner,
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if let Some(n) = state.suspended.get_mut(&self.owner) {
            *n -= 1;
            if *n == 0 {
                state.suspended.remove(&self.owner);
            }
        }
    }
}

impl RunQueue {
    /// Make a queue with `n_permits`, at least 2, of whose work at most `n_suspended` pieces are
    /// suspended at a time, and one more of each owner.
    pub fn new(n_permits: usize, n_suspended: usize) -> Arc<Self> {
        Arc::new(RunQueue {
            n_permits: n_permits.max(2),
            n_suspended_most: n_suspended,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for a permit. Who drops the receiver waits no longer.
    pub fn enter(self: &Arc<Self>, owner: Owner, class: Class) -> Receiver<Permit> {
        let (sender, receiver) = channel();
        let mut state = self.state();
        match class {
            Class::Short => state.short.push(owner, sender),
            Class::Long => state.long.push(owner, sender),
        }
        self.hand_out(&mut state);
        receiver
    }

    /// Take a place for work of `owner` that is suspended; `None` if there are too many.
    pub fn suspend(self: &Arc<Self>, owner: Owner) -> Option<Suspended> {
        let mut state = self.state();
        let n_all: usize = state.suspended.values().sum();
        let own = state.suspended.entry(owner).or_default();
        let is_full = n_all >= self.n_suspended_most && *own > 0;
        if !is_full {
            *own += 1;
        }
        (!is_full).then(|| Suspended { queue: self.clone(), owner })
    }

    /// Return true if work waits that could run in place of long work.
    pub fn is_wanted(&self) -> bool {
        let state = self.state();
        !state.long.0.is_empty() || !state.short.0.is_empty()
    }

    /// Give free permits to work that waits.
    fn hand_out(self: &Arc<Self>, state: &mut State) {
        while let Some((waiting, class)) = self.next(state) {
            let permit = Permit { queue: Some(self.clone()), class };
            match waiting.send(permit) {
                Ok(()) => *state.n_running(class) += 1,
                // Its client went away this moment. The permit does not count, nor lock the state.
                Err(mut unwanted) => drop(unwanted.queue.take()),
            }
        }
    }

    /// Take the work that is to run next, if a permit for it is free.
    fn next(&self, state: &mut State) -> Option<(Sender<Permit>, Class)> {
        if state.n_short + state.n_long >= self.n_permits {
            return None;
        }
        let long = |state: &mut State| state.long.pop().map(|waiting| (waiting, Class::Long));
        let starved = if state.n_long == 0 { long(state) } else { None };
        let short = |state: &mut State| state.short.pop().map(|waiting| (waiting, Class::Short));
        let next = starved.or_else(|| short(state));
        next.or_else(|| if state.n_long + 1 < self.n_permits { long(state) } else { None })
    }
}

#[cfg(test)]
mod tests;
