//! Counts the bytes a template makes and stops it when they are too many.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// What an element of a list costs beside its content.
pub(super) const ELEMENT: u64 = 32;

/// What one run of a template may still make.
#[derive(Debug)]
pub(super) struct Meter {
    left: AtomicU64,
    stop: Mutex<Option<Stop>>,
}

/// Why the host stopped a template.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// It asked for it, with these words.
    Raised(Box<str>),
    /// It made too much.
    Bytes,
}

impl Meter {
    pub(super) fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes), stop: Mutex::new(None) }
    }

    /// Why the template was stopped, if it was.
    pub(super) fn stop(&self) -> Option<Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The error that ends a template because of `stop`.
    pub(super) fn end(&self, stop: Stop) -> Error {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
        Error::new(ErrorKind::InvalidOperation, "stopped")
    }

    /// Pays for `bytes`.
    pub(super) fn pay(&self, bytes: u64) -> Result<(), Error> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(bytes), Ordering::Relaxed);
        if bytes > left { Err(self.end(Stop::Bytes)) } else { Ok(()) }
    }

    /// What is left.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Pays for `value` as it stands, without what it refers to.
    pub(super) fn pay_for(&self, value: &Value) -> Result<(), Error> {
        match value.as_str() {
            Some(text) => self.pay(text.len() as u64),
            None if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) => {
                self.pay_for_elements(value.len().unwrap_or(1))
            }
            None => self.pay(1),
        }
    }

    /// Pays for a list of `n` elements.
    pub(super) fn pay_for_elements(&self, n: usize) -> Result<(), Error> {
        self.pay(ELEMENT.saturating_mul(n as u64))
    }

    /// `parts` written out one after the other and paid for. Stops writing when nothing is left: lists can share their
    /// elements, and take far more room written out than in memory.
    pub(super) fn text(&self, parts: &[&Value]) -> Result<String, Error> {
        for part in parts.iter().filter(|part| part.as_str().is_none()) {
            self.pay_to_walk(part)?;
        }
        let mut text = Paid { meter: self, text: String::new() };
        let written = parts.iter().try_for_each(|part| write!(text, "{part}"));
        written.map_err(|_| self.end(Stop::Bytes))?;
        Ok(text.text)
    }
}

/// Text that is paid for as it grows.
pub(super) struct Paid<'a> {
    pub(super) meter: &'a Meter,
    pub(super) text: String,
}

impl Write for Paid<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.meter.pay(part.len() as u64).map_err(|_| fmt::Error)?;
        self.text.push_str(part);
        Ok(())
    }
}
