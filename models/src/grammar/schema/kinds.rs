//! Types that the values of a schema can have.

use core::ops::{BitAnd, BitOr};

use serde_json::Value;

use super::keywords::{self, Keywords};
use super::{MAX_DEPTH, refs};

/// The schemas that are still looked at for the types of their values.
pub(super) struct Looks {
    n_left: usize,
    /// Those that are being looked at, inside of each other.
    depth: usize,
}

impl Looks {
    /// Begin with `n_left` schemas to look at.
    pub(super) fn new(n_left: usize) -> Self {
        Self { n_left, depth: 0 }
    }
}

/// A set of types.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    const NONE: Self = Self(0);
    const ALL: Self = Self(0x7f);
    const INTEGER: Self = Self(1);
    const FRACTION: Self = Self(2);
    /// Those whose values have schemas for values inside of them.
    pub(super) const NESTED: Self = Self(0x60);
    pub(super) const OBJECT: Self = Self(0x40);

    /// Return the types with a name, or all for a name that is unknown.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "integer" => Self::INTEGER,
            "number" => Self::INTEGER | Self::FRACTION,
            "string" => Self(4),
            "boolean" => Self(8),
            "null" => Self(16),
            "array" => Self(32),
            "object" => Self::OBJECT,
            _ => Self::ALL,
        }
    }

    /// Return true if all of these are among `others`.
    pub(super) fn are_among(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }

    /// Return true if one of these is among `others`.
    pub(super) fn meet(self, others: Self) -> bool {
        self & others != Self::NONE
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::named("null"),
            Value::Bool(_) => Self::named("boolean"),
            Value::Number(number) if number.is_f64() => Self::FRACTION | Self::INTEGER,
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::named("string"),
            Value::Array(_) => Self::named("array"),
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// Return the types of the values that match `schema`, and maybe others.
    pub(super) fn of(schema: &Value, root: &Value, looks: &mut Looks) -> Self {
        match schema {
            Value::Bool(false) => Self::NONE,
            Value::Object(map) if looks.n_left > 0 && looks.depth < MAX_DEPTH => {
                looks.n_left = looks.n_left.saturating_sub(1 + keywords::weight(map));
                looks.depth += 1;
                let found = Self::of_keywords(&Keywords::of(map), root, looks);
                looks.depth -= 1;
                found
            }
            _ => Self::ALL,
        }
    }

    /// Return the types of the values that match the schema with these keywords, and maybe others.
    pub(super) fn of_keywords(keywords: &Keywords<'_>, root: &Value, looks: &mut Looks) -> Self {
        let mut found = keywords.inferred_type().map_or(Self::ALL, Self::named);
        for (keyword, value) in keywords.iter() {
            found = found
                & match (keyword, value) {
                    ("type", Value::String(name)) => Self::named(name),
                    ("type", Value::Array(names)) => {
                        Self::any(names.iter().filter_map(Value::as_str).map(Self::named))
                    }
                    ("const", value) => Self::of_value(value),
                    ("enum", Value::Array(values)) => Self::any(values.iter().map(Self::of_value)),
                    ("anyOf" | "oneOf", Value::Array(schemas)) => {
                        Self::any(schemas.iter().map(|schema| Self::of(schema, root, looks)))
                    }
                    ("allOf", Value::Array(schemas)) => {
                        let kinds = schemas.iter().map(|schema| Self::of(schema, root, looks));
                        kinds.fold(Self::ALL, BitAnd::bitand)
                    }
                    ("$ref", Value::String(reference)) => refs::target(root, reference)
                        .map_or(Self::ALL, |(_, schema)| Self::of(schema, root, looks)),
                    _ => Self::ALL,
                };
        }
        found
    }

    fn any(kinds: impl Iterator<Item = Self>) -> Self {
        kinds.fold(Self::NONE, BitOr::bitor)
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Kinds {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
