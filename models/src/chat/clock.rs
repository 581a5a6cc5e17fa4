//! The system's clocks.
//!
//! Templates see the date, and rendering has a deadline. Platforms without a clock (`no_std`, and
//! WebAssembly without a host) report the time 0, and never exceed a deadline; the budget bounds
//! the work there.

#[cfg(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown"))))]
mod system {
    use core::time::Duration;
    use std::time::{Instant, SystemTime};

    /// Return the time since 1970.
    pub(in super::super) fn now() -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }

    /// Return a function that returns true once `limit` has passed.
    pub(in super::super) fn deadline(limit: Duration) -> impl Fn() -> bool {
        let start = Instant::now();
        move || start.elapsed() > limit
    }
}

#[cfg(not(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown")))))]
mod system {
    use core::time::Duration;

    pub(in super::super) fn now() -> Duration {
        Duration::ZERO
    }

    pub(in super::super) fn deadline(_limit: Duration) -> impl Fn() -> bool {
        || false
    }
}

pub(super) use system::{deadline, now};
