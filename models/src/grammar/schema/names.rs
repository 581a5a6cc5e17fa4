//! `propertyNames`, expressed by other keywords.

use alloc::{borrow::ToOwned, collections::BTreeSet, format, string::String, vec::Vec};

use llguidance::regex_to_lark;
use regex_automata::meta::Regex;
use serde_json::{Map, Value};

use super::keywords::{self, Keywords};
use super::kinds::Kinds;
use super::lost::Lost;
use super::patterns::{Patterns, Use};
use super::{is_everything, is_nothing, n_values, negation, refs, shapes};

/// The references that are followed to the schema of names.
const MAX_REFERENCES: usize = 8;
/// The number of values by which naming all properties may enlarge a schema.
const MAX_VALUES: usize = 10_000;

/// The names that properties may have.
enum Names {
    Any,
    Listed(Vec<String>),
    Matching(String),
}

/// Express `propertyNames` by `properties` or `patternProperties`, and leave it as a mark of that.
/// Formats of names are ignored.
///
/// # Errors
/// Return the keyword if it was removed because nothing expresses it.
pub(super) fn express(
    keywords: &mut Keywords<'_>,
    root: &Value,
    patterns: &mut Patterns,
) -> Result<(), Lost> {
    let Some(schema) = keywords.remove("propertyNames") else { return Ok(()) };
    let is_expressed = match names(&schema, root, patterns, 0) {
        Some(Names::Any) => true,
        Some(Names::Listed(names)) => list(keywords, &names),
        Some(Names::Matching(pattern)) => hold(keywords, pattern),
        None => false,
    };
    if is_expressed { Ok(()) } else { Err(Lost::unsupported("propertyNames")) }
}

/// Return the cost of expressing the keyword in `map`, in values: its lists of names are read, and
/// what holds for all properties is copied for each name.
pub(super) fn weight(map: &Map<String, Value>, root: &Value) -> usize {
    let Some(schema) = map.get("propertyNames") else { return 0 };
    let (schema, n_read) = refs::followed(schema, root, MAX_REFERENCES);
    let Some(Value::Object(names)) = schema else { return n_read };
    let size = |map: &Map<String, Value>, keyword| map.get(keyword).map_or(1, n_values);
    let n_names: usize = ["enum", "const", "pattern"].into_iter().map(|keyword| size(names, keyword)).sum();
    let n_copied = n_names.saturating_mul(size(map, "additionalProperties")).min(n_names.max(MAX_VALUES));
    let negated = names.get("not").map_or(0, negation::weight);
    n_read + keywords::weight(names) + negated + (size(map, "properties") + n_copied) / 16
}

/// Return the names that match `schema`, within `depth` others; `None` if that cannot be said.
fn names(schema: &Value, root: &Value, patterns: &mut Patterns, depth: usize) -> Option<Names> {
    let schema = refs::followed(schema, root, MAX_REFERENCES).0.filter(|_| depth < MAX_REFERENCES)?;
    if is_everything(schema) {
        return Some(Names::Any);
    }
    if is_nothing(schema) {
        return Some(Names::Listed(Vec::new()));
    }
    let mut keywords = Keywords::of(schema.as_object()?, root);
    if !shapes::check(&mut keywords).is_empty() {
        return None;
    }
    if !keywords.may_be("string") {
        return None;
    }
    keywords.remove("type");
    keywords.remove("format");
    let is_only = |wanted: &[&str]| keywords.iter().all(|(keyword, _)| wanted.contains(&keyword));
    match () {
        () if is_only(&[]) => Some(Names::Any),
        () if is_only(&["const"]) => {
            Some(Names::Listed(Vec::from([keywords.get("const")?.as_str()?.to_owned()])))
        }
        () if is_only(&["enum"]) => {
            let names = keywords.get("enum")?.as_array()?.iter().filter_map(Value::as_str);
            Some(Names::Listed(names.map(ToOwned::to_owned).collect()))
        }
        () if is_only(&["pattern"]) => match patterns.usable(keywords.get("pattern")?.as_str()?) {
            Use::Followed(written) => Some(Names::Matching(written.as_ref().to_owned())),
            Use::Ignored => Some(Names::Any),
            Use::Broken => None,
        },
        () if is_only(&["not"]) => {
            let others = negation::negated(keywords.get("not")?, Kinds::named("string"), root, patterns)?;
            self::names(&others, root, patterns, depth + 1)
        }
        () if is_only(&["minLength", "maxLength"]) => Some(Names::Matching(of_length(&keywords))),
        () => None,
    }
}

/// Return the pattern of texts with a length within the bounds in `keywords`.
fn of_length(keywords: &Keywords<'_>) -> String {
    let bound = |keyword| keywords.get(keyword).and_then(Value::as_u64);
    let max = bound("maxLength").map_or(String::new(), |max| format!("{max}"));
    format!("^(?s:.){{{},{max}}}$", bound("minLength").unwrap_or(0))
}

/// Allow only properties with a name of a list. Return false if that cannot be done.
fn list(keywords: &mut Keywords<'_>, names: &[String]) -> bool {
    let others = keywords.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
    let old = keywords.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let n_values = names.len().saturating_mul(n_values(&others));
    if keywords.has("patternProperties") || n_values > MAX_VALUES {
        return false;
    }
    let allowed: BTreeSet<&String> = names.iter().collect();
    let mut properties: Map<String, Value> =
        old.into_iter().filter(|(name, _)| allowed.contains(name)).collect();
    if !is_nothing(&others) {
        for name in names {
            properties.entry(name).or_insert_with(|| others.clone());
        }
    }
    keywords.set("properties", properties);
    keywords.set("additionalProperties", false);
    keywords.set("propertyNames", true);
    true
}

/// Allow only properties with a name that matches `pattern`. Return false if that cannot be done:
/// the names that match two patterns are no pattern.
fn hold(keywords: &mut Keywords<'_>, pattern: String) -> bool {
    let others = keywords.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
    let others = match keywords.get("patternProperties").and_then(Value::as_object) {
        None => others,
        Some(patterns) => {
            let mut all = patterns.iter();
            match (all.next(), all.next()) {
                (None, _) => others,
                (Some((other, schema)), None) if *other == pattern || is_any_name(other) => schema.clone(),
                _ => return false,
            }
        }
    };
    if let Some(properties) = keywords.get("properties").and_then(Value::as_object) {
        let Ok(regex) = Regex::new(&regex_to_lark(&pattern, "dw")) else { return false };
        let held = properties.iter().filter(|(name, _)| regex.is_match(name.as_str()));
        let held: Map<String, Value> = held.map(|(name, schema)| (name.clone(), schema.clone())).collect();
        keywords.set("properties", held);
    }
    keywords.set("patternProperties", Map::from_iter([(pattern, others)]));
    keywords.set("additionalProperties", false);
    keywords.set("propertyNames", true);
    true
}

/// Return true for patterns that all names match.
fn is_any_name(pattern: &str) -> bool {
    ["", ".*", "^.*$", "^.*", ".*$", "^", "$", "^(.*)$", "(.*)", "^(?:.*)$"].contains(&pattern)
}
