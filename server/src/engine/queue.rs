//! The places of requests that wait.

use crate::error::Error;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Identifies a client: requests of one key have one owner, whatever their salts; `None` for
/// clients without a key.
pub(super) type Owner = Option<[u8; 16]>;

/// The number of waiting requests of every client. A client of which nothing waits gets a place
/// also in a full queue, so that no other can keep it out.
#[derive(Debug)]
pub(super) struct Queue {
    limit: usize,
    waiting: Mutex<HashMap<Owner, usize>>,
}

impl Queue {
    /// Return an empty queue for `limit` requests, and one more for each client.
    pub fn new(limit: usize) -> Self {
        Queue { limit, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Owner, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take a place.
    ///
    /// # Errors
    /// [`Error::Busy`] if there is none.
    pub fn enter(&self, owner: Owner) -> Result<(), Error> {
        let limit = self.limit;
        let mut waiting = self.waiting();
        let n_others: usize = waiting.iter().filter(|(other, _)| **other != owner).map(|(_, n)| n).sum();
        let n_own = waiting.get(&owner).copied().unwrap_or(0);
        match n_own + n_others >= limit && (n_own > 0 || n_others == 0) {
            true => Err(Error::Busy { limit }),
            false => {
                waiting.insert(owner, n_own + 1);
                Ok(())
            }
        }
    }

    /// Take a place again, for a request that had begun.
    pub fn enter_again(&self, owner: Owner) {
        *self.waiting().entry(owner).or_default() += 1;
    }

    /// Give a place back.
    pub fn leave(&self, owner: Owner) {
        let mut waiting = self.waiting();
        if let Some(n) = waiting.get_mut(&owner) {
            *n -= 1;
            if *n == 0 {
                waiting.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_keeps_another_out() {
        let (queue, one, two) = (Queue::new(3), Some([1; 16]), Some([2; 16]));
        (0..3).for_each(|_| queue.enter(one).unwrap());
        assert!(matches!(queue.enter(one), Err(Error::Busy { limit: 3 })));
        queue.enter(two).unwrap();
        assert!(queue.enter(two).is_err());
        queue.leave(two);
        queue.leave(one);
        assert!(queue.enter(two).is_ok() && queue.enter(two).is_err());
        assert!(Queue::new(0).enter(one).is_err());
    }
}
