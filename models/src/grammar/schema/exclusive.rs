//! `oneOf` with options that only ask for properties: each is parted from the others.

use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::keywords::Keywords;

/// The options that are parted, each from all others, and the names in all of them.
const MAX_OPTIONS: usize = 6;
const MAX_NAMES: usize = 12;

/// Let each option of `oneOf` forbid what the others ask for, if they can be parted so.
pub(super) fn part(keywords: &mut Keywords<'_>, root: &Value) {
    let demanded = keywords.get("required");
    let Some(options) = keywords.get("oneOf").filter(|it| can_part(it, demanded, root)) else { return };
    let all = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let parted = all.iter().enumerate().map(|(i, option)| {
        let others = all.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| other.get("required"));
        let others: Vec<Value> = others.map(|names| json!({"required": names})).collect();
        json!({"required": option.get("required"), "not": {"anyOf": others}})
    });
    let parted: Value = parted.collect();
    keywords.set("oneOf", parted);
}

/// Return true if [`part`] can part the options of a schema.
pub(super) fn is_parted(map: &Map<String, Value>, root: &Value) -> bool {
    map.get("oneOf").is_some_and(|options| can_part(options, map.get("required"), root))
}

/// Return the cost of [`part`], in values.
pub(super) fn weight(map: &Map<String, Value>) -> usize {
    map.get("oneOf").and_then(Value::as_array).map_or(0, |options| options.len().min(MAX_OPTIONS))
}

/// Return true if all options only ask for properties, and are few. The names that the schema
/// itself demands may be those of one option at most: with two, nothing would be left that matches.
fn can_part(options: &Value, demanded: Option<&Value>, root: &Value) -> bool {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let demanded = demanded.and_then(Value::as_array);
    let names = |option| names(option, root);
    let Some(options) = options.iter().map(names).collect::<Option<Vec<&[Value]>>>() else { return false };
    let n_names: usize = options.iter().map(|names| names.len()).sum();
    let is_demanded = |name: &Value| demanded.is_some_and(|demanded| demanded.contains(name));
    let n_met = options.iter().filter(|names| names.iter().all(is_demanded)).count();
    (2..=MAX_OPTIONS).contains(&options.len()) && n_names <= MAX_NAMES && n_met < 2
}

/// Return the names of properties that a schema asks for, if it says nothing else.
fn names<'o>(option: &'o Value, root: &Value) -> Option<&'o [Value]> {
    let is_alone = Keywords::of(option.as_object()?, root).iter().all(|(keyword, _)| keyword == "required");
    let names = option.get("required")?.as_array().filter(|_| is_alone)?;
    (!names.is_empty() && names.iter().all(Value::is_string)).then_some(names)
}
