//! The system's clocks.
//!
//! Templates see the date, and rendering has a deadline. Platforms without a clock (`no_std`, and
//! WebAssembly without a host) report the time 0, and never exceed a deadline; the budget bounds
//! the work there.

#[cfg(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown"))))]
mod system {
    use core::cell::Cell;
    use core::time::Duration;
    use std::time::{Instant, SystemTime};

    /// Return the time since 1970.
    pub(in super::super) fn now() -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }

    /// A limit of the time that work takes.
    pub(in super::super) struct Deadline {
        start: Instant,
        limit: Duration,
        /// The time in which the work was paused.
        pub(super) paused: Cell<Duration>,
    }

    impl Deadline {
        /// Begin the work, which may take `limit`.
        pub(in super::super) fn new(limit: Duration) -> Self {
            Deadline { start: Instant::now(), limit, paused: Cell::default() }
        }

        /// Call `meanwhile` without counting its time.
        pub(in super::super) fn pause<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
            let begun = Instant::now();
            let result = meanwhile();
            self.paused.set(self.paused.get() + begun.elapsed());
            result
        }

        /// Return true if the work took longer than its limit.
        pub(in super::super) fn is_over(&self) -> bool {
            self.start.elapsed().saturating_sub(self.paused.get()) > self.limit
        }
    }
}

#[cfg(not(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown")))))]
mod system {
    use core::time::Duration;

    pub(in super::super) fn now() -> Duration {
        Duration::ZERO
    }

    pub(in super::super) struct Deadline;

    impl Deadline {
        pub(in super::super) fn new(_: Duration) -> Self {
            Deadline
        }

        pub(in super::super) fn pause<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
            meanwhile()
        }

        pub(in super::super) fn is_over(&self) -> bool {
            false
        }
    }
}

pub(super) use system::{Deadline, now};

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn pauses_do_not_count_as_work() {
        let deadline = Deadline::new(Duration::from_secs(3600));
        deadline.pause(|| std::thread::sleep(Duration::from_millis(2)));
        assert!(!deadline.is_over() && deadline.paused.get() >= Duration::from_millis(2));
        let deadline = Deadline::new(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert!(deadline.is_over());
    }
}
