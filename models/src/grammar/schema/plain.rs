//! Keywords that are expressed by others, or not at all.

use alloc::{borrow::ToOwned, vec::Vec};

use serde_json::{Map, Value, json};

use super::keywords::Keywords;
use super::patterns::{self, Use};
use super::{is_everything, is_nothing, names};

/// Keywords that nothing expresses, and that the library ignores or gets wrong, so that an output
/// could break the schema.
const UNSUPPORTED: [&str; 3] = ["not", "if", "contains"];
/// Keywords about the properties that others need.
pub(super) const DEPENDENCIES: [&str; 3] = ["dependencies", "dependentRequired", "dependentSchemas"];
/// The number of properties of one object that may need others. Each doubles what the library has
/// to write.
const MAX_DEPENDENCIES: usize = 4;

/// The outcome of a step: an error is a keyword that was removed since it is not supported there.
type Step = Result<(), &'static str>;

/// Return the keywords of a schema that the library knows and those of the parts of a value, and
/// the first of those that had to be left out although they forbid values.
pub(super) fn plain<'m>(map: &'m Map<String, Value>, root: &Value) -> (Keywords<'m>, Option<&'static str>) {
    let mut keywords = Keywords::of(map);
    remove_void(&mut keywords);
    let mut lost = None;
    for keyword in UNSUPPORTED {
        if keywords.remove(keyword).is_some() {
            lost.get_or_insert(keyword);
        }
    }
    state_required(&mut keywords);
    let steps = [
        check_shapes(&mut keywords),
        express_unevaluated(&mut keywords),
        names::express(&mut keywords, root),
        fold_patterns(&mut keywords),
        check_dependencies(&mut keywords),
    ];
    for keyword in steps.into_iter().filter_map(Result::err) {
        lost.get_or_insert(keyword);
    }
    (keywords, lost)
}

/// Remove keywords that allow everything.
fn remove_void(keywords: &mut Keywords<'_>) {
    let is_void = |keywords: &Keywords<'_>, keyword| keywords.get(keyword).is_none_or(is_everything);
    if keywords.get("not").is_some_and(is_nothing) {
        keywords.remove("not");
    }
    if !keywords.has("if") || is_void(keywords, "then") && is_void(keywords, "else") {
        keywords.remove("if");
    }
    keywords.remove("then");
    keywords.remove("else");
}

/// Remove what the library expects to be a list or a map, and is none.
fn check_shapes(keywords: &mut Keywords<'_>) -> Step {
    let mut result = Ok(());
    let mut check = |wanted: &[&'static str], has_shape: fn(&Value) -> bool| {
        for &keyword in wanted {
            if keywords.get(keyword).is_some_and(|value| !has_shape(value)) {
                keywords.remove(keyword);
                result = Err(keyword);
            }
        }
    };
    check(&["allOf", "anyOf", "oneOf"], Value::is_array);
    check(&["$ref"], Value::is_string);
    check(&["properties", "patternProperties"], Value::is_object);
    check(&DEPENDENCIES, Value::is_object);
    result
}

/// Make `required` a list of names. In draft 3 it is a flag of each property.
fn state_required(keywords: &mut Keywords<'_>) {
    let properties = keywords.get("properties").and_then(Value::as_object);
    let is_flagged = |schema: &Value| schema.get("required") == Some(&Value::Bool(true));
    let flagged = properties.into_iter().flatten().filter(|(_, schema)| is_flagged(schema));
    let flagged: Vec<Value> = flagged.map(|(name, _)| name.as_str().into()).collect();
    let listed = keywords.get("required").and_then(Value::as_array);
    match listed {
        Some(listed) if flagged.is_empty() && listed.iter().all(Value::is_string) => {}
        None if flagged.is_empty() => {
            keywords.remove("required");
        }
        _ => {
            let listed = listed.into_iter().flatten().filter(|name| name.is_string()).cloned();
            let names: Vec<Value> = listed.chain(flagged).collect();
            keywords.set("required", names);
        }
    }
}

/// Express what holds for items and properties that no other keyword was about.
fn express_unevaluated(keywords: &mut Keywords<'_>) -> Step {
    let mut result = Ok(());
    let items = if keywords.get("items").is_some_and(Value::is_array) { "additionalItems" } else { "items" };
    for (keyword, others) in [("unevaluatedItems", items), ("unevaluatedProperties", "additionalProperties")]
    {
        let Some(schema) = keywords.remove(keyword) else { continue };
        match schema.as_ref() {
            schema if is_everything(schema) || keywords.has(others) => {}
            schema if !keywords.has_parts() => keywords.set(others, schema.clone()),
            // Then the object is closed over the properties of all its parts.
            schema if is_nothing(schema) && others == "additionalProperties" => keywords.set(keyword, false),
            _ => result = Err(keyword),
        }
    }
    result
}

/// Let the schemas of `patternProperties` whose patterns are ignored hold for all names that are
/// not told otherwise.
fn fold_patterns(keywords: &mut Keywords<'_>) -> Step {
    let Some(patterns) = keywords.get("patternProperties").and_then(Value::as_object) else { return Ok(()) };
    let uses: Vec<Use> = patterns.keys().map(|pattern| patterns::usable(pattern)).collect();
    if uses.iter().all(|&found| found == Use::Followed) {
        return Ok(());
    }
    let (mut kept, mut folded) = (Map::new(), Vec::new());
    for ((pattern, schema), found) in patterns.iter().zip(&uses) {
        match found {
            Use::Followed => _ = kept.insert(pattern.to_owned(), schema.clone()),
            Use::Ignored | Use::Broken => folded.push(schema.clone()),
        }
    }
    keywords.set("patternProperties", kept);
    if let Some(others) = keywords.get("additionalProperties").filter(|schema| !is_everything(schema)) {
        if !is_nothing(others) {
            folded.push(others.clone());
        }
        keywords.set("additionalProperties", json!({"anyOf": folded}));
    }
    if uses.contains(&Use::Broken) { Err("patternProperties") } else { Ok(()) }
}

/// Remove dependencies if there are too many of them.
fn check_dependencies(keywords: &mut Keywords<'_>) -> Step {
    let maps = DEPENDENCIES.iter().filter_map(|keyword| keywords.get(keyword)?.as_object());
    if maps.map(Map::len).sum::<usize>() <= MAX_DEPENDENCIES {
        return Ok(());
    }
    let removed = DEPENDENCIES.into_iter().filter(|keyword| keywords.remove(keyword).is_some());
    removed.last().map_or(Ok(()), Err)
}
