//! The run queue of work for clients: short work goes first, clients take turns.

use crate::http::client::Owner;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The most pieces of work that may have begun for all owners together, in numbers that one owner
/// may have.
const MOST_TIMES: usize = 8;
/// The most of them in any case, fewer than the threads of tokio for blocking work (512): work that
/// found no thread would hold its permit.
const MOST_BEGUN: usize = 384;
/// The most permits.
const MOST_PERMITS: usize = 64;

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
/// - Within a class owners take turns. Fresh work of one owner keeps its order. Of work that has
///   begun, every second turn is that of the piece which ran least: a piece that needed little more
///   than the time of short work does not wait for all that run for seconds, and these go on too.
/// - Work that has begun keeps its place until it ends. It takes turns with fresh work of its
///   owner, which waits where the owner has its share of places. So the number of threads and of
///   half read requests has a bound, and all that waits gets its turn.
#[derive(Debug)]
pub struct RunQueue {
    n_permits: usize,
    /// The most pieces of work that may have begun at a time.
    n_begun_most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    n_short: usize,
    n_long: usize,
    short: Turns,
    long: Turns,
    /// The pieces of work of each owner that have begun and not ended.
    begun: HashMap<Owner, usize>,
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
struct Turns(VecDeque<(Owner, Line)>);

/// The work of one owner that waits.
#[derive(Debug, Default)]
struct Line {
    begun: VecDeque<Ticket>,
    fresh: VecDeque<Sender<Permit>>,
    /// The next turn of work that has begun is that of the piece which waited longest.
    is_oldest_next: bool,
    /// The next turn is that of fresh work, if it may begin.
    is_fresh_next: bool,
}

impl Line {
    /// Remove work whose client has gone away from the front. Return true if none is left.
    fn clean(&mut self) -> bool {
        while self.begun.front().is_some_and(Ticket::is_void) {
            self.begun.pop_front();
        }
        while self.fresh.front().is_some_and(Sender::is_closed) {
            self.fresh.pop_front();
        }
        self.begun.is_empty() && self.fresh.is_empty()
    }

    /// Take the next work that has begun, if it still waits.
    fn take_begun(&mut self) -> Option<Sender<Permit>> {
        while !self.begun.is_empty() {
            let least = self.begun.iter().enumerate().min_by_key(|(_, ticket)| ticket.ran);
            let index = if self.is_oldest_next { Some(0) } else { least.map(|(index, _)| index) };
            // A ticket may become void this moment.
            if let Some(waiting) = self.begun.remove(index?).and_then(|ticket| ticket.take()) {
                self.is_oldest_next = !self.is_oldest_next;
                return Some(waiting);
            }
        }
        None
    }

