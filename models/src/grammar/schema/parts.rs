//! Schemas that describe the same value, and the properties that they name.

use alloc::{borrow::ToOwned, collections::BTreeSet, rc::Rc, string::String, vec::Vec};

use serde_json::{Map, Value};

use super::keywords::Keywords;
use super::kinds::{Kinds, Looks};
use super::plain::DEPENDENCIES;
use super::write::Writer;
use super::{MAX_DEPTH, is_nothing, refs};
use crate::grammar::GrammarError;

/// A schema that describes the same value as the keywords beside it.
pub(super) enum Part<'k> {
    /// The target of a reference.
    Reference(&'k str),
    /// An item of `allOf`.
    All(usize, &'k Value),
    /// The schema of the values that `not` leaves.
    Negated(&'k Value),
    /// The items of `anyOf` or `oneOf`.
    Options(&'k str, &'k [Value]),
    /// A demand on objects that have a property: the names of others, or a schema.
    Dependent { keyword: &'k str, name: &'k str, needs: &'k Value },
}

impl<'k> Part<'k> {
    /// Return the keyword that has the part.
    pub(super) fn keyword(&self) -> &'k str {
        match self {
            Self::Reference(_) => "$ref",
            Self::All(..) => "allOf",
            Self::Negated(_) => "not",
            Self::Options(keyword, _) | Self::Dependent { keyword, .. } => keyword,
        }
    }
}

/// Return the schemas that describe the same value as `keywords`, in their order.
pub(super) fn parts<'k>(keywords: &'k Keywords<'_>) -> Vec<Part<'k>> {
    let mut parts = Vec::new();
    for (keyword, value) in keywords.iter() {
        match (keyword, value) {
            ("$ref", Value::String(reference)) => parts.push(Part::Reference(reference)),
            ("allOf", Value::Array(schemas)) => {
                parts.extend(schemas.iter().enumerate().map(|(i, schema)| Part::All(i, schema)));
            }
            ("not", schema) => parts.push(Part::Negated(schema)),
            ("anyOf" | "oneOf", Value::Array(schemas)) => parts.push(Part::Options(keyword, schemas)),
            (_, Value::Object(map)) if DEPENDENCIES.contains(&keyword) => {
                for (name, needs) in map {
                    parts.push(Part::Dependent { keyword, name, needs });
                }
            }
            _ => {}
        }
    }
    parts
}

/// The names of properties in schemas.
#[derive(Clone, Default)]
pub(super) struct Named {
    /// The names, each with the schema of any value, in the order in which they come.
    pub(super) names: Map<String, Value>,
    /// Patterns of names, likewise.
    pub(super) patterns: Map<String, Value>,
    /// Those whose values may be objects or lists, which can be open or closed in turn.
    nested: BTreeSet<String>,
    /// There are items that may be so.
    has_items: bool,
    /// Properties are listed, and not none.
    pub(super) has_properties: bool,
    /// These are options that all list properties, so that each can be closed on its own.
    pub(super) closes_itself: bool,
    /// Properties with other names are allowed by a keyword.
    pub(super) is_open: bool,
    /// Properties with other names are forbidden by a keyword.
    pub(super) is_closed: bool,
    /// They are so by `propertyNames`.
    is_held: bool,
    /// Names of which all have to be there: one set of each list.
    demands: Vec<Vec<BTreeSet<String>>>,
    /// The names that a keyword describes, and does not only ask for.
    evaluated: BTreeSet<String>,
    /// Some are described only where an option or a condition holds.
    pub(super) is_conditional: bool,
    /// Names that are not described are forbidden.
    pub(super) is_strict: bool,
}

impl Named {
    /// Return true if nothing is said.
    pub(super) fn is_empty(&self) -> bool {
        let is_silent = !self.has_properties && !self.is_open && !self.is_closed && !self.has_items;
        self.names.is_empty() && self.patterns.is_empty() && is_silent
    }

    /// Add what others say. Return true if both describe values inside of the same value.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let overlap = !self.nested.is_disjoint(&other.nested) || self.has_items && other.has_items;
        let add = |to: &mut Map<String, Value>, from: &Map<String, Value>| {
            for name in from.keys().filter(|name| !to.contains_key(*name)).collect::<Vec<_>>() {
                to.insert(name.clone(), true.into());
            }
        };
        add(&mut self.names, &other.names);
        add(&mut self.patterns, &other.patterns);
        self.nested.extend(other.nested.iter().cloned());
        self.has_items |= other.has_items;
        self.has_properties |= other.has_properties;
        self.is_open |= other.is_open;
        self.is_closed |= other.is_closed;
        self.is_held |= other.is_held;
        self.demands.extend(other.demands.iter().cloned());
        self.evaluated.extend(other.evaluated.iter().cloned());
        self.is_conditional |= other.is_conditional;
        overlap
    }

    /// Return true if some names are described.
    pub(super) fn evaluates(&self) -> bool {
        self.is_open || !self.evaluated.is_empty() || !self.patterns.is_empty()
    }

    /// Forget the names that are only asked for.
    pub(super) fn keep_evaluated(&mut self) {
        self.names.retain(|name, _| self.evaluated.contains(name));
    }

    /// Return the names that what `not` leaves asks for in any case. It describes none, and those
    /// that it forbids are no reason to allow them.
    fn of_negated(self) -> Self {
        let demanded = self.demanded();
        let names = self.names.into_iter().filter(|(name, _)| demanded.contains(name)).collect();
        Self { names, ..Self::default() }
    }

    /// Return the cost of a copy, in values.
    pub(super) fn weight(&self) -> usize {
        let names = self.names.keys().chain(self.patterns.keys());
        let names = names.chain(self.demands.iter().flatten().flatten());
        names.map(|name| 1 + name.len() / 64).sum()
    }

    /// Return the names that have to be there in any case.
    fn demanded(&self) -> BTreeSet<String> {
        let lists = self.demands.iter().filter(|list| list.len() == 1);
        lists.flatten().flatten().cloned().collect()
    }

    /// Return true if what `all` say together, each of which may be closed, cannot be meant: by
    /// the letter, each forbids the names of another, or one that has to be there.
    pub(super) fn is_contradiction(&self, all: &[&Self]) -> bool {
        let mut closed = all.iter().filter(|named| named.is_closed && named.patterns.is_empty());
        let Some(first) = closed.next() else { return false };
        let differ = closed.any(|other| {
            other.names.len() != first.names.len()
                || other.names.keys().any(|name| !first.names.contains_key(name))
        });
        let lacks = |closed: &Self| {
            let has_all = |names: &BTreeSet<String>| names.iter().all(|name| closed.names.contains_key(name));
            self.demands.iter().any(|list| !list.iter().any(has_all))
        };
        // All have the same names unless they differ.
        !self.is_held && (differ || lacks(first))
    }

    /// Return what `keywords` say without their parts.
    pub(super) fn by(keywords: &Keywords<'_>, root: &Value, looks: &mut Looks) -> Self {
        let mut named = Self::default();
        let map = |keyword| keywords.get(keyword).and_then(Value::as_object);
        for (name, schema) in map("properties").into_iter().flatten() {
            named.names.insert(name.clone(), true.into());
            named.evaluated.insert(name.clone());
            if Kinds::of(schema, root, looks).meet(Kinds::NESTED) {
                named.nested.insert(name.clone());
            }
        }
        let required = keywords.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned);
        let required: BTreeSet<String> = required.collect();
        named.names.extend(required.iter().map(|name| (name.clone(), true.into())));
        if !required.is_empty() {
            named.demands.push(Vec::from([required]));
        }
        for pattern in map("patternProperties").into_iter().flat_map(Map::keys) {
            named.patterns.insert(pattern.clone(), true.into());
        }
        named.has_items = keywords.has("items") || keywords.has("prefixItems");
        named.has_properties = map("properties").is_some_and(|listed| !listed.is_empty());
        named.is_closed = keywords.get("additionalProperties").is_some_and(is_nothing);
        named.is_held = keywords.has("propertyNames");
        named.is_open = keywords.has("additionalProperties") && !named.is_closed;
        named
    }
}

