//! The time that a thread spins before it sleeps, and what the caller learns about its workers.

use std::time::{Duration, Instant};

/// Questions to `ready` between two looks at the clock. A look at the clock costs about as much as
/// a step; a pause takes 10 to 50 ns.
const LOOKS: usize = if cfg!(all(test, loom)) { 1 } else { 16 };

/// The longest that a waiting thread spins before it sleeps: longer than the pauses between the
/// runs of one decode, and than it takes to wake a sleeping thread.
pub(super) const WATCH: Duration = Duration::from_micros(50);

/// The time that the caller works alone at first, when its workers turn out to have no processor of
/// their own; doubled each time that the trouble comes back within [`AT_ONCE`].
const ALONE: Duration = Duration::from_millis(1);
/// The longest time alone: a worker that has its processor again is made use of after that.
const LONGEST_ALONE: Duration = Duration::from_millis(512);
const AT_ONCE: Duration = Duration::from_millis(20);
/// The suspicion that waking a worker again too soon adds; other runs take 1 away.
const WEIGHT: u32 = 8;
/// The suspicion that suffices. A thread that gave up spinning sooner for a while raises suspicion
/// for sixteen runs at most.
const ENOUGH: u32 = 256;
/// The suspicion left after a time alone: half as much new suspicion suffices then, still more than
/// those sixteen runs raise.
const LEFT: u32 = ENOUGH - 17 * WEIGHT;

/// The caller's experience with its workers.
///
/// On a busy machine the system may let a worker run on the caller's own processor. The worker
/// interrupts the caller, takes some of its work, finds no more and sleeps again, in each run, and
/// two threads are slower than one. The sign is a worker that sleeps although it ran out of jobs so
/// short a while ago that it must still be spinning. Then the caller goes on alone for some time.
///
/// With long jobs there is no such sign: a worker that ran out of jobs may have slept before the
/// run ended. Nothing is lost there, for the cost of an interruption is little beside long jobs.
#[derive(Debug, Default)]
pub(super) struct Experience {
    pub(super) patience: Patience,
    suspicion: u32,
    /// The end of the time in which workers spin after the last run.
    watched_until: Option<Instant>,
    alone_until: Option<Instant>,
    alone_for: Duration,
}

/// A run that was shared out.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) began: Instant,
    /// True if a worker had to be woken for it.
    pub(super) woke: bool,
    /// The time at which the caller ran out of jobs.
    pub(super) finished: Instant,
    /// The number of jobs for each thread; 0 if some threads had none.
    pub(super) jobs_each: u32,
}

impl Experience {
    /// Return the time until which to work alone, if it is not over.
    pub(super) fn alone_until(&self, now: Instant) -> Option<Instant> {
        self.alone_until.filter(|end| now < *end)
    }

    /// Learn from a run after which workers spin for up to `watch`.
    pub(super) fn learn(&mut self, run: &Run, watch: Duration) {
        let worked = run.finished.saturating_duration_since(run.began);
        let too_soon = run.woke && self.watched_until.is_some_and(|end| run.began < end);
        self.suspicion = if too_soon { self.suspicion + WEIGHT } else { self.suspicion.saturating_sub(1) };
        // A worker that ran out of jobs did so while the others had at most one left; a worker that
        // got none may sleep long.
        let job = worked.checked_div(run.jobs_each);
        self.watched_until = job.map(|job| run.finished + watch.saturating_sub(job));
        if self.suspicion >= ENOUGH {
            self.suspicion = LEFT;
            self.go_alone(run.finished);
        }
    }

    fn go_alone(&mut self, now: Instant) {
        let is_back = self.alone_until.is_some_and(|end| now < end + AT_ONCE);
        self.alone_for = if is_back { (2 * self.alone_for).min(LONGEST_ALONE) } else { ALONE };
        self.alone_until = Some(now + self.alone_for);
    }
}

