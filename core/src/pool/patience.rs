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
/// sleep although the run before began so short a while ago that they must still watch. Then the caller goes on alone for some
/// time. After a long run nothing is told: who found no more work in it may have slept before it ended. Nor is anything lost
/// there, for what interrupting costs is little beside a long run.
#[derive(Debug, Default)]
pub(super) struct Experience {
    pub(super) patience: Patience,
    suspicion: u32,
    last: Option<Instant>,
    alone_until: Option<Instant>,
}

impl Experience {
    /// Whether to work alone now.
    pub(super) fn is_alone(&mut self, now: Instant) -> bool {
        self.alone_until = self.alone_until.filter(|end| now < *end);
        self.alone_until.is_some()
    }

    /// A run began at `now`; `woke` says whether a worker had to be woken for it, though it watches for up to `watch`.
    pub(super) fn begin(&mut self, woke: bool, now: Instant, watch: Duration) {
        let is_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < watch);
        self.suspicion =
            if woke && is_soon { self.suspicion + WEIGHT } else { self.suspicion.saturating_sub(1) };
        self.last = Some(now);
        if self.suspicion >= ENOUGH {
            self.suspicion = 0;
            self.alone_until = Some(now + ALONE);
        }
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

    /// What runs that begin `apart` from each other lead to.
    fn alone_after(woke: impl Iterator<Item = bool>, apart: Duration) -> bool {
        let mut experience = Experience::default();
        let mut now = Instant::now();
        for woke in woke {
            now += apart;
            experience.begin(woke, now, WATCH);
        }
        experience.is_alone(now)
    }

    #[test]
    fn workers_that_sleep_at_once_again_and_again_are_not_counted_on() {
        let soon = WATCH / 5;
        assert!(alone_after([true; 40].into_iter(), soon));
        assert!(alone_after((0..3000).map(|i| i % 7 == 0), soon), "one run in seven");
        assert!(!alone_after([true; 16].into_iter(), soon), "short of patience for a while");
        assert!(!alone_after((0..3000).map(|i| i % 20 == 0), soon), "a pause now and then");
    }

    #[test]
    fn workers_that_sleep_in_long_runs_are_counted_on() {
        assert!(!alone_after([true; 3000].into_iter(), WATCH));
        assert!(!alone_after([true; 3000].into_iter(), 40 * WATCH));
    }

    #[test]
    fn working_alone_comes_to_an_end() {
        let mut experience = Experience::default();
        let now = Instant::now();
        (0..40).for_each(|_| experience.begin(true, now, WATCH));
        assert!(experience.is_alone(now) && !experience.is_alone(now + ALONE));
    }

    #[test]
    fn who_never_watches_may_always_sleep() {
        let mut experience = Experience::default();
        let now = Instant::now();
        (0..3000).for_each(|_| experience.begin(true, now, Duration::ZERO));
        assert!(!experience.is_alone(now));
    }

    #[test]
    fn watching_ends_at_what_is_seen_or_in_time() {
        let mut patience = Patience::default();
        assert!(patience.watch(Duration::from_secs(60), || true));
        let began = Instant::now();
        assert!(!patience.watch(Duration::from_millis(1), || false));
        assert!(began.elapsed() >= Duration::from_millis(1));
        assert!(patience.watch(Duration::from_secs(60), || true));
    }
}