impl Writer<'_> {
    /// Return what a part says about the names of properties, `depth` schemas inside of others that
    /// describe the same value.
    ///
    /// # Errors
    /// [`GrammarError::TooLarge`].
    pub(super) fn named_by_part(&mut self, part: &Part<'_>, depth: usize) -> Result<Named, GrammarError> {
        let named = match part {
            Part::Reference(reference) => self.named_by_reference(reference, depth)?,
            Part::All(_, schema) => self.named_by_schema(schema, depth)?,
            Part::Negated(schema) => self.named_by_schema(schema, depth)?.of_negated(),
            Part::Options(_, schemas) => {
                let (mut named, mut demanded) =
                    (Named { closes_itself: true, ..Named::default() }, Vec::new());
                for schema in *schemas {
                    let option = self.named_by_schema(schema, depth)?;
                    named.closes_itself &= option.has_properties || option.is_closed;
                    demanded.push(option.demanded());
                    named.add(&option);
                }
                named.demands = Vec::from([demanded]);
                named
            }
            Part::Dependent { needs: Value::Array(names), name, .. } => {
                let names = [*name].into_iter().chain(names.iter().filter_map(Value::as_str));
                let names = names.map(|name| (name.to_owned(), true.into())).collect();
                Named { names, ..Named::default() }
            }
            Part::Dependent { needs, name, .. } => {
                let names = Map::from_iter([((*name).to_owned(), true.into())]);
                let mut named = Named { names, ..Named::default() };
                named.add(&self.named_by_schema(needs, depth)?);
                named.is_conditional |= named.evaluates();
                named
            }
        };
        self.spend(named.weight())?;
        Ok(named)
    }

    fn named_by_schema(&mut self, schema: &Value, depth: usize) -> Result<Named, GrammarError> {
        let limit = 2 * MAX_DEPTH;
        if depth > limit {
            let what = "schemas inside of each other that describe one value";
            return Err(GrammarError::TooLarge { what, found: depth, limit });
        }
        let Value::Object(map) = schema else { return Ok(Named::default()) };
        let keywords = self.plain(map)?.keywords;
        let mut named = self.named_by_keywords(&keywords);
        for part in parts(&keywords) {
            let mut of_part = self.named_by_part(&part, depth + 1)?;
            of_part.is_conditional |= matches!(part, Part::Options(..)) && of_part.evaluates();
            named.add(&of_part);
        }
        named.is_closed |= keywords.has("unevaluatedProperties");
        Ok(named)
    }

    fn named_by_reference(&mut self, reference: &str, depth: usize) -> Result<Named, GrammarError> {
        let Some((pointer, schema)) = refs::target(self.root, reference) else { return Ok(Named::default()) };
        if let Some(known) = self.named.get(&pointer) {
            return Ok(known.as_ref().clone());
        }
        // A schema that contains itself in this way says nothing new the second time.
        self.named.insert(pointer.clone(), Rc::default());
        let named = Rc::new(self.named_by_schema(schema, depth + 1)?);
        self.named.insert(pointer, Rc::clone(&named));
        Ok(named.as_ref().clone())
    }
}
