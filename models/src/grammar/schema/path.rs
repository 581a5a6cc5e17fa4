//! Places in a schema.

use core::fmt;

/// A place in a schema: the names on the way to it. They are borrowed, and put together only when
/// the place is written, since names can be long and most places are never told.
#[derive(Clone, Copy)]
pub(super) struct Path<'p> {
    outer: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    /// The JSON pointer of a place to start from.
    Start(&'p str),
    Key(&'p str),
    Index(usize),
}

impl<'p> Path<'p> {
    /// Return the place with the JSON pointer `pointer`.
    pub(super) fn new(pointer: &'p str) -> Self {
        Self { outer: None, step: Step::Start(pointer) }
    }

    /// Return the place of the value with the key `key`.
    pub(super) fn key(&'p self, key: &'p str) -> Self {
        Self { outer: Some(self), step: Step::Key(key) }
    }

    /// Return the place of an item of a list.
    pub(super) fn index(&'p self, index: usize) -> Self {
        Self { outer: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.outer {
            write!(f, "{outer}")?;
        }
        match self.step {
            Step::Start(pointer) => write!(f, "#{pointer}"),
            Step::Key(key) => write!(f, "/{}", key.replace('~', "~0").replace('/', "~1")),
            Step::Index(index) => write!(f, "/{index}"),
        }
    }
}
