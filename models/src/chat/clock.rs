//! The clocks of the machine, where there are any.

#[cfg(all(feature = "std", not(all(target_family = "wasm", target_os = "unknown"))))]
mod system {
    use core::time::Duration;
    use std::time::{Instant, SystemTime};

    /// The time since 1970.
    pub(in super::super) fn now() -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }

    /// A question that is answered with true once `limit` has passed.
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
