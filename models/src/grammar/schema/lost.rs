//! Keywords that are left out.

use alloc::{borrow::ToOwned, format, string::String};

/// A keyword that was left out although it forbids values.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    pub(super) keyword: &'static str,
    why: Why,
}

#[derive(Clone, Copy)]
enum Why {
    Unsupported,
    /// A reference leads to nothing.
    NoTarget,
    /// A reference leads to the name that a schema has by `$anchor`.
    Anchor,
    /// A reference leads to a schema that it is a part of.
    Circular,
    /// A regular expression is none.
    Broken,
    /// There are more than so many.
    TooMany(usize),
    /// The value is not of the kind that belongs there.
    Shape(&'static str),
}

impl Lost {
    pub(super) fn unsupported(keyword: &'static str) -> Self {
        Self { keyword, why: Why::Unsupported }
    }

    pub(super) fn shape(keyword: &'static str, wanted: &'static str) -> Self {
        Self { keyword, why: Why::Shape(wanted) }
    }

    pub(super) fn too_many(keyword: &'static str, limit: usize) -> Self {
        Self { keyword, why: Why::TooMany(limit) }
    }

    pub(super) fn broken(keyword: &'static str) -> Self {
        Self { keyword, why: Why::Broken }
    }

    pub(super) fn no_target(reference: &str) -> Self {
        let is_anchor = reference.strip_prefix('#').is_some_and(|name| !name.starts_with('/'));
        Self { keyword: "$ref", why: if is_anchor { Why::Anchor } else { Why::NoTarget } }
    }

    pub(super) fn circular() -> Self {
        Self { keyword: "$ref", why: Why::Circular }
    }

    /// Return the fault, and the thing that would be right.
    pub(super) fn problem(self) -> String {
        match self.why {
            Why::Unsupported => {
                format!("`{}` is not supported here; remove it or express it in another way", self.keyword)
            }
            Why::NoTarget => {
                "the reference leads to nothing in this schema; put what it means into `$defs`".to_owned()
            }
            Why::Anchor => {
                "references to anchors are not followed; refer to the place, such as `#/$defs/NAME`"
                    .to_owned()
            }
            Why::Circular => {
                "the reference leads to a schema that it is a part of; refer to it from a property or item"
                    .to_owned()
            }
            Why::TooMany(limit) => {
                format!("`{}` has more than {limit} different schemas; use fewer", self.keyword)
            }
            Why::Broken => "not a regular expression of ECMA-262 (JavaScript); correct it".to_owned(),
            Why::Shape(wanted) => format!("`{}` has to be {wanted}", self.keyword),
        }
    }
}
