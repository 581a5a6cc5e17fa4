//! `oneOf` with options that only ask for properties: each is parted from the others.

use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::keywords::{self, Keywords};

/// The options that are parted, each from all others, and the names in all of them.
const MAX_OPTIONS: usize = 6;
const MAX_NAMES: usize = 12;

/// Let each option of `oneOf` forbid what the others ask for, if they can be parted so. Return true
/// if they are. `required` is a list of names, if there is any.
pub(super) fn part(keywords: &mut Keywords<'_>, root: &Value) -> bool {
    let Some(options) = options(keywords, root) else { return false };
    let parted = options.iter().enumerate().map(|(i, names)| {
        let others = options.iter().enumerate().filter(|(j, _)| *j != i);
        let others: Vec<Value> = others.map(|(_, names)| json!({"required": names})).collect();
        json!({"required": names, "not": {"anyOf": others}})
    });
    let parted: Value = parted.collect();
    keywords.set("oneOf", parted);
    true
}

/// Return the cost of [`part`], in values.
pub(super) fn weight(map: &Map<String, Value>) -> usize {
    let options = map.get("oneOf").and_then(Value::as_array).filter(|options| options.len() <= MAX_OPTIONS);
    let read = options.into_iter().flatten().filter_map(Value::as_object);
    read.map(|option| 1 + keywords::weight(option)).sum()
}

/// Return the names that each option asks for, if all only do that, and are few. All that the
/// schema itself demands may be asked for by one option at most, and no two may ask for the same:
/// nothing would be left that matches.
fn options<'k>(keywords: &'k Keywords<'_>, root: &Value) -> Option<Vec<&'k [Value]>> {
    let options = keywords.get("oneOf")?.as_array()?;
    if !(2..=MAX_OPTIONS).contains(&options.len()) {
        return None;
    }
    let options = options.iter().map(|option| names(option, root)).collect::<Option<Vec<&[Value]>>>()?;
    let n_names: usize = options.iter().map(|names| names.len()).sum();
    let demanded = keywords.get("required").and_then(Value::as_array);
    let is_demanded = |name: &Value| demanded.is_some_and(|demanded| demanded.contains(name));
    let has_all = |names: &[Value], others: &[Value]| others.iter().all(|name| names.contains(name));
    let is_same = |a: &[Value], b: &[Value]| has_all(a, b) && has_all(b, a);
    let meets =
        |(i, names): (usize, &&[Value])| options.iter().skip(i + 1).any(|other| is_same(names, other));
    let is_few = n_names <= MAX_NAMES && !options.iter().enumerate().any(meets);
    let n_met = options.iter().filter(|names| names.iter().all(is_demanded)).count();
    (is_few && n_met < 2).then_some(options)
}

/// Return the names of properties that a schema asks for, if it says nothing else and they are few.
fn names<'o>(option: &'o Value, root: &Value) -> Option<&'o [Value]> {
    let names = option.get("required")?.as_array()?;
    let is_few = (1..=MAX_NAMES).contains(&names.len()) && names.iter().all(Value::is_string);
    let keywords = Keywords::of(option.as_object().filter(|_| is_few)?, root);
    keywords.iter().all(|(keyword, _)| keyword == "required").then_some(names)
}
