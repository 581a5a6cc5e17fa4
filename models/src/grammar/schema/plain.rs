//! Keywords that are expressed by others, or not at all.

use alloc::{borrow::ToOwned, format, rc::Rc, string::String, vec::Vec};

use serde_json::{Map, Value, json};

use super::keywords::{self, Keywords};
use super::kinds::{Looks, Told};
use super::lost::Lost;
use super::patterns::{Patterns, Use};
use super::{exclusive, is_everything, is_nothing, n_values, names, negation, refs, shapes};

/// Keywords that nothing expresses, and that the library ignores or gets wrong, so that an output
/// could break the schema.
const UNSUPPORTED: [&str; 2] = ["if", "contains"];
/// The conditional keywords.
const CONDITIONAL: [&str; 3] = ["if", "then", "else"];
/// Keywords that can name properties, those that can tell of items, and those with schemas that can
/// do both.
const NAMING: [&str; 8] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "required",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
];
const OF_ITEMS: [&str; 5] = ["items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"];
const OF_PARTS: [&str; 5] = ["$ref", "allOf", "anyOf", "oneOf", "if"];
/// Keywords about the properties that others need.
pub(super) const DEPENDENCIES: [&str; 3] = ["dependencies", "dependentRequired", "dependentSchemas"];
/// The number of properties of one object that may need others. Each doubles what the library has
/// to write.
const MAX_DEPENDENCIES: usize = 4;

/// The number of patterns of names with schemas of their own. The library compares each with every
/// other one, and takes longer for each the more there are.
const MAX_PATTERNS: usize = 100;

/// The outcome of a step: an error is a keyword that was removed since it is not supported there.
type Step = Result<(), Lost>;

/// A schema in keywords that the library knows, and those of the parts of a value.
pub(super) struct Plain<'m> {
    pub(super) keywords: Keywords<'m>,
    /// The keywords that were left out although they forbid values.
    pub(super) lost: Vec<Lost>,
    /// A value can match one option of `oneOf` only.
    pub(super) is_exclusive: bool,
}

/// Return a schema in plain keywords.
pub(super) fn plain<'m>(
    map: &'m Map<String, Value>,
    root: &Value,
    patterns: &mut Patterns,
    looks: &mut Looks,
) -> Plain<'m> {
    let mut keywords = Keywords::of(map, root);
    remove_void(&mut keywords);
    let mut lost = shapes::check(&mut keywords);
    if !keywords::hides_others(map, root) {
        lost.extend(shapes::check_ignored(map));
    }
    lost.extend(drop_reference(&mut keywords, root).err());
    lost.extend(negate(&mut keywords, root, patterns, looks).err());
    remove_unsupported(&mut keywords, map, &mut lost);
    if !state_required(&mut keywords) {
        lost.push(Lost::shape("required", "a list of names"));
    }
    let is_exclusive = exclusive::part(&mut keywords, root);
    express_unevaluated(&mut keywords, &mut lost);
    let steps = [names::express(&mut keywords, root, patterns), fold_patterns(&mut keywords, patterns)];
    lost.extend(steps.into_iter().filter_map(Result::err));
    check_dependencies(&mut keywords, &mut lost);
    Plain { keywords, lost, is_exclusive }
}

/// Return the cost of [`plain`] without that of reading patterns, in values.
pub(super) fn weight(map: &Map<String, Value>, root: &Value) -> usize {
    let copied = match map.get("patternProperties") {
        Some(patterns) => n_values(patterns) + map.get("additionalProperties").map_or(0, n_values),
        None => 0,
    };
    let negated = map.get("not").map_or(0, negation::weight);
    keywords::weight(map) + names::weight(map, root) + exclusive::weight(map) + negated + copied / 16
}

