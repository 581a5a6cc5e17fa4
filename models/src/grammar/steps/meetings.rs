//! Schemas that meet: those that describe one value, and the properties and items of them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{MAX_STATES, Step, greatest_common_divisor, schemas};
use crate::grammar::references;

/// The schemas that are looked at in all meetings together.
const MAX_VISITS: usize = 1_000_000;

/// Return the addresses of the schemas whose steps are too large, alone or together with those that
/// they meet; of all schemas if there are too many meetings to tell.
pub(super) fn too_large(root: &Value) -> HashSet<*const Value> {
    let all = all_schemas(root);
    // What meets has no more states than all steps together.
    if is_small_together(&all) {
        return HashSet::new();
    }
    let mut meetings = Meetings { root, known: HashSet::new(), n_left: MAX_VISITS, found: HashSet::new() };
    match meetings.follow(&all) {
        Some(()) => meetings.found,
        None => all.into_iter().map(core::ptr::from_ref).collect(),
    }
}

/// Return the objects in a schema that can be schemas, and those that references lead to.
fn all_schemas(root: &Value) -> Vec<&Value> {
    let (mut all, mut known, mut todo) = (Vec::new(), HashSet::new(), Vec::from([(root, false)]));
    while let Some((value, has_names)) = todo.pop() {
        match value {
            Value::Object(map) if known.insert((core::ptr::from_ref(value), has_names)) => {
                all.push(value);
                todo.extend(schemas(map, has_names).map(|(_, value, has_names)| (value, has_names)));
                let reference = map.get("$ref").and_then(Value::as_str);
                let target = reference.and_then(|reference| references::target(root, reference));
                todo.extend(target.map(|target| (target, false)));
            }
            Value::Array(values) => todo.extend(values.iter().map(|value| (value, false))),
            _ => {}
        }
    }
    all
}

/// Return the step of a schema itself.
fn own_step(value: &Value) -> Step {
    match value.get("multipleOf") {
        Some(step @ Value::Number(_)) => Step::of(step),
        _ => Step::ONE,
    }
}

/// Return true if the steps of any of the schemas are small together.
fn is_small_together(all: &[&Value]) -> bool {
    let steps: Vec<Step> =
        all.iter().map(|value| own_step(value)).filter(|step| *step != Step::ONE).collect();
    let n_digits = steps.iter().map(|step| step.n_digits).max().unwrap_or(0);
    let limit = u128::from(MAX_STATES) / u128::from(n_digits + 1);
    let mut multiple = 1;
    for step in steps {
        let units = u128::from(step.n_units) * 10_u128.pow(n_digits - step.n_digits);
        multiple = multiple / greatest_common_divisor(multiple, units).max(1) * units;
        if multiple > limit {
            return false;
        }
    }
    true
}

/// The keywords of one schema about the parts of its values.
struct Parts<'s> {
    properties: Option<&'s Map<String, Value>>,
    /// Names that match patterns have these too.
    patterns: Option<&'s Map<String, Value>>,
    other_properties: Option<&'s Value>,
    first_items: &'s [Value],
    other_items: Option<&'s Value>,
}

impl<'s> Parts<'s> {
    fn of(value: &'s Value) -> Self {
        let map = |keyword| value.get(keyword).and_then(Value::as_object);
        // Older drafts list the first items in `items`.
        let listed = |keyword| value.get(keyword).and_then(Value::as_array).map(Vec::as_slice);
        let items = value.get("items").filter(|items| !items.is_array());
        Self {
            properties: map("properties"),
            patterns: map("patternProperties"),
            other_properties: value.get("additionalProperties"),
            first_items: listed("prefixItems").or_else(|| listed("items")).unwrap_or_default(),
            other_items: items.or_else(|| value.get("additionalItems")),
        }
    }

