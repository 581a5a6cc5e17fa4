//! A bar for what takes a while; invisible off a terminal and gone when done.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error. Dropping it removes it.
pub struct Progress(ProgressBar);

impl Progress {
    /// An empty bar called `what`.
    pub fn new(what: &'static str) -> Self {
        let bar = ProgressBar::new(0).with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// `done` bytes of `total` are done.
    pub fn set(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