    /// Take the next work, fresh work only if it `may_begin`, and whether it is fresh. Where both
    /// wait, they take turns.
    fn take(&mut self, may_begin: bool) -> Option<(Sender<Permit>, bool)> {
        let has_fresh = may_begin && !self.fresh.is_empty();
        let begun = if has_fresh && self.is_fresh_next { None } else { self.take_begun() };
        self.is_fresh_next = begun.is_some();
        match begun {
            Some(waiting) => Some((waiting, false)),
            None if may_begin => self.fresh.pop_front().map(|waiting| (waiting, true)),
            None => None,
        }
    }
}

impl Turns {
    fn line(&mut self, owner: Owner) -> &mut Line {
        let found = self.0.iter().position(|(other, _)| *other == owner);
        let index = found.unwrap_or_else(|| {
            self.0.push_back((owner, Line::default()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }

    /// Take the next one whose client still waits, fresh work only of owners that `may_begin`. Its
    /// owner goes to the end.
    fn pop(&mut self, may_begin: impl Fn(Owner) -> bool) -> Option<Next> {
        self.0.retain_mut(|(_, line)| !line.clean());
        for index in 0..self.0.len() {
            let (owner, line) = self.0.get_mut(index)?;
            let owner = *owner;
            let next = line.take(may_begin(owner));
            let next = next.map(|(waiting, is_fresh)| Next { waiting, owner, is_fresh });
            if next.is_some() {
                let served = self.0.remove(index);
                self.0.extend(served);
                return next;
            }
        }
        None
    }
}

/// The work that runs next.
struct Next {
    waiting: Sender<Permit>,
    owner: Owner,
    is_fresh: bool,
}

/// The wait of work that has begun, which can be given up from another thread.
#[derive(Clone, Debug)]
pub struct Ticket {
    waiting: Arc<Mutex<Option<Sender<Permit>>>>,
    /// The time for which the work ran.
    ran: Duration,
}

impl Ticket {
    /// Take the sender; `None` if the wait is over.
    fn take(&self) -> Option<Sender<Permit>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_void(&self) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.as_ref().is_none_or(Sender::is_closed)
    }

    /// Wait no longer: the receiver wakes up without a permit.
    pub fn give_up(&self) {
        drop(self.take());
    }
}

/// The permission to run, given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    /// `None` if nobody took the permit, and it was given back.
    queue: Option<Arc<RunQueue>>,
    class: Class,
    /// The place of fresh work.
    place: Option<Place>,
}

impl Permit {
    /// Take the place of work that begins with this permit.
    pub fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }

    /// Forget a permit that does not count, without locking the state.
    fn void(mut self) {
        self.queue = None;
        if let Some(place) = &mut self.place {
            place.queue = None;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        let mut state = queue.state();
        *state.n_running(self.class) -= 1;
        queue.hand_out(&mut state);
    }
}

/// The place of work that has begun, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    /// `None` if nobody took the place.
    queue: Option<Arc<RunQueue>>,
    owner: Owner,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        let mut state = queue.state();
        if let Some(n) = state.begun.get_mut(&self.owner) {
            *n -= 1;
            if *n == 0 {
                state.begun.remove(&self.owner);
            }
        }
        queue.hand_out(&mut state);
    }
}

impl RunQueue {
    /// Make a queue with `n_permits`, at least 2 and at most [`MOST_PERMITS`]. At most
    /// `n_suspended` pieces of work wait for their next turn while others run, and one more of each
    /// owner.
    pub fn new(n_permits: usize, n_suspended: usize) -> Arc<Self> {
        let n_permits = n_permits.clamp(2, MOST_PERMITS);
        Arc::new(RunQueue { n_permits, n_begun_most: n_permits + n_suspended, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for a permit and a place. Who drops the receiver waits no longer.
    pub fn enter(self: &Arc<Self>, owner: Owner, class: Class) -> Receiver<Permit> {
        let (sender, receiver) = channel();
        let mut state = self.state();
        let turns = match class {
            Class::Short => &mut state.short,
            Class::Long => &mut state.long,
        };
        turns.line(owner).fresh.push_back(sender);
        self.hand_out(&mut state);
        receiver
    }

    /// Wait for the next turn of long work that has begun, and ran for some time.
    pub fn enter_again(self: &Arc<Self>, owner: Owner, ran: Duration) -> (Receiver<Permit>, Ticket) {
        let (sender, receiver) = channel();
        let ticket = Ticket { waiting: Arc::new(Mutex::new(Some(sender))), ran };
        let mut state = self.state();
        state.long.line(owner).begun.push_back(ticket.clone());
        self.hand_out(&mut state);
        (receiver, ticket)
    }

    /// Return true if work waits that could run in place of long work.
    pub fn is_wanted(&self) -> bool {
        let state = self.state();
        !state.long.0.is_empty() || !state.short.0.is_empty()
    }

    /// Return true if fresh work of `owner` may begin: there are few pieces, or it has none and
    /// there are not very many.
    fn may_begin(&self, begun: &HashMap<Owner, usize>, owner: Owner) -> bool {
        let n_all: usize = begun.values().sum();
        let most = self.n_begun_most;
        let of_all = (MOST_TIMES * most).min(MOST_BEGUN);
        n_all < most || (!begun.contains_key(&owner) && n_all < of_all)
    }

    /// Give free permits to work that waits.
    fn hand_out(self: &Arc<Self>, state: &mut State) {
        while let Some((Next { waiting, owner, is_fresh }, class)) = self.next(state) {
            let place = is_fresh.then(|| Place { queue: Some(self.clone()), owner });
            match waiting.send(Permit { queue: Some(self.clone()), class, place }) {
                Ok(()) => {
                    *state.n_running(class) += 1;
                    if is_fresh {
                        *state.begun.entry(owner).or_default() += 1;
                    }
                }
                // Its client went away this moment.
                Err(unwanted) => unwanted.void(),
            }
        }
    }

    /// Take the work that is to run next, if a permit for it is free.
    fn next(&self, state: &mut State) -> Option<(Next, Class)> {
        if state.n_short + state.n_long >= self.n_permits {
            return None;
        }
        let State { n_long, short, long, begun, .. } = state;
        let may_begin = |owner| self.may_begin(begun, owner);
        let starved = if *n_long == 0 { long.pop(may_begin) } else { None };
        if let Some(next) = starved {
            return Some((next, Class::Long));
        }
        if let Some(next) = short.pop(may_begin) {
            return Some((next, Class::Short));
        }
        let next = if *n_long + 1 < self.n_permits { long.pop(may_begin) } else { None };
        next.map(|next| (next, Class::Long))
    }
}

#[cfg(test)]
mod tests;
