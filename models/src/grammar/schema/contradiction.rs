//! Schemas that no value matches, with the place that says so.
//!
//! The library tells that there is no value, but not where. What can be seen at a glance is found
//! here: `false`, empty lists of types and constants, bounds that exclude each other, and values
//! that would have to contain themselves without end. Other contradictions are left to it.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::keywords::{self, Keywords};
use super::kinds::Kinds;
use super::{MAX_DEPTH, is_everything, refs};
use crate::grammar::GrammarError;

/// The schemas that are looked at, and how deep they are inside of each other. What is beyond is
/// taken to match something.
const MAX_SCHEMAS: usize = 10_000;
const MAX_LEVELS: usize = 2 * MAX_DEPTH;

/// Keywords of a least and a most number of parts of a value.
type Ends = (&'static str, &'static str);

/// Check that some value can match the schema `root`, as far as that is seen at a glance.
///
/// # Errors
/// [`GrammarError::Schema`] names the place.
pub(super) fn check(root: &Value) -> Result<(), GrammarError> {
    let (outer, possible) = (Vec::new(), HashSet::new());
    let mut search = Search { root, n_left: MAX_SCHEMAS, outer, n_values: 0, possible };
    search.schema(root, true).map_or(Ok(()), |fault| Err(fault.into_error()))
}

/// Looks for what no value matches.
struct Search<'s> {
    root: &'s Value,
    /// The schemas that may still be looked at.
    n_left: usize,
    /// The schemas around this one, each with the number of values around what it describes.
    outer: Vec<(&'s Value, usize)>,
    /// The number of values around the one that is described now.
    n_values: usize,
    /// The schemas that are known to match something, or taken to.
    possible: HashSet<*const Value>,
}

/// A place at which no value matches.
struct Fault<'s> {
    /// The JSON pointer from which the steps lead, if that is not the place of the whole schema.
    start: Option<String>,
    /// The steps to the place, the last one first.
    steps: Vec<Step<'s>>,
    why: Why,
}

enum Step<'s> {
    Key(&'s str),
    Index(usize),
}

#[derive(Clone, Copy)]
enum Why {
    /// The schema or keyword allows no value.
    Nothing,
    /// Two keywords exclude each other.
    Ends(Ends),
    /// The schema is defined by itself.
    Itself,
    /// A value would contain values that match the same schema without end.
    Endless,
}

impl<'s> Fault<'s> {
    fn new(why: Why) -> Self {
        Self { start: None, steps: Vec::new(), why }
    }

    /// Return the fault at the keyword `key` of a schema.
    fn at(key: &'s str, why: Why) -> Self {
        Self::new(why).inside(Step::Key(key))
    }

    /// Return the fault as seen from the schema around it.
    fn inside(mut self, step: Step<'s>) -> Self {
        if self.start.is_none() {
            self.steps.push(step);
        }
        self
    }

    fn into_error(self) -> GrammarError {
        let mut pointer = format!("#{}", self.start.unwrap_or_default());
        for step in self.steps.iter().rev() {
            match step {
                Step::Key(key) => pointer += &format!("/{}", key.replace('~', "~0").replace('/', "~1")),
                Step::Index(index) => pointer += &format!("/{index}"),
            }
        }
        let problem = match self.why {
            Why::Nothing => "no value is allowed here, but there has to be one; allow some value".to_owned(),
            Why::Ends((least, most)) => {
                format!("`{least}` and `{most}` exclude each other, so that no value is left; correct them")
            }
            Why::Itself => {
                "the schema refers to itself and to nothing else; say what its values are".to_owned()
            }
            Why::Endless => "each value would have to contain another one of the same schema, without end; \
                             make it optional, or allow `null` in its place"
                .to_owned(),
        };
        GrammarError::Schema { pointer, problem }
    }
}