/// Remove keywords that nothing expresses from those of `map`. If one of them could tell of further
/// properties or items, the object is open, and nothing is said about other items.
fn remove_unsupported(keywords: &mut Keywords<'_>, map: &Map<String, Value>, lost: &mut Vec<Lost>) {
    let conditions = || CONDITIONAL.into_iter().filter_map(|keyword| map.get(keyword)?.as_object());
    let tell = |listed: &[&str]| {
        let mut told = conditions().flat_map(Map::keys).map(String::as_str);
        told.any(|keyword| listed.contains(&keyword) || OF_PARTS.contains(&keyword))
    };
    for keyword in UNSUPPORTED {
        if keywords.remove(keyword).is_none() {
            continue;
        }
        lost.push(Lost::unsupported(keyword));
        if keyword == "if" && tell(&NAMING) {
            open(keywords);
        }
        let is_strict = keywords.get("unevaluatedItems").is_some_and(|it| !is_everything(it));
        if is_strict && (keyword == "contains" || tell(&OF_ITEMS)) {
            keywords.remove("unevaluatedItems");
            lost.push(Lost::unsupported("unevaluatedItems"));
        }
    }
}

/// Let an object have any other properties, unless another keyword tells of them: those that a
/// keyword named which was left out.
fn open(keywords: &mut Keywords<'_>) {
    if keywords.may_be("object") && !keywords.has("additionalProperties") {
        keywords.set("additionalProperties", true);
        keywords.remove("unevaluatedProperties");
    }
}

/// Remove keywords that allow everything.
fn remove_void(keywords: &mut Keywords<'_>) {
    let is_void = |keywords: &Keywords<'_>, keyword| keywords.get(keyword).is_none_or(is_everything);
    if keywords.get("not").is_some_and(is_nothing) {
        keywords.remove("not");
    }
    // A condition alone still says which properties and items are known.
    let counts =
        ["unevaluatedProperties", "unevaluatedItems"].into_iter().any(|keyword| !is_void(keywords, keyword));
    let is_alone = is_void(keywords, "then") && is_void(keywords, "else");
    if !keywords.has("if") || is_alone && !counts {
        keywords.remove("if");
    }
    keywords.remove("then");
    keywords.remove("else");
}

/// Remove a reference that leads to nothing. It could name properties.
fn drop_reference(keywords: &mut Keywords<'_>, root: &Value) -> Step {
    let reference = keywords.get("$ref").and_then(Value::as_str);
    let Some(reference) = reference.filter(|reference| refs::target(root, reference).is_none()) else {
        return Ok(());
    };
    let lost = Lost::no_target(reference);
    keywords.remove("$ref");
    open(keywords);
    Err(lost)
}

/// Write `not` as what its schema refuses. Types that others exclude need no look.
fn negate(keywords: &mut Keywords<'_>, root: &Value, patterns: &mut Patterns, looks: &mut Looks) -> Step {
    let Some(schema) = keywords.remove("not") else { return Ok(()) };
    let kinds = Told::by_keywords(keywords, root, looks).stated();
    match negation::negated(&schema, kinds, root, patterns) {
        Some(negated) if is_everything(&negated) => Ok(()),
        Some(negated) => {
            keywords.set("not", negated);
            Ok(())
        }
        None => Err(Lost::unsupported("not")),
    }
}

/// Make `required` a list of names. In draft 3 it is a flag of each property. Return false if it
/// has other values, which mean nothing.
pub(super) fn state_required(keywords: &mut Keywords<'_>) -> bool {
    let is_plain = match keywords.get("required") {
        None | Some(Value::Bool(_)) => true,
        Some(Value::Array(names)) => names.iter().all(Value::is_string),
        Some(_) => false,
    };
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
    is_plain
}