/// The number of times in a row that a thread has spun in vain.
#[derive(Debug, Default)]
pub(super) struct Patience(u32);

impl Patience {
    /// Spin until `ready`, for at most `time`; return the last answer of `ready`.
    ///
    /// After spinning in vain it gives up sooner and sooner, except each sixteenth time: two
    /// threads that share a processor would only hold each other up.
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

    /// Return a run of eight jobs on two threads that takes `time`.
    fn run(began: Instant, woke: bool, time: Duration) -> Run {
        Run { began, woke, finished: began + time, jobs_each: 4 }
    }

    /// Return true if runs of `time`, one right behind the other, lead to working alone.
    fn alone_after(mut woke: impl Iterator<Item = bool>, time: Duration) -> bool {
        let mut experience = Experience::default();
        let mut now = Instant::now();
        woke.any(|woke| {
            experience.learn(&run(now, woke, time), WATCH);
            now += time;
            experience.alone_until(now).is_some()
        })
    }

    #[test]
    fn workers_that_sleep_at_once_again_and_again_are_not_counted_on() {
        for time in [WATCH / 5, 3 * WATCH] {
            assert!(alone_after([true; 40].into_iter(), time));
            assert!(alone_after((0..3000).map(|i| i % 7 == 0), time), "one run in seven");
            assert!(!alone_after([true; 16].into_iter(), time), "short of patience for a while");
            assert!(!alone_after((0..3000).map(|i| i % 20 == 0), time), "a pause now and then");
        }
    }

    #[test]
    fn workers_that_sleep_in_long_runs_are_counted_on() {
        assert!(!alone_after([true; 3000].into_iter(), 4 * WATCH));
        assert!(!alone_after([true; 3000].into_iter(), 160 * WATCH));
    }

    #[test]
    fn workers_that_get_no_job_now_and_then_may_sleep() {
        let mut experience = Experience::default();
        let mut now = Instant::now();
        for i in 0..3000 {
            let few = Run { jobs_each: 0, ..run(now, false, WATCH / 5) };
            experience.learn(&if i % 3 == 2 { run(now, true, WATCH / 5) } else { few }, WATCH);
            now += WATCH / 5;
            assert!(experience.alone_until(now).is_none());
        }
    }

    #[test]
    fn working_alone_comes_to_an_end_later_each_time_up_to_a_longest() {
        let mut experience = Experience::default();
        let mut now = Instant::now();
        let mut ends = || {
            (0..40).for_each(|_| {
                if experience.alone_until(now).is_none() {
                    experience.learn(&run(now, true, Duration::ZERO), WATCH);
                }
            });
            let time = (0..1000)
                .map(Duration::from_millis)
                .find(|&time| experience.alone_until(now + time).is_none())
                .unwrap();
            now += time;
            time.as_millis()
        };
        assert_eq!([ends(), ends(), ends(), ends()], [1, 2, 4, 8]);
        assert_eq!((0..20).map(|_| ends()).max(), Some(LONGEST_ALONE.as_millis()));
    }

    #[test]
    fn after_a_time_alone_half_as_much_trouble_is_enough_but_not_short_patience() {
        let mut experience = Experience::default();
        let mut now = Instant::now();
        let mut woken = |experience: &mut Experience, n: usize| {
            (0..n).for_each(|_| experience.learn(&run(now, true, Duration::ZERO), WATCH));
            let alone = experience.alone_until(now);
            now = alone.unwrap_or(now);
            alone.is_some()
        };
        assert!(woken(&mut experience, 33), "the first has nobody before it that must still watch");
        assert!(!woken(&mut experience, 16));
        assert!(woken(&mut experience, 3));
    }

    #[test]
    fn trouble_that_comes_back_late_is_another_trouble() {
        let mut experience = Experience::default();
        let mut now = Instant::now();
        for _ in 0..5 {
            experience.go_alone(now);
            now += ALONE + AT_ONCE;
            assert_eq!(experience.alone_for, ALONE);
        }
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
