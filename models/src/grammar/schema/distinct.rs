//! Options of `oneOf` of which a value visibly matches one at most: their types or constants
//! differ, or those of a property that they have in common.

use alloc::{collections::BTreeSet, vec::Vec};

use serde_json::{Map, Value};

use super::keywords;
use super::kinds::{Kinds, Looks, Told};
use super::refs;

/// The constants that are compared, and the longest text among them, in bytes.
const MAX_CONSTANTS: usize = 1000;
const MAX_TEXT: usize = 256;
/// The properties that may tell the options apart.
const MAX_PROPERTIES: usize = 8;
/// The references that are followed to what an option says.
const MAX_REFERENCES: usize = 8;

/// Options that are compared.
pub(super) struct Options<'s> {
    root: &'s Value,
    /// The constants that may still be compared.
    n_left: usize,
}

/// A constant by which options are told apart. Numbers are compared as floats: those that are the
/// same for some reader are the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Constant<'v> {
    Null,
    Bool(bool),
    Number(u64),
    Text(&'v str),
}

impl<'s> Options<'s> {
    /// Begin to compare options of the schema `root`.
    pub(super) fn new(root: &'s Value) -> Self {
        Self { root, n_left: MAX_CONSTANTS }
    }

    /// Return the cost of the work so far, in values.
    pub(super) fn cost(&self) -> usize {
        (MAX_CONSTANTS - self.n_left) / 4
    }

    /// Return true if a value matches at most one option of the `oneOf` in `map`.
    pub(super) fn are_distinct(&mut self, map: &Map<String, Value>, looks: &mut Looks) -> bool {
        let Some(options) = map.get("oneOf").and_then(Value::as_array) else { return false };
        if options.len() > MAX_CONSTANTS || keywords::hides_others(map, self.root) {
            return false;
        }
        let around = map.get("type").map_or(Kinds::ALL, Kinds::stated);
        let told = options.iter().map(|option| Told::by(option, self.root, looks).stated() & around);
        let told: Vec<Kinds> = told.collect();
        let (mut once, mut twice) = (Kinds::NONE, Kinds::NONE);
        for kinds in &told {
            twice = twice | (once & *kinds);
            once = once | *kinds;
        }
        // All others differ from each other option by their types.
        let alike = options.iter().zip(&told).filter(|(_, kinds)| kinds.meet(twice));
        let (alike, kinds): (Vec<&Value>, Vec<Kinds>) = alike.unzip();
        let are_objects = kinds.iter().all(|kinds| kinds.are_among(Kinds::OBJECT));
        alike.is_empty()
            || self.differ(alike.iter().copied().map(Some))
            || are_objects && self.differ_by_property(&alike)
    }

    /// Return true if objects can match one of `options` at most by a property: each option has
    /// constants for it that no other has, and no two do without it.
    fn differ_by_property(&mut self, options: &[&Value]) -> bool {
        let own = options.iter().map(|option| refs::followed(option, self.root, MAX_REFERENCES).0);
        let Some(options) = own.collect::<Option<Vec<&Value>>>() else { return false };
        let listed = options.first().and_then(|option| option.get("properties")).and_then(Value::as_object);
        listed.into_iter().flat_map(Map::keys).take(MAX_PROPERTIES).any(|name| {
            let lacks = |option: &&&Value| {
                let required = option.get("required").and_then(Value::as_array);
                !required.is_some_and(|names| names.iter().any(|other| other == name))
            };
            options.iter().filter(lacks).count() < 2
                && self.differ(options.iter().map(|option| option.get("properties")?.get(name)))
        })
    }

    /// Return true if all schemas have constants, and no two of them the same.
    fn differ<'v>(&mut self, schemas: impl Iterator<Item = Option<&'v Value>>) -> bool
    where
        's: 'v,
    {
        let mut all = BTreeSet::new();
        for schema in schemas {
            let own = schema.and_then(|schema| self.constants(schema));
            if !own.is_some_and(|own| own.into_iter().all(|constant| all.insert(constant))) {
                return false;
            }
        }
        true
    }

    /// Return the constants that match `schema`, and maybe others; `None` if there are others than
    /// can be compared.
    fn constants<'v>(&mut self, schema: &'v Value) -> Option<BTreeSet<Constant<'v>>>
    where
        's: 'v,
    {
        let schema = refs::followed(schema, self.root, MAX_REFERENCES).0?;
        let values = match schema.get("const") {
            Some(value) => core::slice::from_ref(value),
            None => schema.get("enum")?.as_array()?,
        };
        self.n_left = self.n_left.checked_sub(1 + values.len())?;
        values.iter().map(constant).collect()
    }
}

fn constant(value: &Value) -> Option<Constant<'_>> {
    Some(match value {
        Value::Null => Constant::Null,
        Value::Bool(flag) => Constant::Bool(*flag),
        // Adding zero makes -0.0 the same as 0.0.
        Value::Number(number) => Constant::Number((number.as_f64()? + 0.0).to_bits()),
        Value::String(text) if text.len() <= MAX_TEXT => Constant::Text(text),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