/// Express what holds for items and properties that no other keyword was about.
fn express_unevaluated(keywords: &mut Keywords<'_>, lost: &mut Vec<Lost>) {
    let items = if keywords.get("items").is_some_and(Value::is_array) { "additionalItems" } else { "items" };
    for (keyword, others) in [("unevaluatedItems", items), ("unevaluatedProperties", "additionalProperties")]
    {
        let Some(schema) = keywords.remove(keyword) else { continue };
        match schema.as_ref() {
            _ if keywords.has(others) => {}
            schema if is_everything(schema) => open_others(keywords, others),
            schema if !keywords.has_telling_parts() => keywords.set(others, schema.clone()),
            // Then the object is closed over the properties of all its parts.
            schema if is_nothing(schema) && others == "additionalProperties" => keywords.set(keyword, false),
            _ => lost.push(Lost::unsupported(keyword)),
        }
    }
}

/// Say that a keyword allows all others, which schemas around this one count on.
fn open_others(keywords: &mut Keywords<'_>, others: &'static str) {
    if others == "additionalProperties" || keywords.has("prefixItems") || others == "additionalItems" {
        keywords.set(others, true);
    }
}

/// Write the patterns of `patternProperties` in the form that the library can follow. The schemas
/// of those that are ignored hold for all names that are not told otherwise.
fn fold_patterns(keywords: &mut Keywords<'_>, known: &mut Patterns) -> Step {
    let Some(patterns) = keywords.get("patternProperties").and_then(Value::as_object) else { return Ok(()) };
    let (mut kept, mut folded, mut result) = (Vec::<(Vec<Rc<str>>, &Value)>::new(), Vec::new(), Ok(()));
    for (pattern, schema) in patterns {
        let place = kept.iter().position(|(_, other)| *other == schema).unwrap_or(kept.len());
        let has_room = kept.len() < MAX_PATTERNS;
        match (known.usable(pattern), kept.get_mut(place)) {
            (Use::Followed(written), Some((patterns, _))) => patterns.push(written),
            (Use::Followed(written), None) if has_room => {
                kept.push((Vec::from([written]), schema));
            }
            (found, _) => {
                folded.push(schema.clone());
                match found {
                    Use::Followed(_) => result = Err(Lost::too_many("patternProperties", MAX_PATTERNS)),
                    Use::Broken => result = Err(Lost::broken("patternProperties")),
                    Use::Ignored => {}
                }
            }
        }
    }
    let kept: Map<String, Value> = kept
        .into_iter()
        .flat_map(|(patterns, schema)| {
            let names = joined(&patterns, known);
            names.into_iter().map(move |name| (name.as_ref().to_owned(), schema.clone()))
        })
        .collect();
    let others = keywords.get("additionalProperties");
    let opens = !folded.is_empty() && !others.is_some_and(is_everything);
    folded.extend(others.filter(|schema| !is_nothing(schema)).cloned());
    keywords.set("patternProperties", kept);
    if opens {
        keywords.set("additionalProperties", json!({"anyOf": folded}));
    }
    result
}

/// Return one pattern for all of them: the library compares each pattern with every other one.
/// Those that it cannot follow as one stay apart.
fn joined(patterns: &[Rc<str>], known: &mut Patterns) -> Vec<Rc<str>> {
    if let [_] = patterns {
        return patterns.to_vec();
    }
    let all: Vec<String> = patterns.iter().map(|pattern| format!("(?:{pattern})")).collect();
    match known.usable(&all.join("|")) {
        Use::Followed(joined) => Vec::from([joined]),
        Use::Ignored | Use::Broken => patterns.to_vec(),
    }
}

/// Remove dependencies if there are too many of them.
fn check_dependencies(keywords: &mut Keywords<'_>, lost: &mut Vec<Lost>) {
    let maps = DEPENDENCIES.iter().filter_map(|keyword| keywords.get(keyword)?.as_object());
    if maps.map(Map::len).sum::<usize>() <= MAX_DEPENDENCIES {
        return;
    }
    let removed = DEPENDENCIES.into_iter().filter(|keyword| keywords.remove(keyword).is_some());
    lost.extend(removed.map(Lost::unsupported));
    open(keywords);
}