    /// Return the schemas that a property can have.
    fn property(&self, name: &str) -> impl Iterator<Item = &'s Value> {
        let named = self.properties.and_then(|properties| properties.get(name));
        let patterns = self.patterns.into_iter().flat_map(Map::values);
        named.or(self.other_properties).into_iter().chain(patterns)
    }

    /// Return the schemas of properties without a name.
    fn unnamed(&self) -> impl Iterator<Item = &'s Value> {
        self.other_properties.into_iter().chain(self.patterns.into_iter().flat_map(Map::values))
    }

    fn item(&self, i: usize) -> Option<&'s Value> {
        self.first_items.get(i).or(self.other_items)
    }
}

/// Follows what meets from value to value.
struct Meetings<'s> {
    root: &'s Value,
    /// The sets of schemas that were followed, by their addresses.
    known: HashSet<Vec<*const Value>>,
    /// The schemas that may still be looked at.
    n_left: usize,
    found: HashSet<*const Value>,
}

impl<'s> Meetings<'s> {
    /// Follow the meetings in each of `all`. Return `None` if there are too many.
    fn follow(&mut self, all: &[&'s Value]) -> Option<()> {
        let mut todo: Vec<Vec<&'s Value>> = all.iter().map(|value| Vec::from([*value])).collect();
        while let Some(seeds) = todo.pop() {
            let group = self.group(&seeds)?;
            let step = group.iter().fold(Step::ONE, |all, value| all.common(own_step(value)));
            if !step.is_small() {
                self.found.extend(group.iter().copied().map(core::ptr::from_ref));
            }
            self.parts(&group, &mut todo)?;
        }
        Some(())
    }

    /// Return all schemas of the value that `seeds` describe, as far as they say so.
    fn group(&mut self, seeds: &[&'s Value]) -> Option<Vec<&'s Value>> {
        let (mut known, mut group, mut todo) = (HashSet::new(), Vec::new(), seeds.to_vec());
        while let Some(value) = todo.pop() {
            if !value.is_object() || !known.insert(core::ptr::from_ref(value)) {
                continue;
            }
            self.n_left = self.n_left.checked_sub(1)?;
            group.push(value);
            let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|keyword| value.get(keyword));
            todo.extend(lists.filter_map(Value::as_array).flatten());
            let reference = value.get("$ref").and_then(Value::as_str);
            todo.extend(reference.and_then(|reference| references::target(self.root, reference)));
        }
        Some(group)
    }

    /// Append the schemas that meet in each property and item of a value.
    fn parts(&mut self, group: &[&'s Value], todo: &mut Vec<Vec<&'s Value>>) -> Option<()> {
        let parts: Vec<Parts<'s>> = group.iter().map(|value| Parts::of(value)).collect();
        let names: BTreeSet<&String> =
            parts.iter().filter_map(|part| part.properties).flat_map(Map::keys).collect();
        let n_items = parts.iter().map(|part| part.first_items.len()).max().unwrap_or(0);
        self.n_left = self.n_left.checked_sub(parts.len().saturating_mul(names.len() + n_items + 2))?;
        for name in names {
            self.meet(parts.iter().flat_map(|part| part.property(name)), todo)?;
        }
        for i in 0..n_items {
            self.meet(parts.iter().filter_map(|part| part.item(i)), todo)?;
        }
        if parts.len() > 1 {
            self.meet(parts.iter().flat_map(Parts::unnamed), todo)?;
        }
        self.meet(parts.iter().filter_map(|part| part.other_items), todo)
    }

    /// Append schemas that meet, if they are several and new.
    fn meet(
        &mut self,
        schemas: impl Iterator<Item = &'s Value>,
        todo: &mut Vec<Vec<&'s Value>>,
    ) -> Option<()> {
        let mut seeds: Vec<&'s Value> = Vec::new();
        for value in schemas {
            self.n_left = self.n_left.checked_sub(1)?;
            seeds.extend(value.is_object().then_some(value));
        }
        seeds.sort_unstable_by_key(|value| core::ptr::from_ref(*value));
        seeds.dedup_by_key(|value| core::ptr::from_ref(*value));
        if seeds.len() > 1 && self.known.insert(seeds.iter().copied().map(core::ptr::from_ref).collect()) {
            todo.push(seeds);
        }
        Some(())
    }
}
