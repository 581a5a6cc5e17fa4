//! Types that the values of a schema can have.

use core::ops::{BitAnd, BitOr};

use serde_json::Value;

use super::keywords::{self, Keywords};
use super::parts::Part;
use super::{MAX_DEPTH, refs};

/// The names of types whose values are no numbers.
pub(super) const OTHER_TYPES: [&str; 5] = ["null", "boolean", "string", "array", "object"];

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
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(0x7f);
    pub(super) const INTEGER: Self = Self(1);
    /// Numbers that are no integers.
    pub(super) const FRACTION: Self = Self(2);
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

    /// Return the types that the keyword `type` states.
    pub(super) fn stated(named: &Value) -> Self {
        match named {
            Value::String(name) => Self::named(name),
            Value::Array(names) => Self::any(names.iter().filter_map(Value::as_str).map(Self::named)),
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

    /// Return these types without some.
    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Return the types that a value is of.
    pub(super) fn of_value(value: &Value) -> Self {
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
        Told::by(schema, root, looks).kinds()
    }

    fn any(kinds: impl Iterator<Item = Self>) -> Self {
        kinds.fold(Self::NONE, BitOr::bitor)
    }
}

/// The types that schemas of one value tell.
#[derive(Clone, Copy)]
pub(super) struct Told {
    /// By keywords that are about types, all if there are none.
    stated: Kinds,
    /// By other keywords, which say nothing about values of other types but are meant for one. They
    /// count only where nothing is stated and all agree.
    meant: Kinds,
}

impl Told {
    /// Nothing is told.
    pub(super) const NOTHING: Self = Self { stated: Kinds::ALL, meant: Kinds::ALL };

    /// Return the types that the values have by keywords that are about types.
    pub(super) fn stated(self) -> Kinds {
        self.stated
    }

    /// Return the types that the values have.
    pub(super) fn kinds(self) -> Kinds {
        match self {
            Self { stated, .. } if stated != Kinds::ALL => stated,
            Self { meant: Kinds::NONE, .. } => Kinds::ALL,
            Self { meant, .. } => meant,
        }
    }

    /// Return true if a schema beside those that tell this may be meant for values of type `name`,
    /// although it does not state that.
    pub(super) fn leaves(self, name: &str) -> bool {
        let is_agreed = self.meant != Kinds::NONE && self.meant.are_among(Kinds::named(name));
        self.stated == Kinds::ALL && (self.meant == Kinds::ALL || is_agreed)
    }

    /// Return what is stated, so that nothing is meant.
    pub(super) fn to_the_letter(self) -> Self {
        Self { meant: Kinds::NONE, ..self }
    }

    /// Return what is told together with others about the same value.
    pub(super) fn and(self, other: Self) -> Self {
        let meant = match (self.meant, other.meant) {
            (Kinds::ALL, meant) | (meant, Kinds::ALL) => meant,
            (own, meant) if own == meant => own,
            _ => Kinds::NONE,
        };
        Self { stated: self.stated & other.stated, meant }
    }

    /// Return what others than the part `i` tell: `told` begins with the keywords beside the parts.
    pub(super) fn beside(told: &[Self], i: usize) -> Self {
        let others = told.iter().enumerate().filter(|(j, _)| *j != i + 1);
        others.fold(Self::NOTHING, |all, (_, told)| all.and(*told))
    }

    /// Return what is told by a choice.
    fn any(all: impl Iterator<Item = Self>) -> Self {
        let none = Self { stated: Kinds::NONE, meant: Kinds::NONE };
        all.fold(none, |all, told| Self { stated: all.stated | told.stated, meant: all.meant | told.kinds() })
    }

    /// Return what `schema` tells.
    pub(super) fn by(schema: &Value, root: &Value, looks: &mut Looks) -> Self {
        match schema {
            Value::Bool(false) => Self { stated: Kinds::NONE, ..Self::NOTHING },
            Value::Object(map) if looks.n_left > 0 && looks.depth < MAX_DEPTH => {
                looks.n_left = looks.n_left.saturating_sub(1 + keywords::weight(map));
                looks.depth += 1;
                let found = Self::by_keywords(&Keywords::of(map, root), root, looks);
                looks.depth -= 1;
                found
            }
            _ => Self::NOTHING,
        }
    }

    /// Return what the schema with these keywords tells.
    pub(super) fn by_keywords(keywords: &Keywords<'_>, root: &Value, looks: &mut Looks) -> Self {
        let meant = keywords.inferred_type().map_or(Kinds::ALL, Kinds::named);
        let mut told = Self { meant, ..Self::NOTHING };
        for (keyword, value) in keywords.iter() {
            told = told.and(Self::by_keyword(keyword, value, root, looks));
        }
        told
    }

    fn by_keyword(keyword: &str, value: &Value, root: &Value, looks: &mut Looks) -> Self {
        let stated = |stated| Self { stated, ..Self::NOTHING };
        match (keyword, value) {
            ("type", named) => stated(Kinds::stated(named)),
            ("const", value) => stated(Kinds::of_value(value)),
            ("enum", Value::Array(values)) => stated(Kinds::any(values.iter().map(Kinds::of_value))),
            ("anyOf" | "oneOf", Value::Array(schemas)) => {
                Self::any(schemas.iter().map(|schema| Self::by(schema, root, looks)))
            }
            ("allOf", Value::Array(schemas)) => {
                let told = schemas.iter().map(|schema| Self::by(schema, root, looks));
                told.fold(Self::NOTHING, Self::and)
            }
            ("$ref", Value::String(reference)) => match refs::target(root, reference) {
                Some((_, schema)) => Self::by(schema, root, looks),
                None => Self::NOTHING,
            },
            _ => Self::NOTHING,
        }
    }

    /// Return what a part of a value tells.
    pub(super) fn by_part(part: &Part<'_>, root: &Value, looks: &mut Looks) -> Self {
        match part {
            Part::Reference(reference) => {
                let target = refs::target(root, reference);
                target.map_or(Self::NOTHING, |(_, schema)| Self::by(schema, root, looks))
            }
            Part::All(_, schema) => Self::by(schema, root, looks),
            // What is left is meant for no type.
            Part::Negated(schema) => Self { meant: Kinds::ALL, ..Self::by(schema, root, looks) },
            Part::Options(_, schemas) => {
                Self::any(schemas.iter().map(|schema| Self::by(schema, root, looks)))
            }
            // It is about some objects, whatever it needs.
            Part::Dependent { .. } => Self::NOTHING,
        }
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
