//! Places in a schema.

use alloc::{format, string::String};
use core::fmt;

/// A place in a schema: the names on the way to it. They are borrowed, and put together only when
/// the place is written, since names can be long and most places are never told.
#[derive(Clone, Copy)]
pub(super) struct Path<'p> {
    outer: Option<&'p Path<'p>>,
    step: Step<'p>,
    /// Places inside are told as this one: what is there was written for what stands here.
    is_sealed: bool,
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
        Self { outer: None, step: Step::Start(pointer), is_sealed: false }
    }

    /// Return the place of the value with the key `key`.
    pub(super) fn key(&'p self, key: &'p str) -> Self {
        self.inside(Step::Key(key))
    }

    /// Return the place of an item of a list.
    pub(super) fn index(&'p self, index: usize) -> Self {
        self.inside(Step::Index(index))
    }

    /// Return this place for all that is inside of it.
    pub(super) fn sealed(self) -> Self {
        Self { is_sealed: true, ..self }
    }

    /// Return the JSON pointer of a place and one of its keywords that are told for `keyword` here.
    pub(super) fn told(&self, keyword: &'p str) -> (String, &'p str) {
        match (self.outer, self.step) {
            (Some(outer), Step::Key(key)) if self.is_sealed => (format!("{outer}"), key),
            _ => (format!("{self}"), keyword),
        }
    }

    fn inside(&'p self, step: Step<'p>) -> Self {
        if self.is_sealed { *self } else { Self { outer: Some(self), step, is_sealed: false } }
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
