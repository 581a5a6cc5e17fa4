//! Progress lines for work that takes a while: how much is done, how fast, and how long the rest
//! will take.
//!
//! A line appears on standard error after half a second, if that is a terminal, and disappears when
//! the work is done. Most lines are drawn by a thread of their own, so that they move even while a
//! computation reports nothing.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time before a line appears. Shorter work needs none.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two updates of the elapsed time.
const TICK: Duration = Duration::from_millis(250);

/// Lines that may be on the terminal, so that [`clear`] can remove them.
static SHOWN: Mutex<Vec<ProgressBar>> = Mutex::new(Vec::new());

/// A progress line on standard error. Dropping it removes the line.
///
/// Off a terminal it does nothing, so commands use it without asking.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    /// Dropping this ends the thread that draws the line. None if [`Progress::set`] draws it, or if
    /// there is no terminal.
    _clock: Option<Sender<()>>,
}

impl Progress {
    /// Start a line about bytes: "loading", "packing".
    pub fn bytes(what: &'static str) -> Self {
        Self::new(what, "{msg} {bar:20} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left", true)
    }

    /// Start a line about tokens or other things that are counted.
    pub fn counted(what: &'static str, things: &str) -> Self {
        Self::new(
            what,
            &format!("{{msg}} {{bar:20}} {{pos}} of {{len}} {things}, {{rate}}/s, {{eta}} left"),
            true,
        )
    }

    /// Start a line like that of [`Progress::counted`], but drawn by [`Progress::set`] only: no
    /// thread disturbs a measurement between two calls.
    pub fn between(what: &'static str, things: &str) -> Self {
        Self::new(what, &format!("{{msg}} {{bar:20}} {{pos}} of {{len}} {things}, {{eta}} left"), false)
    }

    /// Start a line about work of unknown length: "saving".
    pub fn endless(what: &'static str) -> Self {
        Self::new(what, "{spinner} {msg}, {elapsed}", true)
    }

    /// Start a line. With `clock` a thread draws it.
    fn new(what: &'static str, template: &str, clock: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("rate", rate));
        }
        let is_seen = stderr().is_terminal();
        if is_seen {
            shown().push(bar.clone());
        }
        let clock = (clock && is_seen).then(|| start_clock(bar.clone())).flatten();
        Self { bar, began: Instant::now(), _clock: clock }
    }

    /// Report that `done` of `total` bytes or things are done.
    pub fn set(&self, done: u64, total: u64) {
        if self._clock.is_none() && self.bar.is_hidden() && self.began.elapsed() >= PATIENCE {
            show(&self.bar);
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Print something else: the line is removed first and drawn again after.
    pub fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self._clock = None;
        self.bar.finish_and_clear();
        shown().retain(|bar| !bar.is_finished());
    }
}

/// Remove all lines from the terminal, for a program that ends at once.
pub fn clear() {
    shown().drain(..).for_each(|bar| bar.finish_and_clear());
}

/// Lock the list of lines. A panic elsewhere does not make it unusable.
fn shown() -> std::sync::MutexGuard<'static, Vec<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Let the line appear. Off a terminal its target hides it.
fn show(bar: &ProgressBar) {
    bar.set_draw_target(ProgressDrawTarget::stderr());
}

/// Start the thread that shows the line after [`PATIENCE`] and updates it every [`TICK`], until the
/// sender is dropped.
fn start_clock(bar: ProgressBar) -> Option<Sender<()>> {
    let (alive, ended) = mpsc::channel::<()>();
    let watch = move || {
        let still_there = |wait| ended.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout);
        if still_there(PATIENCE) {
            show(&bar);
            bar.tick();
        }
        while still_there(TICK) && !bar.is_finished() {
            bar.tick();
        }
    };
    std::thread::Builder::new().name("progress".into()).spawn(watch).ok().map(|_| alive)
}

/// Write the things done per second, with a digit after the point for slow work.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    let rate = state.per_sec();
    // A line that cannot be formatted is not shown.
    let _ = if rate < 10.0 { write!(out, "{rate:.1}") } else { write!(out, "{rate:.0}") };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_off_a_terminal_stays_hidden() {
        for progress in [Progress::bytes("a"), Progress::counted("b", "tokens"), Progress::endless("c")] {
            progress.set(1, 2);
            assert!(progress.bar.is_hidden());
        }
        assert!(shown().is_empty());
    }
}