impl<'s> Search<'s> {
    /// Return the fault because of which nothing matches `schema`. With `is_alone`, no other schema
    /// describes the same value.
    fn schema(&mut self, schema: &'s Value, is_alone: bool) -> Option<Fault<'s>> {
        let map = match schema {
            Value::Bool(false) => return Some(Fault::new(Why::Nothing)),
            schema => schema.as_object()?,
        };
        let address = core::ptr::from_ref(schema);
        if self.possible.contains(&address) || self.outer.len() == MAX_LEVELS {
            return None;
        }
        self.n_left = self.n_left.checked_sub(1 + keywords::weight(map))?;
        self.outer.push((schema, self.n_values));
        let found = self.map(map, is_alone);
        self.outer.pop();
        if found.is_none() {
            self.possible.insert(address);
        }
        found
    }

    fn map(&mut self, map: &'s Map<String, Value>, is_alone: bool) -> Option<Fault<'s>> {
        let keywords = Keywords::of(map, self.root);
        if keywords.get("not").is_some_and(is_everything) {
            return Some(Fault::at("not", Why::Nothing));
        }
        let is_empty = |keyword: &&str| {
            keywords.get(keyword).and_then(Value::as_array).is_some_and(|values| values.is_empty())
        };
        if let Some(keyword) = ["enum", "type", "anyOf", "oneOf"].into_iter().find(is_empty) {
            return Some(Fault::at(keyword, Why::Nothing));
        }
        let is_only_reference = keywords.iter().count() == 1;
        for (key, value) in map.iter().filter(|(key, _)| keywords.has(key)) {
            let found = match (key.as_str(), value) {
                ("$ref", Value::String(reference)) => {
                    self.reference(reference, is_alone && is_only_reference)
                }
                ("allOf", Value::Array(schemas)) => self.listed(schemas).find_map(|found| found),
                ("anyOf" | "oneOf", Value::Array(schemas)) => {
                    let found: Option<Vec<Fault<'s>>> = self.listed(schemas).collect();
                    found.and_then(|found| found.into_iter().next())
                }
                _ => None,
            };
            if let Some(fault) = found {
                return Some(fault.inside(Step::Key(key)));
            }
        }
        self.kinds(map, &keywords, is_alone)
    }

    /// Return the faults of schemas in a list, which describe a value together with others.
    fn listed(&mut self, schemas: &'s [Value]) -> impl Iterator<Item = Option<Fault<'s>>> {
        schemas.iter().enumerate().map(|(i, schema)| Some(self.schema(schema, false)?.inside(Step::Index(i))))
    }

    fn reference(&mut self, reference: &str, is_alone: bool) -> Option<Fault<'s>> {
        let (pointer, target) = refs::target(self.root, reference)?;
        // A value that matches is needed to find one.
        if let Some((_, n_values)) = self.outer.iter().rev().find(|(outer, _)| core::ptr::eq(*outer, target))
        {
            let why = if *n_values == self.n_values { Why::Itself } else { Why::Endless };
            return Some(Fault::new(why));
        }
        let fault = self.schema(target, is_alone)?;
        Some(Fault { start: Some(fault.start.unwrap_or(pointer)), ..fault })
    }

    /// Return the first fault of a type if no value of any type is left.
    fn kinds(
        &mut self,
        map: &'s Map<String, Value>,
        keywords: &Keywords<'_>,
        is_alone: bool,
    ) -> Option<Fault<'s>> {
        let inferred = keywords.inferred_type().filter(|_| is_alone).map(Kinds::named);
        let mut kinds = keywords.get("type").map(Kinds::stated).or(inferred)?;
        if kinds.meet(Kinds::named("null") | Kinds::named("boolean")) {
            return None;
        }
        let mut first = None;
        for name in ["number", "string", "array", "object"] {
            if !kinds.meet(Kinds::named(name)) {
                continue;
            }
            let fault = match name {
                "number" => numbers(map),
                "string" => count(map, ("minLength", "maxLength")),
                "array" => count(map, ("minItems", "maxItems")).or_else(|| self.items(map)),
                _ => count(map, ("minProperties", "maxProperties")).or_else(|| self.properties(map)),
            }?;
            first.get_or_insert(fault);
            kinds = kinds.without(Kinds::named(name));
        }
        first.filter(|_| kinds == Kinds::NONE)
    }

    /// Return the fault of an item that each list has.
    fn items(&mut self, map: &'s Map<String, Value>) -> Option<Fault<'s>> {
        let least = map.get("minItems").and_then(Value::as_f64).unwrap_or(0.0);
        match (map.get("prefixItems"), map.get("items")) {
            (None, Some(items)) if least >= 1.0 => self.value(items, "items"),
            _ => None,
        }
    }

    /// Return the fault of a property that each object has.
    fn properties(&mut self, map: &'s Map<String, Value>) -> Option<Fault<'s>> {
        let properties = map.get("properties")?.as_object()?;
        let mut required = map.get("required")?.as_array()?.iter().filter_map(Value::as_str);
        required.find_map(|name| {
            let fault = self.value(properties.get(name)?, name)?;
            Some(fault.inside(Step::Key("properties")))
        })
    }

    /// Return the fault of a value inside of another, at `key`.
    fn value(&mut self, schema: &'s Value, key: &'s str) -> Option<Fault<'s>> {
        self.n_values += 1;
        let found = self.schema(schema, true);
        self.n_values -= 1;
        Some(found?.inside(Step::Key(key)))
    }
}

/// Return the fault of numbers of parts that exclude each other.
fn count<'s>(map: &Map<String, Value>, ends: Ends) -> Option<Fault<'s>> {
    let least = map.get(ends.0)?.as_f64()?;
    let most = map.get(ends.1)?.as_f64()?;
    (least > most).then(|| Fault::new(Why::Ends(ends)))
}

/// Return the fault of bounds of numbers that exclude each other.
fn numbers<'s>(map: &Map<String, Value>) -> Option<Fault<'s>> {
    let lower = [("minimum", false), ("exclusiveMinimum", true)];
    let upper = [("maximum", false), ("exclusiveMaximum", true)];
    let bound = |(keyword, excludes): (&'static str, bool)| {
        // In draft 4, a flag excludes the other bound.
        let flag = if keyword == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
        let is_flagged = map.get(flag) == Some(&Value::Bool(true));
        Some((keyword, map.get(keyword)?.as_f64()?, excludes || is_flagged))
    };
    for (least, low, excludes_low) in lower.into_iter().filter_map(bound) {
        for (most, high, excludes_high) in upper.into_iter().filter_map(bound) {
            if low > high || low == high && (excludes_low || excludes_high) {
                return Some(Fault::new(Why::Ends((least, most))));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
