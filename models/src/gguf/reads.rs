//! The memory of what was asked for: a key or tensor that nobody asks for has no effect.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::reader::list;
use crate::error::Error;

/// Marks of the items of a list that were asked for.
#[derive(Debug, Default)]
pub(super) struct Reads(Box<[AtomicBool]>);

impl Reads {
    /// Make marks for `n` items, none of which was asked for.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(n: usize) -> Result<Self, Error> {
        let mut marks: Vec<AtomicBool> = list("marks", n)?;
        marks.extend((0..n).map(|_| AtomicBool::new(false)));
        Ok(Self(marks.into()))
    }

    /// Mark item `i`.
    pub(super) fn mark(&self, i: usize) {
        if let Some(mark) = self.0.get(i) {
            mark.store(true, Ordering::Relaxed);
        }
    }

    /// Remove all marks.
    pub(super) fn forget(&self) {
        self.0.iter().for_each(|mark| mark.store(false, Ordering::Relaxed));
    }

    /// Return the items without a mark.
    pub(super) fn unmarked<'i, T>(&'i self, items: &'i [T]) -> impl Iterator<Item = &'i T> {
        let marked = |i: usize| self.0.get(i).is_some_and(|mark| mark.load(Ordering::Relaxed));
        items.iter().enumerate().filter(move |(i, _)| !marked(*i)).map(|(_, item)| item)
    }
}

impl Clone for Reads {
    fn clone(&self) -> Self {
        let copied = |mark: &AtomicBool| AtomicBool::new(mark.load(Ordering::Relaxed));
        Self(self.0.iter().map(copied).collect())
    }
}
