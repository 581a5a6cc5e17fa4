//! How long a thread watches for what another is about to do, before it sleeps.

use std::time::{Duration, Instant};

/// How often `ready` is asked before the clock is. Asking the clock costs about as much as a step; a pause takes 10 to 50 ns.
const LOOKS: usize = if cfg!(all(test, loom)) { 1 } else { 16 };

/// How long a thread that waits watches before it sleeps: longer than the pauses between the runs of one decode, and than
/// it takes to wake a sleeping thread.
pub(super) const WATCH: Duration = Duration::from_micros(50);

/// For so long the caller works alone when its workers turn out to have no processor of their own.
const ALONE: Duration = Duration::from_millis(50);
/// What waking a worker again too soon adds to the suspicion that it has none, to which other runs add -1.
const WEIGHT: u32 = 8;
/// So much suspicion is enough. A thread that gave up watching sooner for a while wakes up suspicion for sixteen runs at most.
const ENOUGH: u32 = 256;

/// What the caller has learnt about its workers.
///
/// On a busy machine the system may let a worker run on the caller's own processor: it interrupts the caller, takes some
/// of its work, finds no more and sleeps again, in each run, and two threads are slower than one. What tells is that workers
/// sleep although the last run has just ended. Then the caller goes on alone for some time.
#[derive(Debug, Default)]
pub(super) struct Experience {
    pub(super) patience: Patience,
    suspicion: u32,
    last_end: Option<Instant>,
    alone_until: Option<Instant>,
}

impl Experience {
    /// Whether to work alone now.
    pub(super) fn is_alone(&mut self) -> bool {
        self.alone_until = self.alone_until.filter(|end| Instant::now() < *end);
        self.alone_until.is_some()
    }

    /// A run began; `woke` says whether a worker had to be woken for it, though it watches for up to `watch`.
    pub(super) fn begin(&mut self, woke: bool, watch: Duration) {
        self.suspicion = match self.last_end {
            Some(end) if woke && end.elapsed() < watch => self.suspicion + WEIGHT,
            _ => self.suspicion.saturating_sub(1),
        };
        if self.suspicion >= ENOUGH {
            self.suspicion = 0;
            self.alone_until = Some(Instant::now() + ALONE);
        }
    }

    /// The run ended.
    pub(super) fn end(&mut self) {
        self.last_end = Some(Instant::now());
    }
}

/// How often in a row a thread has watched in vain.
#[derive(Debug, Default)]
pub(super) struct Patience(u32);

impl Patience {
    /// Spins until `ready`, for at most `time`; the last answer of `ready`.
    ///
    /// After watching in vain it gives up sooner and sooner, but for each sixteenth time: two threads that share a processor
    /// would only hold each other up.
    pub(super) fn watch(&mut self, time: Duration, ready: impl Fn() -> bool) -> bool {
        let time = time / (1 << (self.0 % 16).min(5));
        let seen = spin(time, ready);
        self.0 = if seen { 0 } else { self.0.wrapping_add(1) };
        seen
    }
}

fn spin(time: Duration, ready: impl Fn() -> bool) -> bool {
    let mut end = None;
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            core::hint::spin_loop();
        }
        let now = Instant::now();
        if now >= *end.get_or_insert(now + time) {
            return ready();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What runs that begin at once lead to.
    fn alone_after(woke: impl Iterator<Item = bool>, watch: Duration) -> bool {
        let mut experience = Experience::default();
        woke.for_each(|woke| {
            experience.end();
            experience.begin(woke, watch);
        });
        experience.is_alone()
    }

    #[test]
    fn workers_that_sleep_at_once_again_and_again_are_not_counted_on() {
        let long = Duration::from_secs(60);
        assert!(alone_after([true; 40].into_iter(), long));
        assert!(alone_after((0..3000).map(|i| i % 7 == 0), long), "one run in seven");
        assert!(!alone_after([true; 16].into_iter(), long), "short of patience for a while");
        assert!(!alone_after((0..3000).map(|i| i % 20 == 0), long), "a pause now and then");
        assert!(!alone_after([true; 40].into_iter(), Duration::ZERO), "who never watches always sleeps");
    }

    #[test]
    fn watching_ends_at_what_is_seen_or_in_time() {
        let mut patience = Patience::default();
        assert!(patience.watch(Duration::from_secs(60), || true));
        for _ in 0..40 {
            assert!(!patience.watch(Duration::from_micros(100), || false));
        }
    }
}
